"""What models are worth to everybody: the points of a front.

A model is measured by the agents' losses, of which a front shows the mean or the worst, and by every criterion. Every
point has a certificate of Pareto stationarity, 0 where nothing near is better in all:

* by weighted sums, the norm of the shortest convex combination of the gradients of *mean* loss and criteria. Where it
  is 0, the same holds for the agents' single losses, of whose gradients the mean is a convex combination.
* by Chebyshev scalarization, of the gradients of *every* agent's loss and the criteria. Its points are stationary for
  those, Σ_k ρ_k w_k ∇H_k = 0, with all weight on the worst agents; the mean loss alone could well be made smaller.
* where a criterion has a kink, which has no gradient, the length of a proximal step of size 1 on the convex combination
  of losses and criteria that the model was trained for: the point's weighted sum, or Σ_k ρ_k w_k H_k / Σ_k ρ_k w_k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.metrics import f1_score

from majorant.core import BLOCK_VALUES, Tree, blocks, blockwise, squared_norm
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData
from majorant.math.min_norm import shortest
from majorant.models.base import Model
from majorant.tradeoffs.coordinator import Coordinator

MEAN, WORST = "mean loss", "worst loss"


class Point(NamedTuple):
    """A model of a front and what it is worth."""

    weight: float  # λ
    loss: float  # the agents' mean training loss
    worst_loss: float  # the largest of the agents' training losses
    criteria: dict[str, float]
    criteria_weights: tuple[float, ...]
    accuracy: float  # on all clients' test samples; NaN for regression, or without any
    macro_f1: float
    certificate: float
    norm: float  # of the parameters
    params: Tree
    judged_by: str = MEAN  # which of the agents' losses is the point's first coordinate
    decision_gaps: dict[str, float] = {}  # noqa: RUF012 - of criteria about groups: between their rates of decisions

    @property
    def values(self) -> list[float]:
        """The agents' mean loss, or the worst where the point is judged by it, and the criteria."""
        return [self.worst_loss if self.judged_by == WORST else self.loss, *self.criteria.values()]


class Setting(NamedTuple):
    """What a model was trained for: λ, the criteria's weights, and how strongly every client and criterion pulled."""

    weight: float
    criteria_weights: tuple[float, ...]
    pulls: np.ndarray | None = None  # (clients + N,) by Chebyshev scalarization: ρ_k w_k


class Measured(NamedTuple):
    """A model in numbers."""

    losses: jax.Array  # (agents,)
    criteria: jax.Array  # (N,)
    certificate: jax.Array
    norm: jax.Array


