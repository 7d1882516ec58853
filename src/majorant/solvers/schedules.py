"""Learning rate schedules: factors in [0, 1] as functions of the run's progress, the finished share of its rounds."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from majorant.math.checks import check_range

Schedule = Callable[[jax.Array], jax.Array]  # progress in [0, 1] -> factor


def constant() -> Schedule:
    """The learning rate as it is given."""
    return lambda progress: jnp.ones_like(progress)


def multi_step(*, milestones: tuple[float, ...] = (0.5, 0.75), factor: float = 0.1) -> Schedule:
    """Multiplies the learning rate by ``factor`` at each milestone: the FedEM paper's released schedule by default.

    >>> [round(float(multi_step()(jnp.asarray(p))), 4) for p in (0.0, 0.5, 0.8)]
    [1.0, 0.1, 0.01]
    """
    check_range("factor", factor, least=0, most=1)
    for milestone in milestones:
        check_range("every milestone", milestone, least=0, most=1)
    return lambda progress: jnp.power(factor, sum((progress >= m).astype(progress.dtype) for m in milestones))


def cosine(*, floor: float = 0.0) -> Schedule:
    """Falls from 1 to ``floor`` along half a cosine.

    >>> round(float(cosine()(jnp.asarray(0.5))), 4)
    0.5
    """
    check_range("floor", floor, least=0, most=1)
    return lambda progress: floor + (1 - floor) * 0.5 * (1 + jnp.cos(jnp.pi * progress))
