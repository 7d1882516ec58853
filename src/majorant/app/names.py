"""Named things with options, made from texts such as ``mlp:hidden=64+32`` (see `_syntax` for how they are written).

The same names work on the command line, in TOML files and in Python.
"""

from __future__ import annotations

import difflib
import inspect
import keyword
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from majorant._syntax import format_name, format_value, parse, parse_raw
from majorant.app._kinds import fit, textual

__all__ = [
    "REQUIRED",
    "Option",
    "Registry",
    "UnknownName",
    "format_name",
    "format_value",
    "nearest",
    "parse",
    "parse_raw",
]

REQUIRED = inspect.Parameter.empty  # the default of an option that must be given


class UnknownName(ValueError):
    """A name, or the name of an option, that nothing goes by."""


class Option(NamedTuple):
    """A parameter that can be set after the colon, for lists and messages."""

    name: str
    default: Any  # REQUIRED where there is none
    annotation: Any


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

    def ours(self) -> bool:
        """Whether all factories are the library's own: a process may have registered others."""
        return all(
            isinstance(factory, str) and factory.startswith("majorant.") for factory, _ in self._entries.values()
        )

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

    def given(self, text: str) -> dict[str, Any]:
        """The options that a text gives, by the names of the factory's parameters.

        >>> shapes = Registry("shape")
        >>> shapes.register("box", lambda width=1, height=1: None)
        >>> shapes.given("box:2,height=3")
        {'width': 2, 'height': 3}
        """
        return self._bind(text, self.arguments)[1]

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


def listed(names: Iterable[str]) -> str:
    """Names in a row."""
    return ", ".join(sorted(names)) or "none"
