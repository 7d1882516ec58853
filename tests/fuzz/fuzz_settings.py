"""Configuration files: settings with values of all types, and texts that are hardly TOML."""

from __future__ import annotations

import math
from typing import Any

import tomli_w
from fuzz_cases import Case
from fuzz_commands import REGISTRIES, named
from fuzz_texts import values, words
from hypothesis import strategies as st

from majorant.app.config import LocalConfig, RunConfig
from majorant.app.front_config import FrontConfig

DEFAULTS = {"algorithm": "fedavg", "criteria": ["squared-norm"]}
BROKEN = [
    b"\xff\xfe", b"= 1", b"[", b"a = ", b"[local\nlr=1", b"algorithm = \"fedavg\"\nalgorithm = \"local\"\n",
    b"[local]\n[local]\n", b"x = " + b"[" * 1500 + b"]" * 1500, b"a" + b".a" * 1500 + b" = 1", b"\0", b"rounds = 0x10",
    b"rounds = 1_0", b"rounds = 1979-05-27", b"[[local]]\nlr = 1\n", b"local = 3", b'"" = 1', b"rounds = inf",
    b"x = {" * 900 + b"}" * 900, b"rounds = " + b"9" * 5000, b"\xef\xbb\xbfrounds = 3",
]  # fmt: skip

plain = st.one_of(
    values,
    st.integers(-3, 5),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.dates(),
    st.sampled_from([0.1, 0.5, 1, 2, 10, 2**31, 2**63 - 1, -(2**63), 10**30]),
)
anything = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=2), max_leaves=4
)


@st.composite
def settings(draw: Any) -> Case:
    """A file, and the command that is given it."""
    command = draw(st.sampled_from(["run", "run", "run", "pareto", "compare"]))
    given = {"run": ["run"], "pareto": ["pareto"], "compare": ["compare", "fedavg", "local"]}[command]
    line = [*given, "--config", "settings.toml", "--dry-run"]
    if draw(st.integers(0, 7)) == 0:
        return Case(line, {"settings.toml": draw(st.sampled_from(BROKEN) | st.binary(max_size=40))})
    kind: Any = FrontConfig if command == "pareto" else RunConfig
    content: dict[str, Any] = {"criteria": ["squared-norm"]} if command == "pareto" else {"algorithm": "fedavg"}
    for name in draw(st.lists(st.sampled_from(list(kind.model_fields)), max_size=3)):
        content[name] = draw(value_of(name, kind.model_fields[name].annotation))
    if draw(st.booleans()):
        inner = draw(st.lists(st.sampled_from(list(LocalConfig.model_fields)), max_size=3))
        local = {name: draw(value_of(name, LocalConfig.model_fields[name].annotation)) for name in inner}
        content["local"] = local if draw(st.integers(0, 9)) else draw(anything)
    if draw(st.integers(0, 9)) == 0:
        content[draw(words)] = draw(anything)
    try:
        text = tomli_w.dumps(content).encode(errors="surrogateescape")
    except (TypeError, ValueError, OverflowError):
        text = repr(content).encode(errors="replace")
    for _ in range(draw(st.integers(0, 2)) if draw(st.integers(0, 9)) == 0 else 0):  # a byte goes wrong
        place = draw(st.integers(0, max(0, len(text) - 1)))
        text = text[:place] + draw(st.binary(max_size=2)) + text[place + 1 :]
    return Case(line, {"settings.toml": text})


def value_of(name: str, kind: Any) -> st.SearchStrategy[Any]:
    """Values for a setting, mostly of its kind."""
    if name in REGISTRIES:
        good: st.SearchStrategy[Any] = named(name)
    elif kind in (int, "int") or "int" in str(kind):
        good = st.integers(0, 12)
    elif "float" in str(kind):
        good = st.floats(0, 1).filter(math.isfinite)
    elif "bool" in str(kind):
        good = st.booleans()
    else:
        good = values
    return st.one_of(good, good, good, anything)
