"""Optimal transport maps as best responses: a convex network f_ω that all clients fit, and another that inverts it.

Clients' samples have distributions P_i, P = Σ μ_i P_i, and Q is public. The dual of transport with squared distances is
min_f E_P f(X) + E_Q f*(Y), f convex, with f*(y) = sup_x ⟨x, y⟩ − f(x); ∇f carries P onto Q, and ∇f* back. With a second
convex network and T_θ = ∇f_θ in the place of the maximiser::

    max-min (MMv2)    ω ↓  E_P f_ω(X) + E_Q [⟨T_θ(Y), Y⟩ − f_ω(T_θ(Y))]
                      θ ↑  E_Q [⟨T_θ(Y), Y⟩ − f_ω(T_θ(Y))]

    cycle (W2GN)      ω ↓  the same + λ E_Q ‖∇f_ω(T_θ(Y)) − Y‖²
                      θ ↓  E_Q ‖∇f_ω(T_θ(Y)) − Y‖²

The paper's (32) and (33) *minimise* the sum over both; but the conjugate is a supremum, so that θ must go up its part
or follow the cycle alone. As printed the objective is unbounded below, and the inverse is a minimum over θ only where
∇²f_ω has no eigenvalue below 1/(2λ): where the map shrinks more, runs diverge.

`in_gaussian_coordinates` changes variables so that the identity is the map between the Gaussians of P and Q: with
A = L² (L symmetric), g(s L (x − m_P))/s² + ⟨m_Q, x⟩ is convex where g is; its gradient is m_Q + L ∇g(s L (x − m_P))/s.

References: Makkuva et al., *Optimal transport mapping via input convex neural networks*, ICML 2020; Korotin et al.,
*Wasserstein-2 generative networks*, ICLR 2021; Korotin et al., *Do neural optimal transport solvers work?*, NeurIPS
2021 (MMv2); Dieuleveut, Fort, Hegazy, Wai, 2025, Section 7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Key, Tree
from majorant.math.checks import check_range, check_whole
from majorant.math.quadratic import EXACT
from majorant.models.convex import Potential
from majorant.surrogates.best_response import BestResponse, Hyper, Pair
from majorant.surrogates.linear.gaussian_map import map_matrix, roots

Sampler = Callable[[Key], jax.Array]  # key -> public samples (m, d)
LOSSES = ("max-min", "cycle")


def transport_potentials(
    network: Potential, reference: np.ndarray | Sampler, *, loss: str = "max-min", cycle: float = 1.0, batch: int = 1024
) -> BestResponse:
    """The transport problem with one convex network for f and one for its conjugate.

    ``reference`` are public samples (m, d), of which a batch is drawn with replacement, or a function ``key -> (batch,
    d)`` that draws fresh ones. ``cycle`` is λ, of the "cycle" loss alone.
    """
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {loss!r}")
    check_range("cycle", cycle, least=0)
    check_whole("batch", batch)
    draw = drawn(reference, network.dimension) if callable(reference) else rows_of(reference, network.dimension, batch)

    def init(key: Key) -> Pair:
        params = network.init(key)
        return Pair(params, params)  # the identity is its own inverse

    def dual(omega: Tree, theta: Tree, y: jax.Array) -> jax.Array:
        """⟨T(y), y⟩ − f_ω(T(y)): f*(y) from below."""
        back = network.gradient(theta, y)
        return (back * y).sum(axis=1) - network.apply(omega, back)

    def round_trip(omega: Tree, theta: Tree, y: jax.Array) -> jax.Array:
        return ((network.gradient(omega, network.gradient(theta, y)) - y) ** 2).sum(axis=1)

    def public(omega: Tree, theta: Tree, y: jax.Array, hyper: Hyper) -> jax.Array:
        value = dual(omega, theta, y)
        return value if loss == "max-min" else value + hyper["cycle"] * round_trip(omega, theta, y)

    def response(omega: Tree, theta: Tree, y: jax.Array, hyper: Hyper) -> jax.Array:
        return -dual(omega, theta, y) if loss == "max-min" else round_trip(omega, theta, y)

    return BestResponse(
        name=f"transport, {loss}",
        init=init,
        losses=lambda omega, theta, x, y: network.apply(omega, x),
        draw=draw,
        public=public,
        response=response,
        project=network.project,
        project_theta=network.project,
        hyper={"cycle": cycle} if loss == "cycle" else {},
        predict=lambda pair, x: network.gradient(pair.omega, x),
    )


def drawn(sampler: Sampler, dimension: int) -> Sampler:
    """The sampler, if what it draws is as wide as the clients' samples."""
    shape = jax.eval_shape(sampler, jax.random.key(0)).shape
    if len(shape) != 2 or shape[1] != dimension or not shape[0]:
        raise ValueError(f"the reference draws samples of shape {shape}, and (batch, {dimension}) is needed")
    return sampler


