"""Models that people keep: saved, read back, scored, and told apart from training alone."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import majorant as mj
from commands import invoke, read, refused, write_visits
from majorant.app import worth as worth_module
from majorant.app.worth import compared, dealt
from majorant.data import encode_table
from majorant.engines.deployment import PersonalModel
from majorant.methods.fedem import Mixture


@pytest.fixture(scope="module")
def kept(place, tmp_path_factory):
    """A newcomer's model in a folder, and what the command said of it."""
    folder = tmp_path_factory.mktemp("kept")
    write_visits(folder / "new.csv", range(9, 10), seed=1)
    write_visits(folder / "later.csv", range(9, 10), seed=2, labels=False)
    save = folder / "model"
    said = json.loads(invoke("personalize", place / "run", "--data", folder / "new.csv", "--save", save, "--json"))
    return folder, said


def test_a_personal_model_is_scored_beside_training_alone_and_the_shared_model(kept, place):
    """The hospital is of one of the two kinds that training knows; the shared model has no part in its folds."""
    folder, said = kept
    found = said["out_of_sample"]
    assert (said["client"], said["samples"], found["folds"]) == ("h9", 40, 5)
    assert found["personal"] > 0.9
    assert found["shared"] == pytest.approx(mj.load_model(place / "run").score(folder / "new.csv"))
    assert found["trivial"] == pytest.approx(0.5, abs=0.2)
    assert found["trivial"] < found["alone"] <= 1
    assert found["gain"] == pytest.approx(found["personal"] - found["alone"], abs=1e-12)
    rows = mj.load_model(place / "run")
    x, y = encode_table(folder / "new.csv", rows.encoding)
    assert found["auc"]["shared"] == pytest.approx(roc_auc_score(y == rows.classes[1], rows.predict_proba(x)[:, 1]))
    assert found["auc"]["shared"] < found["auc"]["personal"] <= 1
    assert 0.5 < found["auc"]["alone"] <= 1


def test_accuracy_is_not_the_only_score_of_a_rare_class(kept, place, tmp_path):
    """Where nearly all rows have one label, models that rank them differently have the same accuracy."""
    folder, _ = kept
    lines = (folder / "new.csv").read_text().splitlines()
    well = [line for line in lines[1:] if line.endswith("well")]
    sick = [line for line in lines[1:] if line.endswith("sick")]
    rare, one = tmp_path / "rare.csv", tmp_path / "one.csv"
    rare.write_text("\n".join([lines[0], *well, *sick[:3]]))
    one.write_text("\n".join([lines[0], *well]))
    flags = ["--save", tmp_path / "model", "--folds", "2"]
    text = invoke("personalize", place / "run", "--data", rare, *flags)
    assert re.search(r"this personal model +\d+\.\d %   AUC [01]\.\d{3}\n", text)
    assert not re.search(r"the most frequent class.*AUC", text)
    said = json.loads(invoke("personalize", place / "run", "--data", one, *flags, "--json"))
    assert said["out_of_sample"]["auc"] is None  # there is nothing to rank


def test_predictions_of_a_saved_model_are_those_of_the_model(kept, place, tmp_path):
    folder, said = kept
    model = mj.load_model(said["model"])
    invoke("predict", said["model"], "--data", folder / "later.csv", "--out", tmp_path / "p.csv")
    rows = read(tmp_path / "p.csv")
    assert list(rows[0]) == ["prediction", "p_sick", "p_well"]
    assert [row["prediction"] for row in rows] == model.predict(folder / "later.csv").tolist()
    shares = np.array([[float(row["p_sick"]), float(row["p_well"])] for row in rows])
    np.testing.assert_allclose(shares, model.predict_proba(folder / "later.csv"), rtol=1e-5)
    assert 0.9 < model.score(folder / "new.csv") <= 1
    assert "client 'h9' by fedem: 4 features, 2 classes, mixture weights" in repr(model)
    shared = mj.load_model(place / "run")  # what a run gives to a client without samples
    assert shared.mixture_weights.tolist() == [0.5, 0.5]


@pytest.mark.filterwarnings("always::majorant.data.TableNotice")
def test_new_rows_are_read_as_training_read_them(kept, tmp_path):
    """An unknown category is 0 in all features and told of; a column that is missing is an error that names it."""
    _, said = kept
    rows = {"hospital": "h9", "age": 40, "dose": 3.5}
    table = tmp_path / "odd.csv"
    table.write_text("ward,age,dose,note\nz,40,3.5,x\na,40,3.5,y\n")
    text = invoke("predict", said["model"], "--data", table, "--out", tmp_path / "p.csv")
    assert "'ward' has categories that training did not know ('z')" in " ".join(text.split())
    model = mj.load_model(said["model"])
    x = np.zeros((1, 4))
    for place, name in enumerate(("age", "dose")):
        column = model.encoding[name]
        x[0, place] = (rows[name] - column.mean) / column.scale
    assert float(read(tmp_path / "p.csv")[0]["p_sick"]) == pytest.approx(float(model.predict_proba(x)[0, 0]), rel=1e-4)
    table.write_text("ward,age\na,40\n")
    assert "it has no column 'dose'" in refused("predict", said["model"], "--data", table)


