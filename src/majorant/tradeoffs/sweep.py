"""The runs of a front: one algorithm, a scalarization with the defaults of fronts, whose λ and weights are swept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Algorithm, Tree
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData
from majorant.engines.options import Evaluation
from majorant.engines.run import Run
from majorant.engines.set_up import start_server
from majorant.engines.simulator import simulate
from majorant.exchange.federation import Federation
from majorant.models.base import Model
from majorant.solvers import Solver, local_sgd
from majorant.tradeoffs.chebyshev import State, chebyshev, per_objective
from majorant.tradeoffs.criterion import Criterion
from majorant.tradeoffs.judge import Judge, Point, Setting
from majorant.tradeoffs.scaling import as_is
from majorant.tradeoffs.weighted_sum import weighted_sum

SCALARIZATIONS = ("weighted-sum", "chebyshev")
RAMP = 0.25  # the share of the rounds over which λ rises
SETTLING = {"mirror_rate": 2.0, "memory": 0.9}  # the last iterates settle: a smooth maximum of temperature 0.05


def scalarized(
    kind: str,
    model: Model,
    data: FederatedData,
    criteria: Sequence[Criterion],
    shares: Sequence[float],
    *,
    ramp: float | None = None,
    **method: Any,
) -> Algorithm:
    """The algorithm whose λ and shares are swept."""
    if kind not in SCALARIZATIONS:
        raise ValueError(f"scalarization must be one of {', '.join(SCALARIZATIONS)}, got {kind!r}")
    options: dict[str, Any] = {"weights": shares, "ramp": RAMP if ramp is None else ramp}
    if kind == "weighted-sum":
        return weighted_sum(model, criteria, **options | {"step": step_for(criteria)} | method)
    foreign = [name for name in ("step", "agents") if name in method]
    if foreign:
        raise ValueError(f"{foreign[0]} is of weighted sums: leave it out for chebyshev")
    local = method.get("local") or local_sgd()
    options |= SETTLING | {"clients": data.clients, "criteria_lr": length_of_rounds(local, data)} | method
    return chebyshev(model, criteria, **options)


def step_for(criteria: Sequence[Criterion]) -> str:
    """Implicit where a criterion has a kink."""
    return "explicit" if all(isinstance(c, Criterion) and c.smooth for c in criteria) else "implicit"


def length_of_rounds(local: Solver, data: FederatedData) -> float | None:
    """The learning rate times the agents' mean number of local steps where they take epochs; else None.

    With momentum a step is longer than the rate says: then it is not known.
    """
    plan, hyper = getattr(local, "plan", None), local.hyper
    if plan is None or plan.steps is not None or plan.batch_size is None or "lr" not in hyper or "momentum" in hyper:
        return None
    sizes = data.train.sizes[~data.unseen]
    return float(hyper["lr"] * plan.epochs * (-(-sizes[sizes > 0] // plan.batch_size)).mean())


class Sweep:
    """Trains models for several λ and weights of criteria side by side, and measures them."""

    def __init__(
        self,
        algorithm: Algorithm,
        judge: Judge,
        data: FederatedData,
        seed: int,
        output: str,
        options: dict[str, Any],
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        self.algorithm, self.judge, self.data, self.seed, self.output = algorithm, judge, data, seed, output
        self.options, self.on_progress, self.programs = options, on_progress, itertools.count()

    def train(self, settings: Sequence[Setting], scales: Sequence[float]) -> list[Point]:
        """The points of some settings, whose criteria count by their scales."""
        weighed = [as_is(setting, scales) for setting in settings]
        shares = np.array([setting.criteria_weights for setting in weighed]).T.tolist()
        names = self.judge.coordinator.share_names
        hyper = dict(zip(names, shares, strict=False))  # a single criterion's share is no choice
        hyper["lambda"] = [setting.weight for setting in weighed]
        seeds = [self.seed] * len(settings)
        run = simulate(
            self.algorithm, self.data, evaluation=self.evaluation(), seeds=seeds, hyper=hyper, **self.options
        )
        found = zip(self.judge.points(*ends(run, weighed, self.output)), settings, strict=True)
        return [p._replace(weight=s.weight, criteria_weights=s.criteria_weights) for p, s in found]

    def evaluation(self) -> Evaluation:
        """At the end, or about twenty times where somebody is told of the progress."""
        tell, number, rounds = self.on_progress, next(self.programs), self.options["rounds"]
        if tell is None:
            return Evaluation(every=rounds)
        return Evaluation(every=max(1, rounds // 20), report=lambda lines, _: tell(number, lines[0]["round"]))


def first_model(algorithm: Algorithm, seed: int) -> Tree:
    """The model that training starts from."""
    start = lambda key: start_server(Federation(algorithm), 1, key, {}, jnp.asarray(1)).value
    return jit(start)(jax.random.key(seed))


def check_reference(judge: Judge, algorithm: Algorithm, data: FederatedData, seed: int, reference: Any) -> None:
    """Complains about a reference point that dominates nothing: the untrained model is better in everything."""
    count = len(judge.coordinator.criteria)
    s = np.asarray(per_objective("reference", reference, data.clients + count))
    found = judge.numbers(Setting(0.5, judge.coordinator.shares), first_model(algorithm, seed))
    gaps = np.concatenate([found.losses - s[judge.ids], found.criteria - s[data.clients :]])
    if (gaps < 0).all():
        raise ValueError(
            "the reference point dominates nothing: the untrained model is better than it in every agent's loss and "
            f"every criterion (by {-gaps.max():.3g} at least); give smaller values: what each reaches alone, or 0"
        )


def ends(run: Run, settings: Sequence[Setting], output: str) -> tuple[list[Setting], Tree]:
    """The models to deploy, side by side; Chebyshev's settings get how strongly everybody pulled at the end."""
    server = run.snapshot.server
    if not isinstance(server.state, State):
        return list(settings), server.value
    pulled = [each._replace(pulls=pulls) for each, pulls in zip(settings, np.asarray(server.state.pull), strict=True)]
    return pulled, server.state.average if output == "average" else server.value