class Judge:
    """Measures models on the pooled training samples of a data set: a pass over them for each.

    ``agents`` "equal" or "samples" is how the agents' losses make a mean loss; ``judged_by`` is the points' first
    coordinate, `MEAN` or `WORST`.
    """

    def __init__(
        self, model: Model, coordinator: Coordinator, data: FederatedData, agents: str = "equal", judged_by: str = MEAN
    ) -> None:
        self.model, self.coordinator, self.judged_by = model, coordinator, judged_by
        sizes, train = data.train.sizes, data.train
        self.ids = np.flatnonzero(~data.unseen & (sizes > 0))  # of the agents that count
        votes = np.ones(len(self.ids)) if agents == "equal" else sizes[self.ids].astype(float)
        self.votes = votes / votes.sum()
        rows = model.at_once or max(64, BLOCK_VALUES // max(1, int(np.prod(data.spec.features))))
        kept = np.repeat(np.isin(np.arange(len(sizes)), self.ids), sizes)
        agent = np.repeat(np.arange(len(self.ids)), sizes[self.ids])
        share = jnp.asarray(1 / sizes[self.ids][agent], jnp.result_type(float))  # of a sample in its agent's loss
        samples = (jnp.asarray(train.x[kept]), jnp.asarray(train.y[kept]), jnp.asarray(agent, jnp.int32))
        self.train = (*blocks(samples, rows), blocks(share, rows, padding="constant"))
        self.by_agent = None
        if judged_by == WORST and coordinator.smooth:
            self.by_agent = one_agent_blocks(samples, sizes[self.ids], rows)
        self.test = (data.test.x, data.test.y) if data.classes else (data.test.x[:0], data.test.y[:0])
        self.measure = jit(self._measure)
        self.decision_gaps = jit(coordinator.decision_gaps)
        self.answers = jit(lambda params, x: blockwise(lambda x: model.predict(params, x).argmax(axis=1), x))

    def _measure(self, params: Tree, pulls: jax.Array, forces: jax.Array, train: Tree, by_agent: Tree) -> Measured:
        """``pulls`` and ``forces`` are the agents' and criteria's weights in a proximal step; see the module."""
        model, coordinator, count = self.model, self.coordinator, len(self.ids)

        def add(total: Tree, block: Tree) -> tuple[Tree, None]:
            x, y, agent, share = block

            def pulled(p: Tree) -> tuple[jax.Array, jax.Array]:
                losses = jax.ops.segment_sum(share * model.losses(p, x, y), agent, count)
                return pulls @ losses, losses

            gradient, losses = jax.grad(pulled, has_aux=True)(params)
            return jax.tree.map(jnp.add, total, (losses, gradient)), None

        start = jnp.zeros(count, jnp.result_type(float)), jax.tree.map(jnp.zeros_like, params)
        (losses, gradient), _ = jax.lax.scan(add, start, train)
        if coordinator.smooth:
            mean = lambda: jax.tree.map(lambda a: a[None], gradient)
            agents = mean() if by_agent is None else gradients_by_agent(model, params, by_agent, count)
            slopes = [jax.grad(lambda p, c=c: c.value(p))(params) for c in coordinator.criteria]
            stack = lambda first, *others: jnp.concatenate([first, jnp.stack(others)])
            short = shortest(jax.tree.map(stack, agents, *slopes))[1]
        else:
            forward = jax.grad(lambda p: coordinator.value(p, forces, without_prox=True))(params)
            step = jax.tree.map(lambda v, g, s: v - g - s, params, gradient, forward)
            short = jax.tree.map(jnp.subtract, params, coordinator.prox(step, 1.0, forces))
        length = lambda tree: jnp.sqrt(squared_norm(tree))
        return Measured(losses, coordinator.values(params), length(short), length(params))

    def points(self, settings: Sequence[Setting], stacked: Tree) -> list[Point]:
        """A point for every setting, from the models side by side."""
        return [
            self.point(setting, jax.tree.map(lambda a, i=i: np.asarray(a[i]), stacked))
            for i, setting in enumerate(settings)
        ]

    def numbers(self, setting: Setting, params: Tree) -> Measured:
        """The losses of all agents, the criteria, the certificate and the norm of a model."""
        pulls, forces = self.votes, np.zeros(len(self.coordinator.criteria))
        if not self.coordinator.smooth:
            pulls, forces = (1 - setting.weight) * pulls, setting.weight * np.array(setting.criteria_weights)
            if setting.pulls is not None:
                whole = setting.pulls / max(setting.pulls.sum(), 1e-30)
                pulls, forces = whole[self.ids], whole[len(whole) - len(forces) :]
        number = lambda each: jnp.asarray(each, jnp.result_type(float))
        found = self.measure(params, number(pulls), number(forces), self.train, self.by_agent)
        return jax.tree.map(np.asarray, found)

    def point(self, setting: Setting, params: Tree) -> Point:
        """A model and what it is worth."""
        found = self.numbers(setting, params)
        criteria = dict(zip(self.coordinator.names, found.criteria.tolist(), strict=True))
        x, truth = self.test
        accuracy = f1 = float("nan")
        if len(truth):
            said = np.asarray(self.answers(params, x))
            accuracy = float((said == truth).mean())
            f1 = float(f1_score(truth, said, average="macro", zero_division=0))
        return Point(
            weight=setting.weight,
            loss=float(self.votes @ found.losses),
            worst_loss=float(found.losses.max()),
            criteria=criteria,
            criteria_weights=setting.criteria_weights,
            accuracy=accuracy,
            macro_f1=f1,
            certificate=float(found.certificate),
            norm=float(found.norm),
            params=params,
            judged_by=self.judged_by,
            decision_gaps={name: float(gap) for name, gap in self.decision_gaps(params).items()},
        )


def one_agent_blocks(samples: tuple[jax.Array, ...], sizes: np.ndarray, most: int) -> Tree:
    """Samples in blocks of one agent each: x, y, the agent, and every sample's share in the agent's loss."""
    x, y, _ = samples
    rows = int(min(most, max(1, round(sizes.mean()))))
    counts, ends = -(-sizes // rows), np.cumsum(sizes)
    agent = np.repeat(np.arange(len(sizes)), counts)
    turn = np.arange(len(agent)) - (np.cumsum(counts) - counts)[agent]  # the block's number among its agent's
    place = (ends - sizes)[agent, None] + turn[:, None] * rows + np.arange(rows)
    share = np.where(place < ends[agent, None], 1 / sizes[agent, None], 0)
    place = np.minimum(place, len(x) - 1)
    return x[place], y[place], jnp.asarray(agent, jnp.int32), jnp.asarray(share, jnp.result_type(float))


def gradients_by_agent(model: Model, params: Tree, by_agent: Tree, count: int) -> Tree:
    """The gradient of every agent's mean loss, a tree with a leading axis of agents."""

    def add(total: Tree, block: Tree) -> tuple[Tree, None]:
        x, y, agent, share = block
        gradient = jax.grad(lambda p: (share * model.losses(p, x, y)).sum())(params)
        return jax.tree.map(lambda t, g: t.at[agent].add(g), total, gradient), None

    start = jax.tree.map(lambda p: jnp.zeros((count, *p.shape), p.dtype), params)
    return jax.lax.scan(add, start, by_agent)[0]
