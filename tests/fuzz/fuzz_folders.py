"""Run folders that were damaged, or altered with checksums made anew: everything that is read back is checked."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_cases import Case, Ended
from hypothesis import strategies as st

TEXTS = ["summary.json", "metrics.jsonl", "clients.csv", "config.toml"]
SEALED = ("summary.json", "metrics.jsonl", "clients.csv", "front.json")  # whose numbers have checksums
TREES = ["model", "checkpoint"]
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 10**6, 2**31, 2**63, 10**30, 0.5, -0.5, 1e300, -1e300, 1e-300, "", "x", "0", "é",
    "\0", "<script>", "[/b]", "=1", [], {}, [0], [[]], {"mean": "x"}, {"a": None}, ["a", "b"], [1, 2],
    float("nan"), float("inf"), "round", "accuracy", "fedavg", "local", "9" * 50, [0.0, 1.0], [[4], 2],
    [[1000000000], 2],
]  # fmt: skip
COMMANDS = {
    "run": {
        "summary.json": [["report", "run"], ["runs", "."]],
        "metrics.jsonl": [["report", "run"], ["runs", "."]],
        "clients.csv": [["report", "run"], ["runs", "."]],
        "config.toml": [["report", "run"], ["runs", "."], ["personalize", "run", "--data", "new.csv"]],
        "model": [["personalize", "run", "--data", "new.csv"]],
        "checkpoint": [["run", "--resume", "run"]],
    },
    "front": {
        "front.json": [["pareto", "show", "front"], ["pareto", "pick", "front", "--knee"], ["runs", "."]],
        "config.toml": [["runs", "."], ["pareto", "show", "front"]],
    },
}
WRITES = {
    "report": ("run/report.html", "front/report.html"),
    "resume": ("run/",),
    "personalize": ("run/personal",),
    "pick": ("front/front.json", "front/model", "front/report.html"),
}


@cache
def contents(path: Path) -> bytes:
    """A file of a base, which does not change."""
    return path.read_bytes()


@st.composite
def altered_json(draw: Any, value: Any) -> Any:
    """The value with one entry somewhere in it changed, removed, added or doubled."""
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(value)))
        how = draw(st.integers(0, 9))
        if how == 0:
            return {k: v for k, v in value.items() if k != key}
        if how == 1:
            return value | {draw(st.sampled_from(["x", "", "é", "round", "mean"])): draw(st.sampled_from(ODD))}
        return value | {key: draw(altered_json(value[key]))}
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        place = draw(st.integers(0, len(value) - 1))
        how = draw(st.integers(0, 9))
        if how == 0:
            return value[:place] + value[place + 1 :]
        if how == 1:
            return [*value, value[place]]
        return [*value[:place], draw(altered_json(value[place])), *value[place + 1 :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and draw(st.booleans()):
        return draw(st.sampled_from([value + 1, -value, value * 2, value / 3, float(value), 0]))
    if isinstance(value, str) and draw(st.booleans()):
        return draw(st.sampled_from([value + "x", value[1:], value.upper(), value.replace("=", ":"), value * 2]))
    return draw(st.sampled_from(ODD))


@st.composite
def altered_bytes(draw: Any, data: bytes) -> bytes:
    """The bytes with some of them changed, cut off, doubled, or others in their place."""
    place = draw(st.integers(0, max(len(data) - 1, 0)))
    return draw(
        st.one_of(
            st.binary(min_size=1, max_size=4).map(lambda new: data[:place] + new + data[place + len(new) :]),
            st.just(data[:place]),
            st.just(data[:place] + data[place : place + 20] + data[place:]),
            st.sampled_from(
                [b"", b"\0", b"{}", b"[]", b"null", b"\xff\xfe", b"[" * 3000, b"a,b\n1,2\n", b'{"a": 1e999}', b"1"]
            ),
        )
    )


def signed(content: dict[str, Any]) -> bytes:
    """A manifest with a checksum that is right."""
    content = {key: value for key, value in content.items() if key != "check"}
    check = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps(content | {"check": check}).encode()


@st.composite
def forged_tree(draw: Any, base: Path, name: str) -> dict[str, bytes | None]:
    """A saved tree whose manifest or arrays say something else, with checksums made anew."""
    manifest, arrays = base / name / "manifest.json", base / name / "arrays.safetensors"
    content = json.loads(contents(manifest))
    how = draw(st.integers(0, 5))
    if how == 0:  # the arrays
        data = draw(altered_bytes(contents(arrays)))
        content |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return {f"{base.name}/{name}/arrays.safetensors": data, f"{base.name}/{name}/manifest.json": signed(content)}
    part = "meta" if how < 5 else draw(st.sampled_from(["leaves", "format", "bytes", "sha256"]))
    content[part] = draw(altered_json(content[part]))
    try:
        return {f"{base.name}/{name}/manifest.json": signed(content)}
    except ValueError:
        return {}


def folders(bases: dict[str, Path]) -> st.SearchStrategy[Case]:
    """Altered copies of the folders of a run and of a front."""

    @st.composite
    def case(draw: Any) -> Case:
        base = draw(st.sampled_from([name for name in ("run", "run", "run", "front") if name in bases]))
        part = draw(st.sampled_from(list(COMMANDS[base])))
        line = list(draw(st.sampled_from(COMMANDS[base][part])))
        if part in TREES and draw(st.integers(0, 3)):
            files = draw(forged_tree(bases[base], part))
        else:
            inner = ["manifest.json", "arrays.safetensors"] if part in TREES else [""]
            path = bases[base] / part / draw(st.sampled_from(inner)) if part in TREES else bases[base] / part
            name = f"{base}/{path.relative_to(bases[base])}"
            files = {name: draw(altered_file(path)) if draw(st.integers(0, 11)) else None}
        files |= {"new.csv": contents(bases["new.csv"])}
        writes = next((paths for word, paths in WRITES.items() if word in " ".join(line)), ())
        return Case(line, files, base, writes)

    return case()


def accepted(case: Case, ended: Ended, bases: dict[str, Path]) -> str:
    """The file whose content is another one than was written, where a command took it without a word.

    JSON without its checksum is as an older version wrote it; a run without its summary has not finished.
    """
    listed = case.arguments[0] != "runs" or case.base in [line.strip() for line in ended.output.splitlines()]
    if ended.code != 0 or "changed" in ended.output or not listed:
        return ""
    for name, content in case.files.items():
        path = bases[name.split("/")[0]] / Path(name).name
        ended_by = path.name in ("summary.json", "front.json")
        if path.name not in SEALED or (ended_by and content is None):
            continue
        if content != contents(path) and not (ended_by and content and same_meaning(content, contents(path))):
            return f"{name}: {(content or b'')[:200]!r}"
    return ""


def same_meaning(one: bytes, other: bytes) -> bool:
    """Whether JSON says the same apart from its checksum, or has none."""
    new, old = json.loads(one), json.loads(other)
    return not isinstance(new, dict) or "check" not in new or new == old


@st.composite
def altered_file(draw: Any, path: Path) -> bytes:
    """A file with a changed entry, or with changed bytes."""
    data = contents(path)
    if path.suffix == ".json" and path.name != "manifest.json" and draw(st.integers(0, 3)):
        return json.dumps(draw(altered_json(json.loads(data)))).encode(errors="replace")
    if path.suffix == ".jsonl" and draw(st.integers(0, 3)):
        lines = data.splitlines()
        place = draw(st.integers(0, len(lines) - 1))
        lines[place] = json.dumps(draw(altered_json(json.loads(lines[place])))).encode(errors="replace")
        return b"\n".join(lines) + b"\n"
    if path.suffix == ".csv" and draw(st.integers(0, 3)):
        rows = [line.split(",") for line in data.decode().splitlines()]
        row = rows[draw(st.integers(0, len(rows) - 1))]
        row[draw(st.integers(0, len(row) - 1))] = draw(
            st.sampled_from(["", "x", "nan", "inf", "1e999", "-1", "true", '"', "=1", "9" * 40])
        )
        return ("\n".join(",".join(row) for row in rows) + "\n").encode()
    return draw(altered_bytes(data))
