"""Command lines: names with options, flags and words in all places, likely and unlikely ones.

What would train is a dry run; what reads files finds none, or ones that are no use to it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any, Literal, get_args, get_origin

from fuzz_cases import Case, Ended
from fuzz_texts import values, words
from hypothesis import strategies as st

from majorant.app import catalogue
from majorant.app.config import RunConfig
from majorant.app.front_config import FrontConfig
from majorant.app.names import REQUIRED, format_value
from majorant.app.table_settings import TableSettings
from majorant.cli.options import Setting, settings_of

REGISTRIES = {
    "algorithm": catalogue.algorithms, "data": catalogue.datasets, "model": catalogue.models,
    "objective": catalogue.objectives, "participation": catalogue.participations, "channel": catalogue.stages,
    "topology": catalogue.topologies, "criteria": catalogue.criteria, "schedule": catalogue.schedules,
    "optimizer": catalogue.optimizers, "solver": catalogue.exact_solvers,
}  # fmt: skip
SETTINGS = {kind: settings_of(kind) for kind in (RunConfig, FrontConfig, TableSettings)}
INTERNAL = ["sizes", "constants", "local", "model", "problem", "key", "self", "hyper", "name", "clients"]
SOLVERS = ("lsgd", "acd", "asvrcd", "ascd", "svrcd", "scd", "l2sgd+")
LONG = ("rounds", "epochs", "steps", "seeds")  # which make an honest run as long as one likes
USUAL = {int: ["1", "2", "7", "0"], float: ["0.1", "0.5", "0", "1"]}
LISTS = [*catalogue.KINDS, "experiments"]
FILES = {"t.csv": b"c,a,y\n1,2,3\n", "empty.toml": b"", "odd.toml": b"[local]\nlr = 0.1\n", "note.txt": b"a note"}


@cache
def known_options(kind: str, name: str) -> dict[str, Any]:
    """The options that a name takes, with their defaults."""
    return {option.name: option.default for option in REGISTRIES[kind].options(name)}


def value_for(kind: str, name: str, key: str) -> st.SearchStrategy[str]:
    """Values for an option: its default and numbers near it, or anything."""
    default = known_options(kind, name).get(key) if name in REGISTRIES[kind] else None
    if default in (None, REQUIRED) or isinstance(default, str | tuple):
        usual = values if default in (None, REQUIRED) else st.just(format_value(default))
    elif isinstance(default, bool):
        usual = st.sampled_from(["true", "false"])
    else:
        usual = st.sampled_from([default, 2 * default, default / 2, 1, 2, 3, 0.5]).map(type(default)).map(format_value)
    return st.one_of(usual, usual, usual, values)


@st.composite
def named(draw: Any, kind: str) -> str:
    """A name of some kind with options, most of which it knows."""
    registry = REGISTRIES[kind]
    name = draw(st.sampled_from(list(registry)))
    if draw(st.integers(0, 19)) == 11:
        name = draw(words)
    known = list(known_options(kind, name)) if name in registry else []
    keys = st.sampled_from(known or INTERNAL) if draw(st.integers(0, 9)) != 6 else st.sampled_from(INTERNAL) | words
    options = [
        (key, draw(value_for(kind, name, key)))
        for key in draw(st.lists(keys, max_size=3, unique=draw(st.integers(0, 19)) != 9))
    ]
    bare = draw(st.lists(values, max_size=1)) if draw(st.integers(0, 9)) == 5 else []
    parts = bare + [f"{key}={value}" for key, value in options]
    return f"{name}:{','.join(parts)}" if parts else name


@st.composite
def flag(draw: Any, settings: list[Setting]) -> list[str]:
    """A flag with a value, mostly of the right kind."""
    setting = draw(st.sampled_from(settings))
    name = draw(st.sampled_from([part for names in setting.flags for part in names.split("/")]))
    if setting.kind is bool:
        return [name]
    if setting.name in REGISTRIES and draw(st.integers(0, 5)) != 3:
        return [name, draw(named(setting.name))]
    if get_origin(setting.kind) is Literal and draw(st.integers(0, 5)) != 3:
        return [name, draw(st.sampled_from(get_args(setting.kind)))]
    if setting.kind in USUAL and draw(st.integers(0, 3)) != 2:
        return [name, draw(st.sampled_from(USUAL[setting.kind]))]
    return [name, draw(values)]


def flags(kind: type[TableSettings], most: int = 3) -> st.SearchStrategy[list[str]]:
    """Some flags, one after the other."""
    return st.lists(flag(SETTINGS[kind]), max_size=most).map(lambda found: [text for pair in found for text in pair])


@st.composite
def commands(draw: Any) -> Case:
    """A whole command line."""
    path = st.sampled_from([*FILES, "nothing", ".", "t.csv/x"]) | words
    kind = draw(st.sampled_from(["run"] * 8 + ["compare"] * 3 + ["pareto"] * 4 + ["others"] * 4))
    if kind == "run":
        line = ["run", draw(named("algorithm")), *draw(flags(RunConfig)), "--dry-run"]
    elif kind == "compare":
        line = ["compare", *draw(st.lists(named("algorithm"), max_size=3)), *draw(flags(RunConfig)), "--dry-run"]
    elif kind == "pareto":
        criteria = draw(st.lists(named("criteria"), min_size=1, max_size=2))
        line = ["pareto", *(text for name in criteria for text in ("--criterion", name)), *draw(flags(FrontConfig))]
        line += ["--dry-run"]
    else:
        line = draw(
            st.one_of(
                st.tuples(st.just("list"), st.sampled_from(LISTS) | words),
                st.tuples(st.just("runs"), path),
                st.tuples(st.just("report"), path, st.just("--out"), path),
                st.tuples(st.just("report"), path, st.just("--figures"), words),
                st.tuples(st.just("personalize"), path, st.just("--data"), path),
                st.tuples(st.just("personalize"), path, st.just("--data"), path, st.just("--predict"), path),
                st.tuples(st.just("predict"), path, st.just("--data"), path, st.just("--out"), path),
                st.tuples(st.just("export"), path, st.just("--out"), path),
                st.tuples(st.just("run"), st.just("--resume"), path),
                st.tuples(st.just("run"), st.just("--config"), path, st.just("--dry-run")),
                st.tuples(st.just("pareto"), st.just("show"), path),
                st.tuples(st.just("pareto"), st.just("pick"), path, st.just("--point"), values),
                st.tuples(st.just("pareto"), st.just("pick"), path, st.just("--limit"), values),
                st.tuples(st.just("reproduce"), words, st.just("--seeds"), values),
                st.tuples(words, words),
                flags(TableSettings).map(lambda found: ["check", "t.csv", *found]),
            ).map(list)
        )
    if draw(st.integers(0, 14)) == 9:  # a word too many, somewhere
        line.insert(draw(st.integers(0, len(line))), draw(words))
        if line[0] in ("run", "compare", "pareto") and "--dry-run" not in line:
            line.append("--dry-run")
    return Case([text.replace("\0", "") for text in line], dict(FILES))


@st.composite
def trainings(draw: Any, small: list[str]) -> Case:
    """A run of two rounds on very little data, with everything that can be said about method and exchange."""
    line = ["run", draw(named("algorithm")), "--data", draw(st.sampled_from(small)), "--rounds", "2", "--out", "made"]
    chosen = ("objective", "model", "participation", "channel", "topology", "schedule", "optimizer")
    for kind in draw(st.lists(st.sampled_from(chosen), max_size=3, unique=True)):
        line += [f"--{kind}", draw(named(kind))]
    if line[1].partition(":")[0] in SOLVERS and "--objective" not in line:
        line += ["--objective", draw(named("objective"))]
    more = draw(
        st.lists(flag([s for s in SETTINGS[RunConfig] if s.panel == "Training" and s.name not in LONG]), max_size=2)
    )
    return Case(
        [text for text in [*line, *(text for pair in more for text in pair)] if "\0" not in text], {}, None, ("made/",)
    )


def read_back(case: Case, ended: Ended) -> Case | None:
    """The dry run of what a dry run printed: it must print the same again."""
    if ended.code != 0 or case.arguments[0] not in ("run", "pareto") or "--dry-run" not in case.arguments:
        return None
    try:
        tomllib.loads(ended.output)
    except ValueError:
        return None  # warnings stand between the lines, or help was asked for
    return Case([case.arguments[0], "--config", "again.toml", "--dry-run"], {"again.toml": ended.output.encode()})
