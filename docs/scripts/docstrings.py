"""Docstrings as Markdown, for mkdocstrings: examples become blocks of code, columns become tables."""

from __future__ import annotations

import ast
import inspect
import re

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.M | re.S)  # up to the next empty line
TABLE = re.compile(r"^=+ [= ]*\n.*?^=+ [= ]*$(?=\n\s*\n|\Z)", re.M | re.S)  # columns under rows of equals signs
SECTION = re.compile(r"^Examples\n-+$", re.M)  # which mkdocstrings reads by itself


def as_markdown(text: str) -> str:
    """A docstring's text, in Markdown.

    >>> as_markdown("Doubles::\\n\\n    y = 2x\\n\\n>>> double(1)\\n2")
    'Doubles:\\n\\n    y = 2x\\n\\n```pycon\\n>>> double(1)\\n2\\n```'
    """
    found = SECTION.search(text)
    text, rest = (text[: found.start()], text[found.start() :]) if found else (text, "")
    text = EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)
    text = TABLE.sub(lambda table: as_table(table[0].splitlines()), text)
    return re.sub(r"::$", ":", text, flags=re.M) + rest


def as_table(lines: list[str]) -> str:
    """A table of Markdown, from columns under a row of equals signs; a line with an empty first cell continues a row.

    >>> print(as_table(["==  =====", "k   means", "==  =====", "a   the", "    first", "==  ====="]))
    | k | means |
    |---|---|
    | a | the first |
    """
    starts = [column.start() for column in re.finditer("=+", lines[0])]
    rows: list[list[str]] = []
    for line in lines:
        cells = [line[a:b].strip().replace("|", r"\|") for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if cells[0].startswith("="):
            continue
        if cells[0] or not rows:
            rows.append(cells)
        else:
            rows[-1] = [f"{above} {cell}".strip() for above, cell in zip(rows[-1], cells, strict=True)]
    drawn = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([drawn[0], "|" + "---|" * len(starts), *drawn[1:]])


def composed(owner: griffe.Class) -> str:
    """The docstring of a class that puts it together from a module's texts: ``__doc__ = f"...{PARAMETERS}..."``."""
    written = str(owner["__doc__"].value)
    words = [part.value for part in ast.walk(ast.parse(written)) if isinstance(part, ast.FormattedValue)]
    texts = {word.id: ast.literal_eval(str(owner.module[word.id].value)) for word in words}
    return inspect.cleandoc(eval(written, {"__builtins__": {}}, texts))


def fields(owner: griffe.Class) -> str:
    """The fields of a record as they are written, with their comments; nothing for a class that is none."""
    if "dataclass" not in owner.labels and not any("NamedTuple" in str(base) for base in owner.bases):
        return ""
    source = owner.filepath.read_text(encoding="utf-8").splitlines()
    own = [member for member in owner.attributes.values() if member.annotation and "property" not in member.labels]
    lines = [line.removeprefix("    ") for member in own for line in source[member.lineno - 1 : member.endlineno]]
    return "\n".join(["", "", "```python", *(re.sub(r"\s*# noqa.*", "", line) for line in lines), "```"])


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is drawn."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        for module in pkg.modules.values():
            if not module.is_alias:  # a module that another one imports comes where it is
                self.on_package(pkg=module)
        for owner in pkg.classes.values():
            if owner.is_alias:
                continue
            if "__doc__" in owner.members:
                owner.docstring = griffe.Docstring(composed(owner), parent=owner, parser="numpy")
            if owner.docstring:
                owner.docstring.value += fields(owner)
