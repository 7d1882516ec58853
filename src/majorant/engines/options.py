"""What `simulate` is told beside the federation: when runs are evaluated and stopped, and what they may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from majorant.math.checks import check_whole


class Evaluation(NamedTuple):
    """When every client's model is evaluated, what is measured beside it, and when a run is over.

    ``report(records, snapshot)`` is called after each evaluation with a record per run and a function that takes a
    snapshot, from which a run can be resumed. ``diagnostics`` adds what the method measures of its own convergence,
    such as the squared norm of the objective's gradient, and on a few clients how well their local problem was solved
    (``alpha``). ``until`` stops a run at the first evaluation where a number in the history meets a bound, as in
    "test_accuracy > 0.9" or "gradient_norm < 1e-6" (which needs diagnostics, and turns them on); of several bounds one
    is enough, and several runs stop when each has met one at some evaluation. ``optimum`` is the minimum of the
    objective, where it is known: the history then has ``suboptimality``, the objective less the minimum.

    ``patience`` chooses the round: models are those of the evaluation that was best on the clients' validation samples
    (`engines.patience`), separately for each run, and a run stops after this many evaluations without an improvement.
    """

    every: int | None = None  # rounds between evaluations; None: a twentieth of all
    diagnostics: bool = False
    until: str | Sequence[str] | None = None
    optimum: float | None = None
    patience: int | None = None  # evaluations to wait for a better one; None: all rounds, and the last one's models
    report: Callable[[list[dict[str, Any]], Callable[[], Any]], None] | None = None

    def rounds(self, planned: int) -> int:
        """The rounds between evaluations of a run of so many."""
        if self.every is not None:
            check_whole("every", self.every, least=1)
        check_whole("patience", self.patience, least=1, optional=True)
        return self.every or max(1, planned // 20)


class Resources(NamedTuple):
    """What a simulation may use.

    ``clients`` is how clients are batched: "vmap", "map" (one at a time) or "auto". Runs whose clients do not fit
    ``memory_budget`` bytes (None: half of the memory) are streamed; their states then live in host memory, or in files
    under ``state_folder``. ``side_by_side`` is the largest number of clients that run side by side (None: the fastest
    that fits, by the compiled program's own estimate). ``extra_padding`` adds rows to every client's samples, which
    changes nothing.

    ``devices`` is how many devices share the clients, or the runs (None: one; with several processes all of them, see
    `majorant.engines.mesh`); a ``memory_budget`` is then that of each device.

    ``made_from`` is a digest of all that algorithm and data are made from, where the caller knows that it means the
    same in every process: programs are then kept as they were lowered (`majorant.engines.kept`), not traced again.
    """

    clients: str = "auto"
    memory_budget: int | None = None
    state_folder: Path | None = None
    extra_padding: int = 0
    side_by_side: int | None = None
    devices: int | None = None
    made_from: str | None = None

    def check(self) -> None:
        """Refuses numbers that are no sizes."""
        check_whole("memory_budget", self.memory_budget, optional=True)
        check_whole("extra_padding", self.extra_padding, least=0)
        check_whole("side_by_side", self.side_by_side, optional=True)
        check_whole("devices", self.devices, optional=True)
