"""Covariances of mixture components: full, diagonal or spherical, and what a mixture needs to know of each.

The moments of a component are its share s⁰ = E r, E r x and E r x xᵀ (of which "diagonal" keeps the diagonal, and
"spherical" the trace). They are the entries of a joint moment matrix, which is positive semidefinite::

    full        [[s⁰, s¹ᵀ], [s¹, S²]]                  one (p + 1) × (p + 1) matrix
    diagonal    [[s⁰, s¹_j], [s¹_j, s²_j]]             p matrices that share s⁰
    spherical   [[s⁰, ‖s¹‖], [‖s¹‖, s²]]               one matrix

Statistics hold the first moments times √2, as `symmetric.pack` has it off the diagonal: their distances are those of
the matrices, for "full" and "spherical", so that projections have closed forms. `project` gives the closest moments
whose matrices have no eigenvalue below ``margin``; for "diagonal" this is a search for s⁰, with a cubic equation of
every coordinate solved inside. Moments inside, to rounding errors of each entry, do not move: their smallest eigenvalue
is about s⁰ σ² / m², far below the rounding errors of the largest, s⁰ m², where means are large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from majorant.core import Tree, beside
from majorant.math.projections import positive_semidefinite
from majorant.math.symmetric import pack, unpack

ROOT = math.sqrt(2)
NEWTON_STEPS = 6  # from within a factor of two of the root of a cubic: enough for double precision
HALVINGS = 64


class Shape(NamedTuple):
    """One kind of covariance; ``second`` moments and covariances of K components have K as their first axis."""

    name: str
    densities: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # (means, covariances, x) -> log N, (n, K)
    second: Callable[[jax.Array, jax.Array], jax.Array]  # (r, x) -> Σ r x xᵀ, as statistics hold it
    outer: Callable[[jax.Array], jax.Array]  # m (K, p) -> m mᵀ, likewise
    covariances: Callable[[jax.Array, jax.Array], jax.Array]  # (scatter like second, its rounding errors like total)
    natural: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]  # Γ⁻¹m, Γ⁻¹ like second, log|Γ|
    project: Callable[[Tree, float], Tree]
    identity: Callable[[int, int], jax.Array]  # (K, p) -> covariances I
    total: Callable[[jax.Array], jax.Array]  # second moments -> those of every coordinate (K, p), or their sum (K,)


def full_densities(means: jax.Array, covariances: jax.Array, x: jax.Array) -> jax.Array:
    """log N(x; m_k, Γ_k), through Cholesky factors of the precisions, as scikit-learn has it."""
    factors, whitening = whiten(covariances)
    return whitened_densities(means, whitening, half_volume(factors), x)


def whiten(covariances: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The Cholesky factors L of covariances, and L⁻¹."""
    factors = jnp.linalg.cholesky(covariances)
    eye = jnp.broadcast_to(jnp.eye(factors.shape[-1], dtype=factors.dtype), factors.shape)
    return factors, solve_triangular(factors, eye, lower=True)


def half_volume(factors: jax.Array) -> jax.Array:
    """½ log|Γ| of covariances, from their Cholesky factors."""
    return jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)


def whitened_densities(means: jax.Array, whitening: jax.Array, half: jax.Array, x: jax.Array) -> jax.Array:
    """log N(x; m_k, Γ_k) from L⁻¹ and ½ log|Γ|: one product for all components."""
    count, features = means.shape
    columns = whitening.transpose(2, 0, 1).reshape(features, count * features)
    offsets = jnp.einsum("kij,kj->ki", whitening, means).reshape(-1)
    white = (x @ columns - offsets).reshape(-1, count, features)
    return -0.5 * (white**2).sum(axis=2) - half - features / 2 * math.log(2 * math.pi)


def full_second(r: jax.Array, x: jax.Array) -> jax.Array:
    """Σ_i r_ik x_i x_iᵀ of every component as one product, packed."""
    count, features = r.shape[1], x.shape[1]
    weighted = (r[:, :, None] * x[:, None, :]).reshape(-1, count * features)
    return pack((weighted.T @ x).reshape(count, features, features))


