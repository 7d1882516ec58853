"""Numbers that people give: what is refused, and what the refusal says."""

import jax.numpy as jnp
import numpy as np
import pytest

from majorant.math.checks import check_range, check_whole


@pytest.mark.parametrize("value", [1, 3.0, np.int64(2), np.float32(5), jnp.asarray(4), 1 << 62])
def test_whole_numbers_of_every_type_pass(value):
    check_whole("n", value)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, np.bool_(True), None, "3", "x", np.nan, np.inf, [3], 1j])
def test_what_is_no_positive_whole_number_is_refused(value):
    with pytest.raises(ValueError, match="n must be a positive whole number, got "):
        check_whole("n", value)


def test_bounds_are_part_of_the_message():
    check_whole("n", 0, least=0)
    check_whole("n", 4, most=4)
    check_whole("n", None, optional=True)
    with pytest.raises(ValueError, match="n must be a whole number, at least 2, got 1"):
        check_whole("n", 1, least=2)
    with pytest.raises(ValueError, match="n must be a whole number from 1 to 4, got 5"):
        check_whole("n", 5, most=4)
    with pytest.raises(ValueError, match="n must be None or a positive whole number, got 'none'"):
        check_whole("n", "none", optional=True)


@pytest.mark.parametrize("value", [None, "1", [1.0], np.nan, np.inf, -1, 1])
def test_what_is_outside_of_its_range_is_refused(value):
    with pytest.raises(ValueError, match="x must be a"):
        check_range("x", value, least=0, below=1)
