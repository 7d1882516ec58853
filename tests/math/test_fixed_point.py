"""Fixed points: nothing ends before the last number rests."""

import jax.numpy as jnp
import numpy as np

from majorant.math.fixed_point import fixed_point


def test_a_number_that_rests_does_not_end_the_iterations_of_others():
    root = lambda a: (a + 2 / a) / 2
    rests, moves = fixed_point(lambda at: (at[0], root(at[1])), (jnp.ones(2), jnp.ones(3)))
    np.testing.assert_array_equal(rests, np.ones(2))
    np.testing.assert_allclose(moves, np.sqrt(2) * np.ones(3), rtol=1e-6)
