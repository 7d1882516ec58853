"""Changes to a table that change nothing, or something that is known, must do that to the data and to the scores.

Errors that end in a number rather than in a complaint show themselves here: clients mixed up, columns swapped, rows
that land in another part, spellings of a category that become two.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import majorant as mj
from majorant.data import FederatedData, encode_table, from_table
from majorant.data.tabular import Encoding

ROLES = {"client_column": "hospital", "label_column": "outcome", "split_column": "part"}
PARTS = ("train", "validation", "test")
HEADER = ["hospital", "age", "dose", "ward", "smoker", "visit", "part", "outcome"]
Rows = list[list[str]]


def patients(n: int = 48) -> Rows:
    """Rows of three hospitals, each with its part of the split; outcomes follow age and ward."""
    rng = np.random.default_rng(3)
    rows = []
    for i in range(n):
        age, dose, ward = rng.integers(20, 90), rng.normal(3, 1), "abc"[rng.integers(3)]
        sick = age / 20 + (ward == "b") + rng.normal() > 3.2
        part = PARTS[0 if (i // 3) % 4 < 2 else (i // 3) % 4 - 1]
        about = [f"h{i % 3}", str(age), f"{dose:.3f}", ward, str(bool(rng.integers(2))), f"2024-0{1 + i % 9}-11"]
        rows.append([*about, part, "sick" if sick else "well"])
    return rows


def loaded(path: Path, rows: Rows, header: list[str] = HEADER) -> tuple[FederatedData, Encoding]:
    """The table, written and read as for training."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return from_table(path, **ROLES)


def samples(data: FederatedData, encoding: Encoding) -> dict[tuple[str, str], list[tuple]]:
    """The rows of every client and part, features under their names, in an order of their own."""
    found = {}
    order = np.argsort(list(encoding.features))
    for part in PARTS:
        for i, name in enumerate(data.names):
            x, y = getattr(data, part).client(i)
            found[name, part] = sorted(
                (*row, data.classes[code]) for row, code in zip(x[:, order].tolist(), y, strict=True)
            )
    return found


def same(one: dict, two: dict, names: dict[str, str] | None = None) -> None:
    """The same samples, to rounding; ``names`` are the new names of clients."""
    assert {(names[c] if names else c, part) for c, part in one} == two.keys()
    for (client, part), rows in one.items():
        others = two[names[client] if names else client, part]
        assert [row[-1] for row in rows] == [row[-1] for row in others]
        np.testing.assert_allclose([row[:-1] for row in rows], [row[:-1] for row in others], atol=2e-5)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return samples(*loaded(tmp_path_factory.mktemp("plain") / "t.csv", patients()))


def test_clients_may_be_called_otherwise(tmp_path, plain):
    """Also so that they stand in another order, look like numbers, or differ in a zero before them."""
    for new in (["z", "m", "a"], ["10", "9", "1"], ["001", "01", "1"], ["=x", "<b>", "[b]"]):
        names = dict(zip(["h0", "h1", "h2"], new, strict=True))
        rows = [[names[row[0]], *row[1:]] for row in patients()]
        same(plain, samples(*loaded(tmp_path / "t.csv", rows)), names)


@seed(0)
@settings(max_examples=4, database=None, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(48)), st.permutations(range(len(HEADER))))
def test_rows_and_columns_may_stand_in_another_order(tmp_path, plain, rows, columns):
    found = patients()
    same(plain, samples(*loaded(tmp_path / "t.csv", [found[i] for i in rows])))
    moved = [[row[i] for i in columns] for row in found]
    same(plain, samples(*loaded(tmp_path / "t.csv", moved, [HEADER[i] for i in columns])))


def test_where_a_scale_begins_and_what_its_unit_is_are_nothing_to_training(tmp_path, plain):
    for change in (lambda value: value + 273.15, lambda value: 2.54 * value - 7, lambda value: 1e6 + value):
        rows = [[row[0], str(change(float(row[1]))), *row[2:]] for row in patients()]
        same(plain, samples(*loaded(tmp_path / "t.csv", rows)))
    flipped = [[*row[:2], str(-float(row[2])), *row[3:]] for row in patients()]
    with pytest.raises(AssertionError):  # a scale that is turned around is another feature: the test can tell
        same(plain, samples(*loaded(tmp_path / "t.csv", flipped)))


def test_spellings_that_csv_has_for_the_same_cell(tmp_path, plain):
    """White space around cells, quotes, other separators, other line ends, a mark at the beginning."""
    lines = [HEADER, *patients()]
    path = tmp_path / "t.csv"
    quoted = lambda row: [f'"{cell}"' for cell in row]
    for text in (
        "\n".join(" , ".join(row) for row in lines),
        "\n".join(",".join(quoted(row)) for row in lines),
        "\r\n".join(";".join(row) for row in lines),
        "\r".join("\t".join(row) for row in lines),
        "\ufeff" + "\n".join(",".join(row) for row in lines) + "\n\n",
    ):
        path.write_bytes(text.encode())
        same(plain, samples(*from_table(path, **ROLES)))


def test_a_file_may_come_in_pieces(tmp_path, plain):
    for name in ("h0", "h1", "h2"):
        loaded_rows = [row[1:] for row in patients() if row[0] == name]
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([HEADER[1:], *loaded_rows])
    roles = {key: value for key, value in ROLES.items() if key != "client_column"}
    same(plain, samples(*from_table(str(tmp_path / "*.csv"), **roles)))


def test_new_rows_are_encoded_as_those_of_training_whatever_they_look_like(tmp_path):
    """A file whose wards are all the same, whose ages are all whole, or whose columns stand otherwise."""
    data, encoding = loaded(tmp_path / "t.csv", patients())
    x, y = encode_table(tmp_path / "t.csv", encoding)
    for chosen in ([i for i, row in enumerate(patients()) if row[3] == "a"], [0], list(range(47, -1, -1))):
        rows = [patients()[i] for i in chosen]
        with (tmp_path / "new.csv").open("w", newline="") as file:
            csv.writer(file).writerows([HEADER[::-1], *(row[::-1] for row in rows)])
        new, labels = encode_table(tmp_path / "new.csv", encoding)
        assert np.array_equal(new, x[chosen])
        assert labels.tolist() == y[chosen].tolist()
    assert data.spec.features == x.shape[1:]


def test_scores_do_not_depend_on_names_orders_and_units(tmp_path):
    """One program, trained on full batches from zero, on five forms of the same table."""
    found = patients()
    base, encoding = loaded(tmp_path / "t.csv", found)
    model = mj.models.linear(base, start="zeros")
    algorithm = mj.fedavg(model, local=mj.local_sgd(0.3, steps=2, batch_size=None, momentum=0.0))
    scores = lambda data: mj.simulate(algorithm, data, rounds=3).scores[0]
    wanted = scores(base)
    order = np.random.default_rng(0).permutation(len(found))
    columns = [0, 2, 1, 4, 3, 5, 7, 6]
    forms = {
        "names": [[row[0].upper(), *row[1:]] for row in found],
        "rows": [found[i] for i in order],
        "units": [[row[0], str(1.8 * float(row[1]) + 32), *row[2:]] for row in found],
        "columns": [[row[i] for i in columns] for row in found],
    }
    for form, rows in forms.items():
        header = [HEADER[i] for i in columns] if form == "columns" else HEADER
        data, other = loaded(tmp_path / "t.csv", rows, header)
        assert set(other.features) == set(encoding.features)
        got = scores(data)
        for name, values in wanted.values.items():
            np.testing.assert_allclose(got.values[name], values, atol=1e-4, err_msg=f"{form}: {name}")
