"""Gaussian mixtures by EM: unknown weights, means and covariances (full, diagonal or spherical).

::

    ℓ(z, θ) = −log Σ_k π_k N(z; m_k, Γ_k)
    S̄(z, τ) = (r_k, √2 r_k z, r_k z zᵀ)_k,  r_k = P(k | z, τ)
    ψ(θ) = 0,  φ(θ) = (log π_k − ½ log|Γ_k| − ½ m_kᵀ Γ_k⁻¹ m_k, Γ_k⁻¹ m_k / √2, −½ Γ_k⁻¹)_k
    T(s):  π_k = s⁰_k / Σ s⁰,  m_k = s¹_k / s⁰_k,  Γ_k = S²_k / s⁰_k − m_k m_kᵀ + reg_covar · I
    𝒮: every joint moment matrix [[s⁰, s¹ᵀ], [s¹, S²]] positive semidefinite (`gaussian_shapes`), and at least ε I where
       neither reg_covar nor a prior keeps covariances from being singular

A component starves when its share vanishes: T counts it as ε, and everything stays finite.

A statistic and T are one iteration of scikit-learn's `GaussianMixture`, to rounding, with its ``reg_covar`` too. With
that floor T is no minimiser any more, however close to one, and the objective may rise by as little: ψ and φ are left
out then. A prior does the same work exactly: T adds numbers to the statistic, and minimises g + ψ − ⟨s, φ⟩.

Moments are taken around ``center``. In single precision samples should not be far from it, compared to the components'
widths: T subtracts squares.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Key, Tree, beside
from majorant.math.checks import check_range, check_whole
from majorant.solvers import Batch
from majorant.surrogates.linear.gaussian_shapes import ROOT, Shape, shape_of
from majorant.surrogates.linear.latent import (
    as_tree,
    check_start,
    given,
    given_covariances,
    given_weights,
    located,
    negative_log,
    posterior,
    precise,
    samples,
)
from majorant.surrogates.linear.record import LinearSurrogate


class MixturePrior(NamedTuple):
    """A conjugate prior: Dirichlet(α) on the weights, normal-inverse-Wishart on every mean and covariance.

    g is the negative logarithm of its density (constants left out) divided by ``samples``, the number of samples of all
    clients: g is added to the *mean* loss, and the minimum is then the maximum a posteriori estimate.

    m | Γ ~ N(location, Γ / strength) and Γ ~ inverse-Wishart(degrees, scale). ``scale`` is (p, p), (p,) for diagonal
    covariances (an inverse-gamma density for each variance) or a number for spherical ones; a number stands for a
    multiple of the identity. Without ``degrees`` means and covariances have a flat prior.
    """

    samples: float
    concentration: float = 1.0  # α of every component
    location: Any = 0.0  # (p,), or a number
    strength: float = 0.0
    degrees: float | None = None
    scale: Any = 0.0


class Pseudo(NamedTuple):
    """A prior as numbers that T adds: to weights, to the moments, and to what covariances are divided by."""

    weight: float
    mass: float
    location: np.ndarray  # (p,), around the center
    scatter: np.ndarray  # one component's, as statistics hold it
    degrees: float


def gaussian_mixture(
    features: int,
    components: int,
    *,
    covariance: str = "full",
    reg_covar: float = 1e-6,
    prior: MixturePrior | None = None,
    margin: float = 1e-9,
    center: Any = 0.0,
    start: dict[str, Any] | None = None,
) -> LinearSurrogate:
    """A mixture of Gaussians on samples ``(n, features)``; parameters are ``weights``, ``means`` and ``covariances``.

    ``covariance`` is "full" (K, p, p), "diagonal" (K, p) or "spherical" (K,). ``margin`` is ε: no component has a
    smaller share. ``start`` is a dict of parameters; without one, weights are equal, covariances the identity and
    means drawn from N(center, I). `mixture_parameters` computes a start from responsibilities.

    >>> surrogate = gaussian_mixture(2, 3, covariance="diagonal")
    >>> {name: a.shape for name, a in surrogate.init(jax.random.key(0)).items()}
    {'weights': (3,), 'means': (3, 2), 'covariances': (3, 2)}
    """
    check_whole("features", features)
    check_whole("components", components)
    check_range("reg_covar", reg_covar, least=0)
    check_range("margin", margin, above=0, below=1 / components)
    shape = shape_of(covariance)
    around = located("center", center, features)
    pseudo = as_pseudo(prior, shape, features, around)
    first = None if start is None else checked_start(start, shape, components, features)

    def init(key: Key) -> Tree:
        if first is not None:
            return as_tree(first)
        dtype = jnp.result_type(float)
        means = jax.random.normal(key, (components, features), dtype) + jnp.asarray(around, dtype)
        equal = jnp.full(components, 1 / components, dtype)
        return {"weights": equal, "means": means, "covariances": shape.identity(components, features).astype(dtype)}

    def joint(params: Tree, x: jax.Array) -> jax.Array:
        z = samples(x, features, params["means"].dtype)
        return jnp.log(params["weights"]) + shape.densities(params["means"], params["covariances"], z)

    def statistic(params: Tree, batch: Batch) -> Tree:
        dtype = params["means"].dtype
        r = posterior(joint(params, batch.x)) * batch.shares.astype(dtype)[:, None]
        return moments(shape, r, batch.x.astype(dtype) - jnp.asarray(around, dtype))

    def phi(params: Tree) -> Tree:
        means = params["means"] - jnp.asarray(around, params["means"].dtype)
        tilt, precisions, volume = shape.natural(means, params["covariances"])
        level = jnp.log(params["weights"]) - volume / 2 - (means * tilt).sum(axis=1) / 2
        return {"shares": level, "first": tilt / ROOT, "second": -precisions / 2}

    def penalty(params: Tree) -> jax.Array:
        means = params["means"] - jnp.asarray(around + pseudo.location, params["means"].dtype)
        tilt, precisions, volume = shape.natural(means, params["covariances"])
        spread = (precisions * jnp.asarray(pseudo.scatter, precisions.dtype)).sum()
        pulls = pseudo.mass * (means * tilt).sum() + pseudo.degrees * (volume / per_volume).sum() + spread
        return pulls / 2 - pseudo.weight * jnp.log(params["weights"]).sum()

    proper = reg_covar > 0 or (prior is not None and prior.degrees is not None)
    least = 0.0 if proper else margin
    per_volume = features if shape.name == "spherical" else 1
    exact = reg_covar == 0
    surrogate = LinearSurrogate(
        name=f"gaussian-mixture, {shape.name}",
        init=init,
        statistic=statistic,
        minimize=lambda s: minimiser(s, shape, pseudo, reg_covar, margin, around),
        losses=lambda params, x, y: negative_log(joint(params, x)),
        project=lambda s: shape.project(s, least),
        penalty=penalty if prior is not None else lambda params: jnp.zeros((), params["means"].dtype),
        psi=(lambda params: jnp.zeros((), params["means"].dtype)) if exact else None,
        phi=phi if exact else None,
        predict=lambda params, x: posterior(joint(params, x)),
    )
    return precise(surrogate)


def moments(shape: Shape, r: jax.Array, z: jax.Array) -> Tree:
    """Σ r, √2 Σ r z, Σ r z zᵀ over samples z, with r ``(n, K)``."""
    return {"shares": r.sum(axis=0), "first": ROOT * (r.T @ z), "second": shape.second(r, z)}


def minimiser(s: Tree, shape: Shape, pseudo: Pseudo, reg_covar: float, margin: float, around: np.ndarray) -> Tree:
    """T; shares and variances are kept above rounding errors, and are left alone wherever they are."""
    dtype = s["first"].dtype
    features = s["first"].shape[1]
    shares = jnp.maximum(s["shares"], margin)
    weights = (shares + pseudo.weight) / (shares + pseudo.weight).sum()
    mass = shares + pseudo.mass
    location, scatter = jnp.asarray(pseudo.location, dtype), jnp.asarray(pseudo.scatter, dtype)
    means = (s["first"] / ROOT + pseudo.mass * location) / mass[:, None]
    second = s["second"] + scatter + pseudo.mass * shape.outer(location[None])
    column = lambda a: beside(a, second)
    counted = shares * (features if shape.name == "spherical" else 1) + pseudo.degrees
    spread = (second - column(mass) * shape.outer(means)) / column(counted)
    square = (means**2).sum(axis=1) if shape.name == "spherical" else means**2
    total = shape.total(second)
    along = lambda a: beside(a, total)
    rounding = 8 * features * jnp.finfo(dtype).eps * (jnp.abs(total) + along(mass) * square) / along(counted)
    covariances = shape.covariances(spread, rounding + jnp.finfo(dtype).tiny)
    ridge = reg_covar * shape.identity(*means.shape).astype(dtype)
    return {"weights": weights, "means": means + jnp.asarray(around, dtype), "covariances": covariances + ridge}


def mixture_parameters(
    x: Any, responsibilities: Any, *, covariance: str = "full", reg_covar: float = 1e-6, margin: float = 1e-9
) -> dict[str, np.ndarray]:
    """The parameters that responsibilities ``(n, K)`` lead to: those of k-means clusters, or random ones, for a start.

    They are NumPy arrays in the precision of the samples.

    >>> start = mixture_parameters([[0.0], [2.0], [5.0]], [[1, 0], [1, 0], [0, 1]], covariance="spherical")
    >>> start["means"]
    array([[1.],
           [5.]])
    """
    r = np.asarray(responsibilities)
    if r.ndim != 2 or len(r) != len(x) or np.ndim(x) != 2 or 0 in r.shape:
        raise ValueError(f"give samples (n, p) and responsibilities (n, K); got {np.shape(x)} and {r.shape}")
    if not (r >= 0).all() or np.abs(r.sum(axis=1) - 1).max() > 1e-4:
        raise ValueError("responsibilities must be at least 0, and those of every sample must sum to 1")
    shape, z = shape_of(covariance), np.asarray(x)
    dtype = z.dtype if np.issubdtype(z.dtype, np.floating) else np.dtype(np.float64)
    z = z.astype(np.float64)
    shares = np.maximum(r.mean(axis=0), margin)
    within = r / len(z) / shares  # (n, K)
    means = within.T @ (z - z.mean(axis=0)) + z.mean(axis=0)
    spreads = [spread(shape, w, z - m, np.finfo(dtype).eps) for w, m in zip(within.T, means, strict=True)]
    ridge = reg_covar * (np.eye(z.shape[1]) if shape.name == "full" else 1.0)
    start = {"weights": shares / shares.sum(), "means": means, "covariances": np.stack(spreads) + ridge}
    return {name: a.astype(dtype) for name, a in start.items()}


def spread(shape: Shape, weights: np.ndarray, z: np.ndarray, eps: float) -> np.ndarray:
    """The covariance of samples around 0, with no variance below a rounding error of the largest one."""
    if shape.name == "spherical":
        return np.maximum(weights @ (z**2).mean(axis=1), np.finfo(np.float32).tiny)
    variances = weights @ z**2
    least = 8 * z.shape[1] * eps * variances.sum() + np.finfo(np.float32).tiny
    if shape.name == "diagonal":
        return np.maximum(variances, least)
    values, vectors = np.linalg.eigh((weights[:, None] * z).T @ z)
    return (vectors * np.maximum(values, least)) @ vectors.T


def as_pseudo(prior: MixturePrior | None, shape: Shape, features: int, around: np.ndarray) -> Pseudo:
    """What a prior adds in T; wrong ones are refused."""
    zero = np.zeros({"full": features * (features + 1) // 2, "diagonal": features}.get(shape.name, ()))
    if prior is None:
        return Pseudo(0.0, 0.0, np.zeros(features), zero, 0.0)
    check_range("samples of the prior", prior.samples, above=0)
    check_range("concentration of the prior", prior.concentration, least=1)
    check_range("strength of the prior", prior.strength, least=0)
    location = located("location of the prior", prior.location, features) - around
    weight = (prior.concentration - 1) / prior.samples
    if prior.degrees is None:
        if prior.strength or np.any(prior.scale):
            raise ValueError("a prior with strength or scale needs degrees, those of the inverse-Wishart density")
        return Pseudo(weight, 0.0, location, zero, 0.0)
    check_range("degrees of the prior", prior.degrees, least=0)
    scatter = scale_of(prior.scale, shape, features) / prior.samples
    degrees = prior.degrees + (3 if shape.name == "diagonal" else features + 2)  # of the two densities together
    return Pseudo(weight, prior.strength / prior.samples, location, scatter, degrees / prior.samples)


def scale_of(scale: Any, shape: Shape, features: int) -> np.ndarray:
    """The scale of an inverse-Wishart density, as statistics hold second moments."""
    if shape.name == "spherical":
        value = given("scale of the prior", scale, ())
        if value <= 0:
            raise ValueError(f"scale of the prior must be positive, got {value:g}")
        return value
    if shape.name == "diagonal":
        value = located("scale of the prior", scale, features)
        if not (value > 0).all():
            raise ValueError(f"scale of the prior must be positive, its least entry is {value.min():g}")
        return value
    matrix = np.eye(features) * scale if np.ndim(scale) == 0 else np.asarray(scale)
    matrix = given_covariances("scale of the prior", matrix[None], 1, features)[0]
    rows, columns = np.triu_indices(features)
    return matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2))


def checked_start(start: dict[str, Any], shape: Shape, components: int, features: int) -> dict[str, np.ndarray]:
    """Starting parameters in double precision; refused where they are none of a mixture."""
    check_start(start, ("weights", "means", "covariances"))
    weights = given_weights("weights of the start", start["weights"], components)
    means = given("means of the start", start["means"], (components, features))
    name, value = "covariances of the start", start["covariances"]
    if shape.name == "full":
        covariances = given_covariances(name, value, components, features)
    else:
        covariances = given(name, value, (components, features)[: 2 if shape.name == "diagonal" else 1])
        if not (covariances > 0).all():
            raise ValueError(f"{name} must be positive, the least is {covariances.min():g}")
    return {"weights": weights, "means": means, "covariances": covariances}
