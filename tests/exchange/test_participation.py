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


def test_a_few_of_very_many_are_drawn_without_touching_the_others():
    """Each once, none preferred, and as many as asked for; `active` marks the very same."""
    clients, count, draws = 20_000, 4_000, 30
    some = participation.uniform(count / clients)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(0), np.arange(draws))
    chosen, active = jax.vmap(lambda key: (some.chosen(key, 1, clients), some.active(key, 1, clients)))(keys)
    for places, marks in zip(np.asarray(chosen), np.asarray(active), strict=True):
        np.testing.assert_array_equal(np.sort(places), np.flatnonzero(marks))
    assert chosen.shape == (draws, count)
    assert np.asarray(active).sum(axis=1).tolist() == [count] * draws
    share, tenths = count / clients, np.asarray(active).mean(axis=0).reshape(10, -1).mean(axis=1)
    np.testing.assert_allclose(tenths, share, atol=5 * np.sqrt(share * (1 - share) / (draws * clients / 10)))
    first = np.asarray(chosen)[:, : count // 2]  # in the order of the draws: not sorted by place
    assert abs(first.mean() / clients - 0.5) < 5 / np.sqrt(12 * first.size)
