"""Participation: the probability that methods count on is that of the draws."""

import jax
import numpy as np
import pytest

from majorant.exchange import participation

SOME = {"full": participation.full(), "bernoulli": participation.bernoulli(0.3), "cyclic": participation.cyclic(0.4),
        "uniform": participation.uniform(0.3), "one of five": participation.uniform(0.1)}  # fmt: skip


@pytest.mark.parametrize("name", SOME)
def test_a_client_takes_part_as_often_as_is_said(name):
    """Also where the share asked for is no whole number of the five clients."""
    rounds, clients = np.arange(1, 3001), 5
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0), rounds)
    draws = jax.vmap(lambda key, number: SOME[name].active(key, number, clients))(keys, rounds)
    expected = SOME[name].probability(clients)
    noise = 5 * np.sqrt(expected * (1 - expected) / len(rounds))
    np.testing.assert_allclose(np.asarray(draws).mean(axis=0), expected, atol=noise + 1e-12)
