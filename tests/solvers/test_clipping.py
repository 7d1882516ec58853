"""A minibatch's gradient is shortened to the norm that is asked for, and short ones stay."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from majorant.solvers import local_optax, local_sgd
from majorant.solvers.gradient import shortened

GRADIENTS = {"w": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}


@pytest.mark.parametrize(("most", "length"), [(1.0, 1.0), (5.0, 5.0), (20.0, 5.0)])
def test_norm_over_all_leaves(most, length):
    shorter = shortened(GRADIENTS, jnp.array(most))
    np.testing.assert_allclose(optax.tree.norm(shorter), length, rtol=1e-6)
    np.testing.assert_allclose(shorter["b"] * 3, shorter["w"][0] * 4, rtol=1e-6)


def test_nothing_stays_nothing():
    assert float(shortened({"w": jnp.zeros(2)}, jnp.array(1.0))["w"].sum()) == 0


def test_clip_is_a_hyperparameter():
    assert local_sgd(0.1, clip=2.0).hyper == {"lr": 0.1, "clip": 2.0}
    assert local_optax(optax.adam(0.1), clip=2.0).hyper == {"lr_scale": 1.0, "clip": 2.0}
    assert "clip" not in local_sgd(0.1).hyper
    with pytest.raises(ValueError, match="clip"):
        local_sgd(0.1, clip=0.0)
