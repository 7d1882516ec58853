"""Input-convex networks: functions f(x) of points that are convex whatever their parameters, and their gradient maps.

By Brenier's theorem the optimal transport map for squared distances is the gradient of a convex function, so that a
network which can be nothing else is the right family to look for it in. Two of them::

    dense       q_l(x) = (x A_l)² + x B_l + c_l,  l = 0, 1, 2                     entrywise squares
                z_0 = q_0(x),  z_1 = celu(z_0 U_1 + q_1(x)),  z_2 = celu(z_1 U_2 + q_2(x))
                f(x) = z_2 · u + (s/2) ‖x‖²                                       U_1, U_2, u ≥ 0

    plain       z_1 = celu(x B_0 + c_0),  z_2 = celu(z_1 U_1 + x B_1 + c_1), …
                f(x) = z_L · u + (a/2) ‖x‖²                                       U_l, u ≥ 0, a ≥ s learnt

CELU is convex and increasing, so that sums with non-negative weights stay convex; ``project`` clips these weights after
every step. Both start near ∇f(x) = x, the map that moves nothing, with hidden layers that are random and barely
heard: the first steps decide which of them matter.

References: Amos, Xu, Kolter, *Input convex neural networks*, ICML 2017; Korotin et al., *Wasserstein-2 generative
networks*, ICLR 2021 (the dense network); Korotin et al., *Do neural optimal transport solvers work?*, NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.math.checks import check_range, check_whole

WHISPER = 1e-2  # how loud the hidden layers are at the start, beside the identity


class Potential(NamedTuple):
    """A convex function of points (n, d) as a record: ``apply(params, x) -> (n,)``, and what keeps it convex."""

    name: str
    dimension: int
    init: Callable[[jax.Array], dict[str, jax.Array]]
    apply: Callable[[dict[str, jax.Array], jax.Array], jax.Array]
    lower: dict[str, float]  # the weights that must not be below these numbers

    def gradient(self, params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        """∇f at every point, (n, d): the map. Points do not see each other, so one backward pass serves all."""
        return jax.grad(lambda x: self.apply(params, x).sum())(x)

    def project(self, params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The closest parameters of a convex function."""
        return {name: jnp.maximum(v, self.lower[name]) if name in self.lower else v for name, v in params.items()}

    def check(self, params: Any) -> None:
        """Raises a ValueError unless parameters are those of this network, finite and convex: for loaded ones."""
        want = {name: leaf.shape for name, leaf in jax.eval_shape(self.init, jax.random.key(0)).items()}
        got = {name: np.shape(leaf) for name, leaf in params.items()} if isinstance(params, dict) else type(params)
        if got != want:
            raise ValueError(f"the {self.name} network has parameters {want}, got {got}")
        for name, leaf in params.items():
            if not np.isfinite(leaf).all():
                raise ValueError(f"{name} of the {self.name} network has NaN or infinite numbers")
            below = np.asarray(leaf) < self.lower.get(name, -np.inf)
            if below.any():
                raise ValueError(
                    f"{name} of the {self.name} network has {int(below.sum())} weights below {self.lower[name]:g}, so "
                    "that it is not convex and its gradient is no transport map: project the parameters"
                )


