"""Sums of floating-point numbers without rounding, as whole numbers modulo 2^512: for a secure sum of few numbers.

`SecureSum` needs a range that everybody knows, and rounds to it. Counts, moments of columns, losses and answers before
round 1 have none that is known. There are few of them, so each may have many bits: a number x is the whole number
nearest to x · 2^300, and 212 bits are left above for its integer part, its sign, and the sum. What is smaller than
2^−301 is zero then, and what is larger than 2^200 is refused before it is masked. Double precision has 53 digits: what
comes out is the sum of what went in, and any difference of two sums is as exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

BITS, SCALE = 512, 300
LARGEST = 2**200
BYTES = BITS // 8


class TooLarge(ValueError):
    """A number that cannot be put into a sum."""


def residues(values: Iterable[Any]) -> np.ndarray:
    """Numbers, floating-point ones, whole ones or fractions, as whole numbers modulo 2^512.

    >>> float(numbers(residues([0.5]) + residues([-2]))[0])
    -1.5
    """
    found = []
    for value in values:
        if not abs(value) < LARGEST:  # also where it is NaN
            raise TooLarge("a number is not finite, or too large for a secure sum")
        found.append(round(Fraction(value) * 2**SCALE) % 2**BITS)
    return np.array(found, object)


def numbers(total: np.ndarray) -> list[Fraction]:
    """The numbers that sums of residues stand for, as they are."""
    whole = [int(value) % 2**BITS for value in total]
    return [Fraction(v - 2**BITS if v >> (BITS - 1) else v, 2**SCALE) for v in whole]


def to_bytes(words: np.ndarray) -> bytes:
    """Residues as they travel."""
    return b"".join(int(word).to_bytes(BYTES, "little") for word in words)


def from_bytes(data: bytes) -> np.ndarray:
    """The inverse of `to_bytes`."""
    starts = range(0, len(data), BYTES)
    return np.array([int.from_bytes(data[i : i + BYTES], "little") for i in starts], object)
