"""The FedEM paper's tables with deep networks: what was trained, beside its figures. Training itself needs a GPU."""

import json

import pytest
from majorant_reproductions.fedem import EXPERIMENTS, deep, deep_settings
from majorant_reproductions.fedem import deep_tables as tables

from majorant.app.reproduce import Context

LINE = {"round": 100, "seconds": 41.6, "test_accuracy": 78.756, "bottom_decile": 66.667, "train_accuracy": 96.0}
DEEP = sorted(name for name in EXPERIMENTS if name.partition("/")[2].startswith(("table2-c", "table2-e", "table2-m")))
DEEP += ["fedem/table2-fashion-mnist", "fedem/table2-shakespeare", "fedem/table3-cifar10", "fedem/figure1-cifar10"]
DEEP += ["fedem/table7-cifar10", "fedem/table8-cifar10", "fedem/j1-cifar10", "fedem/j5-cifar10", "fedem/heads-cifar10"]
DEEP += [name for name in EXPERIMENTS if name.endswith("-cifar10-head") and "table2" not in name]


@pytest.fixture
def trained(monkeypatch):
    """Stands in for training: all but pFedMe end, with accuracies that tell settings; gives what was asked for."""
    asked = []

    def train_all(given):
        given.folder.mkdir(parents=True, exist_ok=True)
        for job in tables.with_tuned(given.methods.split(",")):
            name, own = deep.with_own_settings(job, given)
            asked.append((name, own))
            accuracy = 50 + own.seed + own.components + 10 * own.participation
            line = LINE | {"test_accuracy": accuracy, "round": own.rounds}
            joining = {"unseen_accuracy": accuracy + 1, "unseen_train_accuracy": 99.0} if own.unseen else {}
            found = {"paper": deep.PAPER[own.data].get(name), "finished": True, "history": [LINE, line | joining]}
            if own.unseen:
                found["unseen_by_share"] = {"0": accuracy, "0.5": accuracy + 2, "1": accuracy + 1}
            if name == "pfedme":
                found |= {"finished": False, "history": [], "error": "Diverged: every update was NaN"}
            deep.save(name, own, found)

    monkeypatch.setattr(tables, "train_all", train_all)
    return asked


def of(folder, name, seeds=3):
    return EXPERIMENTS[name].run(Context(quick=False, seeds=seeds, tell=print, folder=folder))


def test_rows_stand_beside_the_papers_and_failures_are_named(tmp_path, trained):
    (table,) = of(tmp_path, "fedem/table2-cifar10-weights")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["fedem"] == ["64.0 ± 1.0 / 66.7 ± 0.0", "96.0 ± 0.0", "63.0, 64.0, 65.0", "84.3 / 78.1", 200, "42"]
    assert rows["pfedme mu=1 lr=0.31623"][:4] == [
        "",
        "",
        ", ".join(["Diverged: every update was NaN"] * 3),
        "81.7 / 73.6",
    ]
    assert list(rows)[1:3] == ["fedavg", "fedavg+"]
    assert "ImageNet weights" in table.notes[0].partition(";")[0]
    assert table.curves["fedem"] == ([100, 200], [78.756, 64.0])
    assert {own.split for _, own in trained} == {"released"}
    assert all(own.weights.name == "efficientnet-lite0.safetensors" for _, own in trained)


def test_a_fifth_joins_and_says_how_much_it_needs(tmp_path, trained):
    _, joining = of(tmp_path, "fedem/table3-cifar10", seeds=2)
    assert joining.columns[3:] == ["0", "0.5", "1"]
    assert joining.rows[0] == ["fedem", "64.5 ± 0.7", "99.0 ± 0.0", "63.5", "65.5", "64.5"]
    assert [row[0] for row in joining.rows] == ["fedem", "fedavg", "fedavg+"]
    assert joining.curves["fedavg"] == ([0.0, 0.5, 1.0], [63.5, 65.5, 64.5])


def test_curves_run_over_shares_and_components(tmp_path, trained):
    left, right = of(tmp_path, "fedem/figure1-cifar10", seeds=2)
    assert left.curves["fedavg+"] == ([0.1, 0.2, 0.5, 1.0], [54.5, 55.5, 58.5, 63.5])
    assert right.curves["fedem"] == ([1.0, 2.0, 3.0, 4.0], [61.5, 62.5, 63.5, 64.5])
    assert len(left.rows) == 12
    assert [row[0] for row in right.rows] == [f"fedem components={number}" for number in (1, 2, 3, 4)]


