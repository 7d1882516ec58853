"""What is probably a mistake in a table is told, nothing is changed by it, and what only looks odd is not told."""

import numpy as np
import pytest

from majorant.data.tabular import doubts, inspect_table

ROWS = 120
RNG = np.random.default_rng(0)
TABLE = {
    "site": [f"s{i % 4}" for i in range(ROWS)],
    "a": RNG.normal(size=ROWS).round(3).tolist(),
    "b": RNG.normal(size=ROWS).round(3).tolist(),
    "sex": [("f", "m", "x")[i] for i in RNG.integers(3, size=ROWS)],
    "y": RNG.integers(2, size=ROWS).tolist(),
}
DATES = [f"{i % 28 + 1:02}.{i % 12 + 1:02}.2020" for i in range(ROWS)]


def notes(path, columns):
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join(";".join(map(str, row)) for row in [columns, *rows]) + "\n", encoding="utf-8")
    report = inspect_table(path, client_column="site", label_column="y")
    assert not report.problems
    return report.notes


def sometimes(values, other):
    return [other if i % 7 == 0 else value for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("site", ["Köln", "köln"] * 60, "'Köln' and 'köln' in 'site' are different clients"),
        ("site", ["K\u00f6ln", "Ko\u0308ln", "Ulm"] * 40, "in 'site' are different clients, although"),
        ("y", sometimes(["Yes", "no"] * 60, "yes"), "'Yes' and 'yes' in 'y' are different classes"),
        ("sex", ["f", "m", "F", "M"] * 30, "'F' and 'f' and 1 more such pairs in 'sex' are different categories"),
        ("a", sometimes(TABLE["a"], -999), "'a' has 18 times -999, far from all others"),
        ("a", sometimes(TABLE["a"], 9999), "'a' has 18 times 9999, far"),
        ("a", sometimes(DATES, "31.12.9999"), "'a' has 18 times 9999-12-31, far"),
        ("a", [7919 * i % 90001 for i in range(ROWS)], "'a' has 120 different whole numbers in 120 rows"),
        ("a", [10 * y for y in TABLE["y"]], "'a' alone says what the label is"),
        ("sex", ["fm"[y] for y in TABLE["y"]], "'sex' alone says what the label is"),
        ("y", [20 - 3 * a for a in TABLE["a"]], "'a' alone says what the label is"),
    ],
)
def test_what_is_probably_a_mistake_is_told(tmp_path, column, values, told):
    (note,) = notes(tmp_path / "t.csv", TABLE | {column: values})
    assert told in note


def test_rows_that_recur_are_told(tmp_path):
    (note,) = notes(tmp_path / "t.csv", {name: values + values[:5] for name, values in TABLE.items()})
    assert note.startswith("5 of 125 rows are copies of others")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("a", TABLE["a"]),
        ("a", sometimes([20 + i % 70 for i in range(ROWS)], 99)),  # not far from the others
        ("a", sometimes(TABLE["a"], 1e4)),
        ("a", [9999, *TABLE["a"][1:]]),  # once
        ("a", DATES),
        ("a", [10 - 10 * TABLE["y"][0], *[10 * y for y in TABLE["y"][1:]]]),  # not in every row
        ("y", [a + 0.01 * b for a, b in zip(TABLE["a"], TABLE["b"], strict=True)]),
    ],
)
def test_what_may_well_be_right_is_not(tmp_path, column, values):
    assert notes(tmp_path / "t.csv", TABLE | {column: values}) == []


@pytest.mark.parametrize("column", ["sex", "a"])
def test_what_holds_for_the_first_rows_alone_is_not_told(tmp_path, monkeypatch, column):
    monkeypatch.setattr(doubts, "LOOKED_AT", 60)
    telling = {
        "sex": [*("fm"[y] for y in TABLE["y"][:70]), *TABLE["sex"][70:]],
        "a": [*(7919 * i % 90001 for i in range(70)), *(i % 3 for i in range(70, ROWS))],
    }
    assert notes(tmp_path / "t.csv", TABLE | {column: telling[column]}) == []


def test_few_values_recur_by_chance(tmp_path):
    assert (
        notes(tmp_path / "t.csv", TABLE | {"a": [i % 9 for i in range(ROWS)], "b": [i % 5 for i in range(ROWS)]}) == []
    )


@pytest.mark.parametrize("noise", [0.01, 3.0])
def test_a_number_with_a_threshold_between_the_classes_is_told(tmp_path, noise):
    """A score that was computed from the label, with a little noise, has no value twice."""
    rng = np.random.default_rng(0)
    ill = rng.random(300) < 0.1
    score, age = ill + noise * rng.normal(size=300), rng.normal(50, 9, 300)
    lines = [f"{'abc'[i % 3]},{age[i]:.3f},{score[i]:.5f},{'ny'[int(ill[i])]}" for i in range(300)]
    (tmp_path / "visits.csv").write_text("\n".join(["clinic,age,score,ill", *lines]) + "\n")
    found = inspect_table(tmp_path / "visits.csv", client_column="clinic", label_column="ill")
    told = [note for note in found.notes if "alone says what the label is" in note]
    assert [note.partition(" ")[0] for note in told] == ["'score'"] * (noise < 1)


@pytest.mark.parametrize("factor", [1.0, 0.133, 7.5])
def test_a_client_with_another_unit_is_told(tmp_path, factor):
    """mmHg in one clinic and kPa in another, or the other way round; a clinic with other patients is no mistake."""
    rng = np.random.default_rng(1)
    clinic = [("north", "south", "east")[i % 3] for i in range(150)]
    pressure = [rng.normal(130, 9) * (factor if c == "south" else 1) for c in clinic]
    beds = [{"north": 40, "south": 900, "east": 60}[c] for c in clinic]  # of the clinic itself: the same in all rows
    lines = [f"{c},{p:.2f},{b},{'ny'[i % 2]}" for i, (c, p, b) in enumerate(zip(clinic, pressure, beds, strict=True))]
    (tmp_path / "visits.csv").write_text("\n".join(["clinic,pressure,beds,ill", *lines]) + "\n")
    found = inspect_table(tmp_path / "visits.csv", client_column="clinic", label_column="ill")
    told = [note for note in found.notes if "another unit" in note]
    assert [note.partition(" ")[0] for note in told] == ["'pressure'"] * (factor != 1)
    assert all("at client 'south'" in note for note in told)
