"""Named things with options: ``synthetic:clients=100``, ``erdos-renyi:0.5``, ``mlp:hidden=64+32``.

A name is followed by a colon and options separated by commas. An option is ``key=value``, or a bare value, which goes
to the first parameters in their order. Values are whole numbers, numbers, ``true``, ``false``, ``none`` or text; ``+``
makes a tuple: ``64+32`` is (64, 32), ``64+`` is (64,), ``+`` is (). Text that would read as something else is quoted:
``"8"``. The same names work on the command line, in TOML and in Python.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import keyword
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

REQUIRED = inspect.Parameter.empty  # the default of an option that must be given
WORDS = {"true": True, "false": False, "none": None}
QUOTED = r'"(?:[^"]|"")*"|' + r"'(?:[^']|'')*'"
TOKEN = re.compile(rf"(?<![^,+=])\s*(?:{QUOTED})|.", re.DOTALL)  # a quoted text where a value begins, or one character
PLAIN = re.compile(r"[^\s\"',+=](?:[^\"',+=]*[^\s\"',+=])?")  # text that needs no quotes
KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "none"}


class UnknownName(ValueError):
    """A name, or the name of an option, that nothing goes by."""


class Option(NamedTuple):
    """A parameter that can be set after the colon, for lists and messages."""

    name: str
    default: Any  # REQUIRED where there is none
    annotation: Any


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
    """The texts of a tuple's entries, or None where the text is not a tuple."""
    parts = split(text, "+")
    with contextlib.suppress(ValueError):
        float(text)  # the plus of 1e+3
        return None
    return None if len(parts) == 1 else [part for part in parts if part.strip()]


def parse_value(text: str) -> Any:
    """The value that a text stands for.

    >>> [parse_value(text) for text in ("8", "1e-3", "True", "None", "released", "'8'", "64+32", "64+")]
    [8, 0.001, True, None, 'released', '8', (64, 32), (64,)]
    """
    text = text.strip()
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
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
    """The text that ``parse_value`` reads back as the value."""
    if isinstance(value, tuple | list):
        return "+".join(map(format_value, value)) + ("+" if len(value) < 2 else "")
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value).replace("e+", "e")  # a plus would make a tuple
    text = str(value)
    return text if PLAIN.fullmatch(text) and parse_value(text) == text else '"' + text.replace('"', '""') + '"'


def format_name(name: str, options: Mapping[Any, Any]) -> str:
    """The inverse of ``parse``.

    >>> format_name("mlp", {"hidden": (64, 32), "rate": 1e-3, "kind": "8"})
    'mlp:hidden=64+32,rate=0.001,kind="8"'
    """
    bare = [format_value(options[key]) for key in sorted(k for k in options if isinstance(k, int))]
    keyed = [f"{key}={format_value(value)}" for key, value in options.items() if not isinstance(key, int)]
    return f"{name}:{','.join(bare + keyed)}" if options else name


def textual(annotation: Any) -> bool:
    """Whether values of this type can be written after a colon."""
    if get_origin(annotation) in (Union, UnionType):
        return any(textual(kind) for kind in get_args(annotation))
    kind = get_origin(annotation) or annotation
    return kind in (Any, REQUIRED, Literal, tuple, list, Sequence, bool, int, float, str)


def describe(annotation: Any) -> str:
    """A type in words.

    >>> describe(float | None), describe(tuple[int, ...]), describe(Literal["star", "ring"])
    ('a number or none', 'values joined by + (each a whole number)', "one of 'star', 'ring'")
    """
    origin, kinds = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(describe(kind) for kind in kinds if kind is NoneType or textual(kind))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, kinds))
    if (origin or annotation) in (tuple, list, Sequence):
        return "values joined by +" + (f" (each {describe(kinds[0])})" if kinds else "")
    return KINDS.get(annotation, "any value")


def fit(text: str, annotation: Any) -> Any:
    """The value of a text as a type; ``ValueError`` where it is not one.

    >>> fit("3", float), fit("007", str), fit("64", tuple[int, ...]), fit("none", int | None)
    (3.0, '007', (64,), None)
    """
    origin, kinds, value = get_origin(annotation), get_args(annotation), parse_value(text)
    if origin in (Union, UnionType):
        for kind in sorted(kinds, key=lambda kind: kind is str):  # everything reads as text: try that last
            with contextlib.suppress(ValueError):
                return fit(text, kind)
    elif origin is Literal:
        for choice in kinds:
            if (value == choice and type(value) is type(choice)) or unquote(text) == choice:
                return choice
    elif (origin or annotation) in (tuple, list, Sequence):
        entries = pieces(text)
        entries = [text] if entries is None else entries
        fixed = origin is tuple and kinds[-1:] != (...,)
        each = kinds if fixed else (kinds[:1] or (Any,)) * len(entries)
        if len(each) == len(entries):
            return tuple(fit(entry, kind) for entry, kind in zip(entries, each, strict=True))
    elif annotation in (Any, REQUIRED) or (annotation in KINDS and type(value) is annotation):
        return value
    elif annotation is float and type(value) is int:
        return float(value)
    elif annotation is str:
        return unquote(text)
    raise ValueError(f"must be {describe(annotation)}, got {text!r}")


