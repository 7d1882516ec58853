"""Descent on smooth functions of a tree of parameters: L-BFGS, Newton, least squares, and how far from exact one is.

How good a local solution is, is Assumption 9 of the FedEM paper: the share α of the possible descent that was not made,
``g(found) − g* ≤ α (g(start) − g*)``. `inexactness` measures it. (As printed, (363) starts from the optimum of the
round before; the starting point is meant, as in (360).)

Reference: Marfoq et al., NeurIPS 2021, App. H; for the methods, Nocedal and Wright, *Numerical optimization*, 2006.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from majorant.core import Tree, select

Objective = Callable[[Tree], jax.Array]
LARGEST = 2000  # parameters for which a Hessian is formed and factorised
DAMPINGS = 12  # how often a Newton step is shortened before it is given up


def lbfgs(objective: Objective, params: Tree, steps: int, memory: int, tolerance: float) -> Tree:
    """Limited-memory BFGS with optax's zoom line search; what a failed search has found is not taken."""
    solver = optax.lbfgs(memory_size=memory)
    value_and_grad = optax.value_and_grad_from_state(objective)
    rounding = 4 * jnp.finfo(jnp.result_type(float)).eps

    def step(carry: tuple) -> tuple:
        k, params, value, _, state = carry
        _, gradient = value_and_grad(params, state=state)
        updates, state = solver.update(gradient, state, params, value=value, grad=gradient, value_fn=objective)
        new, new_value = optax.apply_updates(params, updates), optax.tree.get(state, "value")
        better = new_value <= value + rounding * jnp.abs(value)
        slope = jnp.where(better, optax.tree.norm(optax.tree.get(state, "grad")), 0)
        return k + 1, select(better, new, params), jnp.where(better, new_value, value), slope, state

    value, gradient = jax.value_and_grad(objective)(params)
    start = (jnp.asarray(0), params, value, optax.tree.norm(gradient), solver.init(params))
    return jax.lax.while_loop(lambda carry: (carry[0] < steps) & (carry[3] > tolerance), step, start)[1]


def newton(objective: Objective, params: Tree, steps: int) -> Tree:
    """Newton's method; a step solves (H + λI) s = −∇g, with λ from next to nothing up until g does not increase."""
    flat, unravel, g = _flattened(objective, params, "local_newton")
    rounding = 4 * jnp.finfo(flat.dtype).eps

    def step(carry: tuple) -> tuple:
        k, theta, value, _ = carry
        gradient, hessian = jax.grad(g)(theta), jax.hessian(g)(theta)
        least = rounding * (jnp.abs(jnp.diagonal(hessian)).sum() + rounding)
        more = (1e3 / rounding) ** (1 / DAMPINGS)  # up to a thousand times the trace

        def attempt(state: tuple) -> tuple:
            j = state[0]
            damped = hessian + least * more**j * jnp.eye(theta.size, dtype=theta.dtype)
            new = theta - jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(damped), gradient)
            return j + 1, new, g(new)

        falls = lambda new_value: new_value <= value + rounding * jnp.abs(value)  # False for NaN
        again = lambda state: (state[0] <= DAMPINGS) & ~falls(state[2])
        _, new, new_value = jax.lax.while_loop(again, attempt, (jnp.asarray(0), theta, jnp.full_like(value, jnp.nan)))
        moved = falls(new_value) & (jnp.abs(new - theta).max() > rounding * jnp.abs(theta).max())
        return k + 1, jnp.where(moved, new, theta), jnp.where(moved, new_value, value), moved

    start = (jnp.asarray(0), flat, g(flat), jnp.asarray(True))
    return unravel(jax.lax.while_loop(lambda carry: (carry[0] < steps) & carry[3], step, start)[1])


def least_squares(objective: Objective, params: Tree) -> Tree:
    """The minimiser of a quadratic that is nearest to ``params``: s = −H⁺ ∇g, and once more to remove rounding."""
    flat, unravel, g = _flattened(objective, params, "local_least_squares")
    curvature, axes = jnp.linalg.eigh(jax.hessian(g)(flat))
    felt = curvature > flat.size * jnp.finfo(flat.dtype).eps * jnp.abs(curvature).max()
    for _ in range(2):
        along = jnp.where(felt, axes.T @ jax.grad(g)(flat) / jnp.where(felt, curvature, 1), 0)
        flat = flat - axes @ along
    return unravel(flat)


def inexactness(objective: Objective, start: Tree, found: Tree) -> jax.Array:
    """α: the share of the possible descent from ``start`` that ``found`` leaves undone; 0 is exact, above 1 is worse.

    The optimum g* comes from a long Newton or, for more than 100 parameters, L-BFGS descent from the better of the
    two points. A remaining gap that is within rounding of g* counts as 0, and a possible one as rounding: 0/0 is 0.

    >>> bowl = lambda x: (x**2).sum()
    >>> inexactness(bowl, jnp.array([2.0]), jnp.array([1.0]))
    Array(0.25, dtype=float32)
    """
    before, after = objective(start), objective(found)
    better = select(after <= before, found, start)
    small = ravel_pytree(start)[0].size <= 100
    best = newton(objective, better, 50) if small else lbfgs(objective, better, 300, 20, 0.0)
    optimum = jnp.minimum(objective(best), jnp.minimum(before, after))
    least = jnp.finfo(optimum.dtype)
    noise = 4 * least.eps * jnp.abs(optimum) + least.tiny
    left = jnp.where(after - optimum <= noise, 0, after - optimum)  # not finite: passed on
    return left / jnp.maximum(before - optimum, noise)


def _flattened(objective: Objective, params: Tree, name: str) -> tuple[jax.Array, Callable, Callable]:
    flat, unravel = ravel_pytree(params)
    if flat.size > LARGEST:
        raise ValueError(
            f"{name} forms a matrix of parameters × parameters, for at most {LARGEST:,}; this model has "
            f"{flat.size:,}: use local_lbfgs"
        )
    return flat, unravel, lambda flat: objective(unravel(flat))
