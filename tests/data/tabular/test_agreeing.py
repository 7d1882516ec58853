"""Tables that nobody may put together: what is agreed on is what the tables together would give."""

from __future__ import annotations

import numpy as np
import pytest

from majorant.data import from_table
from majorant.data.tabular.agreeing import Disagreement, agree, encoded
from majorant.data.tabular.answers import ColumnAnswer, TableAnswer, answer_of
from majorant.data.tabular.options import TableOptions
from majorant.data.tabular.problems import TableError, TableNotice
from majorant.data.tabular.reading import read_file
from majorant.data.tabular.summed_answers import discreet, own_part, to_be_summed, with_sums
from majorant.data.tabular.survey import look_at
from majorant.exchange.exact_sums import numbers, residues

OPTIONS = {"label_column": "outcome", "split_column": "part", "dates": {"visit": "%d/%m/%Y"}, "max_categories": 3}
MOMENTS = {"count": 3, "mean": 1.0, "scale": 1.0}
HEAD = "age,dose,ward,smoker,visit,part,outcome"


def rows(count, wards, seed, gap=False):
    rng = np.random.default_rng(seed)
    for i in range(count):
        dose = "" if gap and i == 0 else f"{rng.normal(3, 1):.3f}"
        day = f"{rng.integers(1, 28):02d}/0{rng.integers(1, 9)}/2020"
        part = ("train", "train", "train", "validation", "test")[i % 5]
        ward, smoker, outcome = wards[i % len(wards)], ("true", "false")[i % 2], "nyu"[i % 3]
        yield f"{rng.normal(50, 9):.2f},{dose},{ward},{smoker},{day},{part},{outcome}"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("silos")
    for name, lines in {"a": rows(25, "xy", 1), "b": rows(40, "xyzw", 2, gap=True), "c": rows(15, "z", 3)}.items():
        (folder / f"{name}.csv").write_text("\n".join([HEAD, *lines]) + "\n")
    return folder


def survey(path, **options):
    from dataclasses import replace

    return look_at(replace(read_file(path), files=(str(path),)), TableOptions(**(OPTIONS | options)), whole=False)


def agreed(folder, **options):
    answers = {path.stem: answer_of(survey(path, **options)) for path in sorted(folder.glob("*.csv"))}
    return agree(answers, TableOptions(**(OPTIONS | options)))


def test_an_agreement_by_sums_alone_is_the_same(files):
    """Discreet answers have no numbers in them; the sum of what owners give beside them is all that is needed.

    The last owner has no doses.
    """
    plain = {path.stem: answer_of(survey(path)) for path in sorted(files.glob("*.csv"))}
    columns = [
        c if c.name != "dose" else ColumnAnswer(name="dose", kind="empty", gaps=True) for c in plain["c"].columns
    ]
    plain["c"] = plain["c"].model_copy(update={"columns": tuple(columns)})
    quiet = {owner: discreet(answer) for owner, answer in plain.items()}
    told = [column for answer in quiet.values() for column in answer.columns]
    assert not any(moments.count for column in told for moments in column.moments)
    assert not any(count for column in told for count in column.counts.values())
    asked = to_be_summed(quiet)
    parts = [residues(own_part(answer, asked)) for answer in plain.values()]
    found = agree(with_sums(quiet, asked, numbers(sum(parts[1:], parts[0]))), TableOptions(**OPTIONS))
    for one, two in zip(found.columns, agree(plain, TableOptions(**OPTIONS)).columns, strict=True):
        exact, close = one.model_dump(), two.model_dump()
        for name in ("mean", "scale", "means", "scales"):
            if name in exact:
                assert exact.pop(name) == pytest.approx(close.pop(name), rel=1e-12)
        assert exact == close