class Registry:
    """Things of one kind by name, made from texts such as ``name:option=value``.

    A factory may be given as "module:function": it is imported when it is first used. ``arguments`` counts the leading
    parameters that the program hands to ``make`` itself, and which are therefore not options.

    >>> topologies = Registry("topology", arguments=1)
    >>> def erdos_renyi(nodes: int, p: float = 0.5, *, seed: int = 0) -> str: return f"{nodes} nodes, p = {p}"
    >>> topologies.register("erdos-renyi", erdos_renyi, help="every edge is drawn with probability p")
    >>> topologies.make("erdos-renyi:0.2", 10)
    '10 nodes, p = 0.2'
    >>> topologies.make("erdos", 10)
    Traceback (most recent call last):
    majorant.app.names.UnknownName: unknown topology 'erdos': did you mean 'erdos-renyi'? Known: erdos-renyi
    """

    def __init__(self, kind: str, *, arguments: int = 0) -> None:
        self.kind, self.arguments = kind, arguments
        self._entries: dict[str, tuple[Callable[..., Any] | str, str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def register(self, name: str, factory: Callable[..., Any] | str, help: str = "") -> None:
        """Adds a factory under a name that is not yet taken."""
        if name in self._entries or parse_raw(name) != (name, {}):
            raise ValueError(f"{self.kind} name {name!r} is taken, or has a colon in it")
        self._entries[name] = (factory, help)

    def help(self, name: str) -> str:
        """One line about a name."""
        self._known(name)
        return self._entries[name][1]

    def factory(self, name: str) -> Callable[..., Any]:
        """The function behind a name."""
        self._known(name)
        found = self._entries[name][0]
        return pkgutil.resolve_name(found) if isinstance(found, str) else found

    def options(self, name: str) -> list[Option]:
        """What can be set after the colon: names, defaults (``REQUIRED`` where there is none) and types."""
        found = [Option(p.name, p.default, kind_of(p)) for p in parameters(self.factory(name), self.arguments)[0]]
        return [option._replace(name=option.name.rstrip("_")) for option in found if textual(option.annotation)]

    def takes(self, text: str, parameter: str) -> bool:
        """Whether the factory behind a name has a parameter, textual or not."""
        return parameter in inspect.signature(self.factory(parse_raw(text)[0])).parameters

    def check(self, text: str) -> None:
        """Raises what ``make`` would raise about the name and its options, and makes nothing."""
        self._bind(text, self.arguments)

    def make(self, text: str, *args: Any, **defaults: Any) -> Any:
        """Calls the factory behind a name with ``args``, ``defaults``, and over these the options of the text.

        Defaults that a factory does not take are left out, so that every name can be offered the same ones.
        """
        factory, given = self._bind(text, len(args))
        taken, open_ended = parameters(factory, len(args))
        names = {p.name for p in taken}
        values = {key: value for key, value in defaults.items() if open_ended or key in names} | given
        missing = [p.name.rstrip("_") for p in taken if p.default is REQUIRED and p.name not in values]
        if missing:
            example = format_name(parse_raw(text)[0], {missing[0]: "..."})
            raise ValueError(f"{self.kind} {text!r} needs {', '.join(missing)}: give it as {example}")
        return factory(*args, **values)

    def _known(self, name: str) -> None:
        if name not in self._entries:
            raise UnknownName(f"unknown {self.kind} {name!r}{nearest(name, self._entries)} Known: {listed(self)}")

    def _bind(self, text: str, skip: int) -> tuple[Callable[..., Any], dict[str, Any]]:
        name, raw = parse_raw(text)
        factory = self.factory(name)
        found, open_ended = parameters(factory, skip)
        kinds = {p.name: kind_of(p) for p in found if textual(kind_of(p))}
        values: dict[str, Any] = {}
        for key, value in raw.items():
            target = parameter_name(key, list(kinds))
            shown = [k.rstrip("_") for k in kinds]
            if target not in kinds and (not open_ended or isinstance(target, int)):
                wrong = f"unknown option {key!r}" if isinstance(key, str) else f"no place for {value!r}"
                hint = nearest(str(key), shown) if isinstance(key, str) else "."
                raise UnknownName(f"{wrong} in {self.kind} {text!r}{hint} Options of {name}: {listed(shown)}")
            target = str(target)
            if target in values:
                raise ValueError(f"option {target!r} is given twice in {text!r}")
            try:
                values[target] = fit(value, kinds.get(target, Any))
            except ValueError as error:
                raise ValueError(f"option {target.rstrip('_')!r} of {self.kind} {name!r} {error}") from None
        return factory, values


def parameters(factory: Callable[..., Any], skip: int = 0) -> tuple[list[inspect.Parameter], bool]:
    """A factory's parameters by keyword, less the first few positional ones, and whether it takes any others."""
    try:
        signature = inspect.signature(factory, eval_str=True)
    except NameError:  # a type that is only imported for type checkers
        signature = inspect.signature(factory)
    found = list(signature.parameters.values())
    positional = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:skip]
    named = [p for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in positional]
    return named, any(p.kind is p.VAR_KEYWORD for p in found)


def kind_of(parameter: inspect.Parameter) -> Any:
    """The type of a parameter, or of its default where the type is not stated."""
    if parameter.annotation is not REQUIRED and not isinstance(parameter.annotation, str):
        return parameter.annotation
    return type(parameter.default) if type(parameter.default) in (bool, int, float, str, tuple) else Any


def parameter_name(key: str | int, names: Sequence[str]) -> str | int:
    """The parameter that an option means: by position, with dashes, ``lambda`` for ``lambda_`` or ``lam``."""
    if isinstance(key, int):
        return names[key] if key < len(names) else key
    plain = key.replace("-", "_")
    if keyword.iskeyword(plain):
        plain = "lam" if plain == "lambda" and "lam" in names else plain + "_"
    return plain


def nearest(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    """A question about the closest known name, or a full stop."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f": did you mean {close[0]!r}?" if close else "."


def listed(names: Registry | Sequence[str]) -> str:
    """Names in a row."""
    return ", ".join(sorted(names)) or "none"
