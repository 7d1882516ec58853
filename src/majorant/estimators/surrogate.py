"""What the estimators that minimise a surrogate share: FedMM on grouped rows, all at once or a batch at a time.

With all groups in every round, all their rows, full steps and no compression, FedMM is the centralized algorithm, and
it is run as one program on the rows of all groups together. Otherwise the rows stay with their groups and go through
the simulator.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils import check_random_state, check_scalar

from majorant.core import ClientData, Tree
from majorant.data.federated import FederatedData, Ragged
from majorant.engines.options import Evaluation
from majorant.engines.programs import enable_compilation_cache
from majorant.engines.simulator import simulate
from majorant.estimators.base import Grouped, GroupedEstimator, round_rows
from majorant.exchange.channel import quantized
from majorant.exchange.participation import full, uniform
from majorant.math import steps
from majorant.math.steps import StepSize
from majorant.methods.fedmm import fedmm, statistic_shapes
from majorant.methods.mm import approach, descend
from majorant.solvers import Batch
from majorant.surrogates.linear.record import LinearSurrogate

FEDERATED = """
    participation : float, default 1.0
        The share of the groups that takes part in a round, in (0, 1].
    batch_size : int or None, default None
        The rows of a group that are looked at in a round; None: all.
    bits : int or None, default None
        The bits a number takes on its way to the server, from 2 to 16; None: nothing is compressed.
    step_size : float or None, default None
        The step γ of FedMM, in (0, 1]. None is 1 where all groups send all they have, β/√(β + t) otherwise, with β the
        smaller the fewer bits and groups there are, and in ``partial_fit`` the share of the new rows in all so far.
"""
LARGE = 1 << 16  # rows from which on nothing is padded to round numbers


class Fitted(NamedTuple):
    """What minimising a surrogate gives."""

    params: Tree
    statistic: Tree
    values: np.ndarray  # of the objective
    iterations: int
    converged: bool


class SurrogateEstimator(GroupedEstimator):
    """An estimator that minimises a linearly parameterized surrogate."""

    max_iter: int
    tol: float
    participation: float
    batch_size: int | None
    bits: int | None
    step_size: float | None
    random_state: Any

    def _check_federated(self) -> None:
        check_scalar(self.max_iter, "max_iter", Integral, min_val=1)
        check_scalar(self.tol, "tol", Real, min_val=0)
        check_scalar(self.participation, "participation", Real, min_val=0, max_val=1, include_boundaries="right")
        if self.batch_size is not None:
            check_scalar(self.batch_size, "batch_size", Integral, min_val=1)
        if self.bits is not None:
            check_scalar(self.bits, "bits", Integral, min_val=2, max_val=16)
        if self.step_size is not None:
            check_scalar(self.step_size, "step_size", Real, min_val=0, max_val=1, include_boundaries="right")

    def _random(self) -> np.random.RandomState:
        return check_random_state(self.random_state)

    @property
    def _exact(self) -> bool:
        """Whether FedMM is the centralized algorithm."""
        return self.participation == 1 and not self.batch_size and not self.bits and self.step_size in (None, 1)

    def _minimise(self, surrogate: LinearSurrogate, data: Grouped, start: Tree, tolerance: float) -> Fitted:
        """FedMM from given parameters; results in the precision of the rows."""
        enable_compilation_cache()
        with jax.enable_x64(data.samples.x.dtype == np.float64):
            begin = jax.tree.map(lambda a: jnp.asarray(a, jnp.result_type(float)), start)
            return (
                self._all_at_once(surrogate, data, begin, tolerance)
                if self._exact
                else self._in_rounds(surrogate, data, begin)
            )

    def _all_at_once(self, surrogate: LinearSurrogate, data: Grouped, start: Tree, tolerance: float) -> Fitted:
        least = np.finfo(np.float32).tiny  # a tolerance of 0 stops where nothing is gained
        found = descend(surrogate, self.max_iter, start, pooled(data.samples.x), jnp.asarray(max(tolerance, least)))
        params, statistic, values, count, rests = jax.tree.map(np.asarray, found)
        return Fitted(params, statistic, values[: int(count) + 1], int(count), bool(rests))

    def _in_rounds(self, surrogate: LinearSurrogate, data: Grouped, start: Tree) -> Fitted:
        federated = federated_rows(data.samples)
        known = surrogate._replace(init=lambda key: start)
        step = steps.constant(float(self.step_size)) if self.step_size else self._careful_step(known, federated)
        algorithm = fedmm(known, federated, step=step, batch_size=self.batch_size)
        run = simulate(
            algorithm,
            federated,
            rounds=self.max_iter,
            seed=int(self._random().randint(1 << 31)),
            participation=full() if self.participation == 1 else uniform(float(self.participation)),
            channel=None if self.bits is None else quantized(int(self.bits)),
            evaluation=Evaluation(diagnostics=True),
        )
        values = np.array([line["objective"] for line in run.history])
        point = run.server.value
        return Fitted(point.params, point.statistic, values, self.max_iter, False)

    def _unchanged(self, fitted: int, asked: int, name: str) -> None:
        """Refuses to go on with another number of components than before."""
        if fitted != asked:
            raise ValueError(f"{name} was {fitted} and is {asked} now: fit anew, or set it back")

    def _careful_step(self, surrogate: LinearSurrogate, data: FederatedData) -> StepSize:
        """γ_t = β/√(β + t) with β = 1/(1 + ω_p): smaller for few bits and absent groups."""
        numbers = sum(leaf.size for leaf in jax.tree.leaves(statistic_shapes(surrogate, data)))
        omega = 0.0 if self.bits is None else quantized(int(self.bits)).omega(numbers)
        p = float(self.participation)
        return steps.square_root(1 / (1 + omega + (1 + omega) * (1 - p) / p))

    def _approach(
        self, surrogate: LinearSurrogate, x: np.ndarray, params: Tree, statistic: Tree | None, seen: int
    ) -> Any:
        """One step along a new batch of rows, after some were ``seen``: parameters and statistic."""
        share = len(x) / (seen + len(x)) if self.step_size is None else float(self.step_size)
        with jax.enable_x64(x.dtype == np.float64):
            number = lambda a: jnp.asarray(a, jnp.result_type(float))
            rows = pooled(x)
            batch = Batch(rows.x, rows.y, rows.mask.astype(jnp.result_type(float)), rows.size)
            params = jax.tree.map(number, params)
            first = statistic is None
            if first:
                shape = jax.eval_shape(surrogate.statistic, params, batch)
                statistic = jax.tree.map(lambda s: np.zeros(s.shape), shape)
            at = (params, jax.tree.map(number, statistic))
            return jax.tree.map(np.asarray, approach(surrogate, at, batch, number(share), jnp.asarray(first)))


def pooled(x: np.ndarray) -> ClientData:
    """All rows as those of one client, padded to a round number where they are few."""
    rows = len(x)
    more = round_rows(rows) - rows if rows < LARGE else 0
    wide = np.pad(x, [(0, more), (0, 0)])
    return ClientData(jnp.asarray(wide), jnp.zeros(len(wide), wide.dtype), jnp.asarray(rows), jnp.asarray(0))


def federated_rows(samples: Ragged) -> FederatedData:
    """Grouped rows as federated data without labels."""
    clients = len(samples.sizes)
    none = Ragged(samples.x[:0], samples.y[:0], np.zeros(clients + 1, np.int64))
    return FederatedData(samples, none, none, np.zeros(clients, bool), tuple(map(str, range(clients))), ())