def test_the_papers_figures_are_those_of_their_rows(tmp_path, trained):
    (table,) = of(tmp_path / "7", "fedem/table7-cifar10")
    figures = {row[0]: row[4] for row in table.rows}
    assert figures == {
        "fedem rounds=66": "82.5 (92.2)",
        "fedem": "84.3",
        "fedavg": "78.2 (96.8)",
        "fedavg+": "82.3 (98.9)",
    }
    (table,) = of(tmp_path / "8", "fedem/table8-cifar10", seeds=1)
    assert {row[0].partition(" ")[0]: row[4] for row in table.rows} == {
        "fedavg": "73.1 ± 0.14",
        "fedavg+": "77.7 ± 0.16",
        "pfedme": "77.8 ± 0.07",
        "apfl": "78.2 ± 0.27",
        "fedem": "82.1 ± 0.13",
    }
    assert {row[5] for row in table.rows if row[1]} == {1200}


@pytest.mark.parametrize("name", DEEP)
def test_every_job_has_settings_that_are_known(tmp_path, trained, name):
    results = of(tmp_path, name, seeds=1)
    assert all(result.rows for result in results)
    assert len(trained) > 1
    data = {own.data for _, own in trained}
    assert len(data) == 1
    assert {own.split for _, own in trained} == {"paper" if "-split" in name else "released"}
    assert (data & set(deep_settings.GREY) == set()) == ("mnist" not in name)
    assert {own.rounds for _, own in trained} <= {200, 66, 1200, 80}
    assert ({own.rounds for _, own in trained} == {80}) == ("shakespeare" in name)


@pytest.mark.parametrize("name", [name for name in DEEP if name.endswith("-head")])
def test_heads_have_rates_of_their_own_and_say_what_is_fixed(tmp_path, trained, name):
    results = of(tmp_path, name, seeds=1)
    assert "the last layer of EfficientNet-Lite0 over fixed ImageNet layers" in results[0].notes[0]
    for method, own in trained:
        assert (own.trained, own.enlarge, own.lr, own.precision) == ("head", 4, None, "single")
        assert deep_settings.rate(method, own) == deep_settings.HEADS[own.data].get(
            method, deep_settings.HEADS[own.data]["others"]
        )
        assert own.weights.name == "efficientnet-lite0.safetensors"


def test_a_quick_run_is_small(tmp_path, trained):
    (table,) = EXPERIMENTS["fedem/table7-cifar10"].run(Context(quick=True, seeds=None, tell=print, folder=tmp_path))
    assert table.notes == ["a small network on a few random images"]
    assert {(own.tiny, own.rounds, own.weights, own.seed) for _, own in trained} == {(True, 2, None, 0)}
    EXPERIMENTS["fedem/table7-cifar10"].run(Context(quick=True, seeds=2, tell=print, folder=tmp_path))
    assert {own.seed for _, own in trained} == {0, 1}


def test_means_are_over_seeds_that_were_trained_to_their_end(tmp_path):
    ends = [(70.0, 100, True), (73.0, 100, True), (99.0, 40, False)]
    for seed, (accuracy, last, finished) in enumerate(ends):
        seconds = {"seconds": 40.0 + 8 * seed}
        line = LINE | {"test_accuracy": accuracy, "bottom_decile": accuracy - 10, "round": last} | seconds
        (tmp_path / str(seed)).mkdir()
        found = {"history": [LINE, line], "finished": finished} | ({} if finished else {"error": "MemoryError: full"})
        (tmp_path / str(seed) / "mu=0.1-fedprox.json").write_text(json.dumps(found))
    folders = [tmp_path / str(seed) for seed in range(4)]  # the fourth has not begun
    (row,) = tables.rows_of(folders, ["fedprox@mu=0.1", "fedem"])
    each = "70.0, 73.0, 99.0 after 40 rounds MemoryError: full"
    assert row == ["fedprox mu=0.1", "71.5 ± 2.1 / 61.5 ± 2.1", "96.0 ± 0.0", each, "", 100, "44"]
    curve = tables.curve(tables.finished(folders, "fedprox@mu=0.1"), tables.along_rounds)
    assert curve == ([100], [71.5])