def test_a_column_that_one_owner_leaves_out_is_left_out_by_all(files):
    one, other = (answer_of(survey(files / name)) for name in ("a.csv", "b.csv"))
    columns = tuple(column for column in other.columns if column.name != "dose")
    other = other.model_copy(update={"columns": columns, "left_out": {"dose": "an id"}})
    for answers in ({"a": one, "b": other}, {"b": other, "a": one}):
        found = agree(answers, TableOptions(**OPTIONS))
        assert [column.name for column in found.columns] == [column.name for column in columns]
        assert found.left_out == {"dose": "an id"}


def test_why_a_column_is_left_out_does_not_tell_how_many_rows_there_are(tmp_path):
    lines = [f"{i * 7},{i % 3},{'ny'[i % 2]}" for i in range(31)]
    (tmp_path / "a.csv").write_text("\n".join(["patient_id,dose,outcome", *lines]) + "\n")
    answer = answer_of(survey(tmp_path / "a.csv", split_column=None, dates={}))
    assert answer.left_out == {"patient_id": "an id"}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"columns": [{"name": "age", "kind": "number", "gaps": False}]}, "0 moments of a column"),
        ({"columns": [{"name": "day", "kind": "date", "gaps": False, "moments": [MOMENTS]}]}, "1 moments of a column"),
        ({"label": {"name": "outcome", "kind": "category", "classes": ["n", 1]}}, "some classes are texts"),
    ],
)
def test_an_answer_that_no_table_gives_is_refused(part, words):
    with pytest.raises(ValueError, match=words):
        TableAnswer.model_validate({"columns": [], "left_out": {}, "label": None} | part)


@pytest.mark.filterwarnings("ignore::majorant.data.tabular.TableNotice")
def test_the_agreement_is_the_encoding_of_all_tables_together(files):
    data, whole = from_table(str(files / "*.csv"), **OPTIONS)
    found = agreed(files)
    assert found.features == whole.features
    assert found.label == whole.label
    for one, two in zip(found.columns, whole.columns, strict=True):
        exact, close = one.model_dump(), two.model_dump()
        for name in ("mean", "scale", "means", "scales"):
            if name in exact:
                assert exact.pop(name) == pytest.approx(close.pop(name), rel=1e-12)
        assert exact == close
    for place, name in enumerate("abc"):
        own = encoded(survey(files / f"{name}.csv"), found, name)
        x, y = data.train.client(place)
        assert np.allclose(own.train.x, x, atol=1e-6)
        assert (own.train.y == y).all()
        assert own.classes == data.classes


@pytest.mark.filterwarnings("ignore::majorant.data.tabular.TableNotice")
def test_targets_are_standardised_by_all_tables_together(files):
    """Also where owners give sums alone; b has more rows than the others together, and they count by rows."""
    data, whole = from_table(str(files / "*.csv"), **OPTIONS | {"label_column": "age"})
    assert whole.target_scale.scale > 1
    answers = {path.stem: answer_of(survey(path, label_column="age")) for path in sorted(files.glob("*.csv"))}
    quiet = {owner: discreet(answer) for owner, answer in answers.items()}
    assert all(answer.label.moments.count == 0 for answer in quiet.values())
    asked = to_be_summed(quiet)
    parts = [residues(own_part(answer, asked)) for answer in answers.values()]
    by_sums = with_sums(quiet, asked, numbers(sum(parts[1:], parts[0])))
    for told in (answers, by_sums):
        found = agree(told, TableOptions(**OPTIONS | {"label_column": "age"}))
        assert (found.label.name, found.label.kind, found.label.classes) == ("age", "number", ())
        assert found.target_scale == pytest.approx(whole.target_scale, rel=1e-12)
        for place, name in enumerate("abc"):
            own = encoded(survey(files / f"{name}.csv", label_column="age"), found, name)
            np.testing.assert_allclose(own.train.y, data.train.client(place)[1], atol=1e-6)