def dense_icnn(dimension: int, *, hidden: Sequence[int] | None = None, strong_convexity: float = 1e-4) -> Potential:
    """The dense input-convex network, with quadratic and linear skips into each of its three layers.

    ``hidden`` are the three widths, by default those of the Wasserstein-2 benchmark: (2d, 2d, d), at least (64, 64,
    32). The last one is at least d, as the identity map is written into it.

    >>> network = dense_icnn(2, hidden=(8, 8, 4))
    >>> x = jnp.array([[0.5, -1.0]])
    >>> network.gradient(network.init(jax.random.key(0)), x).round(1)
    Array([[ 0.5, -1. ]], dtype=float32)
    """
    check_whole("dimension", dimension)
    check_range("strong_convexity", strong_convexity, least=0, below=1)
    widths = tuple(hidden) if hidden is not None else (max(2 * dimension, 64),) * 2 + (max(dimension, 32),)
    if len(widths) != 3 or min(widths) < 1 or widths[2] < dimension:
        raise ValueError(
            f"hidden must be three widths, the last at least the dimension {dimension}, got {tuple(widths)}"
        )

    def init(key: jax.Array) -> dict[str, jax.Array]:
        keys = iter(jax.random.split(key, 16))
        normal = lambda *shape: jax.random.normal(next(keys), shape)
        params = {}
        for layer, width in enumerate(widths):
            params[f"A{layer}"] = normal(dimension, width) / dimension**0.5
            params[f"B{layer}"] = normal(dimension, width) / dimension**0.5
            params[f"c{layer}"] = 0.1 * normal(width)
        rows = jnp.linalg.qr(normal(widths[2], dimension))[0].T  # (d, h): orthonormal
        # Σ_j u_j (x · a_j)² = (1 − s)/2 ‖x‖² with all u_j = 1; where squares are positive CELU is the identity
        params["A2"] = ((1 - strong_convexity) / 2) ** 0.5 * rows
        params["B2"] = jnp.zeros((dimension, widths[2]))
        params["c2"] = jnp.full(widths[2], WHISPER)
        params["U1"] = jnp.abs(normal(*widths[:2])) / widths[0]
        params["U2"] = WHISPER * jnp.abs(normal(*widths[1:])) / (widths[1] * widths[2])
        params["u"] = jnp.ones(widths[2])
        return params

    def apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        q = [(x @ params[f"A{layer}"]) ** 2 + x @ params[f"B{layer}"] + params[f"c{layer}"] for layer in range(3)]
        z = jax.nn.celu(q[0] @ params["U1"] + q[1])
        z = jax.nn.celu(z @ params["U2"] + q[2])
        return z @ params["u"] + strong_convexity / 2 * (x**2).sum(axis=-1)

    return Potential("dense convex", dimension, init, apply, dict.fromkeys(("U1", "U2", "u"), 0.0))


def icnn(dimension: int, *, hidden: Sequence[int] = (64, 64), strong_convexity: float = 1e-4) -> Potential:
    """The plain input-convex network: linear skips, and a quadratic whose weight is learnt.

    >>> network = icnn(2, hidden=(8,))
    >>> network.gradient(network.init(jax.random.key(0)), jnp.array([[0.5, -1.0]])).round(1)
    Array([[ 0.5, -1. ]], dtype=float32)
    """
    check_whole("dimension", dimension)
    check_range("strong_convexity", strong_convexity, least=0, below=1)
    widths = tuple(hidden)
    if not widths or min(widths) < 1:
        raise ValueError(f"hidden must be one or more positive widths, got {widths}")

    def init(key: jax.Array) -> dict[str, jax.Array]:
        keys = iter(jax.random.split(key, 3 * len(widths)))
        params = {"a": jnp.ones(())}
        for layer, width in enumerate(widths):
            params[f"B{layer}"] = jax.random.normal(next(keys), (dimension, width)) / dimension**0.5
            params[f"c{layer}"] = 0.1 * jax.random.normal(next(keys), (width,))
            if layer:
                params[f"U{layer}"] = (
                    jnp.abs(jax.random.normal(next(keys), (widths[layer - 1], width))) / (widths[layer - 1])
                )
        return params | {"u": jnp.full(widths[-1], WHISPER / widths[-1])}

    def apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        z = jax.nn.celu(x @ params["B0"] + params["c0"])
        for layer in range(1, len(widths)):
            z = jax.nn.celu(z @ params[f"U{layer}"] + x @ params[f"B{layer}"] + params[f"c{layer}"])
        return z @ params["u"] + params["a"] / 2 * (x**2).sum(axis=-1)

    weights = [f"U{layer}" for layer in range(1, len(widths))]
    return Potential(
        "plain convex", dimension, init, apply, dict.fromkeys([*weights, "u"], 0.0) | {"a": strong_convexity}
    )