def test_two_clients_of_one_file_are_not_pooled(place, tmp_path):
    table = write_visits(tmp_path / "two.csv", range(9, 11), seed=3)
    assert "rows of several clients (h9, h10)" in refused("personalize", place / "run", "--data", table)
    spaced = tmp_path / "spaced.csv"
    spaced.write_text(table.read_text().replace("h9,", "St Mary's,"))
    said = refused("personalize", place / "run", "--data", spaced)
    assert shlex.split(said.partition("as in ")[2])[:2] == ["--client", "St Mary's"]  # as a shell takes it
    assert "did you mean 'h10'" in refused("personalize", place / "run", "--data", table, "--client", "h100")
    run = shutil.copytree(place / "run", tmp_path / "run")
    weights = {}
    for name in ("h9", "h10"):
        said = json.loads(invoke("personalize", run, "--data", table, "--client", name, "--folds", "0", "--json"))
        assert (said["samples"], said["model"]) == (40, str(run / "personal" / name))
        weights[name] = said["mixture_weights"]
    assert np.argmax(weights["h9"]) != np.argmax(weights["h10"])
    text = invoke("predict", run / "personal" / "h9", "--data", table, "--out", tmp_path / "p.csv")
    assert "has rows of h10" in text


def test_names_that_differ_in_odd_letters_alone_have_models_of_their_own(place, kept, tmp_path):
    """A second client does not lose the first one's model; the same client's newer model takes its old place."""
    folder, _ = kept
    run = shutil.copytree(place / "run", tmp_path / "run")
    found = {}
    for name in ("K/ln", "K:ln", "K/ln"):
        table = tmp_path / "new.csv"
        table.write_text((folder / "new.csv").read_text().replace("h9,", f"{name},"))
        said = json.loads(invoke("personalize", run, "--data", table, "--folds", "0", "--json"))
        assert found.setdefault(name, said["model"]) == said["model"]
    assert found == {"K/ln": str(run / "personal" / "K-ln"), "K:ln": str(run / "personal" / "K-ln-2")}
    assert [mj.load_model(model).origin["client"] for model in found.values()] == ["K/ln", "K:ln"]


def test_a_client_that_trained_is_told_apart_from_a_newcomer(place, kept, tmp_path):
    """The shared model has seen its rows: scores on them say nothing about new ones."""
    folder, said = kept
    assert said["took_part"] is False
    trained = next(line["name"] for line in read(place / "run" / "clients.csv") if line["unseen"] == "0")
    table = tmp_path / "known.csv"
    table.write_text((folder / "new.csv").read_text().replace("h9,", f"{trained},"))
    text = invoke("personalize", place / "run", "--data", table, "--save", tmp_path / "model")
    assert f"the run trained on a client named {trained}" in " ".join(text.split())


def test_what_cannot_be_meant_is_refused_with_what_could_be(place, kept, tmp_path):
    folder, _ = kept
    flags = ["personalize", place / "run", "--data", folder / "new.csv", "--out", tmp_path / "model"]
    assert "--save FOLDER" in refused(*flags)
    shutil.copytree(place / "run", tmp_path / "several" / "fedem")
    for command in (["predict", "--data", folder / "new.csv"], ["export", "--out", tmp_path / "m.json"]):
        said = refused(command[0], tmp_path / "several", *command[1:])
        assert "it holds the runs" in said
        assert "several/fedem" in said


def test_rows_to_predict_need_not_say_whose_they_are(kept, tmp_path):
    folder, said = kept
    header, *lines = (folder / "later.csv").read_text().splitlines()
    table = tmp_path / "nobody.csv"
    for known in (0, 1):  # nobody's, and one row another client's
        owners = ["h10"] * known + [""] * (len(lines) - known)
        rows = [owner + line[line.index(",") :] for owner, line in zip(owners, lines, strict=True)]
        table.write_text("\n".join([header, *rows]))
        text = invoke("predict", said["model"], "--data", table, "--out", tmp_path / "p.csv")
        assert ("has rows of h10" in text) == bool(known)
        assert len(read(tmp_path / "p.csv")) == len(lines)


def test_labels_of_rows_to_predict_are_not_read(kept, tmp_path):
    """A table whose labels are not known yet, or are none that training knew, is predicted all the same."""
    folder, said = kept
    tables = []
    for label in ("", "recovered"):
        tables.append(tmp_path / f"later{label}.csv")
        header, *lines = (folder / "later.csv").read_text().splitlines()
        tables[-1].write_text("\n".join([f"{header},outcome", *(f"{line},{label}" for line in lines)]))
    model = mj.load_model(said["model"])
    expected = model.predict(folder / "later.csv").tolist()
    for table in tables:
        invoke("predict", said["model"], "--data", table, "--out", tmp_path / "p.csv")
        assert [row["prediction"] for row in read(tmp_path / "p.csv")] == expected
        assert model.predict(table).tolist() == expected


