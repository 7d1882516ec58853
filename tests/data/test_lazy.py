"""Samples that are read when they are asked for: the same numbers, and only the clients that somebody wants."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import majorant as mj
from majorant.app._fingerprint import data_digest, divided_digest, same_data
from majorant.data import FederatedData, from_clients, from_table
from majorant.data.checks import PARTS
from majorant.data.lazy import Elsewhere, Lazy, holding

SIZES = np.array([5, 9, 6, 12, 5])
RNG = np.random.default_rng(0)
X = [RNG.normal(size=(n, 2)).astype(np.float32) for n in SIZES]
Y = [np.arange(n) % 3 for n in SIZES]


class Reader:
    """Gives clients' samples, and remembers whose."""

    def __init__(self):
        self.asked = []

    def __call__(self, client):
        self.asked.append(client)
        return X[client], Y[client]


def whole(**options):
    names = np.repeat(np.arange(5), SIZES)
    return FederatedData.from_arrays(np.concatenate(X), np.concatenate(Y), names, **options)


def assert_same_data(one, two):
    for part in PARTS:
        mine, theirs = getattr(one, part), getattr(two, part)
        for field in ("x", "y", "offsets", "rows"):
            array = np.asarray(getattr(mine, field))
            assert array.dtype == getattr(theirs, field).dtype
            np.testing.assert_array_equal(array, getattr(theirs, field))
    assert (one.names, one.classes) == (two.names, two.classes)


def test_a_function_of_the_client_gives_the_data_that_arrays_give():
    read = Reader()
    data = from_clients(read, SIZES, features=2, classes=3, seed=4)
    assert read.asked == []
    assert data.describe() == whole(seed=4).describe()
    assert read.asked == []
    np.testing.assert_array_equal(data.train.client(3)[0], whole(seed=4).train.client(3)[0])
    assert set(read.asked) == {3}
    assert_same_data(data, whole(seed=4))
    assert_same_data(data.redrawn(1), whole(seed=4).redrawn(1))
    assert_same_data(data.take(np.array([4, 1])), whole(seed=4).take(np.array([4, 1])))
    assert isinstance(data.redrawn(1).take(np.array([0])).train.x, Lazy)
    y = whole(seed=4).train.y
    np.testing.assert_array_equal(3 - data.train.y, 3 - y)
    assert (data.train.y < 0).sum() == 0
    assert (data.train.y.min(), data.train.y.max()) == (y.min(), y.max())


def test_those_that_are_held_are_read_once_and_the_others_are_out_of_reach():
    read = Reader()
    data = from_clients(read, SIZES, features=2, classes=3)
    held = holding(data, np.array([1, 4]))
    assert read.asked == [1, 4]
    for part in PARTS:
        np.testing.assert_array_equal(getattr(held, part).client(4)[0], getattr(whole(), part).client(4)[0])
        np.testing.assert_array_equal(getattr(held, part).client(1)[1], getattr(whole(), part).client(1)[1])
    assert read.asked == [1, 4]
    with pytest.raises(Elsewhere):
        held.train.client(0)
    with pytest.raises(Elsewhere):
        np.asarray(held.test.x)
    assert holding(whole(), np.array([1])).train.x.shape == (sum(whole().train.sizes), 2)


