"""When a method counts as stalled: its squared distance grows more slowly than the 0.6-th power of the iterations."""

import jax.numpy as jnp
import pytest

from majorant.methods._stalling import FACTOR, begin_watch, watch


@pytest.mark.parametrize(("power", "stalls"), [(2.0, False), (1.0, False), (0.65, False), (0.55, True), (0.0, True)])
def test_what_travels_or_diffuses_has_not_stalled(power, stalls):
    start, first = begin_watch(jnp.zeros(3)), jnp.asarray(10.0)
    seen, early = watch(start, jnp.ones(3), jnp.asarray(10), first)
    later = jnp.asarray(round(10 * FACTOR))
    assert not bool(early)
    assert bool(watch(seen, FACTOR ** (power / 2) * jnp.ones(3), later, first)[1]) == stalls
    assert not bool(watch(seen, jnp.ones(3), later - 1, first)[1])  # no look is due
