"""The minimum of a convex objective, to high precision, with all data in one place: what solvers are measured against.

Newton's method in double precision. The second derivative of F = (1/M) Σ f_m(w, β_m) is an arrow: with the blocks
A_m, B_m, C_m of client m (ww, wβ, ββ), a step (d, d_1 … d_M) against the gradient (g, g_1 … g_M) solves::

    Σ_m (A_m − B_m C_m⁻¹ B_mᵀ) d = −Σ_m (g_m^w − B_m C_m⁻¹ g_m^β),     d_m = −C_m⁻¹ (g_m^β + B_mᵀ d)

so its cost is linear in the number of clients. Objectives with too many parameters a client for that get the step by
conjugate gradients. Steps are halved until F does not increase.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from majorant.core import Tree
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData
from majorant.objectives.base import Objective
from majorant.solvers import Batch

LARGEST = 30_000_000  # numbers in the clients' second derivatives, above which they are not formed
HALVINGS = 60
ENOUGH = 1e-3  # of the tolerance: one more step costs little, and F* is then exact to rounding
ROUNDING = 1e-15  # relative, of a value of F: an increase by less is none


class Reference(NamedTuple):
    """A minimiser: w, all β_m one after the other in the order of the clients that train, F and ‖∇F‖ there."""

    w: Tree
    beta: Tree  # (M, ...)
    value: float
    gradient_norm: float


def global_value(objective: Objective, data: FederatedData, w: Tree, betas: Tree) -> float:
    """F(w, β) = (1/M) Σ_m f_m(w, β_m) in double precision, over the clients that train and all their samples."""
    with jax.enable_x64(True):
        return float(mean_value(objective)(double(w), double(betas), *training_batches(data)))


@functools.lru_cache(maxsize=8)
def mean_value(objective: Objective) -> Callable[..., jax.Array]:
    """F as a compiled function of w, all β_m, and the clients' samples and ids."""
    each = jax.vmap(objective.value, in_axes=(None, 0, 0, 0))
    return jit(lambda w, betas, batches, ids: each(w, betas, batches, ids).mean())


def suboptimality(
    objective: Objective, data: FederatedData, w: Tree, betas: Tree, *, reference: Reference | None = None
) -> float:
    """F(w, β) − F*; give the ``reference`` solution where it is known already."""
    best = reference_solution(objective, data) if reference is None else reference
    return global_value(objective, data, w, betas) - best.value


def reference_solution(
    objective: Objective, data: FederatedData, *, tolerance: float = 1e-10, steps: int = 200
) -> Reference:
    """The minimiser of a convex objective, to a gradient of at most ``tolerance`` (of at most that share, if above 1).

    >>> import majorant as mj
    >>> from majorant.objectives import mixture
    >>> data = mj.data.synthetic_mixture(clients=6, dimension=3, seed=0)
    >>> reference_solution(mixture(data, lambda_=0.5), data).gradient_norm < 1e-10
    True
    """
    if not objective.convex:
        raise ValueError(f"the objective {objective.name} is not convex: it has no reference solution")
    with jax.enable_x64(True):
        flat, samples = functions_of(objective), training_batches(data)
        w, beta = flat.w, jnp.tile(flat.beta, (len(samples[1]), 1))
        slope = lambda w, beta: flat.slope(w, beta, *samples)
        if len(beta) * (w.size + flat.beta.size) ** 2 <= LARGEST:
            direction = arrow_step(lambda joint: flat.hessians(joint, *samples), w.size)
        else:
            direction = lambda *at: flat.conjugate_gradients(*at, *samples)

        value, (g_w, g_beta) = slope(w, beta)
        first = norm(g_w, g_beta)
        for _ in range(steps):
            if norm(g_w, g_beta) <= ENOUGH * tolerance * max(1.0, first):
                break
            d_w, d_beta = direction(w, beta, g_w, g_beta)
            for halving in range(HALVINGS):
                t = 0.5**halving
                new = slope(w + t * d_w, beta + t * d_beta)
                if new[0] <= value + ROUNDING * abs(value):
                    break
            else:
                break
            # At rounding the value says nothing more; the gradient still does.
            if new[0] >= value - ROUNDING * abs(value) and norm(*new[1]) >= norm(g_w, g_beta):
                break
            w, beta, (value, (g_w, g_beta)) = w + t * d_w, beta + t * d_beta, new
        found = norm(g_w, g_beta)
        if not found <= tolerance * max(1.0, first):
            raise ValueError(
                f"no minimum of the objective {objective.name} was found: the gradient is still {found:.1e} after "
                f"Newton's method; a larger l2 makes the minimum exist, or easier to reach"
            )
        at_w, at_beta = jax.tree.map(np.asarray, (flat.unravel_w(w), jax.vmap(flat.unravel_beta)(beta)))
        return Reference(at_w, at_beta, float(value), found)


