"""Data that is spread over clients: generators, image sets, tables, and ways to partition samples."""

from majorant.data.dictionary import sparse_codes
from majorant.data.federated import FederatedData, Ragged, warn_thin_clients
from majorant.data.femnist import load_femnist
from majorant.data.few_classes import few_classes
from majorant.data.heart import heart_table
from majorant.data.images import (
    Rotated,
    load_cifar10,
    load_cifar100,
    load_digits,
    load_emnist,
    load_fashion_mnist,
    load_mnist,
    rotated,
)
from majorant.data.lazy import from_clients
from majorant.data.logistic import heterogeneous_logistic
from majorant.data.missing import with_missing
from majorant.data.named_tables import load_table
from majorant.data.partition import (
    balanced_kmeans,
    by_column,
    classes_per_client,
    continuous,
    dirichlet,
    grouped,
    iid,
    pachinko,
    partitioned,
    shards,
    size_skew,
)
from majorant.data.ratings import movielens_100k
from majorant.data.shakespeare import load_shakespeare
from majorant.data.synthetic import synthetic_mixture
from majorant.data.tabular import Encoding, TableError, TableNotice, encode_table, from_table, inspect_table

__all__ = [
    "Encoding",
    "FederatedData",
    "Ragged",
    "Rotated",
    "TableError",
    "TableNotice",
    "balanced_kmeans",
    "by_column",
    "classes_per_client",
    "continuous",
    "dirichlet",
    "encode_table",
    "few_classes",
    "from_clients",
    "from_table",
    "grouped",
    "heart_table",
    "heterogeneous_logistic",
    "iid",
    "inspect_table",
    "load_cifar10",
    "load_cifar100",
    "load_digits",
    "load_emnist",
    "load_fashion_mnist",
    "load_femnist",
    "load_mnist",
    "load_shakespeare",
    "load_table",
    "movielens_100k",
    "pachinko",
    "partitioned",
    "rotated",
    "shards",
    "size_skew",
    "sparse_codes",
    "synthetic_mixture",
    "warn_thin_clients",
    "with_missing",
]
