"""Dropout: in training each unit is 0 with a probability, and the others are larger, so that the mean stays."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from majorant.math.checks import check_range
from majorant.models.base import Draw


def check_dropout(share: float) -> None:
    """Refuses what is no probability below one."""
    check_range("dropout", share, least=0, below=1)


def dropout(x: jax.Array, share: float, draw: Draw | None, layer: int = 0) -> jax.Array:
    """``x`` with the given share of its units 0 and the others divided by 1 − share; outside training, ``x`` itself.

    ``layer`` tells the dropouts of one pass apart. What is drawn for a row does not depend on the rows after it.

    >>> draw = Draw(jax.random.key(0), jnp.ones(1))
    >>> sorted(set(dropout(jnp.ones((1, 50)), 0.5, draw)[0].tolist()))
    [0.0, 2.0]
    """
    if draw is None or share == 0:
        return x
    kept = jax.random.bernoulli(jax.random.fold_in(draw.key, layer), 1 - share, x.shape)
    return jnp.where(kept, x / (1 - share), 0).astype(x.dtype)
