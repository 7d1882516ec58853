"""Ways to spread samples over clients. Each gives ``owner`` (N,), the client of every sample: each sample once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from majorant._extras import require
from majorant.data.allocation import allocate, check_positive, check_sizes, filled_up, rows_by_label, stream
from majorant.data.checks import check_owners, plain_array
from majorant.data.federated import FederatedData, warn_thin_clients
from majorant.math.checks import check_whole

WIDE = 32  # balanced_kmeans reduces samples with more features than this to so many principal components


def iid(n: int, clients: int, seed: int = 0) -> np.ndarray:
    """Samples dealt out at random, in sizes that differ by at most one.

    >>> np.bincount(iid(10, 3)).tolist()
    [4, 3, 3]
    """
    check_sizes(n, clients)
    return stream(seed).permutation(np.arange(n) % clients)


def dirichlet(
    labels: np.ndarray,
    clients: int,
    alpha: float = 0.4,
    seed: int = 0,
    min_samples: int = 10,
    groups: int | None = None,
) -> np.ndarray:
    """The samples of each label are spread over the clients in proportions drawn from Dirichlet(α): few clients hold
    most of a label when α is small. As in Marfoq et al. 2021, App. I.1 (α = 0.4).

    The draw leaves some clients nearly empty. Every client below ``min_samples`` is filled up to it, which is the
    smallest number of moves, with samples taken at random from whichever client is the largest at that moment.
    ``groups`` first puts the labels, at random, into so many groups of about equal numbers of labels, and spreads whole
    groups: a client's proportions are then those of a mixture, as in that paper's released code (3 groups).

    >>> owner = dirichlet(np.arange(200) % 4, clients=8, alpha=0.4)
    >>> int(np.bincount(owner).min()) >= 10
    True
    """
    check_positive(alpha=alpha)
    check_sizes(len(labels), clients, min_samples)
    rng = stream(seed)
    owner = np.empty(len(labels), np.int64)
    if groups is not None:
        labels = grouped_labels(rng, labels, groups)
    for rows in rows_by_label(rng, labels):
        cuts = np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(rows)
        owner[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
    return filled_up(rng, owner, clients, min_samples)


def grouped_labels(rng: np.random.Generator, labels: np.ndarray, groups: int) -> np.ndarray:
    """The group of each sample's label; labels are dealt out to groups at random."""
    values, codes = np.unique(labels, return_inverse=True)
    if not 1 <= groups <= len(values):
        raise ValueError(f"groups must be from 1 to the number of labels, {len(values)}; got {groups}")
    return rng.permutation(np.arange(len(values)) % groups)[codes]


def classes_per_client(labels: np.ndarray, clients: int, k: int, seed: int = 0) -> np.ndarray:
    """Every client gets samples of exactly k labels, and all samples are used.

    Each label is cut into shards, in number about proportional to its samples, and each client takes k shards of
    different labels.

    >>> labels = np.arange(60) % 6
    >>> owner = classes_per_client(labels, clients=9, k=2)
    >>> {len(set(labels[owner == c])) for c in range(9)}
    {2}
    """
    check_sizes(len(labels), clients)
    rng = stream(seed)
    groups = rows_by_label(rng, labels)
    if not 1 <= k <= len(groups):
        raise ValueError(f"each client should get k={k} labels, but there are {len(groups)}: choose k from 1 to that")
    if clients * k < len(groups):
        raise ValueError(
            f"{clients} clients with k={k} labels each hold at most {clients * k} of the {len(groups)} labels, so"
            " samples would be lost: use more clients or a larger k"
        )
    sizes = np.array([len(rows) for rows in groups])
    shards, most = np.ones(len(groups), int), np.minimum(sizes, clients)
    if most.sum() < clients * k:
        raise ValueError(
            f"{clients} clients with k={k} labels each need {clients * k} shards, but the labels have samples for only"
            f" {most.sum()}: use fewer clients or a smaller k"
        )
    for _ in range(clients * k - len(groups)):  # cut the label whose shards are the largest
        shards[np.argmax(np.where(shards < most, sizes / shards, 0))] += 1
    takers: list[list[int]] = [[] for _ in groups]
    left = shards.copy()
    for client in rng.permutation(clients):  # the k labels with most shards left: always leaves k for each who follows
        for label in np.lexsort((rng.random(len(groups)), -left))[:k]:
            takers[label].append(client)
            left[label] -= 1
    owner = np.empty(len(labels), np.int64)
    for rows, who in zip(groups, takers, strict=True):
        owner[rows] = np.array(who)[np.arange(len(rows)) % len(who)]
    return owner