def full_covariances(scatter: jax.Array, least: jax.Array) -> jax.Array:
    """Eigenvalues raised in units of every coordinate's own rounding errors ``(K, p)``."""
    units = jnp.sqrt(least)[:, :, None] * jnp.sqrt(least)[:, None, :]
    values, vectors = jnp.linalg.eigh(unpack(scatter) / units)
    lift = jnp.maximum(1 - values, 0)
    return unpack(scatter) + units * jnp.einsum("kij,kj,klj->kil", vectors, lift, vectors)


def full_natural(means: jax.Array, covariances: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    factors, whitening = whiten(covariances)
    precisions = jnp.einsum("kij,kil->kjl", whitening, whitening)
    return jnp.einsum("kij,kj->ki", precisions, means), pack(precisions), 2 * half_volume(factors)


def full_project(s: Tree, margin: float) -> Tree:
    """The eigenvalues of the joint moment matrices raised to the margin."""
    features = s["first"].shape[1]
    corner = s["shares"][:, None, None]
    side = s["first"][:, None, :] / ROOT
    joint = jnp.concatenate(
        [
            jnp.concatenate([corner, side], axis=2),
            jnp.concatenate([side.transpose(0, 2, 1), unpack(s["second"])], axis=2),
        ],
        axis=1,
    )
    packed = pack(joint)
    moved = positive_semidefinite(packed, margin) - packed
    return {
        "shares": s["shares"] + moved[:, 0],
        "first": s["first"] + moved[:, 1 : features + 1],
        "second": s["second"] + moved[:, features + 1 :],
    }


def diagonal_densities(means: jax.Array, covariances: jax.Array, x: jax.Array) -> jax.Array:
    """As scikit-learn has it, but around the mean of the means: squares of large numbers would cancel."""
    around = means.mean(axis=0)
    z, m, precisions = x - around, means - around, 1 / covariances
    distance = z**2 @ precisions.T - 2 * z @ (m * precisions).T + (m**2 * precisions).sum(axis=1)
    return -0.5 * (distance + jnp.log(covariances).sum(axis=1) + means.shape[1] * math.log(2 * math.pi))


def diagonal_project(s: Tree, margin: float) -> Tree:
    """The closest (a, u_j, y_j) with a ≥ 0 and 2 a y_j ≥ u_j² for all j, after the margin is taken off a and y.

    With a known, every coordinate is a projection onto the parabola y = u² / 2a; the distance is convex in a, and its
    derivative is a − a₀ − Σ_j t_j y_j with u = u₀ / (1 + t). Points inside do not move.
    """
    a0, u0, y0 = s["shares"] - margin, s["first"], s["second"] - margin
    size = jnp.sqrt(a0**2 + (u0**2 + y0**2).sum(axis=1)) + jnp.finfo(a0.dtype).tiny
    a, u, y = a0 / size, u0 / size[:, None], y0 / size[:, None]
    tiny = jnp.finfo(a0.dtype).tiny ** 0.25
    flat = jnp.abs(u) <= jnp.finfo(a0.dtype).eps  # as good as 0, and not to be divided by

    def onto_parabolas(height: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The closest points for a given a, and the derivative of half the squared distance in a."""
        wide = height[:, None]
        inside = 2 * wide * y >= u**2
        square = jnp.where(inside | flat, 1.0, u**2)
        p, q = -2 * wide * (y - wide) / square, 2 * wide**2 / square
        root = jnp.cbrt(q)  # of w³ + p w = q, where u = w u₀
        w = jnp.where(p > 0, jnp.minimum(root, q / jnp.where(p > 0, p, 1)), root + jnp.sqrt(jnp.maximum(-p, 0)))
        w = jax.lax.fori_loop(0, NEWTON_STEPS, lambda _, w: (2 * w**3 + q) / (3 * w**2 + p), w)
        w = jnp.where(inside, 1.0, jnp.where(flat, 0.0, jnp.clip(w, 0, 1)))
        on = jnp.maximum(y, (u * w) ** 2 / (2 * wide))
        pull = jnp.where(inside, 0.0, (on - y) * on / wide)  # t y, as y − y₀ = a t
        return u * w, on, height - a - pull.sum(axis=1)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2
        rising = onto_parabolas(middle)[2] > 0
        return jnp.where(rising, low, middle), jnp.where(rising, middle, high)

    start = (jnp.full_like(a, tiny), jnp.full_like(a, 1.0))  # a projection onto a cone does not lengthen
    height = jax.lax.fori_loop(0, HALVINGS, halve, start)[1]
    closest_u, closest_y, _ = onto_parabolas(height)
    rounding = 8 * u0.shape[1] * jnp.finfo(u0.dtype).eps
    inside = (a0 >= 0) & (2 * a0[:, None] * y0 >= (1 - rounding) * u0**2).all(axis=1) & (y0 >= 0).all(axis=1)
    pick = lambda old, new: jnp.where(beside(inside, old), old, new)
    return {
        "shares": pick(s["shares"], height * size + margin),
        "first": pick(u0, closest_u * size[:, None]),
        "second": pick(s["second"], closest_y * size[:, None] + margin),
    }


def spherical_densities(means: jax.Array, covariances: jax.Array, x: jax.Array) -> jax.Array:
    around = means.mean(axis=0)
    z, m = x - around, means - around
    distance = (z**2).sum(axis=1)[:, None] - 2 * z @ m.T + (m**2).sum(axis=1)
    return -0.5 * (distance / covariances + means.shape[1] * jnp.log(2 * math.pi * covariances))


def spherical_project(s: Tree, margin: float) -> Tree:
    """The cone 2 a y ≥ ‖u‖² in the coordinates where it is ‖(v, u)‖ ≤ t, with t, v = (a ± y)/√2."""
    a, u, y = s["shares"] - margin, s["first"], s["second"] - margin
    t, v = (a + y) / ROOT, (a - y) / ROOT
    square = (u**2).sum(axis=1)
    length = jnp.sqrt(v**2 + square)
    rounding = 8 * u.shape[1] * jnp.finfo(u.dtype).eps
    inside = (length <= t) | ((a >= 0) & (y >= 0) & (2 * a * y >= (1 - rounding) * square))
    height = jnp.where(inside, t, jnp.where(length <= -t, 0.0, (length + t) / 2))
    scale = jnp.where(inside, 1.0, height / jnp.where(length > 0, length, 1))
    v = v * scale
    outside = ~inside
    return {
        "shares": jnp.where(outside, (height + v) / ROOT + margin, s["shares"]),
        "first": u * scale[:, None],
        "second": jnp.where(outside, (height - v) / ROOT + margin, s["second"]),
    }


SHAPES = {
    "full": Shape(
        name="full",
        densities=full_densities,
        second=full_second,
        outer=lambda m: pack(m[..., :, None] * m[..., None, :]),
        covariances=full_covariances,
        natural=full_natural,
        project=full_project,
        identity=lambda count, features: jnp.broadcast_to(jnp.eye(features), (count, features, features)),
        total=lambda second: jnp.diagonal(unpack(second), axis1=1, axis2=2),
    ),
    "diagonal": Shape(
        name="diagonal",
        densities=diagonal_densities,
        second=lambda r, x: r.T @ x**2,
        outer=lambda m: m**2,
        covariances=jnp.maximum,
        natural=lambda m, c: (m / c, 1 / c, jnp.log(c).sum(axis=1)),
        project=diagonal_project,
        identity=lambda count, features: jnp.ones((count, features)),
        total=lambda second: second,
    ),
    "spherical": Shape(
        name="spherical",
        densities=spherical_densities,
        second=lambda r, x: r.T @ (x**2).sum(axis=1),
        outer=lambda m: (m**2).sum(axis=-1),
        covariances=jnp.maximum,
        natural=lambda m, c: (m / c[:, None], 1 / c, m.shape[1] * jnp.log(c)),
        project=spherical_project,
        identity=lambda count, features: jnp.ones(count),
        total=lambda second: second,
    ),
}


def shape_of(name: str) -> Shape:
    """The kind of covariance by its name; scikit-learn's "diag" is "diagonal"."""
    full_name = "diagonal" if name == "diag" else name
    if full_name not in SHAPES:
        raise ValueError(f'covariance must be "full", "diagonal" (or "diag") or "spherical"; got {name!r}')
    return SHAPES[full_name]
