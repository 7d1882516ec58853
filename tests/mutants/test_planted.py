"""The list of planted bugs follows the code, and what runs it tells its outcomes apart. No bug is planted here."""

import ast
import json
from pathlib import Path

import pytest
import run

BUGS = run.planted()
PACKAGES = {path.name for path in (run.ROOT / "src" / "majorant").iterdir() if (path / "__init__.py").exists()}


def test_every_text_occurs_once_and_every_test_exists():
    assert {bug.id: run.missing(bug, run.ROOT) for bug in BUGS if run.missing(bug, run.ROOT)} == {}


def test_every_bug_is_another_program_that_python_reads():
    sources = {bug.file: (run.ROOT / bug.file).read_text(encoding="utf-8") for bug in BUGS}
    right = {file: ast.dump(ast.parse(text)) for file, text in sources.items()}
    for bug in BUGS:
        assert ast.dump(ast.parse(sources[bug.file].replace(bug.find, bug.replace))) != right[bug.file], bug.id


def test_ids_are_different_and_all_packages_have_bugs():
    assert len({bug.id for bug in BUGS}) == len({(bug.file, bug.find, bug.replace) for bug in BUGS}) == len(BUGS)
    assert not PACKAGES - {bug.file.split("/")[2] for bug in BUGS}
    assert all(bug.wrong and bug.wrong == bug.wrong.strip() for bug in BUGS)


def test_patterns_choose_by_id():
    ids = lambda *patterns: {bug.id for bug in run.chosen(BUGS, patterns)}
    assert ids() == {bug.id for bug in BUGS}
    assert ids("solvers.*") == {bug.id for bug in BUGS if bug.id.startswith("solvers.")} > ids("repeats-count")
    assert ids("nothing-like-this") == set()


TREE = {
    "src/sums.py": "def double(x):\n    return 2 * x\n\n\ndef triple(x):\n    return 3 * x\n",
    "tests/test_sums.py": (
        "import time\n\nimport sums\n\n\n"
        "def test_double():\n    assert sums.double(2) == 4\n\n\n"
        "def test_zero():\n    assert sums.triple(0) == 0\n\n\n"
        "def test_slow():\n    time.sleep(60 * sums.double(0))\n"
    ),
}
PLANTED = """
[[bug]]
id = "killed"
wrong = "two are three"
file = "src/sums.py"
find = "return 2 * x"
replace = "return 3 * x"
tests = ["tests/test_sums.py"]

[[bug]]
id = "survived"
wrong = "three are two"
file = "src/sums.py"
find = "return 3 * x"
replace = "return 2 * x"
tests = ["tests/test_sums.py::test_zero"]

[[bug]]
id = "unfinished"
wrong = "it takes a minute"
file = "src/sums.py"
find = "return 2 * x"
replace = "return 2 * x + 1"
tests = ["tests/test_sums.py::test_slow"]

[[bug]]
id = "broken"
wrong = "it cannot be imported"
file = "src/sums.py"
find = "def double(x):"
replace = "import nowhere\\n\\n\\ndef double(x):"
tests = ["tests/test_sums.py::test_double"]

[[bug]]
id = "gone"
wrong = "the text occurs twice"
file = "src/sums.py"
find = "* x"
replace = "+ x"
tests = ["tests/test_sums.py"]
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name, text in TREE.items() | {("tests/mutants/planted/sums.toml", PLANTED)}:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_outcomes_are_told_apart_kept_and_found_again(tree, capsys, monkeypatch):
    bugs, path = run.planted(tree), tree / "build" / "mutants.json"
    slow = run.chosen(bugs, ["unfinished"])
    run.run([bug for bug in bugs if bug not in slow], tree, run.Record(path, tree))
    run.run(slow, tree, run.Record(path, tree), limit=0.1)
    again = []
    monkeypatch.setattr(run, "run_tests", lambda tests, *_, **__: (again.append(tests) or 2, "as before"))
    outcomes = run.run(bugs, tree, run.Record(path, tree))
    assert again == [("tests/test_sums.py::test_double",)]  # what is broken may have been mended
    status = {id.removeprefix("sums."): outcome.status for id, outcome in outcomes.items()}
    assert status == {
        "killed": "killed", "survived": "survived", "unfinished": "unfinished", "broken": "broken", "gone": "not there"
    }  # fmt: skip
    assert outcomes["sums.killed"].by == "tests/test_sums.py::test_double"
    assert "occurs 2 times" in outcomes["sums.gone"].by
    told = run.summary(outcomes, bugs)
    assert "5 planted bugs: 1 killed, 1 survived" in told
    assert "three are two" in told
    assert "two are three" not in told
    assert {name: (tree / name).read_text() for name in TREE} == TREE  # the tree itself is left alone

    assert json.loads(path.read_text())["bugs"]["sums.killed"]["wrong"] == "two are three"
    assert run.Record(path, tree, fresh=True).outcome(bugs[0]) is None
    changed = bugs[0]._replace(replace="return 4 * x")
    assert run.Record(path, tree).outcome(changed) is None
    capsys.readouterr()


def test_a_test_that_fails_anyway_kills_nothing(tree, tmp_path):
    bug = run.planted(tree)[0]
    (tree / "tests" / "test_wrong.py").write_text("def test_wrong():\n    assert False\n")
    wrong = bug._replace(tests=("tests/test_wrong.py",))
    (outcome,) = run.run([wrong], tree, run.Record(tmp_path / "record.json", tree)).values()
    assert outcome.status == "broken"
    assert outcome.by == "fails without the bug: tests/test_wrong.py::test_wrong"
