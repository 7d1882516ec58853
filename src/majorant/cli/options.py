"""The command line's flags, each described once.

A setting's flag is made from the configuration's own line about it: `with_settings` gives a command a flag for every
setting that has one, and hands it those that were given as a dictionary. Flags that are no settings are types here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from rich.markup import escape

from majorant.app._flags import PANELS, Flag
from majorant.app._kinds import SEQUENCES, fit, plain
from majorant.app.table_settings import TableSettings

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="A TOML file; flags take precedence over it.", rich_help_panel="Output"),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The folder to write (a new one under runs/).", rich_help_panel="Output"),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the resolved configuration and stop.", rich_help_panel="Output")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON and nothing else.", rich_help_panel="Output")
]
Figures = Annotated[
    str | None, typer.Option(help="Also write the figures.", metavar="pdf|png|svg", rich_help_panel="Output")
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        help="Also send every evaluation to a tracker (repeatable).",
        metavar="tensorboard|mlflow|wandb",
        rich_help_panel="Output",
    ),
]
METAVARS = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


class Setting(NamedTuple):
    """A setting as a flag."""

    name: str
    kind: Any  # the type of its values, of one of them where there may be several
    repeated: bool
    flags: tuple[str, ...]
    panel: str
    help: str

    @property
    def parameter(self) -> inspect.Parameter:
        """The parameter that makes typer offer the flag; values are texts, and none means that it was not given."""
        given: Any = bool if self.kind is bool else list[str] if self.repeated else str
        shown = None if self.kind is bool else metavar(self.kind)

        def offered(incomplete: str) -> list[str]:
            return completions(self.name, self.kind, incomplete)

        option = typer.Option(
            *self.flags, help=self.help, metavar=shown, rich_help_panel=self.panel, autocompletion=offered
        )
        annotation = Annotated[given | None, option]
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)

    def read(self, given: Any) -> Any:
        """The value of a flag, which may be a list of texts; complaints name the flag."""
        if self.kind is bool:
            return given
        return tuple(map(self.read_one, given)) if self.repeated else self.read_one(given)

    def read_one(self, text: str) -> Any:
        """The value of a text: as it is, a number, a word of some, or numbers between commas."""
        if self.kind is str:
            return text
        try:
            if get_origin(self.kind) is tuple:
                return tuple(fit(part, get_args(self.kind)[0]) for part in text.split(","))
            return fit(text, self.kind)
        except ValueError as error:
            several = f"takes numbers between commas, as in 0,0.25,0.5, got {text!r}"
            raise ValueError(f"{self.flags[0]} {several if get_origin(self.kind) is tuple else error}") from None


def settings_of(kind: type[TableSettings], without: tuple[str, ...] = ()) -> list[Setting]:
    """The settings of a kind of configuration that have flags, panel after panel."""
    fields = dict(kind.model_fields)
    local: Any = fields.pop("local").annotation if "local" in fields else None
    found = []
    for name, field in (fields | (local.model_fields if local else {})).items():
        flag = next((note for note in field.metadata if isinstance(note, Flag)), None)
        if flag is not None and name not in without:
            found.append(setting_of(name, field, flag))
    return sorted(found, key=lambda setting: PANELS.index(setting.panel))


def setting_of(name: str, field: FieldInfo, flag: Flag) -> Setting:
    """A line of the configuration as a flag; several texts, or several rows of numbers, are given by repeating it."""
    kind = plain(field.annotation)
    if get_origin(kind) is Union:
        kind = next(each for each in get_args(kind) if each is not NoneType)
    entries = plain(get_args(kind)[0]) if get_origin(kind) in SEQUENCES else None
    repeated = entries is str or get_origin(entries) in SEQUENCES
    own = f"--{name.replace('_', '-')}"
    names = flag.names if any(each.startswith("--") for each in flag.names) else (own, *flag.names)
    if kind is bool:
        names = (f"{names[0]}/--no-{names[0][2:]}", *names[1:])
    default = flag.default or ("" if field.default in (None, ()) or kind is bool else str(field.default))
    words = f"{field.description}{' (repeatable)' if repeated else ''}."
    shown = f" [dim]{escape(f'[default: {default}]')}[/]" if default else ""
    help_text = escape(words[0].upper() + words[1:]) + shown
    return Setting(name, entries if repeated else kind, repeated, names, flag.panel, help_text)


def completions(name: str, kind: Any, incomplete: str) -> list[str]:
    """What the shell offers for a setting that is being typed: names of the catalogue, or the words it takes."""
    if get_origin(kind) is Literal:
        known = list(get_args(kind))
    else:
        from majorant.app import catalogue as c

        names: dict[str, Any] = {
            "algorithm": c.algorithms, "data": c.datasets, "model": c.models, "objective": c.objectives,
            "participation": c.participations, "channel": c.stages, "topology": c.topologies, "schedule": c.schedules,
            "combine": c.combinations, "attack": c.attacks, "augment": c.augmentations,
            "optimizer": [*c.optimizers, *c.exact_solvers], "criteria": c.criteria,
        }  # fmt: skip
        known = list(names.get(name, ()))
    return [word for word in known if word.startswith(incomplete)]


def method_names(incomplete: str) -> list[str]:
    """The names of algorithms that begin with some letters."""
    return completions("algorithm", str, incomplete)


def metavar(kind: Any) -> str:
    """What stands after a flag in the help."""
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    return "NUMBER,…" if get_origin(kind) is tuple else METAVARS[kind]


def given_settings(settings: list[Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings whose flags were given, from the values of all flags."""
    return {s.name: s.read(values[s.name]) for s in settings if values.get(s.name) not in (None, [])}


def with_settings(kind: type[TableSettings], without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Any]:
    """Puts flags for all settings in the place of a command's parameter ``settings``, which gets what was given."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        settings = settings_of(kind, without)
        own = inspect.signature(command, eval_str=True).parameters
        parameters = []
        for name, parameter in own.items():
            by_name = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            parameters += [s.parameter for s in settings] if name == "settings" else [by_name]

        @functools.wraps(command)
        def called(**values: Any) -> None:
            command(settings=given_settings(settings, values), **{k: v for k, v in values.items() if k in own})

        annotated = {p.name: p.annotation for p in parameters}
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = annotated
        return called

    return decorate
