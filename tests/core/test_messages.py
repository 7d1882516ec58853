"""Messages: what a server makes of the sums that it receives."""

import jax.numpy as jnp
import numpy as np
import pytest

from majorant.core import Answer, Uploads


@pytest.mark.parametrize("kind", [Uploads, Answer])
def test_a_mean_is_of_values_whatever_their_weights_add_up_to(kind):
    """Also to less than 1; of nothing it is 0."""
    values, weights = jnp.array([[1.0, 4.0], [3.0, 0.0]]), jnp.array([0.1, 0.3])
    found = kind({"theta": weights @ values}, weights.sum()).mean()
    np.testing.assert_allclose(found["theta"], [2.5, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(kind(jnp.zeros(2), jnp.zeros(())).mean(), [0.0, 0.0])
