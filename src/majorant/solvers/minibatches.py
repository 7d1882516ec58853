"""How a client goes through its own samples: the one loop over minibatches, and what it is made of.

Samples are drawn here and nowhere else: in epochs (a fresh permutation of the client's samples each time; the last
batch may be smaller) or in steps (uniform draws with replacement, as in Algorithm 2 of the FedEM paper). What is drawn
depends on the client's key and size, never on its padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import ClientData, Key, Tree
from majorant.core.lanes import once, repeat
from majorant.math.checks import check_whole
from majorant.models.base import Draw, Model

TRAINING_STREAM = 0x5EED  # apart from the keys of rows, which are drawn from small numbers


class Batch(NamedTuple):
    """A minibatch: rows of a client's data. Rows past ``size`` repeat real samples and have weight 0."""

    x: Any  # (batch, ...), or a tree of such arrays
    y: jax.Array
    weight: jax.Array  # (batch,)
    size: jax.Array
    key: Key | None = None  # of the pass over the client's samples, and
    number: Any = None  # the batch's number in it

    def draw(self) -> Draw:
        """What a training pass over this batch draws from. Nothing is derived where no model asks."""
        assert self.key is not None
        real = jnp.arange(self.y.shape[0]) < self.size
        return Draw(jax.random.fold_in(jax.random.fold_in(self.key, TRAINING_STREAM), self.number), real)

    def mean(self, values: jax.Array) -> jax.Array:
        """Σ weight · value, divided by the number of samples in the batch."""
        return (self.weight * values).sum() / jnp.maximum(self.size, 1)

    @property
    def shares(self) -> jax.Array:
        """The weights of a mean over the batch, ``(batch,)``: 0 for padding."""
        return self.weight / jnp.maximum(self.size, 1)


def whole(data: ClientData, weights: jax.Array | None = None) -> Batch:
    """All samples of a client as one batch."""
    weight = jnp.ones(data.y.shape[0], jnp.result_type(float)) if weights is None else weights
    return Batch(data.x, data.y, jnp.where(data.mask, weight, 0), data.size)


FEW_FEATURES = 32


def whole_in_a_loop(data: ClientData, weights: jax.Array | None = None) -> Callable[[], Batch]:
    """All samples of a client as one batch, for a loop that goes over them again and again: call it in the loop's body.

    Where samples have few features, they are stored feature by feature before the loop: products with so short rows
    take three times as long on a CPU. The body's transpose costs nothing, as it becomes part of the product; but the
    compiler must not see what it undoes, or it would put the rows in order again before the loop.
    """
    batch = whole(data, weights)
    x = batch.x
    if not isinstance(x, jax.Array) or x.ndim != 2 or x.shape[1] > FEW_FEATURES or jax.default_backend() != "cpu":
        return lambda: batch
    columns = x.T
    return lambda: batch._replace(x=jax.lax.optimization_barrier(columns).T)


class Minibatches(NamedTuple):
    """How a client goes through its samples: ``epochs`` passes or ``steps`` draws; ``batch_size`` None: all at once."""

    epochs: int | None
    steps: int | None
    batch_size: int | None
    drop_last: bool | None = None  # leaves out an epoch's last batch where it is smaller; None: as the model asks
    in_any_order: bool = False  # whether a step on a batch is the same for its rows in any order

    def suiting(self, model: Model) -> Minibatches:
        """The plan for a model: one that normalises by the batch takes no step on a remainder of few samples.

        The order of a batch's rows matters to models that draw something for each of them, such as dropout.
        """
        drop_last = model.normalises_by_batch if self.drop_last is None else self.drop_last
        return self._replace(drop_last=drop_last, in_any_order=model.train_apply is None)


def minibatches(
    *, epochs: int | None, steps: int | None, batch_size: int | None, drop_last: bool | None = None
) -> Minibatches:
    """Checks the numbers: one epoch unless steps are given, positive counts."""
    if epochs is not None and steps is not None:
        raise ValueError(f"give epochs or steps, not both (got epochs={epochs}, steps={steps})")
    for name, value in {"epochs": epochs, "steps": steps, "batch_size": batch_size}.items():
        check_whole(name, value, optional=True)
    return Minibatches(1 if epochs is None and steps is None else epochs, steps, batch_size, drop_last)


MANY = 1 << 14
DRAWN_AT_ONCE = 1 << 12  # rows of all steps of a round: the same numbers as step by step, in one piece


