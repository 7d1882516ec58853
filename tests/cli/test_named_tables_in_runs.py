"""Tables by name on the command line: settings from the facts, licence and cautions told, everything a file gets."""

from __future__ import annotations

import gzip
import json
import re
import tomllib

import pytest

from commands import invoke, refused
from majorant.app.build import load_data, splits_of
from majorant.app.config import RunConfig, make_config, to_toml
from majorant.app.flower.up import silos_of
from majorant.app.named_tables import with_facts
from majorant.app.table_settings import TableSettings
from majorant.data import TableNotice
from natural_tables import put

pytestmark = pytest.mark.filterwarnings("ignore")
QUICK = ("--rounds", 2, "--lr", 0.1, "--schedule", "constant")


@pytest.fixture
def place(monkeypatch, tmp_path):
    """A folder of data with made tables."""
    for name in ("exam", "star", "landmine"):
        put(monkeypatch, tmp_path, name)
    return tmp_path


def test_a_run_by_name_is_the_run_on_the_file(place):
    file = place / "tables" / "exam.csv.gz"
    flags = ("--client-column", "school", "--label-column", "normexam", "--drop", "student", "--task", "regression")
    told = invoke(
        "run", "fedavg", "--data", "exam", *QUICK, "--seeds", 2, "--group-column", "sex", "--out", place / "named"
    )
    assert "group_column is for compare: a run has no scores by groups" in " ".join(told.split())
    invoke("run", "fedavg", "--data", file, *flags, *QUICK, "--seeds", 2, "--out", place / "file")
    named, own = (json.loads((place / run / "summary.json").read_text()) for run in ("named", "file"))
    assert named["test_rmse"] == own["test_rmse"]
    assert named["test_rmse"]["std_over_runs"] > 0  # each seed has another split
    assert named["dataset"] == "exam"
    assert named["licence"] == "GPL-2 or later"
    assert "licence" not in own
    later = place / "later.csv"  # the rows of one school, as if it joined
    rows = gzip.decompress(file.read_bytes()).decode().splitlines()
    later.write_text("\n".join([rows[0], *(row for row in rows[1:] if row.startswith("1,"))]) + "\n")
    assert "RMSE" in invoke("personalize", place / "named", "--data", later, "--save", place / "model")
    invoke("run", "--resume", place / "named", "--rounds", 3)


def test_the_licence_and_what_to_mind_are_told_on_a_line_each(place):
    config = make_config({"algorithm": "fedavg", "data": "landmine"})
    with pytest.warns(TableNotice) as told:
        load_data(config)
    lines = [str(each.message) for each in told if issubclass(each.category, TableNotice)]
    assert lines == [
        "landmine: licence as found: none stated",
        "landmine: 94 % of the rows have one class: read the AUC, not the accuracy",
    ]
    assert "note: licence as found: none stated" in invoke("check", "landmine")
    assert json.loads(invoke("check", "--data", "star", "--json"))["notes"][1].startswith("leaky: pupils recur")


def test_facts_become_settings_that_a_file_of_settings_keeps(place):
    config = make_config({"algorithm": "fedavg", "data": "star"}, drop=("clad",))
    assert (config.client_column, config.label_column, config.task) == ("sch", "math", "regression")
    assert config.drop == ("id", "tch", "read", "clad")
    assert config.together_column == "id"
    assert load_data(config)[0].told == "id"
    assert make_config(tomllib.loads(to_toml(config))) == config
    random = {"algorithm": "fedavg", "data": "star", "together_column": None}
    assert RunConfig(**random).together_column == "id"  # files have no None, so it says nothing
    timed = make_config({"algorithm": "fedavg", "data": "star", "time_column": "yrs"})
    assert (timed.time_column, timed.together_column) == ("yrs", None)
    assert make_config(tomllib.loads(to_toml(timed))) == timed


def test_options_after_the_colon_are_settings_and_flags_go_over_them():
    config = TableSettings.model_validate({"data": "school:unseen=0.2,seed=4"})
    assert (config.data, config.unseen, config.split_seed) == ("school", 0.2, 4)
    assert TableSettings.model_validate({"data": "school:0.3"}).unseen == 0.3
    assert TableSettings.model_validate({"data": "school:unseen=0.2", "unseen": 0.5}).unseen == 0.5
    with pytest.raises(ValueError, match="unknown option 'clients' in data set 'heart:clients=3'"):
        TableSettings.model_validate({"data": "heart:clients=3"})


def test_other_data_has_no_facts():
    for values in ({"data": "synthetic"}, {"data": "school.csv"}, {"data": 3}, {}, None):
        assert with_facts(values) == values
    assert not TableSettings(data="synthetic").is_table
    assert TableSettings(data="school").is_table


def test_several_seeds_split_a_named_table_anew_where_chance_splits_it(place):
    data = {"algorithm": "fedavg", "seeds": 2}
    chance, told = (make_config(data | {"data": name}) for name in ("exam", "star"))
    assert len(splits_of(chance, load_data(chance)[0])) == 2
    assert not isinstance(splits_of(told, load_data(told)[0]), list)


def test_names_are_listed_with_sizes_and_licences():
    text = " ".join(invoke("list", "data").split())
    assert re.search(r"school .*139 clients", text)
    assert "Commons" in text
    assert text.count("licence:") == 15


def test_refusals_are_one_clear_line(monkeypatch, place):
    assert "no file or table 'exams': did you mean 'exam'?" in refused("check", "exams")
    assert "unknown data set 'exams': did you mean 'exam'?" in refused("compare", "--data", "exams")
    assert "it has no column 'sexx': did you mean 'sex'?" in refused("compare", "--data", "exam", "--drop", "sexx")
    for command in (("check", "hsb82"), ("run", "fedavg", "--data", "hsb82")):
        told = refused(*command)
        assert "hsb82.csv.gz: there is no such file" in told
        assert "mlmRev" in told
    (place / "tables" / "exam.csv.gz").write_bytes(b"school,normexam\n1,2\n")
    assert "damaged, or not this project's exam.csv" in refused("compare", "--data", "exam")


def test_groups_of_a_named_table_are_compared(place):
    flags = (*QUICK, "--group-column", "sex", "--json", "--out", place / "both")
    text = invoke("compare", "local", "fedavg", "--data", "exam", *flags)
    assert '"sex-0"' in text


def test_silos_of_a_named_table_are_its_clients(place):
    silos = silos_of(make_config({"algorithm": "fedavg", "data": "star"}))
    assert [silo.name for silo in silos] == ["1", "2", "3", "4"]
    assert silos[0].about == {"data": str((place / "tables" / "star.csv.gz").resolve()), "client": "1"}
