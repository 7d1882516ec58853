"""The Wasserstein barycentre of clients as Gaussians, by a federated fixed point: a reference where none is public.

Clients are N(m_i, C_i), weighed by μ_i = n_i/n. The barycentre is the Gaussian that is nearest to all of them::

    N(m, C) = argmin Σ μ_i W₂²(N(m, C), N(m_i, C_i)),    m = Σ μ_i m_i,    C = Σ μ_i (C^½ C_i C^½)^½

    a round      the server sends C; client i sends A_i, the linear part of the optimal map from N(m, C) to its own
                 C ← Ā C Ā,  Ā = Σ μ_i A_i: the barycentre goes where the mean of all maps carries it

A round never raises the sum: with the couplings of C, which the maps A_i are, kept as they are, the sum has its least
value at the new C, and other couplings can only lower it. It is majorize-minimization, in which clients send maps.

Unlike the covariance of all samples together, C has nothing of the distances *between* clients' means in it.

Reference: Álvarez-Esteban, del Barrio, Cuesta-Albertos, Matrán, *A fixed-point approach to barycenters in Wasserstein
space*, 2016.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core.compilation import jit
from majorant.surrogates.linear.gaussian_map import map_matrix

ROUNDS, TOLERANCE = 200, 1e-9
answers = jit(jax.vmap(map_matrix, in_axes=(None, 0)))  # A_i, on the clients, from C and the C_i


class Barycentre(NamedTuple):
    """A Gaussian, and how many rounds it took."""

    mean: np.ndarray  # (d,)
    covariance: np.ndarray  # (d, d)
    rounds: int

    def sample(self, count: int, seed: int = 0) -> np.ndarray:
        """Rows of it, (count, d)."""
        return np.random.default_rng(seed).multivariate_normal(self.mean, self.covariance, count, method="eigh")


def gaussian_barycentre(means: np.ndarray, covariances: np.ndarray, weights: np.ndarray) -> Barycentre:
    """The barycentre of Gaussians with these means (k, d) and covariances (k, d, d), of positive weights (k,).

    >>> found = gaussian_barycentre(np.array([[0.0], [4.0]]), np.array([[[1.0]], [[9.0]]]), np.array([1.0, 1.0]))
    >>> found.mean.tolist(), found.covariance.round(6).tolist()  # standard deviations are averaged
    ([2.0], [[4.0]])
    """
    shares = np.asarray(weights, float) / np.sum(weights)
    with jax.enable_x64(True):
        own = jnp.asarray(covariances, jnp.float64)
        at = np.tensordot(shares, np.asarray(own), axes=1)
        done, moved = 0, np.inf
        while done < ROUNDS and moved > TOLERANCE * np.abs(at).max():
            mean_map = np.tensordot(shares, np.asarray(answers(jnp.asarray(at), own)), axes=1)
            at, before = mean_map @ at @ mean_map, at
            done, moved = done + 1, np.abs(at - before).max()
    return Barycentre(shares @ means, at, done)