def pachinko(
    labels: np.ndarray,
    coarse_of_fine: Sequence[int] | np.ndarray,
    clients: int,
    alpha: float = 0.1,
    beta: float = 10.0,
    seed: int = 0,
) -> np.ndarray:
    """Two-stage Pachinko allocation for labels with a hierarchy, such as CIFAR-100 (Reddi et al. 2021, App. F).

    Clients have equal sizes, up to one. One after the other, each draws weights over the coarse labels from
    Dirichlet(α) and over the fine labels in each from Dirichlet(β), then its samples from these. A label that is used
    up leaves the draw and the rest is renormalised. ``coarse_of_fine[f]`` is the coarse label of fine label f.

    >>> np.bincount(pachinko(np.arange(60) % 6, [0, 0, 1, 1, 2, 2], clients=7)).tolist()
    [9, 9, 9, 9, 8, 8, 8]
    """
    check_positive(alpha=alpha, beta=beta)
    labels, parents = np.asarray(labels), np.asarray(coarse_of_fine)
    check_sizes(len(labels), clients)
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0 or labels.max() >= len(parents):
        raise ValueError(f"labels must be whole numbers from 0 to {len(parents) - 1}, one per entry of coarse_of_fine")
    rng = stream(seed)
    left = np.bincount(labels, minlength=len(parents))
    families = [np.flatnonzero(parents == c) for c in np.unique(parents)]
    taken = np.zeros((clients, len(parents)), np.int64)
    for client in range(clients):
        size = len(labels) // clients + (client < len(labels) % clients)
        coarse_left = np.array([left[fine].sum() for fine in families])
        coarse = allocate(rng, size, rng.dirichlet(np.full(len(families), alpha)), coarse_left)
        for fine, count in zip(families, coarse, strict=True):
            taken[client, fine] = allocate(rng, count, rng.dirichlet(np.full(len(fine), beta)), left[fine])
        left -= taken[client]
    owner = np.empty(len(labels), np.int64)
    for label in range(len(parents)):
        owner[labels == label] = rng.permutation(np.repeat(np.arange(clients), taken[:, label]))
    return owner


