"""What people write, as values of a type: options of names and flags of the command line are read here alike."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError

from majorant._syntax import WHOLE, parse_value, pieces, unquote

WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "none"}
SEQUENCES = (tuple, list, Sequence)
STRICT = ConfigDict(strict=True, allow_inf_nan=False)
SHOWN = 60  # characters of a wrong value that a complaint repeats


def plain(annotation: Any) -> Any:
    """A type without what text cannot say, of a union, and without notes to the type; None if nothing is left."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        found = [kind for kind in map(plain, get_args(annotation)) if kind is not None]
        return Union[tuple(found)] if found else None  # noqa: UP007 - the members are known at run time only
    kind = get_origin(annotation) or annotation
    return annotation if kind in (Any, Literal, *SEQUENCES, *WORDS) else None


def textual(annotation: Any) -> bool:
    """Whether values of this type, beside none, can be written as text."""
    return plain(annotation) not in (None, NoneType)


def describe(annotation: Any) -> str:
    """A type in words.

    >>> describe(float | None), describe(tuple[int, ...]), describe(Literal["star", "ring"])
    ('a number or none', 'values joined by + (each a whole number)', "one of 'star', 'ring'")
    """
    kind = plain(annotation)
    origin, kinds = get_origin(kind), get_args(kind)
    if origin is Union:
        return " or ".join(map(describe, kinds))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, kinds))
    if (origin or kind) in SEQUENCES:
        return "values joined by +" + (f" (each {describe(kinds[0])})" if kinds else "")
    return WORDS.get(kind, "any value")


@functools.lru_cache(maxsize=256)
def adapter(kind: Any) -> TypeAdapter[Any]:
    """The check of a type: a whole number is no truth value, and a number is finite."""
    return TypeAdapter(kind, config=STRICT)


def fit(text: str, annotation: Any) -> Any:
    """The value of a text as a type; ``ValueError`` where it is not one.

    >>> fit("3", float), fit("007", str), fit("64", tuple[int, ...]), fit("none", int | None)
    (3.0, '007', (64,), None)
    """
    kind = plain(annotation)
    for value in readings(text):
        try:
            return adapter(Any if kind is None else kind).validate_python(value)
        except ValidationError:
            continue
    raise ValueError(f"must be {describe(annotation)}, got {shortened(text)!r}{hint(text)}")


def readings(text: str) -> Iterator[Any]:
    """What a text may stand for, the likeliest first: a value, its own letters, a tuple of values or of letters."""
    yield parse_value(text)
    yield unquote(text)
    entries = pieces(text)
    entries = [text] if entries is None else entries
    yield tuple(map(parse_value, entries))
    yield tuple(map(unquote, entries))


def hint(text: str) -> str:
    """Why something that looks like a number is not taken for one."""
    for entry in pieces(text) or [text]:
        value = parse_value(entry)
        if isinstance(value, str) and WHOLE.fullmatch(entry.strip()):
            return ": whole numbers have at most 64 bits"
        with contextlib.suppress(ValueError):
            float(entry)  # which takes more for a number than we do
            if isinstance(value, str):
                return ": numbers are written with the digits 0 to 9 alone"
        if isinstance(value, float) and not math.isfinite(value):
            return ": numbers are finite"
    return ""


def shortened(text: str) -> str:
    """A text that fits into a complaint."""
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