class Flat(NamedTuple):
    """An objective as functions of vectors (w, and a row of β for each client), in double precision, compiled."""

    w: jax.Array  # starts
    beta: jax.Array
    unravel_w: Callable[[jax.Array], Tree]
    unravel_beta: Callable[[jax.Array], Tree]
    slope: Callable[..., Any]  # (w, beta, batches, ids) -> F and its gradient
    hessians: Callable[
        ..., jax.Array
    ]  # (w and β_m in one row for each client, batches, ids) -> second derivatives of the f_m
    conjugate_gradients: Callable[..., Any]  # (w, beta, their gradients, batches, ids) -> the Newton step


@functools.lru_cache(maxsize=8)
def functions_of(objective: Objective) -> Flat:
    """Compiles nothing anew for other data of the same shape; call it where double precision is on."""
    key = jax.random.key(0)
    w, unravel_w = ravel_pytree(double(objective.init(key)))
    beta, unravel_beta = ravel_pytree(double(objective.init_personal(key)))

    def f(joint: jax.Array, batch: Batch, slot: jax.Array) -> jax.Array:
        return objective.value(unravel_w(joint[: w.size]), unravel_beta(joint[w.size :]), batch, slot)

    def total(w: jax.Array, beta: jax.Array, batches: Batch, ids: jax.Array) -> jax.Array:
        each = jax.vmap(lambda b, batch, id: f(jnp.concatenate([w, b]), batch, id))
        return each(beta, batches, ids).mean()

    def newton(
        w: jax.Array, beta: jax.Array, g_w: jax.Array, g_beta: jax.Array, batches: Batch, ids: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The Newton step by conjugate gradients, from products with the second derivative alone."""
        gradient = lambda w, beta: jax.grad(total, argnums=(0, 1))(w, beta, batches, ids)
        product = lambda v: jax.jvp(gradient, (w, beta), v)[1]
        return jax.scipy.sparse.linalg.cg(product, (-g_w, -g_beta), tol=1e-6, maxiter=2000)[0]

    slope, hessians = jax.value_and_grad(total, argnums=(0, 1)), jax.vmap(jax.hessian(f))
    return Flat(w, beta, unravel_w, unravel_beta, jit(slope), jit(hessians), jit(newton))


def arrow_step(hessians: Callable[..., jax.Array], shared: int) -> Callable[..., Any]:
    """The Newton step from the clients' second derivatives, by eliminating the personal block."""

    def step(w: jax.Array, beta: jax.Array, g_w: jax.Array, g_beta: jax.Array) -> tuple[np.ndarray, np.ndarray]:
        joint = jnp.concatenate([jnp.broadcast_to(w, (len(beta), w.size)), beta], axis=1)
        h = np.asarray(hessians(joint)) / len(beta)
        a, b, c = h[:, :shared, :shared], h[:, :shared, shared:], h[:, shared:, shared:]
        inverse = np.linalg.pinv(c, rcond=1e-13, hermitian=True) if c.size else c
        eliminated = b @ inverse  # (M, shared, personal)
        schur = (a - eliminated @ b.swapaxes(1, 2)).sum(axis=0)
        right = np.asarray(g_w) - np.einsum("mij,mj->i", eliminated, g_beta)
        d_w = -np.linalg.lstsq(schur, right, rcond=1e-13)[0] if shared else np.zeros(0)
        d_beta = -np.einsum("mij,mj->mi", inverse, np.asarray(g_beta) + b.swapaxes(1, 2) @ d_w)
        return d_w, d_beta

    return step


def training_batches(data: FederatedData) -> tuple[Batch, jax.Array]:
    """All samples of each client that trains as a batch ``(M, n, ...)``, padded with repeats; and the clients' ids."""
    ids = np.flatnonzero(~data.unseen)
    sizes = data.train.sizes[ids]
    width = max(int(sizes.max()), 1)
    place = np.minimum(np.arange(width), np.maximum(sizes[:, None] - 1, 0))
    rows = np.minimum(data.train.offsets[ids][:, None] + place, len(data.train.y) - 1)
    weight = (np.arange(width) < sizes[:, None]).astype(np.float64)
    get = lambda a: jnp.asarray(a.astype(np.float64) if np.issubdtype(a.dtype, np.floating) else a)
    x, y = get(data.train.x[rows]), get(data.train.y[rows])
    return Batch(x, y, jnp.asarray(weight), jnp.asarray(sizes)), jnp.asarray(ids)


def double(tree: Tree) -> Tree:
    """A tree in double precision."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), tree)


def norm(*arrays: jax.Array) -> float:
    """The Euclidean norm of several arrays together."""
    return float(np.sqrt(sum(float(jnp.square(a).sum()) for a in arrays)))
