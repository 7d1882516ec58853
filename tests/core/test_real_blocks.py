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


@pytest.mark.parametrize("sizes", [(200, 3, 64), (65, 0, 200), (1, 64, 1)])
def test_parts_share_one_loop_and_keep_their_rows(sizes):
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 5000)).astype(np.float32) for n in (200, 64, 200)]  # 64 rows to a block
    seen = []

    def function(x):
        seen.append(x.shape)
        return x.sum(axis=1)

    found = blockwise_parts(function, list(map(jnp.asarray, parts)), list(map(jnp.int32, sizes)))
    assert len(set(seen)) == 1  # traced for one shape of blocks
    for x, y, size in zip(parts, found, sizes, strict=True):
        assert y.shape == x.shape[:1]
        np.testing.assert_allclose(y[:size], x[:size].sum(axis=1), rtol=1e-3, atol=1e-3)
