"""The two blocks of an objective: the scale of the shared one, and constants of F from those of f'.

Let w be scaled by s (M^{−1/2}, or 1 where it is not rescaled), let r = s √M, and let Q_m be 2×2 forms that f_m's second
derivative in (s w, β_m) is at least. For a direction u = (u_0, u_1 … u_M), the second derivative of F = (1/M) Σ f_m is
at least::

    (1/M) Σ_m Q_m[s u_0, u_m] = (1/M) Σ_m Q_m[r u_0/√M, u_m] ≥ (1/M) min_m λ_min(D Q_m D) ‖u‖²,     D = diag(r, 1)

so that μ = min_m λ_min(D Q_m D) / M. Equal Q_m attain it, at u_1 = … = u_M. Likewise, L^w = r² L / M where f_m is
L-smooth in s w, and L^β = L / M where it is L-smooth in β_m. Rescaling makes r = 1: it takes a factor M from L^w, so
that the blocks are about equally steep, and leaves the minimiser in terms of s w where it is.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from majorant.core import Key, Tree
from majorant.objectives.base import Constants
from majorant.objectives.base_model import Curvature

Form = Sequence[Sequence[Any]]  # 2×2, symmetric; the numbers may be traced


def scaled(tree: Tree, factor: float) -> Tree:
    """A tree times a number."""
    return jax.tree.map(lambda leaf: factor * leaf, tree)


def scale_of(clients: int, rescale: bool) -> float:
    """s: what the shared block is multiplied by."""
    return clients**-0.5 if rescale else 1.0


def nothing(key: Key) -> Tree:
    """The start of a block that an objective does not have."""
    del key
    return ()


def block_constants(
    clients: int, rescale: bool, forms: Sequence[Form], w: tuple[float, float], beta: tuple[float, float]
) -> Constants:
    """The constants of F from the forms Q_m and each block's smoothness over all samples and over one.

    >>> block_constants(4, True, [[[2.0, -1.0], [-1.0, 2.0]]], w=(3.0, 5.0), beta=(4.0, 6.0))
    Constants(mu=0.25, smooth_w=0.75, smooth_beta=1.0, sample_smooth_w=1.25, sample_smooth_beta=1.5)
    """
    steep = 1 if rescale else clients  # r²
    mu = functools.reduce(lesser, (least_eigenvalue(form, steep) for form in forms))
    return Constants(mu / clients, steep * w[0] / clients, beta[0] / clients, steep * w[1] / clients, beta[1] / clients)


def least_eigenvalue(form: Form, steep: float) -> Any:
    """Of D Q D with D = diag(√steep, 1), at least 0; the numbers may be traced."""
    (a, b), (_, c) = form
    a, b = steep * a, steep**0.5 * b
    largest = (a + c) / 2 + ((a - c) ** 2 / 4 + b**2) ** 0.5
    product, traced = a * c - b**2, isinstance(a * c - b**2, jax.Array)
    rounding = 8 * jnp.finfo(product.dtype if traced else float).eps * (a * c + b**2)
    if traced:
        return jnp.where(product > rounding, product / jnp.where(largest > 0, largest, 1), 0)
    return float(product / largest) if product > rounding else 0.0


def lesser(one: Any, two: Any) -> Any:
    """The smaller of two numbers, which may be traced."""
    return jnp.minimum(one, two) if isinstance(one, jax.Array) or isinstance(two, jax.Array) else min(one, two)


def smoothness(base: Curvature, times: float, plus: float = 0.0) -> tuple[float, float]:
    """``times · L' + plus`` for all samples and for one."""
    return times * base.smooth + plus, times * base.sample_smooth + plus
