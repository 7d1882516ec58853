"""Poisson counts with a random effect, by EM: intensities exp(θ + h) with a hidden h of known distribution μ.

The objective is a maximum a posteriori estimate of θ, with a prior proportional to exp(−λ n e^θ) of n samples::

    ℓ(Z, θ) = −log ∫ exp(Z (θ + h) − e^{θ+h}) / Z! μ(dh),      g(θ) = λ e^θ

μ is N(0, σ²), or a set of nodes and weights. Integrals with N(0, σ²) are by adaptive Gauss–Hermite quadrature: around
the mode of Z h − e^{θ+h} − h²/(2σ²), as wide as its curvature says, for every sample. Where counts are large, hardly
any node of μ itself would lie where the integrand does. With E[· | Z, τ] the mean under μ(h) exp(Z h − e^{τ+h}) there
are two forms:

=================  ==========================================  ===================================================
                   both blocks                                 E[Z] given as ``mean``
=================  ==========================================  ===================================================
S̄(Z, τ)            (Z, −E[e^h | Z, τ])                         −E[e^h | Z, τ]
ψ(θ), φ(θ)         0, (θ, e^θ)                                 −θ E[Z], e^θ
T(s)               log(s₁ / (λ − s₂))                          log(E[Z] / (λ − s))
𝒮                  s₁ ≥ ε, s₂ ≤ −ε                             [−M, 0]
=================  ==========================================  ===================================================

The second form sends one number instead of two, but the server must know the mean of all clients' counts, and a client
alone is majorized only where its own mean is that one. For it A7 holds (`poisson_constants`).

Reference: Dieuleveut et al., 2025, Appendices C.1 and E.2. Their (43) leaves out the factor e^{Zh}, which is not
constant under the integral; it is here. 𝒮 is closed by margins, as projections need.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from majorant.core import Key, Tree
from majorant.math.checks import check_range, check_whole
from majorant.solvers import Batch
from majorant.surrogates.linear.latent import given_weights, negative_log, posterior, precise
from majorant.surrogates.linear.record import LinearSurrogate
from majorant.surrogates.linear.validation import check_counts

NEWTON_STEPS = 6


class PoissonConstants(NamedTuple):
    """Assumption A7 of the form with a known mean: v_min ≤ B(s) ≤ v_max, and C⋆ and C⋆⋆ of its two inequalities."""

    v_min: float
    v_max: float
    c_star: float
    c_star_star: float


def poisson(
    *,
    deviation: float = 1.0,
    penalty: float = 0.1,
    nodes: Any = None,
    weights: Any = None,
    quadrature: int = 32,
    mean: float | None = None,
    bound: float | None = None,
    margin: float = 1e-6,
    start: float = 0.0,
) -> LinearSurrogate:
    """Counts ``(n, 1)`` or ``(n,)`` with intensities exp(θ + h); θ is a scalar.

    h has the standard deviation ``deviation`` (normal, ``quadrature`` nodes), or the distribution of ``weights`` on
    ``nodes``. ``penalty`` is λ. ``mean`` chooses the second form, and ``bound`` is its M: without one, e^h at the
    largest node (of N(0, σ²): at the outermost node of its own quadrature, ten deviations out for 32 nodes). With given
    nodes no statistic is larger. ``margin`` is the ε of the first form.

    32 nodes are exact to 10⁻⁶ up to a deviation of 1.5, whatever the counts; 2 needs 64, and more needs more.

    >>> surrogate = poisson(deviation=0.0, penalty=0.5)
    >>> theta = surrogate.minimize({"count": jnp.array(3.0), "effect": jnp.array(-1.0)})
    >>> round(float(jnp.exp(theta)), 3)  # 3 / (0.5 + 1)
    2.0
    """
    check_range("penalty", penalty, least=0)
    check_range("margin", margin, above=0)
    check_range("start", start)
    if bound is not None and mean is None:
        raise ValueError("bound is the M of the form with a known mean: give mean too")
    h, log_mass = hidden(deviation, nodes, weights, quadrature)

    def at(theta: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The nodes of every sample, and log μ(h) exp(Z (θ + h) − e^{θ+h}) there: (n, nodes), or (nodes,) if shared."""
        z = counts_of(x, theta.dtype)[:, None]
        points, mass = jnp.asarray(h, theta.dtype), jnp.asarray(log_mass, theta.dtype)
        if nodes is None and deviation > 0:
            points, mass = adapted(z, jax.lax.stop_gradient(theta), deviation, points / deviation, mass)
        return points, mass + z * (theta + points) - bounded_exp(theta + points)

    def joint(theta: jax.Array, x: jax.Array) -> jax.Array:
        return at(theta, x)[1]

    def excess(theta: jax.Array, x: jax.Array) -> jax.Array:
        """E[e^h | Z, θ] of every sample, (n,)."""
        points, heights = at(theta, x)
        return (posterior(heights) * bounded_exp(points)).sum(axis=1)

    def losses(theta: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return negative_log(joint(theta, x)) + gammaln(counts_of(x, theta.dtype) + 1)

    both = LinearSurrogate(
        name="poisson",
        init=lambda key: starting_point(key, start),
        statistic=lambda theta, batch: with_counts(theta, batch, excess(theta, batch.x)),
        minimize=lambda s: jnp.log(s["count"] / (penalty - s["effect"])),
        losses=losses,
        project=lambda s: {"count": jnp.maximum(s["count"], margin), "effect": jnp.minimum(s["effect"], -margin)},
        penalty=lambda theta: penalty * jnp.exp(theta),
        psi=lambda theta: jnp.zeros((), theta.dtype),
        phi=lambda theta: {"count": theta, "effect": jnp.exp(theta)},
        predict=lambda theta, x: jnp.exp(theta) * excess(theta, x),
        check=lambda x, y: check_counts(counts_of(x, x.dtype)),
    )
    if mean is None:
        return precise(both)
    check_range("mean", mean, above=0)
    check_range("penalty, with a known mean,", penalty, above=0)
    most = math.exp(h.max()) if bound is None else bound
    check_range("bound", most, above=0)
    alone = both._replace(
        name="poisson, known mean",
        statistic=lambda theta, batch: -(batch.shares.astype(theta.dtype) @ excess(theta, batch.x)),
        minimize=lambda s: jnp.log(mean / (penalty - s)),
        project=lambda s: jnp.clip(s, -most, 0),
        psi=lambda theta: -mean * theta,
        phi=jnp.exp,
        metric=lambda s, direction: mean / (penalty - s) ** 2 * direction,
    )
    return precise(alone)


def poisson_constants(*, mean: float, penalty: float, bound: float) -> PoissonConstants:
    """The constants of A7 for `poisson` with a known ``mean`` E[Z], for the step sizes of Theorem 1.

    B(s) = E[Z] / (λ − s)² on [−M, 0], so that v_min and v_max carry E[Z] too, which Appendix E.2 leaves out.

    >>> poisson_constants(mean=2.0, penalty=0.5, bound=1.5)
    PoissonConstants(v_min=0.5, v_max=8.0, c_star=16.0, c_star_star=8.0)
    """
    for name, value in {"mean": mean, "penalty": penalty, "bound": bound}.items():
        check_range(name, value, above=0)
    return PoissonConstants(mean / (penalty + bound) ** 2, mean / penalty**2, mean / penalty**3, mean / penalty**2)


def hidden(deviation: float, nodes: Any, weights: Any, quadrature: int) -> tuple[np.ndarray, np.ndarray]:
    """The values that h has, and the logarithms of their probabilities."""
    if (nodes is None) != (weights is None):
        raise ValueError("give nodes and weights of the hidden variable both, or neither")
    if nodes is not None:
        h = np.asarray(nodes, np.float64)
        if h.ndim != 1 or h.size == 0 or not np.isfinite(h).all():
            raise ValueError(f"nodes must be a vector of finite numbers, got an array of shape {h.shape}")
        return h, np.log(given_weights("weights", weights, h.size))
    check_range("deviation", deviation, least=0)
    check_whole("quadrature", quadrature)
    points, mass = np.polynomial.hermite.hermgauss(quadrature)
    return math.sqrt(2) * deviation * points, np.log(mass) - math.log(math.pi) / 2


def adapted(
    z: jax.Array, theta: jax.Array, deviation: float, points: jax.Array, mass: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Nodes for every count ``(n, 1)`` and the logarithms of their weights, from a quadrature of N(0, 1).

    The mode is h = v − log σ² − θ where e^v + v = c with c = log σ² + θ + σ² Z. Newton's method starts at or right of
    the root of that convex function, and comes down to it.
    """
    variance = deviation**2
    c = math.log(variance) + theta + variance * z
    v = jnp.minimum(c, jnp.log(jnp.maximum(c, 1)))
    v = jax.lax.fori_loop(0, NEWTON_STEPS, lambda _, v: v - (jnp.exp(v) + v - c) / (jnp.exp(v) + 1), v)
    mode = v - math.log(variance) - theta
    shrunk = 1 / jnp.sqrt(1 + jnp.exp(v))  # the deviation around the mode, in units of σ
    h = mode + deviation * shrunk * points
    return h, mass + jnp.log(shrunk) + points**2 / 2 - (h / deviation) ** 2 / 2


def bounded_exp(value: jax.Array) -> jax.Array:
    """e^value, but finite: nodes where it is not weigh nothing."""
    return jnp.exp(jnp.minimum(value, math.log(jnp.finfo(value.dtype).max) - 1))


def counts_of(x: Any, dtype: Any) -> Any:
    """The counts ``(n,)`` in samples ``(n, 1)`` or ``(n,)``."""
    if x.ndim > 2 or (x.ndim == 2 and x.shape[1] != 1):
        raise ValueError(f"the Poisson model needs one count per sample, (n, 1) or (n,); got samples {x.shape}")
    return x.reshape(-1).astype(dtype)


def with_counts(theta: jax.Array, batch: Batch, effects: jax.Array) -> Tree:
    share = batch.shares.astype(theta.dtype)
    return {"count": share @ counts_of(batch.x, theta.dtype), "effect": -(share @ effects)}


def starting_point(key: Key, start: float) -> jax.Array:
    del key
    return jnp.asarray(start, jnp.result_type(float))
