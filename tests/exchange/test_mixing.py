"""Mixing: the mean stays, absent nodes stay, both forms agree."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiling import quickly
from majorant.exchange.mixing import Dense, Table
from majorant.exchange.topology import complete, exponential, matching, ring, torus

KEY = jax.random.key(3)
mix = quickly(lambda weights, x, present: weights.mix(x, present))
messages = quickly(lambda weights, present: weights.messages(present))
fail = quickly(lambda weights, key, rate: weights.fail(key, rate))


@functools.cache
def drawn(topology, nodes):
    """The weights of round 1."""
    network = topology.build(nodes)
    return quickly(lambda key: network.draw(key, 1))(KEY)


def values(n, seed=0):
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in (("w", (n, 3)), ("b", (n,)))}


def someone_absent(n, seed=0):
    return np.random.default_rng(seed).random(n) < 0.6


def means(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).mean(axis=0), tree)


def assert_close(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **({"atol": 2e-6} | tolerance)), a, b)


MIXINGS = {
    "dense": lambda: drawn(complete(), 9),
    "table": lambda: drawn(ring(), 40),
    "long table": lambda: drawn(exponential(), 400),  # above the number of places that are unrolled
    "pairs": lambda: drawn(matching(), 9),
}


def nodes(mixing):
    return jax.eval_shape(lambda: mixing.dense().weights).shape[0]


@pytest.mark.parametrize("name", MIXINGS)
def test_the_mean_is_preserved_and_absent_nodes_keep_their_values_to_the_last_bit(name):
    mixing = MIXINGS[name]()
    n = nodes(mixing)
    x, present = values(n), someone_absent(n)
    for who in (np.ones(n, bool), present, np.zeros(n, bool)):
        for weights in (mixing, fail(mixing, KEY, 0.4)):
            new = mix(weights, x, who)
            assert_close(means(new), means(x), atol=1e-6)
            jax.tree.map(lambda a, b, who=who: np.testing.assert_array_equal(a[~who], b[~who]), new, x)


@pytest.mark.parametrize("name", ["table", "long table", "pairs"])
def test_a_table_and_its_matrix_agree(name):
    table = MIXINGS[name]()
    assert isinstance(table, Table)
    n = len(table.own)
    x, present = values(n), someone_absent(n)
    matrix = quickly(lambda table: table.dense())(table)
    for a, b in ((table, matrix), (fail(table, KEY, 0.3), fail(matrix, KEY, 0.3))):
        assert_close(mix(a, x, present), mix(b, x, present))
        assert int(messages(a, present)) == int(messages(b, present))
        assert messages(a, present).dtype == jnp.int32
    wide = table.widen(table.index.shape[1] + 2)
    assert_close(mix(wide, x, present), mix(table, x, present), atol=1e-7)


def test_equal_weights_are_the_plain_mean():
    x = values(300)
    new = mix(drawn(complete(), 300), x, np.ones(300, bool))
    assert_close(new, jax.tree.map(lambda leaf: np.broadcast_to(leaf.mean(axis=0), leaf.shape), x), atol=1e-6)


def test_messages_count_the_links_that_carried_a_model():
    everybody, one_away = np.ones(6, bool), np.arange(6) != 2
    assert int(messages(drawn(ring(), 6), everybody)) == 12
    assert int(messages(drawn(complete(), 6), everybody)) == 30
    assert int(messages(drawn(matching(), 7), np.ones(7, bool))) == 6
    assert int(messages(drawn(ring(), 6), one_away)) == 8
    assert int(messages(drawn(complete(), 6), one_away)) == 20


def test_an_isolated_node_keeps_its_weight():
    mixing = ring().build(40).draw(KEY, 1).among(jnp.arange(40) == 0)
    assert float(mixing.own[0]) == pytest.approx(1)


@pytest.mark.parametrize("name", MIXINGS)
def test_values_keep_their_dtype(name):
    mixing = MIXINGS[name]()
    n = nodes(mixing)
    tree = {str(d): jax.ShapeDtypeStruct((n, 2), d) for d in (jnp.float32, jnp.bfloat16, jnp.float16, jnp.complex64)}
    assert jax.eval_shape(mixing.mix, tree, jnp.ones(n, bool)) == tree


def test_whole_numbers_are_refused():
    with pytest.raises(TypeError, match="int32"):
        Dense(jnp.ones((1, 1))).mix(jnp.ones(1, jnp.int32), jnp.ones(1, bool))


def test_links_fail_at_the_stated_rate_in_both_directions_alike():
    mixing, present = drawn(torus(), 400), jnp.ones(400, bool)
    failed = quickly(jax.vmap(lambda key: mixing.fail(key, 0.3)))(jax.random.split(KEY, 20))
    sent, weights = quickly(jax.vmap(lambda m: (m.messages(present), m.dense().weights)))(failed)
    links, tries = 1600 / 2, 20
    spread = np.sqrt(0.3 * 0.7 / (links * tries))
    assert abs(float(sent.mean()) / 1600 - 0.7) < 4 * spread
    weights = np.asarray(weights)
    np.testing.assert_array_equal(weights > 0, np.swapaxes(weights, 1, 2) > 0)
    np.testing.assert_allclose(weights, np.swapaxes(weights, 1, 2), atol=1e-7)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("name", MIXINGS)
def test_vmap_mixes_each_of_a_batch(name):
    mixing = MIXINGS[name]()
    n = nodes(mixing)
    trees = [(values(n, seed), someone_absent(n, seed)) for seed in range(3)]
    together = jax.jit(jax.vmap(mixing.mix))(*jax.tree.map(lambda *leaves: np.stack(leaves), *trees))
    for place, (x, present) in enumerate(trees):
        assert_close(jax.tree.map(lambda leaf, place=place: leaf[place], together), mix(mixing, x, present))
