"""How far a pair (Θ, ρ) is from the solution of a min-max problem, on convex problems that fit on one machine.

For h_k(Θ) = w_k (H_k(Θ) − s_k), all convex, and ρ in the simplex::

    gap(Θ, ρ) = max_k h_k(Θ) − min_Θ' Σ_k ρ_k h_k(Θ')  ≥  max_k h_k(Θ) − min_Θ' max_k h_k(Θ')  ≥  0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from majorant.core import Tree
from majorant.core.compilation import jit


def duality_gap(objectives: Callable[[Tree], jax.Array], theta: Tree, rho: Any) -> float:
    """The gap of ``theta`` and ``rho``, where ``objectives(theta)`` gives all h_k, ``(K,)``; the minimum is SciPy's.

    >>> import jax.numpy as jnp
    >>> both = lambda t: jnp.stack([t[0] ** 2, (t[0] - 1) ** 2])
    >>> round(duality_gap(both, jnp.array([0.5]), [0.5, 0.5]), 6), duality_gap(both, jnp.array([0.0]), [1.0, 0.0])
    (0.0, 1.0)
    """
    rho = np.asarray(rho, float)
    if not (rho >= -1e-6).all() or abs(rho.sum() - 1) > 1e-4:
        raise ValueError(f"rho must be at least 0 and sum to 1, got {rho}")
    there = jax.eval_shape(objectives, theta).shape
    if there != rho.shape:
        raise ValueError(f"rho must have a number for each objective: they are {there}, it is {rho.shape}")
    flat, unravel = ravel_pytree(theta)
    mean = jit(jax.value_and_grad(lambda f: (rho * objectives(unravel(f))).sum()))

    def value_and_gradient(f: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = mean(f.astype(flat.dtype))
        return float(value), np.asarray(gradient, float)

    least = minimize(value_and_gradient, np.asarray(flat, float), jac=True, method="L-BFGS-B").fun
    return float(np.max(objectives(theta)) - least)
