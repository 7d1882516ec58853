"""The rows of a table by time, by groups, and as a column says."""

import warnings

import numpy as np
import pytest

from made_tables import PARTS, lines
from majorant.data.tabular import TableError, TableNotice, from_table
from majorant.engines.tuning import FOLDS, folds_for

DAYS = np.random.default_rng(1).permutation(60)
ROWS = [
    f"{'ab'[i % 2]},2024-{1 + DAYS[i] // 28:02}-{1 + DAYS[i] % 28:02},p{i % 10},"
    f"{['train', 'Valid', 'TEST'][i // 2 % 3]},{i % 7},{i}.5"
    for i in range(60)
]


@pytest.fixture
def path(tmp_path):
    return lines(tmp_path / "t.csv", "site,day,pupil,fold,dose,row", ROWS)


OPTIONS = {"client_column": "site", "label_column": "row", "scale_target": False}


def rows_of(part, client=None):
    y = part.y if client is None else part.client(client)[1]
    return (y - 0.5).astype(int)


def test_split_by_time(path):
    data, encoding = from_table(path, **OPTIONS, time_column="day", drop="pupil,fold")
    for client in range(2):
        train, validation, test = (DAYS[rows_of(getattr(data, part), client)] for part in PARTS)
        assert train.max() < validation.min()
        assert validation.max() < test.min()
    assert encoding["day"].kind == "date"  # the time of a row is a feature all the same …
    data, encoding = from_table(path, **OPTIONS, time_column="day", drop="pupil,fold,day")
    assert encoding.features == ("dose",)  # … unless it is dropped
    assert DAYS[rows_of(data.train, 0)].max() < DAYS[rows_of(data.test, 0)].min()


def test_split_by_groups(path):
    data, encoding = from_table(path, **OPTIONS, together_column="pupil", drop="fold,day")
    assert encoding.features == ("dose",)
    for client in range(2):
        pupils = [set(rows_of(getattr(data, part), client) % 10) for part in PARTS]
        assert sum(map(len, pupils)) == len(set.union(*pupils)) == 5
    with pytest.raises(TableError, match="client 'a' has 1 group, too few"):
        from_table(path, **OPTIONS, together_column="site", drop="fold,day,pupil")


@pytest.mark.parametrize(
    ("how", "said"), [({"time_column": "day"}, "day"), ({"together_column": "pupil"}, "pupil"), ({}, "")]
)
def test_a_split_that_was_told_is_not_drawn_again(path, how, said):
    """What was split by time, or by pupils, would be mixed by another split at random, or by folds."""
    with warnings.catch_warnings(action="ignore"):
        data, _ = from_table(path, **OPTIONS, **how, drop=[c for c in ("day", "pupil", "fold") if c != said])
    assert data.told == data.with_unseen(0.5).told == data.take(np.array([0])).told == said
    assert folds_for(data) == (0 if said else FOLDS)
    if not said:
        assert set(data.redrawn(1).test.y) != set(data.test.y)
        return
    with pytest.raises(ValueError, match=f"'{said}' says which samples are for training"):
        data.redrawn(1)


def test_groups_at_several_clients_are_told(tmp_path):
    """Each client is split by itself: a patient who moved may train at one and test at the other."""
    rows = [f"{'ab'[i // 30]},p{i % 6 + (i >= 30) * 5},{i % 7},{i}.5" for i in range(60)]  # p5 is at both
    moved = lines(tmp_path / "moved.csv", "site,pupil,dose,row", rows)
    with pytest.warns(TableNotice, match=r"1 of 11 values of 'pupil' occur at several clients \('p5' at 'a', 'b'\)"):
        from_table(moved, **OPTIONS, together_column="pupil")
    alone = lines(tmp_path / "alone.csv", "site,pupil,dose,row", [row.replace("b,p", "b,q") for row in rows])
    from_table(alone, **OPTIONS, together_column="pupil")


def test_split_as_a_column_says(path, tmp_path):
    data, encoding = from_table(path, **OPTIONS, split_column="fold", drop="pupil,day")
    assert encoding.features == ("dose",)
    for number, part in enumerate(PARTS):
        assert sorted(rows_of(getattr(data, part))) == [i for i in range(60) if i // 2 % 3 == number]
    rows = [row.replace(",train,", ",test,") if row[0] == "a" else row for row in ROWS]
    later = lines(tmp_path / "later.csv", "site,day,pupil,fold,dose,row", rows)
    with pytest.raises(TableError, match=r"1 clients have no training rows \('a'\): look at 'fold'"):
        from_table(later, **OPTIONS, split_column="fold")


def test_another_seed_is_another_split(path):
    first, again, other = (from_table(path, **OPTIONS, drop="pupil,fold,day", seed=seed)[0] for seed in (0, 0, 1))
    assert (first.train.y == again.train.y).all()
    assert set(first.train.y) != set(other.train.y)


def test_times_may_have_no_gaps(tmp_path):
    rows = [ROWS[0].replace("2024", ""), *ROWS[1:]]
    rows[0] = ",".join(["a", "", *rows[0].split(",")[2:]])
    path = lines(tmp_path / "t.csv", "site,day,pupil,fold,dose,row", rows)
    with pytest.raises(TableError, match="time column 'day' has 1 empty value, the first in row 1"):
        from_table(path, **OPTIONS, time_column="day")


def test_clients_that_lose_all_rows_are_told(tmp_path):
    rows = [f"{'ab'[i % 2]},{'' if i % 2 else i % 7},{i}.5" for i in range(60)]
    path = lines(tmp_path / "t.csv", "site,dose,row", rows)
    with pytest.warns(TableNotice) as notices:
        data, _ = from_table(path, **OPTIONS, missing="drop")
    assert "left out: 1 client with no rows left ('b')" in str(notices[1].message)
    assert data.names == ("a",)
