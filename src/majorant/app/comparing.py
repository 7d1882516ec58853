"""Comparisons in folders: a run folder per method, and ``summary.json`` with the verdict on all of them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from majorant.app.config import RunConfig
from majorant.app.signed import write_signed

if TYPE_CHECKING:
    from majorant.app.build import Problem
    from majorant.engines.ahead import Waiting
    from majorant.engines.run import Run

METHODS = ("local", "fedavg", "fedavg+", "fedem", "pfedme", "clustered")  # where none are named
MANY_GROUPS = 20


def group_values(config: RunConfig) -> tuple[str, np.ndarray] | None:
    """The column whose groups are compared, with the values of all rows of the table; None where none is asked for."""
    if config.group_column is None:
        return None
    from majorant.data.tabular.reading import read_source
    from majorant.data.tabular.table import names_in

    values = names_in(read_source(config.source), config.group_column, "group")
    if (groups := len(np.unique(values))) > MANY_GROUPS:
        raise ValueError(
            f"group_column {config.group_column!r} has {groups} different values, and groups to compare are at most"
            f" {MANY_GROUPS}: make a column with fewer; rows that belong together in a split are those of"
            " together_column"
        )
    return config.group_column, values


@contextlib.contextmanager
def compiled_methods(configs: Sequence[RunConfig], problems: Sequence[Problem]) -> Iterator[Waiting]:
    """Compiles methods ahead; gives a function that waits for one. Tuning has programs of its own."""
    from majorant.app.execute import asked_of
    from majorant.engines.ahead import compiled_ahead
    from majorant.engines.simulator import planned

    with contextlib.ExitStack() as stack:
        with configs[0].arithmetic():
            each = [] if configs[0].tune else [asked_of(*pair) for pair in zip(configs, problems, strict=True)]
            plans = [functools.partial(planned, **asked) for asked in each]
            wait = stack.enter_context(compiled_ahead(plans, problems[0].data))
        yield wait


def write_verdict(
    folder: Path,
    runs: Mapping[str, Run | None],
    folders: Mapping[str, str],
    groups: tuple[str, np.ndarray] | None = None,
) -> dict[str, Any] | None:
    """Judges the runs of a comparison, writes ``summary.json`` and returns its record.

    ``folders`` are the names of the run folders; a run that is None diverged as a whole. Runs without predictions, of
    problems without labels, have no verdict, and neither have runs under attack: None.
    """
    finished = [run for run in runs.values() if run is not None]
    if any(run.metric == "objective" for run in finished) or not len(finished[0].data.test.y):
        return None
    if any(run.federation.hostile is not None for run in finished):  # gains of hostile clients mean nothing
        return None
    from majorant.app.verdict import judge

    record = judge(runs, groups)
    for name, about in record["methods"].items():
        about["folder"] = folders[name]
    write_signed(folder / "summary.json", record)
    return record
