"""Self-centred clipping: the weights with which nodes of a graph clip what their neighbours sent."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from majorant.core import Tree
from majorant.exchange.displacements import distances, lengths, middle_of
from majorant.exchange.mixing import Dense, Mixing, Table


def clip_links(mixing: Mixing, tree: Tree, present: jax.Array, radius: float | None) -> Mixing:
    """The weights of a round with which nodes clip what their neighbours sent around their own values.

    A node gives w_ij · min(1, τ_i/‖x_j − x_i‖) to a neighbour and the rest to itself. τ_i None is the median of the
    distances to those that it hears, its own, 0, among them: a node bears hostile neighbours as long as they are no
    more than half of them.
    """
    if isinstance(mixing, Dense):
        own = jnp.eye(present.shape[0], dtype=bool)
        away = jnp.sqrt(distances(tree, present))  # (n, n)
        linked = (mixing.weights != 0) & present[None, :] | own
        factor = jnp.where(own, 1, shortening(jnp.where(own, 0, away), linked, radius))
        kept = mixing.weights * factor.astype(mixing.weights.dtype)
        return Dense(kept + jnp.diag((mixing.weights - kept).sum(axis=1)))
    along = lambda index: lengths(jax.tree.map(lambda a: a[index] - a, tree))
    away = jax.lax.map(along, mixing.index.T).T  # (n, k)
    linked = (mixing.weight != 0) & present[mixing.index]
    itself = jnp.zeros((present.shape[0], 1), away.dtype)
    with_own = jnp.concatenate([itself, away], axis=1), jnp.concatenate([itself == 0, linked], axis=1)
    kept = mixing.weight * shortening(*with_own, radius)[:, 1:].astype(mixing.weight.dtype)
    return Table(mixing.index, kept, mixing.own + (mixing.weight - kept).sum(axis=1))


def shortening(away: jax.Array, linked: jax.Array, radius: float | None) -> jax.Array:
    """By how much each link's difference is shortened, from its length."""
    bound = middle_of(away.T, linked.T)[:, None] if radius is None else jnp.asarray(radius, away.dtype)
    return jnp.minimum(1, bound / jnp.maximum(away, jnp.finfo(away.dtype).tiny))