def permutation(key: Key, size: jax.Array, length: int) -> jax.Array:
    """A random order of ``0 … size − 1``, followed by padding.

    The random bits stand above the index bits in one word, because sorting single words is several times faster than
    sorting pairs; how many bits the index takes depends on ``size`` alone. Clients with more than `MANY` samples would
    have too few random bits left, and sort pairs.
    """
    index = jnp.arange(length, dtype=jnp.uint32)
    low = (jnp.uint32(1) << (32 - jax.lax.clz(jnp.asarray(size, jnp.uint32)))) - 1
    bits = jax.random.bits(key, (length,))
    word = (bits & ~low) | (index & low)
    last = jnp.uint32(0xFFFF_FFFF)
    order = jnp.sort(jnp.where(index < size, word, last), stable=False) & low
    if length > MANY:
        _, pairs = jax.lax.sort((jnp.where(index < size, bits, last), index), num_keys=2)
        order = jnp.where(size > MANY, pairs, order)
    return order.astype(jnp.int32)


def take(data: ClientData, rows: jax.Array, weights: jax.Array, count: jax.Array) -> Batch:
    """The batch of the given rows; positions past ``count`` keep their (real) rows but have weight 0."""
    real = jnp.arange(rows.shape[0]) < count
    get = lambda a: a.at[rows].get(mode="promise_in_bounds")
    return Batch(jax.tree.map(get, data.x), get(data.y), jnp.where(real, get(weights), 0), count)


def batches_of_an_epoch(plan: Minibatches, data: ClientData) -> jax.Array:
    """How many minibatches a pass over a client's samples has."""
    assert plan.batch_size is not None
    width = min(plan.batch_size, max(1, data.y.shape[0]))
    count = (data.size + width - 1) // width
    if plan.drop_last:  # a client with fewer samples than a batch takes them all
        count = jnp.where(data.size > width, data.size // width, count)
    return count


def run_minibatches(
    plan: Minibatches,
    step: Callable[[Tree, Batch], Tree],
    carry: Tree,
    data: ClientData,
    key: Key,
    weights: jax.Array | None = None,
) -> Tree:
    """Folds ``step(carry, batch) -> carry`` over a client's minibatches; a client without samples takes no step.

    The number of steps follows the client's real size: among clients that run side by side the loop ends with the
    longest, and those that are done keep their state, or make room for others (`core.lanes`).
    """
    length = data.y.shape[0]
    if weights is None:
        double = any(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(data.x))
        weights = jnp.ones(length, jnp.float64 if double else jnp.float32)
    if length == 0:
        return carry
    if plan.batch_size is None:
        times = plan.epochs or plan.steps or 1
        if times == 1:
            everything = whole(data, weights)._replace(key=key, number=0)
            return once(data.size > 0, lambda carry: step(carry, everything), carry)
        batch = whole_in_a_loop(data, weights)
        count = jnp.where(data.size > 0, times, 0)
        return repeat(count, lambda j, carry: step(carry, batch()._replace(key=key, number=j)), carry)
    width = min(plan.batch_size, length)
    size = jnp.maximum(data.size, 1)

    if plan.steps is not None:
        rows_of = lambda j: jax.random.randint(jax.random.fold_in(key, j), (width,), 0, size)
        if plan.steps * width <= DRAWN_AT_ONCE:
            drawn = jax.vmap(rows_of)(jnp.arange(plan.steps))
            rows_of = lambda j: jax.lax.dynamic_index_in_dim(drawn, j, keepdims=False)

        def draw(j: jax.Array, carry: Tree) -> Tree:
            batch = take(data, rows_of(j), weights, jnp.asarray(width))
            return step(carry, batch._replace(key=key, number=j))

        return repeat(jnp.where(data.size > 0, plan.steps, 0), draw, carry)

    per_epoch = batches_of_an_epoch(plan, data)

    def epoch(carry: Tree, key: Key) -> Tree:
        if plan.in_any_order and width == length:  # nothing to shuffle, and nothing to copy
            everything = whole(data, weights)._replace(key=key, number=0)
            return once(per_epoch > 0, lambda carry: step(carry, everything), carry)
        order = permutation(key, data.size, length)

        def next_batch(j: jax.Array, carry: Tree) -> Tree:
            position = j * width + jnp.arange(width)
            rows = order.at[position % size].get(mode="promise_in_bounds")
            batch = take(data, rows, weights, jnp.minimum(data.size - j * width, width))
            return step(carry, batch._replace(key=key, number=j))

        return repeat(per_epoch, next_batch, carry)

    if plan.epochs == 1:
        return epoch(carry, key)
    return jax.lax.fori_loop(0, plan.epochs, lambda e, c: epoch(c, jax.random.fold_in(key, e)), carry)
