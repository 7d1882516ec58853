"""What a server may know of a mixture's components: the share of all samples that each explains.

Clients send their π_t beside their components, and the server has the mean, the share of component m::

    s_m = Σ_t n_t π_tm / Σ_t n_t

Only this sum is needed, so that it can be a secure one. Two things can be done with it.

* *Averages by responsibilities.* The average Σ_t (n_t/n) θ_m,t counts every client in full, also those that have no
  samples of component m and hardly move it: a component moves s_m times as far as its own clients would take it. Here
  it moves by that displacement divided by s_m; with clients of one component each, to the mean of its clients' models.
* *Dropped components.* One whose share has fallen below a bound is dropped for good: its share is 0, clients take it
  out of their weights, and the others share what it had.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from majorant.core import Tree, beside
from majorant.models.base import Model

LEAST = 1e-3  # a share below which a component's displacement is not made larger any more


class Components(NamedTuple):
    """The components, and the share of all samples that each explains; 0: dropped."""

    theta: Tree  # (M, ...)
    share: jax.Array  # (M,)


def remaining(share: jax.Array, before: jax.Array, least: float) -> jax.Array:
    """Shares without the components that are below ``least``, or were dropped before; the largest of the others stays.

    >>> remaining(jnp.array([0.75, 0.25, 0.0]), jnp.array([0.5, 0.25, 0.25]), 0.02)
    Array([0.75, 0.25, 0.  ], dtype=float32)
    """
    there = jnp.where(before > 0, share, -jnp.inf)  # noise in a channel may have moved a share that is 0
    kept = jnp.where((there >= least) | (there == there.max()), jnp.maximum(share, LEAST), 0)
    return kept / kept.sum()


def own_weights(pi: jax.Array, share: jax.Array) -> jax.Array:
    """A client's weights (M,) without dropped components; the shares, where it had no other.

    >>> own_weights(jnp.array([0.375, 0.125, 0.5]), jnp.array([0.5, 0.5, 0.0]))
    Array([0.75, 0.25, 0.  ], dtype=float32)
    """
    kept = jnp.where(share > 0, pi, 0)
    kept = jnp.where(kept.sum() > 0, kept, share)
    return kept / kept.sum()


def moved_by_own(model: Model, theta: Tree, mean: Tree, share: jax.Array) -> Tree:
    """Components that go from ``theta`` along the mean displacement, divided by their shares.

    Statistics that a model refreshes itself do not depend on responsibilities: they are averaged as they are.
    """

    def move(old: jax.Array, new: jax.Array) -> jax.Array:
        divided = (new - old) / beside(jnp.maximum(share, LEAST), new).astype(new.dtype)
        return old + divided

    if not model.statistics:
        return jax.tree.map(move, theta, mean)
    return {k: mean[k] if k == model.statistics else jax.tree.map(move, theta[k], mean[k]) for k in theta}


def check_average(average: str, model: Model) -> None:
    """Refuses an unknown average, and one that would divide a model's own statistics."""
    if average not in ("samples", "responsibilities"):
        raise ValueError(f"average is 'samples' or 'responsibilities', not {average!r}")
    if average == "responsibilities" and model.train_apply is not None and model.statistics is None:
        raise ValueError(
            f"average='responsibilities' must know which parameters {model.name} refreshes itself, as batch "
            "normalisation does: name them in the model's statistics, or use a network without such"
        )