def test_training_asks_every_client_once():
    read = Reader()
    data = from_clients(read, SIZES, features=2, classes=3)
    algorithm = mj.local(mj.models.linear(data), local=mj.local_sgd(0.1, steps=1, batch_size=None))
    runs = [mj.simulate(algorithm, each, rounds=1) for each in (data, whole())]
    assert sorted(read.asked) == [0, 1, 2, 3, 4]
    assert runs[0].history[-1]["train_loss"] == runs[1].history[-1]["train_loss"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda x, y: (x[:-1], y[:-1]),
            r"client '2' should have 6 samples of shape \(2,\), but features of shape \(5, 2",
        ),
        (lambda x, y: (x[:, :1], y), r"features of shape \(6, 1\)"),
        (lambda x, y: (x * np.nan, y), "client '2' has NaN"),
        (lambda x, y: (x, y + 7), r"client '2': labels \[7, 8, 9\] were not"),
        (lambda x, y: (x.astype(np.uint8), y), "are uint8, not float32"),
    ],
)
def test_what_a_function_gives_is_checked(change, complaint):
    data = from_clients(lambda c: change(X[c], Y[c]) if c == 2 else (X[c], Y[c]), SIZES, features=2, classes=3)
    data.train.client(1)
    with pytest.raises(ValueError, match=complaint):
        data.train.client(2)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sizes": [3, -1]}, "sizes must hold"),
        ({"sizes": [5.5]}, "sizes must hold"),
        ({"sizes": [5, 5], "names": ["a"]}, "2 sizes but 1 names"),
        ({"sizes": [5], "dtype": np.float16}, "float32, or bytes"),
        ({"sizes": [2]}, "too few for non-empty"),
    ],
)
def test_what_is_said_of_clients_is_checked(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        from_clients(lambda c: (X[c], Y[c]), features=2, classes=3, **options)


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    """Files of clients, with numbers, gaps, marks, categories, dates, decimal commas; and all of them in one."""
    folder, rows = tmp_path_factory.mktemp("silos"), []
    for name in "cab":
        lines = [
            f"{'?' if i == 5 else str(i * 1.5).replace('.', ',')};{'xyz'[(i + ord(name)) % 3] if i % 4 else ''};"
            f"2020-0{1 + i % 9}-11;{i % 2}"
            for i in range(12)
        ]
        (folder / f"{name}.csv").write_text("\n".join(["dose;kind;day;label", *lines]) + "\n")
        rows += [f"{name};{line}" for line in lines]
    (folder / "all.txt").write_text("\n".join(["who;dose;kind;day;label", *rows[::-1]]) + "\n")
    (folder / "all.txt").rename(folder / "all.tsv")
    return folder


@pytest.mark.filterwarnings("ignore::majorant.data.TableNotice")
@pytest.mark.parametrize(("pattern", "column"), [("?.csv", None), ("all.tsv", "who")])
def test_a_table_that_is_read_again_gives_the_same_features(silos, pattern, column):
    again, encoding = from_table(silos / pattern, client_column=column, label_column="label", in_memory=False)
    once, _ = from_table(silos / pattern, client_column=column, label_column="label")
    assert isinstance(again.train.x, Lazy)
    assert_same_data(again, once)
    assert divided_digest(again, encoding) == divided_digest(once, encoding)
    assert same_data(data_digest(once, encoding), again, encoding, "divided:other")
    assert not same_data("divided:one", again, encoding, "divided:other")


@pytest.mark.filterwarnings("ignore::majorant.data.TableNotice")
def test_files_of_clients_that_nobody_asks_for_stay_closed(silos, tmp_path):
    for path in silos.glob("?.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    data, _ = from_table(tmp_path / "*.csv", label_column="label", in_memory=False)
    expected = np.asarray(data.train.client(1)[0])
    (tmp_path / "a.csv").unlink()
    np.testing.assert_array_equal(holding(data, np.array([1, 2])).train.client(1)[0], expected)
    with pytest.raises(mj.data.TableError, match=r"a.csv: it cannot be read"):
        data.train.client(0)
    (tmp_path / "b.csv").write_text("dose;kind;day;label\n1;x;2020-01-11;0\n")
    with pytest.raises(mj.data.TableError, match="it has 1 rows, and had more before"):
        data.train.client(1)


@pytest.mark.filterwarnings("ignore::majorant.data.TableNotice")
def test_parquet_is_read_in_batches(tmp_path):
    columns = {
        "who": list("ab" * 10),
        "dose": list(range(20)),
        "kind": [*"xyxyxy", *"z" * 14],
        "label": [0, 1, 1, 0] * 5,
    }
    table = pa.table(columns)
    pq.write_table(
        table.set_column(2, "kind", table["kind"].dictionary_encode()), tmp_path / "t.parquet", row_group_size=3
    )
    roles = {"client_column": "who", "label_column": "label"}
    once, _ = from_table(tmp_path / "t.parquet", **roles)
    again, _ = from_table(tmp_path / "t.parquet", **roles, in_memory=False)
    assert_same_data(again, once)
