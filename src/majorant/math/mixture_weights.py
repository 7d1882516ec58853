"""The weights π of a mixture whose components are known, by EM, on a client or, with NumPy, for many groups at once.

Component m gives sample i the loss l_im = −log p(s_i | m). EM repeats::

    q_im ∝ π_m exp(−l_im),     π_m = (1/n) Σ_i q_im

The likelihood Σ_i log Σ_m π_m exp(−l_im) is concave in π and never decreases. A weight of 0 stays there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from majorant.core import ClientData, masked_mean
from majorant.math.fixed_point import fixed_point


def fit_weights(
    losses: jax.Array, data: ClientData, start: jax.Array | None = None, *, steps: int | None = None
) -> jax.Array:
    """π ``(M,)`` of one client from the losses ``(n, M)`` of its samples, in ``steps`` EM steps (None: until it rests).

    It starts from equal weights, or from those given, which a client without samples keeps.

    >>> losses = jnp.array([[0.0, 9.0], [0.0, 9.0], [0.0, 9.0], [9.0, 0.0]])
    >>> fit_weights(losses, ClientData(losses, losses[:, 0], jnp.asarray(4), jnp.asarray(0))).round(2)
    Array([0.75, 0.25], dtype=float32)
    """
    mean = lambda pi: masked_mean(jax.nn.softmax(jnp.log(pi) - losses, axis=1), data)
    step = lambda pi: jnp.where(data.size > 0, mean(pi), pi)
    start = jnp.full(losses.shape[1], 1 / losses.shape[1]) if start is None else start
    return fixed_point(step, start) if steps is None else fixed_point(step, start, limit=steps, tolerance=0.0)


def fit_groups(
    losses: np.ndarray, sizes: np.ndarray, start: np.ndarray, *, steps: int = 1000, tolerance: float = 1e-6
) -> np.ndarray:
    """π ``(groups, M)`` of groups whose rows lie one after the other in the losses ``(n, M)``, from a start ``(M,)``.

    >>> fit_groups(np.array([[0.0, 9.0], [0.0, 9.0], [9.0, 0.0]]), np.array([2, 1]), np.array([0.5, 0.5])).round(2)
    array([[1., 0.],
           [0., 1.]])
    """
    owner, first = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes
    pi = np.tile(start, (len(sizes), 1)).astype(np.float64)
    for _ in range(steps):
        with np.errstate(divide="ignore"):
            q = scipy.special.softmax(np.log(pi)[owner] - losses, axis=1)
        before, pi = pi, np.add.reduceat(q, first, axis=0) / sizes[:, None]
        if np.abs(pi - before).max() <= tolerance:
            break
    return pi
