"""Tables that go by a name: their facts are consistent, and they are read as a file with the same options is."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

from majorant._tables import SPLITTING, TABLES
from majorant.data import TableError, TableNotice, from_table, load_table
from majorant.data.named_tables import checksum, table_facts, table_file
from natural_tables import COLUMNS, made, put

AWAY = sorted(set(TABLES) - {"heart"})  # those that do not come with the library
quiet = pytest.mark.filterwarnings("ignore")


def test_every_table_has_consistent_facts():
    assert len({facts.sha256 for facts in TABLES.values()}) == len(TABLES)
    for name, facts in TABLES.items():
        assert re.fullmatch(r"[a-z0-9_]+", name)
        assert re.fullmatch(r"[0-9a-f]{64}", facts.sha256), name
        assert facts.task in ("classification", "regression"), name
        assert {facts.client, facts.label}.isdisjoint(facts.drop), name
        assert facts.client != facts.label
        assert all((facts.licence, facts.source, facts.what)), name
        assert facts.size[0] * 3 <= facts.size[1]
        assert facts.split is None or facts.split[0] in SPLITTING
        assert facts.split is None or "leaky" in facts.caution, name  # who splits in another way says why
        assert f"{facts.size[1]:,} rows" in facts.summary
        assert facts.licence in facts.summary


def test_the_documentation_says_what_the_facts_say():
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    for name, facts in TABLES.items():
        clients, rows, features = facts.size
        columns = f"| `{name}` | `{facts.client}` | `{facts.label}` | {facts.task} | {clients}, {rows:,}, {features} |"
        assert f"{columns} {facts.licence} |" in page
        assert name == "heart" or f"| `{name}` | {facts.source} | `{facts.sha256[:16]}…` |" in page


def test_the_table_that_comes_with_the_library_is_the_one_of_the_facts():
    assert checksum(table_file("heart")) == TABLES["heart"].sha256
    data, encoding = load_table("heart")
    rows = sum(len(part.y) for part in (data.train, data.validation, data.test))
    assert (data.clients, rows, len(encoding.features)) == TABLES["heart"].size


@quiet
@pytest.mark.parametrize("name", AWAY)
def test_a_table_has_the_clients_label_and_features_that_the_facts_say(monkeypatch, tmp_path, name):
    facts = TABLES[name]
    path = put(monkeypatch, tmp_path, name)
    data, encoding = load_table(name)
    assert data.name == name
    assert data.clients == 4
    assert bool(data.classes) == (facts.task == "classification")
    assert len(encoding.features) == facts.size[2]
    assert {column.partition("|")[0] for column in COLUMNS[name]} >= {facts.client, facts.label, *facts.drop}
    options = {"client_column": facts.client, "label_column": facts.label, "task": facts.task, "drop": facts.drop}
    same, how = from_table(path, **options, **dict([facts.split] if facts.split else []))
    assert how == encoding
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(data, part).x, getattr(same, part).x)
        np.testing.assert_array_equal(getattr(data, part).rows, getattr(same, part).rows)


@quiet
def test_rows_of_a_pupil_are_in_one_part_unless_another_split_is_asked_for(monkeypatch, tmp_path):
    put(monkeypatch, tmp_path, "egsingle")
    unit = np.arange(240) // 3
    of = lambda data: [set(unit[getattr(data, part).rows]) for part in ("train", "validation", "test")]
    train, validation, test = of(load_table("egsingle")[0])
    assert train.isdisjoint(test | validation)
    assert validation.isdisjoint(test)
    train, _, test = of(load_table("egsingle", together_column=None)[0])
    assert train & test
    assert of(load_table("egsingle", time_column="year")[0])[0] & test


@quiet
def test_last_rows_of_a_patient_are_for_test(monkeypatch, tmp_path):
    put(monkeypatch, tmp_path, "parkinsons")
    data, encoding = load_table("parkinsons")
    time = np.array([float(line.split(",")[3]) for line in made("parkinsons").splitlines()[1:]])
    assert "test_time" in encoding.features
    for client in range(data.clients):
        rows = lambda part, c=client: part.rows[part.offsets[c] : part.offsets[c + 1]]
        assert time[rows(data.train)].max() <= time[rows(data.validation)].min()
        assert time[rows(data.validation)].max() <= time[rows(data.test)].min()


@quiet
def test_options_go_over_the_facts_and_dropped_columns_are_added_up(monkeypatch, tmp_path):
    put(monkeypatch, tmp_path, "exam")
    data, encoding = load_table("exam", drop="vr", unseen=0.25, seed=3)
    assert data.unseen.sum() == 1
    assert set(encoding.left_out) == {"student", "vr"}
    put(monkeypatch, tmp_path, "parkinsons")
    _, encoding = load_table("parkinsons", label_column="motor_UPDRS")
    assert encoding.label.name == "motor_UPDRS"
    assert "total_UPDRS" not in encoding.features  # nearly the same number, and the table's own label


def test_a_number_is_no_class_where_another_label_is_asked_for():
    assert TABLES["eicu"].options({"label_column": "age"})["task"] == "auto"
    assert TABLES["eicu"].options({"label_column": "age", "task": "regression"})["task"] == "regression"
    assert TABLES["school"].options({})["task"] == "regression"


def test_what_to_mind_is_told(monkeypatch, tmp_path):
    put(monkeypatch, tmp_path, "landmine")
    with pytest.warns(TableNotice, match="landmine: 94 % of the rows have one class: read the AUC"):
        load_table("landmine")
    put(monkeypatch, tmp_path, "school")
    load_table("school")  # nothing to mind: a warning would be an error


def test_recompressed_and_plain_files_are_the_same_table(monkeypatch, tmp_path):
    path = put(monkeypatch, tmp_path, "computers")
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=1, mtime=5))
    assert table_file("computers") == path
    plain = Path(str(path).removesuffix(".gz"))
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    assert table_file("computers") == plain
    assert load_table("computers")[0].name == "computers"


def test_a_missing_file_is_answered_with_its_place_and_its_source(monkeypatch, tmp_path):
    monkeypatch.setenv("MAJORANT_DATA", str(tmp_path))
    with pytest.raises(TableError) as error:
        load_table("star")
    text = str(error.value)
    assert "\n" not in text
    assert str(tmp_path / "tables" / "star.csv.gz") in text
    assert "mlmRev" in text
    assert TABLES["star"].sha256[:16] in text
    assert "--client-column sch --label-column math --task regression --drop id,tch,read --together-column id" in text


@pytest.mark.parametrize("harm", ["foreign", "cut", "changed"])
def test_a_damaged_or_foreign_file_is_refused(monkeypatch, tmp_path, harm):
    path = put(monkeypatch, tmp_path, "hsb82")
    raw = path.read_bytes()
    text = gzip.decompress(raw)
    bad = {"foreign": gzip.compress(made("exam").encode()), "cut": raw[:-20], "changed": gzip.compress(text[:-2])}
    path.write_bytes(bad[harm])
    with pytest.raises(TableError, match="cannot be read" if harm == "cut" else "damaged, or not this project's"):
        load_table("hsb82")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"no table 'scool': did you mean 'school'\? Known: census2000, "):
        table_facts("scool")
