"""Python's search for garbage, in a process that runs one command.

Packages are 150,000 objects that stay. While they are loaded Python would search them for garbage over and over, which
takes 0.2 to 0.3 s.
"""

from __future__ import annotations

import gc

USUAL, SELDOM = gc.get_threshold()[0], 200_000  # objects made between two searches


def search_seldom() -> None:
    """For the time in which packages are loaded."""
    gc.set_threshold(SELDOM, *gc.get_threshold()[1:])


def search_as_usual() -> None:
    """From now on, among what is made from now on; where nobody has asked for less, nothing changes."""
    if gc.get_threshold()[0] == SELDOM:
        gc.freeze()
        gc.set_threshold(USUAL, *gc.get_threshold()[1:])
