"""Mixing: the mean stays, absent nodes stay, both forms agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.communication.mixing import Dense, Table
from majorant.communication.topology import complete, exponential, matching, ring, torus

KEY = jax.random.key(3)


def values(n, key=KEY):
    a, b = jax.random.split(key)
    return {"w": jax.random.normal(a, (n, 3, 2)), "b": jax.random.normal(b, (n,))}


def someone_absent(n, key=KEY):
    return jax.random.bernoulli(key, 0.6, (n,))


def means(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).mean(axis=0), tree)


def assert_close(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **({"atol": 2e-6} | tolerance)), a, b)


MIXINGS = {
    "dense": lambda: complete().build(9).draw(KEY, 1),
    "table": lambda: ring().build(40).draw(KEY, 1),
    "long table": lambda: exponential().build(600).draw(KEY, 1),  # above the number of places that are unrolled
    "pairs": lambda: matching().build(9).draw(KEY, 1),
}


@pytest.mark.parametrize("name", MIXINGS)
def test_the_mean_is_preserved_and_absent_nodes_keep_their_values_to_the_last_bit(name):
    mixing = MIXINGS[name]()
    n = mixing.dense().weights.shape[0]
    x, present = values(n), someone_absent(n)
    for who in (jnp.ones(n, bool), present, jnp.zeros(n, bool)):
        for weights in (mixing, mixing.fail(KEY, 0.4)):
            new = jax.jit(lambda w, x, who: w.mix(x, who))(weights, x, who)
            assert_close(means(new), means(x), atol=1e-6)
            jax.tree.map(lambda a, b, who=who: np.testing.assert_array_equal(a[~who], b[~who]), new, x)


@pytest.mark.parametrize("name", ["table", "long table", "pairs"])
def test_a_table_and_its_matrix_agree(name):
    table = MIXINGS[name]()
    assert isinstance(table, Table)
    n = len(table.own)
    x, present = values(n), someone_absent(n)
    for a, b in ((table, table.dense()), (table.fail(KEY, 0.3), table.dense().fail(KEY, 0.3))):
        assert_close(a.mix(x, present), b.mix(x, present))
        assert int(a.messages(present)) == int(b.messages(present))
        assert a.messages(present).dtype == jnp.int32
    wide = table.widen(table.index.shape[1] + 2)
    assert_close(wide.mix(x, present), table.mix(x, present), atol=0)


def test_equal_weights_are_the_plain_mean():
    x = values(300)
    new = complete().build(300).draw(KEY, 1).mix(x, jnp.ones(300, bool))
    assert_close(new, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf.mean(axis=0), leaf.shape), x), atol=1e-6)


def test_messages_count_the_links_that_carried_a_model():
    everybody = jnp.ones(6, bool)
    assert int(ring().build(6).draw(KEY, 1).messages(everybody)) == 12
    assert int(complete().build(6).draw(KEY, 1).messages(everybody)) == 30
    assert int(matching().build(7).draw(KEY, 1).messages(jnp.ones(7, bool))) == 6
    assert int(ring().build(6).draw(KEY, 1).messages(everybody.at[2].set(False))) == 8
    assert int(complete().build(6).draw(KEY, 1).messages(everybody.at[2].set(False))) == 20


def test_an_isolated_node_keeps_its_weight():
    mixing = ring().build(40).draw(KEY, 1).among(jnp.arange(40) == 0)
    assert float(mixing.own[0]) == pytest.approx(1)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16, jnp.complex64])
@pytest.mark.parametrize("name", MIXINGS)
def test_values_keep_their_dtype(name, dtype):
    mixing = MIXINGS[name]()
    n = mixing.dense().weights.shape[0]
    assert mixing.mix(jnp.ones((n, 2), dtype), jnp.ones(n, bool)).dtype == dtype


def test_whole_numbers_are_refused():
    with pytest.raises(TypeError, match="int32"):
        Dense(jnp.ones((1, 1))).mix(jnp.ones(1, jnp.int32), jnp.ones(1, bool))


def test_links_fail_at_the_stated_rate_in_both_directions_alike():
    mixing, present = torus().build(400).draw(KEY, 1), jnp.ones(400, bool)
    failed = jax.vmap(lambda key: mixing.fail(key, 0.3))(jax.random.split(KEY, 20))
    sent = jax.vmap(lambda m: m.messages(present))(failed)
    links, tries = 1600 / 2, 20
    spread = np.sqrt(0.3 * 0.7 / (links * tries))
    assert abs(float(sent.mean()) / 1600 - 0.7) < 4 * spread
    weights = np.asarray(jax.vmap(lambda m: m.dense().weights)(failed))
    np.testing.assert_array_equal(weights > 0, np.swapaxes(weights, 1, 2) > 0)
    np.testing.assert_allclose(weights, np.swapaxes(weights, 1, 2), atol=1e-7)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("name", MIXINGS)
def test_vmap_mixes_each_of_a_batch(name):
    mixing = MIXINGS[name]()
    n = mixing.dense().weights.shape[0]
    keys = jax.random.split(KEY, 3)
    batch, present = jax.vmap(lambda k: values(n, k))(keys), jax.vmap(lambda k: someone_absent(n, k))(keys)
    together = jax.vmap(mixing.mix)(batch, present)
    for place in range(3):
        alone = mixing.mix(jax.tree.map(lambda leaf, place=place: leaf[place], batch), present[place])
        assert_close(jax.tree.map(lambda leaf, place=place: leaf[place], together), alone)