def test_a_model_is_not_written_over_something_else(place, kept, tmp_path):
    folder, _ = kept
    run = shutil.copytree(place / "run", tmp_path / "run")
    flags = ["personalize", run, "--data", folder / "new.csv", "--folds", "0", "--save"]
    for target in (run / "model", run / "checkpoint", run):
        assert "among the run's own files" in refused(*flags, target)
    shutil.copytree(run / "model", tmp_path / "other")
    assert "something else than a personal model" in refused(*flags, tmp_path / "other")
    assert "is not a personal model" in refused("predict", tmp_path / "other", "--data", folder / "new.csv")


def test_a_model_made_in_python_is_read_back_with_its_method(tmp_path):
    algorithm = mj.fedem(mj.models.linear(mj.models.base.Spec((3,), 2)), components=2)
    theta = algorithm.server.init(jax.random.key(0)).value
    model = PersonalModel(algorithm, Mixture(theta, np.array([0.25, 0.75], np.float32)), ("no", "yes"), (3,))
    model.save(tmp_path / "m")
    with pytest.raises(ValueError, match="give the method that made it"):
        mj.load_model(tmp_path / "m")
    with pytest.raises(ValueError, match="is a model of fedem, not of fedavg"):
        mj.load_model(tmp_path / "m", mj.fedavg(mj.models.linear(mj.models.base.Spec((3,), 2))))
    again = mj.load_model(tmp_path / "m", algorithm)
    x = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    assert again.score(x, model.predict(x)) == 1
    with pytest.raises(ValueError, match="was not trained on a table"):
        again.predict("new.csv")


class Memory:
    """A method that learns its samples by heart, and says -1 of all others."""

    classes, target_scale, features = (), None, (1,)
    federation = SimpleNamespace(algorithm=SimpleNamespace(deployment=SimpleNamespace(losses=None)))

    def checked(self, x):
        return x

    def personalize(self, x, y, room):
        known = dict(zip(x[:, 0].tolist(), y.tolist(), strict=True))
        return SimpleNamespace(predict=lambda x: np.array([known.get(v, -1.0) for v in x[:, 0].tolist()]))


def test_samples_are_predicted_by_models_that_have_not_seen_them(monkeypatch):
    x, y = np.arange(12.0)[:, None], np.arange(12.0)
    nothing = SimpleNamespace(predict=lambda x: np.zeros(len(x)))
    monkeypatch.setattr(worth_module, "shared_model", lambda trained: nothing)
    monkeypatch.setattr(worth_module, "alone", lambda trained, x, y, parts: [nothing] * len(parts))
    found = worth_module.worth(Memory(), x, y, 4)
    assert found["personal"] == pytest.approx(np.sqrt(np.mean((y + 1) ** 2)))  # nothing was known
    assert found["shared"] == found["alone"] == pytest.approx(np.sqrt(np.mean(y**2)))
    assert found["trivial"] > np.std(y)  # means of the other folds are no better than the mean of all
    assert found["gain"] == pytest.approx(found["alone"] - found["personal"])
    assert worth_module.worth(Memory(), x[:1], y[:1]) is None


@pytest.mark.parametrize(
    ("y", "classes", "said", "score"),
    [(np.array([2, 2, 2, 2]), (), 2.75, 0.75), (np.array(["s1"] * 4), ("s1", "s10"), "s10", 0.0)],
    ids=["counts", "short-labels"],
)
def test_predictions_are_compared_as_they_are_whatever_the_type_of_the_labels(monkeypatch, y, classes, said, score):
    """A prediction between two counts is not cut off to a count, nor a label to the length of the newcomer's."""
    model = SimpleNamespace(
        predict=lambda x: np.full(len(x), said), predict_proba=lambda x: np.full((len(x), 2), 0.5), classes=classes
    )
    trained = Memory()
    trained.classes, trained.personalize = classes, lambda x, y, room: model
    monkeypatch.setattr(worth_module, "shared_model", lambda trained: model)
    monkeypatch.setattr(worth_module, "alone", lambda trained, x, y, parts: [model] * len(parts))
    found = worth_module.worth(trained, np.arange(4.0)[:, None], y, 2)
    assert found["personal"] == found["shared"] == found["alone"] == pytest.approx(score)


def test_folds_have_about_the_same_labels():
    codes = np.repeat([0, 1], [20, 10])
    fold = dealt(codes, 5)
    assert np.bincount(fold).tolist() == [6] * 5
    assert np.bincount(fold[codes == 1]).tolist() == [2] * 5


def test_the_gain_in_rmse_and_its_standard_error():
    """Against the definition: a difference of roots, and by simulation the spread of it."""
    rng = np.random.default_rng(0)
    draw = lambda n: {"personal": rng.normal(0, 1, n) ** 2, "alone": rng.normal(0, 2, n) ** 2}
    found = compared(draw(4000), classes=False)
    assert found["gain"] == pytest.approx(1, abs=0.1)
    spread = np.std([compared(draw(200), classes=False)["gain"] for _ in range(300)])
    stated = np.mean([compared(draw(200), classes=False)["standard_error"] for _ in range(50)])
    assert stated == pytest.approx(spread, rel=0.2)
