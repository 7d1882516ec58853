"""Blocks of samples behind a client's own are not gone through."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.core import blockwise

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
