"""Where a device's memory does not suffice: what to lower."""

import jax
import pytest

from majorant.engines.memory import explained_shortage


def test_a_shortage_says_what_to_lower():
    said = "does not suffice for 40 clients side by side: lower side_by_side"
    with pytest.raises(MemoryError, match=said), explained_shortage(40):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")


def test_other_troubles_are_left_as_they_are():
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), explained_shortage(40):
        raise jax.errors.JaxRuntimeError("INTERNAL: a kernel failed")
