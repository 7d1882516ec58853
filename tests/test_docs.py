"""The documentation keeps its word: its Python runs, its commands parse, its links resolve, nothing is left out."""

from __future__ import annotations

import functools
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
import pytest
import typer

import majorant
from majorant.app import catalogue
from majorant.app.build import check_names
from majorant.app.config import LocalConfig, RunConfig, make_config
from majorant.app.front_config import FrontConfig, make_front_config
from majorant.app.reproduce import experiments
from majorant.cli.main import app
from majorant.cli.options import given_settings, settings_of
from majorant.cli.train import resolve
from majorant.core import Algorithm, Answer, ClientData, Server, Terms, Upload, Uploads, View
from majorant.engines import population

ROOT = Path(__file__).parents[1]
METHODS = ROOT / "docs" / "methods"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("reproductions/**/*.md")])
SOLVERS = ("lsgd", "acd", "asvrcd", "ascd", "svrcd", "scd", "l2sgd+")
PAGE_OF = (  # where a method's name is not its page's
    {"fedavg+": "fedavg-plus", "clustered": "clustered-fl"}
    | dict.fromkeys(SOLVERS, "unified-solvers")
    | dict.fromkeys(("afl", "q-ffl", "fedmgda+"), "fair")
    | dict.fromkeys(("fedper", "fedrep", "fedbn"), "personal-layers")
    | {"gaussian-mixture": "mixtures"}
    | dict.fromkeys(("k-means", "dictionary"), "factorization")
)
SMALLER = {
    "clients=300": "clients=20",
    "rounds=200": "rounds=4",
    "rounds=100": "rounds=4",
    "for strength in (0.01, 1.0, 10.0)": "for strength in (1.0,)",
}  # the printed sizes, and those that are run here
FENCE = re.compile(r"^(?P<mark><!-- not run -->\n)?```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.M | re.S)
USAGE_ERROR = typer.BadParameter.__mro__[1]  # click's UsageError, wherever this version of typer keeps click
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int  # the page's line before its first
    runs: bool


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [
        Block(m["language"], m["text"], text.count("\n", 0, m.start("text")), m["mark"] is None)
        for m in FENCE.finditer(text)
    ]
    return [block for block in found if block.language in languages]


def with_python() -> list[Path]:
    return [page for page in PAGES if any(block.runs for block in blocks(page, "python"))]


@pytest.fixture
def one_bucket():
    """Of clients, whatever their sizes: less to compile."""
    before, population.LEAST_SAVED = population.LEAST_SAVED, 1 << 60
    yield
    population.LEAST_SAVED = before


@pytest.mark.usefixtures("one_bucket")
@pytest.mark.parametrize("page", with_python(), ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """All blocks of a page in one namespace, in an empty folder that has the files the pages speak of."""
    monkeypatch.chdir(tmp_path)
    write_tables()
    namespace = {"__name__": "page", "owner": np.arange(40) % 2}
    for block in blocks(page, "python"):
        if block.runs:
            text = block.text
            for printed, run in SMALLER.items():
                text = text.replace(printed, run)
            exec(compile("\n" * block.line + text, str(page), "exec"), namespace)
    if page.name == "command-line.md":
        undocumented(page, [*namespace["summary"], *namespace["line"]])


def write_tables() -> None:
    """The tables of a few hospitals, of a new one, and of visits without an outcome."""
    rng = np.random.default_rng(0)

    def rows(hospital: str, count: int, labelled: bool = True) -> list[str]:
        ages, smokers = rng.integers(20, 90, count), rng.integers(2, size=count)
        outcome = [
            f",{int(age + 20 * smoker > 60)}" if labelled else "" for age, smoker in zip(ages, smokers, strict=True)
        ]
        return [f"{hospital},{i},{ages[i]},{'ny'[smokers[i]]}{outcome[i]}" for i in range(count)]

    header = "hospital,patient_id,age,smoker"
    visits = [row for name in "abcdef" for row in rows(name, 40)]
    Path("visits.csv").write_text("\n".join([f"{header},outcome", *visits]))
    Path("new_hospital.csv").write_text("\n".join([f"{header},outcome", *rows("g", 40)]))
    Path("unlabelled.csv").write_text("\n".join([header, *rows("g", 40, labelled=False)]))


def test_few_blocks_are_left_out():
    """Only what would need a download or hours may be marked as not run."""
    skipped = [page.name for page in PAGES for block in blocks(page, "python") if not block.runs]
    assert len(skipped) <= 1, skipped


@every_page
def test_links_resolve(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}: no such heading"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> list[list[str]]:
    """The command lines of a page that call majorant, as words."""
    lines = [
        line
        for block in blocks(page, "", "sh", "bash", "console")
        for line in block.text.replace("\\\n", " ").splitlines()
    ]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("majorant ")]


@every_page
def test_commands_exist(page):
    """Commands, options and what goes by a name; nothing is run."""
    for words in commands(page):
        check_command(words[1:])


@functools.cache
def whole_command() -> Any:
    """Made of the functions of all commands: not once for each line."""
    return typer.main.get_command(app)


def check_command(words: list[str]) -> None:
    group = whole_command()
    if words[0].startswith("-"):
        assert words[0] in ("--help", "-h", "--version", "--install-completion"), words
        return
    assert words[0] in group.commands, f"there is no command {words[0]!r}"
    if words[1:] == ["--help"]:
        return
    context = group.commands[words[0]].make_context(words[0], words[1:])
    values = dict(context.params)
    if words[0] == "pareto":
        return check_pareto(context, values)
    if words[0] == "flower":
        name, *rest = [*context._protected_args, *context.args]
        context.command.commands[name].make_context(name, rest)
    if words[0] in ("run", "compare") and not values["config"] and not values.get("resume"):
        names = values.pop("algorithms", None) or [values.get("algorithm", "local")]
        flags = given_settings(settings_of(RunConfig), values)
        for name in names:
            check_names(resolve(flags | ({"algorithm": name} if name else {}), None, None))
    if words[0] == "reproduce":
        assert values["experiment"] in experiments()
    if words[0] == "list":
        assert values["kind"] in (None, "experiments", *catalogue.KINDS)


def check_pareto(context, values: dict) -> None:
    """A subcommand with its options, or a front whose settings fit together."""
    rest = [*context._protected_args, *context.args]
    if rest:
        assert rest[0] in context.command.commands, f"there is no command pareto {rest[0]}"
        context.command.commands[rest[0]].make_context(rest[0], rest[1:])
    if rest or values["config"]:
        return
    make_front_config(**given_settings(settings_of(FrontConfig), values))


@pytest.mark.parametrize(
    "line",
    [
        "runn fedem",
        "run fedem --dta synthetic",
        "run fedem:component=3",
        "run fedm",
        "run fedem --rounds many",
        "run",
        "pareto --criterion l3",
        "pareto pick runs/last --elbow",
        "pareto choose runs/last",
        "pareto --weights 0,1 --criterion l1",
    ],
)
def test_wrong_commands_are_noticed(line):
    with pytest.raises((AssertionError, ValueError, USAGE_ERROR)):
        check_command(shlex.split(line))


@every_page
def test_configuration_files_are_valid(page):
    for block in blocks(page, "toml"):
        check_names(make_config(tomllib.loads(block.text)))


def page_of(method: str) -> Path:
    return METHODS / f"{PAGE_OF.get(method, method)}.md"


@pytest.mark.parametrize("method", list(catalogue.algorithms))
def test_every_method_has_a_page(method):
    page = page_of(method)
    named = {word.partition(":")[0] for words in commands(page) for word in words[2:]}
    assert method in named, "no command line runs it"
    options = [o.name for o in catalogue.algorithms.options(method) if o.name != "clients"]  # which the run knows
    undocumented(page, options, rows=True)
    for overview in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        assert page in links_of(overview), f"{overview.name} does not link to {page.name}"


def links_of(page: Path) -> set[Path]:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    return {(page.parent / target.partition("#")[0]).resolve() for target in targets}


def test_every_page_is_on_the_map():
    index, reference = ROOT / "docs" / "index.md", ROOT / "docs" / "reference" / "index.md"
    pages = {page for page in PAGES if page.parent != ROOT}
    assert pages - links_of(index) - links_of(reference) == {index}


def cited() -> set[tuple[str, str, str]]:
    """Every paper that a docstring's list of references names: the file, the first author, and the year, if any."""
    found, references = set(), re.compile(r'^ *References?[\w ]*: (.*?)(?=\. [A-Z]|\n *\n|""")', re.M | re.S)
    for path in sorted(ROOT.glob("src/**/*.py")):
        for text in references.findall(path.read_text(encoding="utf-8")):
            for entry in " ".join(text.split()).split(";"):
                author = re.search(r"\b[A-ZÀ-Ž][\w'\u2019-]+", entry)
                year = re.search(r"\b(?:19|20)\d\d\b", entry)
                if author and (year or "*" in entry):
                    found.add((path.name, author[0], year[0] if year else ""))
    return found


def test_the_bibliography_has_every_paper_once():
    text = (ROOT / "docs" / "bibliography.md").read_text(encoding="utf-8")
    entries = [" ".join(entry.split()) for entry in re.findall(r"^- (.*?)(?=^$|^- |\Z)", text, re.M | re.S)]
    titles = [re.search(r"\*(.+?)\*", entry)[1].lower() for entry in entries]
    assert len(set(titles)) == len(titles)
    for file, author, year in sorted(cited()):
        assert any(entry.startswith(author) and year in entry for entry in entries), f"{file} cites {author} {year}"


def test_every_setting_and_flag_is_documented():
    group = whole_command()
    flags = [flag for command in group.commands.values() for p in command.params for flag in p.opts if flag[:2] == "--"]
    undocumented(ROOT / "docs" / "command-line.md", [*RunConfig.model_fields, *LocalConfig.model_fields, *flags])


def test_the_front_door_is_documented():
    undocumented(ROOT / "docs" / "reference" / "index.md", majorant.__all__, rows=True)


def test_every_field_of_the_record_is_documented():
    """Those of its groups as ``group.field``, each in a row of its own."""
    page = ROOT / "docs" / "architecture.md"
    rows = re.findall(r"^\| `([\w.]+)` \|", page.read_text(encoding="utf-8"), re.M)
    assert not set(fields(Algorithm)) - set(rows)
    assert len(rows) == len(set(rows))
    undocumented(page, Terms._fields, rows=True)
    for message in (Server, View, ClientData, Upload, Uploads, Answer):
        undocumented(page, message._fields)


def fields(record: type) -> list[str]:
    """The names of a record's fields and, after a dot, of those of the records in them."""
    found = []
    for name, kind in get_type_hints(record).items():
        inside = [field for part in (kind, *get_args(kind)) for field in getattr(part, "_fields", ())]
        found += [name, *(f"{name}.{field}" for field in inside)]
    return found


def test_fields_of_groups_are_found():
    found = fields(Algorithm)
    assert {"name", "server", "server.init", "client.init", "setup.ask", "diagnostics.weight"} <= set(found)


def undocumented(page: Path, names: list[str] | tuple[str, ...], *, rows: bool = False) -> None:
    """Fails unless a page has every one of the names in code type (``rows``: in the first column of a table)."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    text = "\n".join(re.findall(r"^\|([^|]*)\|", text, re.M)) if rows else text
    words = {word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"-*[\w-]+", code)}
    assert not set(names) - words, f"{page.name} does not say what these are: {sorted(set(names) - words)}"