def test_a_column_that_is_empty_everywhere_is_left_out_and_all_problems_are_told(tmp_path, files):
    for path in files.glob("*.csv"):
        lines = path.read_text().splitlines()
        (tmp_path / path.name).write_text("\n".join([f"{lines[0]},note", *(f"{line}," for line in lines[1:])]) + "\n")
    found = agreed(tmp_path)
    assert found.left_out == {"note": "it has no values"}
    assert found.columns == agreed(files).columns
    text = (tmp_path / "b.csv").read_text()
    (tmp_path / "b.csv").write_text(text.replace(",x,", ",1,").replace(",y,", ",2,").replace(",z,", ",3,")
                                    .replace(",w,", ",4,").replace("true", "5").replace("false", "6"))  # fmt: skip
    with pytest.raises(Disagreement, match=r"(?s)\n- column 'ward' holds .*\n- column 'smoker' holds "):
        agreed(tmp_path)


def test_no_row_is_in_an_answer(files):
    text = answer_of(survey(files / "a.csv")).model_dump_json()
    numbers = {cell for line in (files / "a.csv").read_text().splitlines()[1:] for cell in line.split(",")[:2]}
    assert not [cell for cell in numbers if cell in text]


def spoiled(files, folder, change):
    for path in files.glob("*.csv"):
        text = path.read_text()
        (folder / path.name).write_text(change(text) if path.stem == "b" else text)
    return folder


def numbered(text):
    """A table with numbers as labels."""
    head, *lines = text.split()
    return "\n".join([head, *(f"{line[:-1]}{i % 2}" for i, line in enumerate(lines))])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("ward", "station", 1), "'b' lacks the columns 'ward' and also has 'station'"),
        (
            lambda text: text.replace(",true,", ",maybe,"),
            "'smoker' holds true and false at 'a', 'c'; categories at 'b'",
        ),
        (lambda text: numbered(text), "the labels 'outcome' are classes \\(categories\\) at 'a', 'c'; classes"),
    ],
)
def test_tables_that_do_not_go_together_are_refused_by_name(files, tmp_path, change, words):
    with pytest.raises(Disagreement, match=words):
        agreed(spoiled(files, tmp_path, change))


def test_a_category_outside_the_training_rows_is_no_feature_as_in_the_tables_together(files, tmp_path):
    """A rare category that only test rows hold must not keep a silo from taking part."""
    where = spoiled(files, tmp_path, lambda text: text)
    lines = (where / "a.csv").read_text().split("\n")
    lines[5] = lines[5].replace(",x,", ",rare,")
    assert ",rare," in lines[5]
    assert ",test," in lines[5]
    (where / "a.csv").write_text("\n".join(lines))
    found = agreed(where, max_categories=9)
    own = encoded(survey(where / "a.csv", max_categories=9), found, "a")
    with pytest.warns(TableNotice, match="missing"):
        data, encoding = from_table(str(where / "*.csv"), **(OPTIONS | {"max_categories": 9}))
    assert found.features == encoding.features
    np.testing.assert_allclose(own.test.client(0)[0], data.test.client(data.names.index("a"))[0], atol=1e-6)
    wards = [i for i, name in enumerate(found.features) if name.startswith("ward=")]
    assert (own.test.client(0)[0][0, wards] == 0).all()


def test_what_was_not_agreed_on_is_refused_by_the_silo(files, tmp_path):
    found = agreed(files, max_categories=9)
    text = (files / "a.csv").read_text()
    for change, words in {
        text.replace(",x,", ",q,"): "categories that were not agreed on \\('q'\\)",
        text.replace("dose", "dosis", 1): "no column 'dose', which was agreed on",
        "\n".join(line[:-1] + "k" if i else line for i, line in enumerate(text.split())): "its labels are 'k'",
    }.items():
        (tmp_path / "late.csv").write_text(change)
        with pytest.raises(TableError, match=words):
            encoded(survey(tmp_path / "late.csv", max_categories=9), found, "late")
    (tmp_path / "late.csv").write_text(HEAD + "\n")
    assert "no rows" in str(survey(tmp_path / "late.csv").problems[0])
