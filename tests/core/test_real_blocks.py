"""Blocks of samples behind a client's own are not gone through."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.core import blockwise, blockwise_parts

X = jnp.arange(1.0, 11.0)[:, None]  # ten rows in blocks of 3, 3, 3 and 1 that are padded


@pytest.mark.parametrize(("size", "seen"), [(0, 0), (1, 3), (3, 3), (4, 6), (10, 10)])
def test_rows_of_blocks_with_samples(size, seen):
    found = jax.jit(lambda size: blockwise(lambda x: x[:, 0] ** 2, X, at_once=3, size=size))(size)
    np.testing.assert_array_equal(found, np.where(np.arange(10) < seen, np.asarray(X[:, 0]) ** 2, 0))


def test_clients_of_unequal_sizes_side_by_side():
    sizes = jnp.array([2, 9])
    found = jax.vmap(lambda size: blockwise(lambda x: x[:, 0], X, at_once=3, size=size))(sizes)
    for row, size in zip(found, sizes, strict=True):
        np.testing.assert_array_equal(row[:size], X[:size, 0])


@pytest.mark.parametrize("features", [5000, 5])  # 64 rows to a block, or all rows together
@pytest.mark.parametrize("sizes", [(200, 3, 64), (65, 0, 200), (1, 64, 1)])
def test_parts_go_through_the_function_as_one_and_keep_their_rows(sizes, features):
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(n, features)), rng.normal(size=n)) for n in (200, 64, 200)]
    parts = [tuple(a.astype(np.float32) for a in part) for part in parts]
    seen = []

    def function(x, y):
        seen.append(x.shape)
        return x.sum(axis=1) - y

    found = blockwise_parts(function, [tuple(map(jnp.asarray, part)) for part in parts], list(map(jnp.int32, sizes)))
    assert set(seen) == {(64, 5000)} if features == 5000 else seen == [(464, 5)]
    for (x, y), values, size in zip(parts, found, sizes, strict=True):
        assert values.shape == y.shape
        np.testing.assert_allclose(values[:size], x[:size].sum(axis=1) - y[:size], rtol=1e-3, atol=1e-3)
