"""Small functions on trees of arrays that everything else is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core.lanes import has_lanes, repeat

if TYPE_CHECKING:
    from majorant.core.messages import ClientData

Tree = Any  # a JAX pytree of arrays
BLOCK_VALUES = 1 << 18  # input values that go through a model at once: bounds the memory of its intermediate results
ROWS_IN_LANES = 1024  # samples that do so for each client in lanes: a large model may make thousands of values of each


def squared_norm(tree: Tree) -> jax.Array:
    """The sum of the squares of all numbers in a tree.

    >>> squared_norm({"w": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)})
    Array(14., dtype=float32)
    """
    square = lambda leaf: jnp.abs(leaf) ** 2 if jnp.iscomplexobj(leaf) else jnp.square(leaf)
    return jnp.asarray(sum(square(leaf).sum() for leaf in jax.tree.leaves(tree)))


def tree_bytes(tree: Tree) -> int:
    """The bytes that a tree's arrays take on the wire.

    >>> tree_bytes({"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)})
    32
    """
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def tree_norm(tree: Tree) -> jax.Array:
    """The Euclidean norm of all numbers in a tree, for what is done with each of its leaves.

    >>> tree_norm({"w": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)})
    Array(5., dtype=float32)
    """
    squares = [jnp.square(jnp.abs(leaf)).sum() for leaf in jax.tree.leaves(tree)]
    return made_once(squares, lambda each: jnp.sqrt(jnp.abs(each).sum()))


def all_finite(tree: Tree) -> jax.Array:
    """Whether every number in a tree is finite."""
    leaves = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return made_once(leaves, lambda each: each.astype(jnp.int32).sum() == len(leaves)) if leaves else jnp.asarray(True)


def magnitude(tree: Tree) -> jax.Array:
    """The largest absolute value in a tree, NaN where one is NaN; 0 for a tree without real numbers.

    >>> magnitude({"w": jnp.array([1.0, -2.0]), "step": jnp.array(7)})
    Array(2., dtype=float32)
    """
    real = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact) and leaf.size]
    kind = jnp.result_type(float)
    sizes = [jnp.zeros((), kind), *(jnp.abs(leaf).max().astype(kind) for leaf in real)]
    return made_once(sizes, lambda each: jnp.abs(each).max())


def made_once(numbers: list[jax.Array], combine: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """A number that decides about every leaf of a tree, made of one for each leaf.

    It must not be a chain of operations on single numbers: XLA makes such chains again inside what is done with each
    leaf, and the program of a network with hundreds of leaves grows with their square. So ``combine`` is given a
    vector; but the sum of a stack itself XLA takes apart, so something must stand between them, as an absolute value or
    a conversion does. XLA for GPUs would still make the number again wherever it is used.
    """
    return jax.lax.optimization_barrier(combine(jnp.stack(numbers)))


def select(condition: jax.Array, yes: Tree, no: Tree) -> Tree:
    """``yes`` where the scalar condition holds, else ``no``, for whole trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def blockwise(
    function: Callable[..., jax.Array],
    x: jax.Array,
    *others: jax.Array,
    at_once: int | None = None,
    size: jax.Array | None = None,
) -> Tree:
    """``function(x, ...)`` over samples, block by block where there are many: for passes over all of a client's.

    Of a client with ``size`` real samples the blocks behind them are left out, and are 0 in the result; such a pass has
    no gradient.

    >>> x = jnp.arange(6.0).reshape(3, 2)
    >>> blockwise(lambda x: x.sum(axis=1), x)
    Array([1., 5., 9.], dtype=float32)
    """
    n, rows = x.shape[0], at_once or rows_of_a_block(x)
    if n <= rows and (size is None or not has_lanes()):
        return function(x, *others)
    cut = blocks((x, *others), rows)
    all_blocks = lambda: jax.lax.map(lambda block: function(*block), cut)
    out = all_blocks() if size is None else _real_blocks(function, cut, size)
    return out.reshape(-1, *out.shape[2:])[:n]


def rows_of_a_block(x: jax.Array) -> int:
    """How many samples go through a function at once: on a CPU fewer, whose cache should hold what it makes of them."""
    values = BLOCK_VALUES if jax.default_backend() == "cpu" else 4 * BLOCK_VALUES
    rows = max(64, values // max(1, math.prod(x.shape[1:])))
    return min(rows, ROWS_IN_LANES) if has_lanes() else rows


def blockwise_parts(
    function: Callable[..., jax.Array], parts: Sequence[tuple[jax.Array, ...]], sizes: list[jax.Array]
) -> list[jax.Array]:
    """`blockwise` for several tuples of arrays with a row for each sample, of which ``sizes`` are real.

    All parts go through the function together or, where there are many samples, their blocks through one loop, so that
    a program holds the function once and not once for each part.
    """
    lengths = [part[0].shape[0] for part in parts]
    rows = rows_of_a_block(parts[0][0])
    if len(parts) == 1:
        return [blockwise(function, *parts[0], size=sizes[0])]
    if sum(lengths) <= rows and not has_lanes():
        out = function(*(jnp.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        return jnp.split(out, np.cumsum(lengths)[:-1])
    rows = max(-(-n // -(-n // rows)) for n in lengths)  # the largest part in equal blocks
    counts = [-(-n // rows) for n in lengths]
    ends = [int(end) for end in np.cumsum(counts)]
    fill = lambda a, count: jnp.pad(a, [(0, count * rows - a.shape[0])] + [(0, 0)] * (a.ndim - 1), mode="edge")
    join = lambda *arrays: jnp.concatenate(list(map(fill, arrays, counts)))
    cut = [join(*arrays).reshape(ends[-1], rows, *arrays[0].shape[1:]) for arrays in zip(*parts, strict=True)]
    real = [jnp.minimum((size + rows - 1) // rows, count) for size, count in zip(sizes, counts, strict=True)]
    shape = jax.eval_shape(function, *(a[0] for a in cut))

    def next_block(i: jax.Array, out: jax.Array) -> jax.Array:
        past = jnp.cumsum(jnp.stack(real))  # blocks behind a part's samples are skipped
        place = i + jnp.where(i >= past, jnp.asarray(counts) - jnp.stack(real), 0).sum()
        block = [jax.lax.dynamic_index_in_dim(a, place, keepdims=False) for a in cut]
        return jax.lax.dynamic_update_index_in_dim(out, function(*block), place, 0)

    out = repeat(jnp.asarray(sum(real)), next_block, jnp.zeros((ends[-1], *shape.shape), shape.dtype))
    each = zip(lengths, counts, ends, strict=True)
    return [out[end - count : end].reshape(-1, *out.shape[2:])[:n] for n, count, end in each]


def _real_blocks(function: Callable[..., jax.Array], cut: Tree, size: jax.Array) -> jax.Array:
    """What the function gives for the blocks that begin before ``size``; zeros for the others."""
    block = lambda i: jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, i, keepdims=False), cut)
    count, rows = cut[0].shape[:2]
    shape = jax.eval_shape(lambda: function(*block(0)))
    nothing = jnp.zeros((count, *shape.shape), shape.dtype)
    add = lambda i, out: jax.lax.dynamic_update_index_in_dim(out, function(*block(i)), i, 0)
    return repeat(jnp.minimum((size + rows - 1) // rows, count), add, nothing)


def blocks(arrays: Tree, at_once: int, padding: str = "edge") -> Tree:
    """Arrays ``(n, ...)`` cut into equal blocks of at most ``at_once`` rows; repeats of the last row fill up.

    >>> blocks(jnp.arange(5), 3)
    Array([[0, 1, 2],
           [3, 4, 4]], dtype=int32)
    >>> blocks(jnp.arange(7), 5).shape
    (2, 4)
    """

    def cut(a: jax.Array) -> jax.Array:
        count = -(-a.shape[0] // at_once)
        rows = -(-a.shape[0] // count)
        padded = jnp.pad(a, [(0, count * rows - a.shape[0])] + [(0, 0)] * (a.ndim - 1), mode=padding)
        return padded.reshape(count, rows, *a.shape[1:])

    return jax.tree.map(cut, arrays)


def stack_rows(parts: Sequence[Tree], rows: Sequence[jax.Array], count: int) -> Tree:
    """Trees ``(n, ...)`` one after the other, with each row in its place among ``count``; those of row −1 are dropped.

    >>> stack_rows([jnp.array([1.0, 2.0]), jnp.array([3.0])], [jnp.array([2, -1]), jnp.array([0])], 3)
    Array([3., 0., 1.], dtype=float32)
    """
    target = jnp.concatenate(rows)
    target = jnp.where(target < 0, count, target)

    def place(*leaves: jax.Array) -> jax.Array:
        whole = jnp.concatenate(leaves)
        return jnp.zeros((count, *whole.shape[1:]), whole.dtype).at[target].set(whole, mode="drop")

    return jax.tree.map(place, *parts)


def beside(numbers: Any, leaf: Any) -> Any:
    """Numbers ``(n,)`` in a shape in which each goes with its row of ``leaf (n, ...)``.

    >>> beside(jnp.array([1.0, 2.0]), jnp.zeros((2, 3, 4))).shape
    (2, 1, 1)
    """
    return numbers.reshape(-1, *(1,) * (leaf.ndim - 1))


def weighted_sum(weight: jax.Array, values: jax.Array) -> jax.Array:
    """Σ weight · values over the leading axis, in the type of the values.

    On a CPU it is a matrix product. On a GPU that would be one to tune for every shape that a model has, in a precision
    that is not that of the values (TF32); a sum of products is as fast: it reads the same memory.
    """
    weight = weight.astype(values.dtype)
    if jax.default_backend() == "cpu":
        return jnp.tensordot(weight, values, axes=1)
    return (beside(weight, values) * values).sum(axis=0)


def masked_mean(values: jax.Array, data: ClientData) -> jax.Array:
    """The mean over a client's real samples of ``(n, ...)`` values; 0 for a client without samples."""
    return jnp.where(beside(data.mask, values), values, 0).sum(axis=0) / jnp.maximum(data.size, 1)


def as_hyper(values: dict[str, float]) -> dict[str, jax.Array]:
    """Hyperparameters as array leaves of the server's state."""
    return {name: jnp.asarray(value, jnp.result_type(float)) for name, value in values.items()}


def in_double() -> bool:
    """Whether double precision is switched on."""
    return jnp.result_type(float) == jnp.float64
