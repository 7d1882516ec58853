"""The steps of the coordinate methods that need no data: the maps of u_y, u_z and v in the iteration of `_coordinate`.

They are linear in (u_y, u_z, v, g), with the same numbers for all coordinates: many of them along one g are a power of
a 4×4 matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Tree
from majorant.methods._two_blocks import Iterates, combine, zeros


class Form(NamedTuple):
    """Which of the methods it is."""

    accelerated: bool
    control_variates: bool
    warm_up: bool = False  # control variates come in when progress without them has stopped
    replays: bool = False  # absent clients replay the steps they missed, or else rest
    shared_samples: bool = False

    def thetas(self, hyper: dict[str, jax.Array], reduced: jax.Array) -> tuple[jax.Array, jax.Array]:
        """θ_1 and θ_2, of one who has a v or has none."""
        if not self.warm_up:
            return hyper["theta_1"], hyper["theta_2"] if self.control_variates else jnp.zeros_like(hyper["theta_1"])
        return jnp.where(reduced, hyper["theta_1"], hyper["theta"]), jnp.where(reduced, hyper["theta_2"], 0.0)

    def between(self, hyper: dict[str, jax.Array], u: Iterates, v: Tree, reduced: jax.Array) -> Tree:
        """u_x."""
        if not self.accelerated:
            return u.y
        theta_1, theta_2 = self.thetas(hyper, reduced)
        point = combine((theta_1, u.z), (1 - theta_1 - theta_2, u.y))
        return combine((1, point), (theta_2, v)) if self.control_variates else point

    def move(self, hyper: dict[str, jax.Array], u: Iterates, x: Tree, g: Tree) -> Iterates:
        """u_y⁺ and u_z⁺, from x along g."""
        y = combine((1, x), (-hyper["lr"], g))
        if not self.accelerated:
            return Iterates(y, ())
        return Iterates(y, combine((hyper["nu"], u.z), (1 - hyper["nu"], x), (-hyper["gamma"], g)))

    def jump(
        self, hyper: dict[str, jax.Array], count: jax.Array, u: Iterates, v: Tree, g: Tree, reduced: jax.Array
    ) -> Iterates:
        """``count`` moves along the same g: a power of the matrix of one move on (u_y, u_z, v, g)."""
        if not self.control_variates:
            v = g = zeros(u.y)
        if not self.accelerated:
            return Iterates(combine((1, u.y), (-hyper["lr"] * count, g)), ())
        theta_1, theta_2 = self.thetas(hyper, reduced)
        x = jnp.stack([1 - theta_1 - theta_2, theta_1, theta_2, jnp.zeros_like(theta_1)])
        z, g_only = jnp.eye(4, dtype=x.dtype)[1], jnp.eye(4, dtype=x.dtype)[3]
        one = jnp.stack([
            x - hyper["lr"] * g_only,
            hyper["nu"] * z + (1 - hyper["nu"]) * x - hyper["gamma"] * g_only,
            jnp.eye(4, dtype=x.dtype)[2],
            g_only,
        ])  # fmt: skip
        many = matrix_power(one, count)
        row = lambda r: combine(*zip(many[r], (u.y, u.z, v, g), strict=True))
        return Iterates(row(0), row(1))


def matrix_power(matrix: jax.Array, count: jax.Array) -> jax.Array:
    """A power that need not be known when it is compiled, by squaring.

    >>> matrix_power(jnp.array([[1.0, 1.0], [0.0, 1.0]]), jnp.asarray(5))
    Array([[1., 5.],
           [0., 1.]], dtype=float32)
    """

    def bit(i: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        power, square = state
        multiply = lambda a, b: jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
        return jnp.where((count >> i) & 1 == 1, multiply(power, square), power), multiply(square, square)

    return jax.lax.fori_loop(0, 31, bit, (jnp.eye(len(matrix), dtype=matrix.dtype), matrix))[0]
