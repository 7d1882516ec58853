"""The text of names with options: ``synthetic:clients=100``, ``erdos-renyi:0.5``, ``mlp:hidden=64+32``, both ways.

A name is followed by a colon and options separated by commas. An option is ``key=value``, or a bare value, which goes
to the first parameters in their order. Values are whole numbers, numbers, ``true``, ``false``, ``none`` or text; ``+``
makes a tuple: ``64+32`` is (64, 32), ``64+`` is (64,), ``+`` is (). Text that would read as something else is quoted:
``"8"``. Numbers are written with the digits 0 to 9 alone, and whole ones have at most 64 bits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

WORDS = {"true": True, "false": False, "none": None}
QUOTED = r'"(?:[^"]|"")*"|' + r"'(?:[^']|'')*'"
TOKEN = re.compile(rf"(?<![^,+=])\s*(?:{QUOTED})|.", re.DOTALL)  # a quoted text where a value begins, or one character
PLAIN = re.compile(r"[^\s\"',+=](?:[^\"',+=]*[^\s\"',+=])?")  # text that needs no quotes
WHOLE = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|nan)", re.IGNORECASE)
LARGEST = 1 << 63  # whole numbers are smaller than that, so that arrays can hold them


def parse(text: str) -> tuple[str, dict[str | int, Any]]:
    """A name and its options; options without a key are under their position.

    >>> parse("synthetic:variant=released,clients=100")
    ('synthetic', {'variant': 'released', 'clients': 100})
    >>> parse("erdos-renyi:0.5")
    ('erdos-renyi', {0: 0.5})
    >>> parse("mlp:hidden=64+32,bias=false,seed=none")
    ('mlp', {'hidden': (64, 32), 'bias': False, 'seed': None})
    """
    name, raw = parse_raw(text)
    return name, {key: parse_value(value) for key, value in raw.items()}


def parse_raw(text: str) -> tuple[str, dict[str | int, str]]:
    """A name and its options, their values still as text."""
    name, colon, rest = text.strip().partition(":")
    if not name.strip():
        raise ValueError(f"expected a name, as in 'name' or 'name:option=value', got {text!r}")
    options: dict[str | int, str] = {}
    for part in split(rest, ",") if colon else []:
        key, *value = split(part, "=", 1)
        if not key.strip():
            raise ValueError(f"expected option=value after the colon and between commas, got {text!r}")
        if not value and any(isinstance(k, str) for k in options):
            raise ValueError(f"{part.strip()!r} in {text!r} needs a key: bare values come before option=value")
        where = key.strip() if value else len(options)
        if where in options:
            raise ValueError(f"option {where!r} is given twice in {text!r}")
        options[where] = (value or [key])[0].strip()
    return name.strip(), options


def split(text: str, separator: str, most: int = -1) -> list[str]:
    """Splits at a separator outside quotes.

    >>> split("a=1,b='x,y'", ",")
    ['a=1', "b='x,y'"]
    """
    parts = [""]
    for token in TOKEN.findall(text):
        if token == separator and len(parts) - 1 != most:
            parts.append("")
        else:
            parts[-1] += token
    return parts


def pieces(text: str) -> list[str] | None:
    """The texts of a tuple's entries, or None where the text is not a tuple (the plus of 1e+3 makes none)."""
    parts = split(text, "+")
    return None if len(parts) == 1 or NUMBER.fullmatch(text) else [part for part in parts if part.strip()]


def parse_value(text: str) -> Any:
    """The value that a text stands for.

    >>> [parse_value(text) for text in ("8", "1e-3", "True", "None", "released", "'8'", "64+32", "64+")]
    [8, 0.001, True, None, 'released', '8', (64, 32), (64,)]
    """
    text = text.strip()
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if WHOLE.fullmatch(text):
        return int(text) if len(text) < 30 and -LARGEST <= int(text) < LARGEST else text
    if NUMBER.fullmatch(text):
        return float(text)
    entries = pieces(text)
    return unquote(text) if entries is None else tuple(map(parse_value, entries))


def unquote(text: str) -> str:
    """Text without its quotes; inside them, a doubled quote stands for one."""
    text = text.strip()
    if text[:1] not in ("'", '"'):
        return text
    if not re.fullmatch(QUOTED, text):
        raise ValueError(f"a quote is not closed in {text}")
    return text[1:-1].replace(text[0] * 2, text[0])


def format_value(value: Any) -> str:
    """The text that `parse_value` reads back as the value."""
    if isinstance(value, tuple | list):
        return "+".join(map(format_value, value)) + ("+" if len(value) < 2 else "")
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value).replace("e+", "e")  # a plus would make a tuple
    text = str(value)
    return text if PLAIN.fullmatch(text) and parse_value(text) == text else '"' + text.replace('"', '""') + '"'


def format_name(name: str, options: Mapping[Any, Any]) -> str:
    """The inverse of `parse`.

    >>> format_name("mlp", {"hidden": (64, 32), "rate": 1e-3, "kind": "8"})
    'mlp:hidden=64+32,rate=0.001,kind="8"'
    """
    bare = [format_value(options[key]) for key in sorted(k for k in options if isinstance(k, int))]
    keyed = [f"{key}={format_value(value)}" for key, value in options.items() if not isinstance(key, int)]
    return f"{name}:{','.join(bare + keyed)}" if options else name
