"""What is found out about an object once."""

import gc

from majorant._once import once_for_each
from majorant.models import Spec


class Thing:
    """Something that can be asked about."""


def test_an_object_that_is_gone_is_forgotten():
    """Another object may get its place in memory, and is asked anew."""
    asked = []

    @once_for_each
    def number(thing, rest=0):
        asked.append(rest)
        return len(asked)

    for expected in range(1, 30):
        thing = Thing()
        assert number(thing) == number(thing) == expected
        del thing
        gc.collect(0)  # what is as young as it is
    assert len(asked) == 29


def test_what_cannot_be_watched_is_looked_at_each_time():
    looked = []
    look = once_for_each(lambda thing: looked.append(thing))
    look(Spec((2,), 3))
    look(Spec((2,), 3))
    assert len(looked) == 2
