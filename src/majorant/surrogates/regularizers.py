"""Convex penalties and constraints g with their proximal operators, prox(s) = argmin ρ g(θ) + ½ ‖θ − s‖².

=============  ==========================================  =====================================================
name           g(θ)                                        prox with ρ
=============  ==========================================  =====================================================
nothing        0                                           s
l1             λ ‖θ‖₁                                      every number moved towards 0 by ρλ
l2             (λ/2) ‖θ‖²                                  s / (1 + ρλ)
elastic_net    λ₁ ‖θ‖₁ + (λ₂/2) ‖θ‖²                       that of l1, divided by 1 + ρλ₂
box            0 where low ≤ θ ≤ high, else infinite       every number clipped
simplex        0 where θ ≥ 0 sums to the total, else ∞     the closest such vector, along the last axis
group_lasso    λ Σ ‖rows of θ‖                             every row shortened by ρλ, to 0 where it is shorter
=============  ==========================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from majorant.core import Tree, squared_norm
from majorant.math.checks import check_range
from majorant.math.projections import simplex as onto_simplex

TOLERANCE = 1e-4  # by which a point may miss a constraint, relative to the numbers in it


class Regularizer(NamedTuple):
    """A convex function of parameters, and its proximal operator."""

    name: str
    value: Callable[[Tree], jax.Array]
    prox: Callable[[Tree, jax.Array | float], Tree]  # (s, ρ)


def nothing() -> Regularizer:
    """g = 0."""
    return Regularizer("nothing", lambda params: jnp.zeros(()), lambda s, rho: s)


def l1(weight: float) -> Regularizer:
    """Sparse parameters.

    >>> l1(0.5).prox(jnp.array([2.0, 0.2]), 1.0)
    Array([1.5, 0. ], dtype=float32)
    """
    return elastic_net(weight, 0.0)._replace(name=f"l1:{weight:g}")


def l2(weight: float) -> Regularizer:
    """Small parameters: half the squared norm, times the weight."""
    return elastic_net(0.0, weight)._replace(name=f"l2:{weight:g}")


def elastic_net(l1: float, l2: float) -> Regularizer:
    """Sparse and small parameters."""
    check_range("the weight of the L1 norm", l1, least=0)
    check_range("the weight of the squared norm", l2, least=0)

    def value(params: Tree) -> jax.Array:
        absolute = sum(jnp.abs(leaf).sum() for leaf in jax.tree.leaves(params))
        return jnp.asarray(l1 * absolute + l2 / 2 * squared_norm(params))

    shrink = lambda a, rho: jnp.sign(a) * jnp.maximum(jnp.abs(a) - rho * l1, 0) / (1 + rho * l2)
    return Regularizer(f"elastic-net:{l1:g},{l2:g}", value, lambda s, rho: jax.tree.map(lambda a: shrink(a, rho), s))


def box(low: float = -jnp.inf, high: float = jnp.inf) -> Regularizer:
    """Every number between two bounds."""
    if not low <= high:
        raise ValueError(f"a box needs low ≤ high, got {low} and {high}")
    clip = lambda s, rho: jax.tree.map(lambda a: jnp.clip(a, low, high), s)
    return Regularizer(f"box:{low:g},{high:g}", constraint(clip), clip)


def simplex(total: float = 1.0) -> Regularizer:
    """Vectors (the last axis of every array) of numbers at least 0 with a given sum."""
    check_range("total", total, above=0)
    project = lambda s, rho: jax.tree.map(lambda a: onto_simplex(a, total), s)
    return Regularizer(f"simplex:{total:g}", constraint(project), project)


def group_lasso(weight: float) -> Regularizer:
    """Rows (the first axis of every array) that vanish together; an array of one axis is one group.

    >>> group_lasso(1.0).prox(jnp.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    Array([[2.4, 3.2],
           [0. , 0. ]], dtype=float32)
    """
    check_range("weight", weight, least=0)
    rows = lambda a: a.reshape(a.shape[0], -1) if a.ndim > 1 else a.reshape(1, -1)
    lengths = lambda a: jnp.linalg.norm(rows(a), axis=1)

    def shorten(a: jax.Array, rho: jax.Array | float) -> jax.Array:
        length = lengths(a)[:, None]
        return (rows(a) * jnp.maximum(1 - rho * weight / jnp.where(length > 0, length, 1), 0)).reshape(a.shape)

    return Regularizer(
        f"group-lasso:{weight:g}",
        lambda params: jnp.asarray(weight * sum(lengths(leaf).sum() for leaf in jax.tree.leaves(params))),
        lambda s, rho: jax.tree.map(lambda a: shorten(a, rho), s),
    )


def constraint(project: Callable[[Tree, float], Tree]) -> Callable[[Tree], jax.Array]:
    """0 in a set, up to rounding, and infinite outside of it."""

    def value(params: Tree) -> jax.Array:
        gap = squared_norm(optax.tree.sub(params, project(params, 1.0)))
        return jnp.where(gap <= TOLERANCE**2 * (1 + squared_norm(params)), 0.0, jnp.inf)

    return value