def by_column(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """One client per distinct value, numbered in their sorted order.

    >>> by_column(["north", "south", "north", "east"]).tolist()
    [1, 2, 1, 0]
    """
    return np.unique(check_owners(values), return_inverse=True)[1]


def balanced_kmeans(x: np.ndarray, clients: int, seed: int = 0) -> np.ndarray:
    """Clients of near samples and equal sizes, up to one: k-means with constrained cluster sizes.

    Wide samples are first reduced to 32 principal components. Each iteration solves a flow problem with N × clients
    edges, so this is for thousands of samples rather than for hundreds of thousands.
    """
    check_sizes(len(x), clients)
    flat = np.asarray(x).reshape(len(x), -1).astype(np.float64)
    solver = require("k_means_constrained", "partition", "balanced_kmeans")
    if flat.shape[1] > WIDE and len(flat) > WIDE:
        from sklearn.decomposition import PCA

        flat = PCA(WIDE, svd_solver="randomized", random_state=seed).fit_transform(flat)
    low, high = len(x) // clients, -(-len(x) // clients)
    kmeans = solver.KMeansConstrained(clients, size_min=low, size_max=high, n_init=1, random_state=seed)
    return kmeans.fit_predict(flat).astype(np.int64)


def shards(labels: np.ndarray, clients: int, per_client: int = 2, seed: int = 0) -> np.ndarray:
    """Samples sorted by label, cut into equal shards, and ``per_client`` of these dealt to each client at random.

    As McMahan et al. (2017) make clients with few labels; sizes differ by at most one sample for each shard.

    >>> labels = np.repeat(np.arange(4), 6)
    >>> owner = shards(labels, clients=3, per_client=2)
    >>> np.bincount(owner).tolist(), max(len(set(labels[owner == c])) for c in range(3)) <= 4
    ([8, 8, 8], True)
    """
    check_whole("per_client", per_client)
    check_sizes(len(labels), clients, per_client)
    rng = stream(seed)
    order = np.concatenate(rows_by_label(rng, labels))
    owner = np.empty(len(labels), np.int64)
    takers = rng.permutation(np.arange(clients * per_client) % clients)
    for rows, client in zip(np.array_split(order, clients * per_client), takers, strict=True):
        owner[rows] = client
    return owner


def size_skew(n: int, clients: int, skew: str = "exponential", seed: int = 0, min_samples: int = 1) -> np.ndarray:
    """Samples dealt out at random in unequal sizes: ``min_samples`` for each client, others in proportion to c, c², eᶜ.

    ``skew`` is "linear", "square" or "exponential", and c = 1, 2, … the client.

    >>> np.bincount(size_skew(100, 4, "linear")).tolist()
    [11, 20, 30, 39]
    """
    check_sizes(n, clients, min_samples)
    number = np.arange(1, clients + 1, dtype=np.float64)
    grows = {"linear": number, "square": number**2, "exponential": np.exp(number - clients)}
    if skew not in grows:
        raise ValueError(f"skew is one of {', '.join(grows)}, not {skew!r}")
    cuts = np.round(np.cumsum(grows[skew] / grows[skew].sum()) * (n - clients * min_samples)).astype(np.int64)
    sizes = np.diff(cuts, prepend=0) + min_samples
    return stream(seed).permutation(np.repeat(np.arange(clients), sizes))


def grouped(values: Sequence[Any] | np.ndarray, clients: int, seed: int = 0) -> np.ndarray:
    """Natural ids put together at random into so many clients: all samples of an id are on the same client.

    Numbers of ids, not of samples, differ by at most one.

    >>> grouped(["a", "b", "a", "c", "d"], clients=2).max()
    np.int64(1)
    """
    ids = by_column(values)
    count = int(ids.max()) + 1
    if clients > count:
        raise ValueError(f"{count} different ids are too few for {clients} clients: use at most {count}")
    check_sizes(len(ids), clients)
    return stream(seed).permutation(np.arange(count) % clients)[ids]


def continuous(values: np.ndarray, clients: int, strictness: float = 1.0, seed: int = 0) -> np.ndarray:
    """Clients along a real property, such as age: sorted by it, blurred by noise, and cut into equal sizes.

    The order is that of strictness · z + (1 − strictness) · noise, z the standardised property and noise normal:
    1 gives intervals, 0 clients that are alike.

    >>> continuous(np.array([5.0, 1.0, 4.0, 2.0]), clients=2).tolist()
    [1, 0, 1, 0]
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError("the property must be one finite number for each sample")
    if not 0 <= strictness <= 1:
        raise ValueError(f"strictness must be from 0 to 1, got {strictness}")
    check_sizes(len(values), clients)
    deviation = values.std() or 1.0
    place = strictness * (values - values.mean()) / deviation + (1 - strictness) * stream(seed).normal(size=len(values))
    owner = np.empty(len(values), np.int64)
    for client, rows in enumerate(np.array_split(np.argsort(place, kind="stable"), clients)):
        owner[rows] = client
    return owner


NAMED: dict[str, Callable[..., np.ndarray]] = {
    "iid": lambda x, y, clients, **options: iid(len(y), clients, **options),
    "dirichlet": lambda x, y, clients, **options: dirichlet(y, clients, **options),
    "classes": lambda x, y, clients, **options: classes_per_client(y, clients, **options),
    "shards": lambda x, y, clients, **options: shards(y, clients, **options),
    "sizes": lambda x, y, clients, **options: size_skew(len(y), clients, **options),
    "pachinko": lambda x, y, clients, **options: pachinko(y, clients=clients, **options),
    "kmeans": lambda x, y, clients, **options: balanced_kmeans(x, clients, **options),
}


def partitioned(
    x: np.ndarray,
    y: np.ndarray,
    owner: np.ndarray | str,
    *,
    clients: int | None = None,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    task: str = "auto",
    seed: int = 0,
    name: str = "data",
    unseen: float = 0.0,
    truth: Mapping[str, np.ndarray] | None = None,
    **options: Any,
) -> FederatedData:
    """Federated data from arrays: ``owner`` is the client of every sample, or the name of a partition.

    The names are "iid", "dirichlet" (options alpha, min_samples, groups), "classes" (k), "shards" (per_client), "sizes"
    (skew, min_samples), "pachinko" (coarse_of_fine, alpha, beta) and "kmeans"; they need ``clients``. Clients with few
    samples or a single class are warned about.

    >>> x, y = np.random.default_rng(0).normal(size=(400, 5)), np.arange(400) % 4
    >>> partitioned(x, y, "dirichlet", clients=4, alpha=5.0, unseen=0.25).describe()
    'data: 4 clients (1 unseen), 5 features, 4 classes, ...'
    """
    x, y = plain_array(x, "x"), plain_array(y, "y")
    if isinstance(owner, str):
        if owner not in NAMED:
            raise ValueError(
                f"unknown partition {owner!r}: choose from {', '.join(NAMED)}, or give each sample's client"
            )
        if clients is None:
            raise ValueError(f"the partition {owner!r} needs the number of clients: clients=...")
        owner = NAMED[owner](x, y, clients, seed=seed, **options)
    elif clients is not None or options:
        given = ", ".join([*(["clients"] if clients is not None else []), *options])
        raise ValueError(f"owner already says whose each sample is: {given} only go with the name of a partition")
    data = FederatedData.from_arrays(x, y, owner, split=split, task=task, seed=seed, name=name)
    data = replace(data.with_unseen(unseen, seed=seed), truth=dict(truth or {}))
    warn_thin_clients(data)
    return data