def rows_of(reference: Any, dimension: int, batch: int) -> Sampler:
    """Draws rows of public samples with replacement."""
    rows = np.asarray(reference)
    check_reference(rows, dimension)
    y = rows.astype(np.float32 if rows.dtype.kind in "iub" else rows.dtype)
    return lambda key: jnp.asarray(y, jnp.result_type(float))[jax.random.randint(key, (batch,), 0, len(y))]


def check_reference(rows: np.ndarray, dimension: int) -> None:
    """Public samples must be finite, as wide as the clients', and more than they are wide."""
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise ValueError(f"the reference must be numbers of shape (samples, features), got {rows.dtype} {rows.shape}")
    if rows.shape[1] != dimension:
        raise ValueError(
            f"the reference has {rows.shape[1]} features and the clients' samples have {dimension}: a transport map "
            "needs the same columns on both sides"
        )
    if not np.isfinite(rows).all():
        raise ValueError(
            f"the reference has NaN or infinite numbers, first in row {int(np.argmin(np.isfinite(rows).all(axis=1)))}"
        )
    if len(rows) <= dimension:
        raise ValueError(
            f"{len(rows)} reference samples are too few in {dimension} dimensions: give at least {dimension + 1}, and "
            "hundreds for a map worth having"
        )


class Coordinates(NamedTuple):
    """New coordinates x̃ = s L (x − m_P), ỹ = s L⁻¹ (y − m_Q): P and Q have mean 0 and one covariance, of trace d."""

    source: np.ndarray  # m_P
    target: np.ndarray  # m_Q
    root: np.ndarray  # L, symmetric, L² = A
    back: np.ndarray  # L⁻¹
    scale: float = 1.0  # s

    def into(self, x: Any) -> Any:
        """Samples of clients in the new coordinates."""
        return self.scale * times(x - self.source, self.root)

    def reference_into(self, y: Any) -> Any:
        """Samples of the reference in the new coordinates."""
        return self.scale * times(y - self.target, self.back)

    def out(self, moved: Any) -> Any:
        """Transported samples back in the coordinates of the reference."""
        return self.target + times(moved, self.root) / self.scale

    def source_out(self, moved: Any) -> Any:
        """Samples of the reference that were carried back, in the clients' coordinates."""
        return self.source + times(moved, self.back) / self.scale

    def check(self, dimension: int) -> None:
        """Raises a ValueError unless these are finite, of a dimension and can be undone: for loaded ones."""
        shapes = {"source": (dimension,), "target": (dimension,), "root": (dimension,) * 2, "back": (dimension,) * 2}
        for name, shape in (shapes | {"scale": ()}).items():
            value = np.asarray(getattr(self, name))
            if value.shape != shape or not np.isfinite(value).all():
                raise ValueError(f"{name} of the coordinates must be finite numbers of shape {shape}, got {value}")
        if self.scale <= 0 or not np.allclose(self.root @ self.back, np.eye(dimension), atol=1e-6):
            raise ValueError(
                "the coordinates cannot be undone: root and back are not inverse, or the scale is not above 0"
            )


def times(x: Any, matrix: Any) -> Any:
    """x · matrix, exactly, for NumPy and JAX."""
    return x @ matrix if isinstance(x, np.ndarray) else jnp.matmul(x, jnp.asarray(matrix, x.dtype), precision=EXACT)


def in_gaussian_coordinates(mean: Any, covariance: Any, mean_q: Any, covariance_q: Any) -> Coordinates:
    """Coordinates in which the identity is the optimal map between the two Gaussians.

    >>> change = in_gaussian_coordinates([1.0], [[1.0]], [0.0], [[4.0]])
    >>> change.out(change.into(np.array([[2.0]]))).round(6).tolist()
    [[2.0]]
    """
    with jax.enable_x64(True):
        covariance = jnp.asarray(covariance, jnp.float64)
        root, back = roots(map_matrix(covariance, jnp.asarray(covariance_q, jnp.float64)))
        scale = float(jnp.sqrt(covariance.shape[0] / jnp.trace(root @ covariance @ root)))
    plain = lambda a: np.asarray(a, np.float64)
    return Coordinates(plain(mean), plain(mean_q), plain(root), plain(back), scale)
