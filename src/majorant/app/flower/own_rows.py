"""A silo's own rows: read from its own file, by its own node configuration, and nowhere else.

A file per silo needs no column that names the client. Where the study names such a column and a file has it, the silo
takes the rows of one client: the only one there is, or the one that its node configuration names.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from majorant._words import some
from majorant.app import catalogue
from majorant.app.build import USUAL_RATE, in_precision
from majorant.app.config import RunConfig
from majorant.app.flower.study import NodeSettings
from majorant.data.federated import FederatedData
from majorant.data.tabular.agreeing import encoded
from majorant.data.tabular.encoding import Encoding
from majorant.data.tabular.options import TableOptions
from majorant.data.tabular.problems import TableError, tell
from majorant.data.tabular.reading import Source, paths_of, read_file
from majorant.data.tabular.survey import Survey, look_at
from majorant.data.tabular.table import names_in
from majorant.models.base import Model


def surveyed(config: RunConfig, node: NodeSettings) -> Survey:
    """A silo's table, looked at; what makes it unusable is told with the name of its file."""
    if node.data is None:
        raise ValueError(f"{node.name!r} does not say which file is its own: give data in its node configuration")
    source = own_source(config, node, Path(node.data))
    options = config.table_options() | {"client_column": None, "unseen": 0.0}
    if config.client_column is not None:
        options["drop"] = [name for name in options["drop"] if name != config.client_column]
    found = look_at(source, TableOptions(**options), whole=False)
    if found.problems:
        raise TableError(source.where, found.problems)
    return found


def own_source(config: RunConfig, node: NodeSettings, path: Path) -> Source:
    """The rows of a file that are the silo's own."""
    source = read_file(paths_of(path)[0])
    source = replace(source, files=(str(path),), title=node.name)
    column = config.client_column
    if column is None or column not in source.names:
        if node.client is not None:
            raise ValueError(f"{path} does not say whose its rows are: leave client out of the node configuration")
        return source
    owners = names_in(source, column, "client")
    names = list(dict.fromkeys(owners.tolist()))
    if node.client is None and len(names) > 1:
        raise ValueError(
            f"{path} has rows of several clients ({some(names)}): name one in the node configuration, as in client="
            f'"{names[0]}"'
        )
    mine = owners == (node.client or (names[0] if names else ""))
    if node.client is not None and not mine.any():
        raise ValueError(f"{path} has no rows of client {node.client!r}: it has those of {some(names)}")
    return replace(source, table=source.table.filter(mine).drop_columns([column]))


def own_data(config: RunConfig, node: NodeSettings, encoding: Encoding | None) -> FederatedData:
    """A silo's samples as those of one client."""
    if config.is_table:
        assert encoding is not None
        found = surveyed(config, node)
        data = encoded(found, encoding, node.name)
        tell(found.source.where, found.notes)
    else:
        data = one_of(catalogue.datasets.make(config.data), node)
    return in_precision(data, config.precision)


def one_of(data: FederatedData, node: NodeSettings) -> FederatedData:
    """One client of data that goes by a name: for trying out, and for tests."""
    name = node.client or node.name
    if name not in data.names:
        raise ValueError(f"{data.name} has no client {name!r}: name one in client, such as {some(data.names)}")
    data = data.take(np.array([data.names.index(name)]))
    return replace(data, unseen=np.zeros(1, bool), names=(node.name,))


def stable_rate(config: RunConfig, model: Model | None, data: FederatedData) -> float | None:
    """A learning rate that is stable on a silo's rows, where the study leaves it open and it can be found."""
    from majorant.solvers.smoothness import curvature_of, stable_step

    local: Any = config.local
    if model is None or local.lr is not None or local.optimizer != "sgd":
        return None
    curvature = curvature_of(model)
    if curvature is None or not len(data.train.x):
        return None
    step = stable_step(data.train, curvature, local.batch_size or None, every_batch=True)
    return min(USUAL_RATE, (1 + local.momentum) * step)
