"""Trees of arrays as bytes, and back: nothing is decoded that is not what was expected.

The receiver knows the structure, shapes and types of every message beforehand (`jax.eval_shape` of the algorithm), so
none of it travels in a form that could say anything else. An array is its bytes, little-endian; a coordinate that a
channel made of few bits travels in these bits, where nothing is lost by it. Nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from majorant.core import Tree


class Refused(ValueError):
    """A message that is not what it should be."""


class Raw(NamedTuple):
    """An array on its way: the type and shape that it is said to have, and its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Leaf(NamedTuple):
    """An array that is expected; ``width`` is the bits of an entry, where a channel says so."""

    dtype: np.dtype
    shape: tuple[int, ...]
    width: int | None = None
    signed: bool = False
    may_be_zero: bool = False  # without bytes: a part that is known to be zero need not travel

    @property
    def size(self) -> int:
        """How many entries it has."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def lengths(self) -> set[int]:
        """How many bytes it may have."""
        found = {self.size * self.dtype.itemsize}
        if self.width is not None:
            found.add(-(-self.size * bits_of(self) // 8))
        return found | ({0} if self.may_be_zero else set())


def leaves_of(shapes: Tree, **more: Any) -> list[Leaf]:
    """The arrays of a message from a tree of their shapes."""
    return [Leaf(np.dtype(leaf.dtype), tuple(leaf.shape), **more) for leaf in jax.tree.leaves(shapes)]


def bits_of(leaf: Leaf) -> int:
    """The bits of an entry on the wire: a truth value has one, whatever the channel counts."""
    return 1 if leaf.dtype == np.bool_ else max(leaf.width or 0, 1)


def encode(arrays: Sequence[Any], leaves: Sequence[Leaf]) -> list[Raw]:
    """Arrays as they travel."""
    found = []
    for array, leaf in zip(arrays, leaves, strict=True):
        plain = np.ascontiguousarray(np.asarray(array, leaf.dtype)).reshape(leaf.shape)
        if leaf.may_be_zero and not plain.any():
            found.append(Raw(leaf.dtype.name, leaf.shape, b""))
            continue
        small = pack(plain, leaf) if leaf.width is not None else None
        found.append(Raw(leaf.dtype.name, leaf.shape, little(plain).tobytes() if small is None else small))
    return found


def decode(raws: Sequence[Raw], leaves: Sequence[Leaf], what: str, *, finite: bool = False) -> list[np.ndarray]:
    """The arrays of a message; types, shapes and sizes are looked at before anything is decoded.

    >>> leaves = [Leaf(np.dtype("float32"), (2,))]
    >>> decode(encode([[1.0, 2.0]], leaves), leaves, "an upload")
    [array([1., 2.], dtype=float32)]
    """
    if len(raws) != len(leaves):
        raise Refused(f"{what} has {len(raws)} arrays, expected {len(leaves)}")
    for place, (raw, leaf) in enumerate(zip(raws, leaves, strict=True)):
        if (raw.dtype, tuple(raw.shape)) != (leaf.dtype.name, leaf.shape):
            raise Refused(
                f"array {place} of {what} is {raw.dtype[:20]} of shape {tuple(raw.shape)[:8]}, expected "
                f"{leaf.dtype.name} of shape {leaf.shape}"
            )
        if len(raw.data) not in leaf.lengths:
            raise Refused(f"array {place} of {what} has {len(raw.data)} bytes, expected {max(leaf.lengths)}")
    found = [from_bytes(raw.data, leaf) for raw, leaf in zip(raws, leaves, strict=True)]
    if finite:
        for place, array in enumerate(found):
            if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
                raise Refused(f"array {place} of {what} has numbers that are infinite or NaN")
    return found


def from_bytes(data: bytes, leaf: Leaf) -> np.ndarray:
    """An array whose bytes are as many as they should be."""
    if len(data) == leaf.size * leaf.dtype.itemsize:
        return np.frombuffer(data, leaf.dtype.newbyteorder("<")).astype(leaf.dtype).reshape(leaf.shape)
    if not data:
        return np.zeros(leaf.shape, leaf.dtype)
    return unpack(data, leaf)


def little(array: np.ndarray) -> np.ndarray:
    """The array with its least significant bytes first."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def pack(array: np.ndarray, leaf: Leaf) -> bytes | None:
    """Entries in ``leaf.width`` bits each; None where that would lose something, or save nothing."""
    width = bits_of(leaf)
    if width >= 8 * leaf.dtype.itemsize:
        return None
    codes = codes_of(array.reshape(-1), leaf)
    if codes is None:
        return None
    bits = (codes[:, None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)
    data = np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little").tobytes()
    same = np.array_equal(unpack(data, leaf).reshape(-1), array.reshape(-1))
    return data if same else None


def codes_of(flat: np.ndarray, leaf: Leaf) -> np.ndarray | None:
    """The entries as whole numbers of few bits; of a 32-bit float its sign and exponent, the upper nine bits."""
    if leaf.dtype == np.float32 and leaf.width == 9:
        return (flat.view(np.uint32) >> 23).astype(np.uint64)
    if leaf.dtype == np.bool_ or np.issubdtype(leaf.dtype, np.integer):
        return flat.astype(np.int64).view(np.uint64)
    return None


def unpack(data: bytes, leaf: Leaf) -> np.ndarray:
    """The entries of `pack`."""
    width = bits_of(leaf)
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little", count=leaf.size * width)
    codes = (bits.reshape(leaf.size, width).astype(np.uint64) << np.arange(width, dtype=np.uint64)).sum(
        axis=1, dtype=np.uint64
    )
    if leaf.dtype == np.float32:
        return (codes.astype(np.uint32) << np.uint32(23)).view(np.float32).reshape(leaf.shape)
    numbers = codes.astype(np.int64)
    if leaf.signed:  # two's complement of this width
        numbers = np.where(numbers >= 1 << (width - 1), numbers - (1 << width), numbers)
    return numbers.astype(leaf.dtype).reshape(leaf.shape)
