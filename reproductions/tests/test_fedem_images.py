"""The table of CIFAR-10: what was trained, beside the paper's figures. Training itself needs a GPU."""

import json

from majorant_reproductions.fedem import images

from majorant.app.reproduce import Context

LINE = {"round": 100, "seconds": 41.6, "test_accuracy": 78.756, "bottom_decile": 66.667}


def trained(given):
    """Stands in for training: one method ends, the other fails."""
    assert (given.rounds, given.tiny) == (2, True)
    ends = {"fedem": {"history": [LINE]}, "fedavg": {"history": [], "error": "Diverged: every update was NaN"}}
    for name in given.methods.split(","):
        found = {"method": name, "paper": images.PAPER[name]} | ends[name]
        (given.folder / f"{name}.json").write_text(json.dumps(found))


def test_rows_stand_beside_the_papers_and_failures_are_named(monkeypatch):
    monkeypatch.setattr(images, "train_all", trained)
    for run, network in ((images.table2, "random weights"), (images.table2_weights, "ImageNet weights")):
        (table,) = run(Context(quick=True, seeds=None, tell=print))
        failed, done = table.rows
        assert done == ["fedem", 0, "78.8 / 66.7", "84.3 / 78.1", 100, "42"]
        assert failed[:4] == ["fedavg", 0, "Diverged: every update was NaN", "78.2 / 72.4"]
        assert network in table.notes[0].partition(";")[0]


def test_every_method_has_a_learning_rate():
    assert set(images.arguments(["folder"]).methods.split(",")) <= set(images.RELEASED)
    assert set(images.PAPER) <= set(images.RELEASED)
