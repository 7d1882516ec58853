"""Fronts on the command line: one small front that all tests share, picking points of it, and bad input."""

from __future__ import annotations

import csv
import json
import shutil
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest

from commands import alter, invoke, refused, write_visits
from majorant.app.front_record import FrontRecord, PointRecord, choose_point, read_front
from majorant.app.report.figures import render
from majorant.app.report.pareto_figures import draw_front
from majorant.app.report.pareto_page import columns
from majorant.app.runs import find_runs
from majorant.app.saved_model import load_deployment
from majorant.tradeoffs import hypervolume, knee, nondominated
from majorant.tradeoffs.front import Front
from majorant.tradeoffs.judge import Point

DATA = "synthetic:clients=4,dimension=3"
SMALL = ["--rounds", "60", "--lr", "1", "--steps", "1", "--batch-size", "0"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The folder of a front, which tests do not change."""
    folder = tmp_path_factory.mktemp("fronts") / "front"
    flags = ["--criterion", "squared-norm", "--weights", "0.5,0,0.1", "--refine", "2", "--figures", "svg"]
    text = invoke("pareto", "--data", DATA, *flags, *SMALL, "--centralized", "--out", folder)
    for words in ("best on validation samples: λ =", "knee: λ =", "hypervolume", "spread", "report.html"):
        assert words in text
    return folder


@pytest.fixture
def front(made, tmp_path) -> Path:
    """A copy of the front's folder."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def test_the_numbers_are_those_of_the_points(made):
    record = json.loads((made / "front.json").read_text())
    points = record["points"]
    weights = [p["lambda"] for p in points]
    assert len(weights) == 5
    assert weights == sorted(weights)
    assert {0.0, 0.1, 0.5} < set(weights)
    values = np.array([[p["loss"], p["criteria"]["squared_norm"]] for p in points])
    assert [not p["dominated"] for p in points] == nondominated(values).tolist()
    assert record["knee"] == knee(values)
    assert record["hypervolume"] == pytest.approx(hypervolume(values, record["hypervolume_reference"]))
    for p in points:
        assert p["centralized_gap"] < 0.1
        assert p["norm"] ** 2 / 2 == pytest.approx(p["criteria"]["squared_norm"], rel=1e-5)
    best = points[record["best_validation"]]
    assert best["validation_accuracy"] == max(p["validation_accuracy"] for p in points)
    assert (record["picked"], record["picked_by"]) == (record["best_validation"], "best validation")


def test_points_are_compared_with_a_centralized_solve(made):
    """A separate minimisation of F over the pooled samples, for one point: gradient descent in NumPy.

    λ is that of the criterion in units of the loss.
    """
    from majorant.app.catalogue import datasets

    record = json.loads((made / "front.json").read_text())
    point, scale = record["points"][-1], record["scales"]["squared_norm"]
    data, lam = datasets.make(DATA, seed=0), point["lambda"]
    x = np.concatenate([data.train.x, np.ones((len(data.train.x), 1))], axis=1).astype(float)
    each = np.repeat(1 / data.train.sizes / data.clients, data.train.sizes)
    theta = np.zeros(x.shape[1])
    for _ in range(3000):
        said = 1 / (1 + np.exp(-x @ theta))
        theta -= 0.5 * ((1 - lam) * x.T @ (each * (said - data.train.y)) + lam * scale * theta)
    loss = each @ np.logaddexp(0, np.where(data.train.y == 1, -1, 1) * (x @ theta))
    least = (1 - lam) * loss + lam * scale * (theta @ theta) / 2
    reached = (1 - lam) * point["loss"] + lam * scale * point["criteria"]["squared_norm"]
    assert 0 <= point["centralized_gap"] < 1e-3
    assert reached / least - 1 == pytest.approx(point["centralized_gap"], abs=1e-6)


def test_every_model_is_saved_and_gives_the_loss_that_is_reported(made):
    from majorant.app.catalogue import datasets, models

    data = datasets.make(DATA)
    model = models.make("auto", data)
    record = read_front(made)
    assert [p.name for p in sorted((made / "models").iterdir())] == [f"point-{i:03d}" for i in range(5)]
    deployed, _ = load_deployment(made)
    x, y = data.validation.x, data.validation.y
    chosen = record.points[record.picked]
    tested = float(model.losses(deployed.server.value, data.test.x, data.test.y).mean())
    assert tested == pytest.approx(chosen.test_loss, rel=1e-4)
    assert float(model.losses(deployed.server.value, x, y).mean()) == pytest.approx(chosen.validation_loss, rel=1e-4)
    said = deployed.personalize(x[:0], y[:0]).predict(data.test.x)
    assert np.mean(said == data.test.y) == pytest.approx(chosen.accuracy)


def test_picking_changes_the_model_that_is_deployed(front, tmp_path):
    record = read_front(front)
    last, middle = record.points[-1], record.points[2].criteria["squared_norm"]
    norm = lambda: np.sqrt(sum(float((np.asarray(a) ** 2).sum()) for a in leaves(load_deployment(front)[0])))
    bound = (record.points[-2].norm + last.norm) / 2  # only the last point is within it
    text = invoke("pareto", "pick", front, "--max-norm", bound)
    assert f"point: {last.point}" in text
    assert norm() == pytest.approx(last.norm, rel=1e-5)
    found = json.loads(invoke("pareto", "pick", front, "--limit", f"squared-norm={middle}", "--json"))
    assert found["loss"] == min(p.loss for p in record.points if p.criteria["squared_norm"] <= middle)
    assert norm() == pytest.approx(found["norm"], rel=1e-5)
    assert found["norm"] > last.norm
    assert json.loads(invoke("pareto", "pick", front, "--knee", "--json"))["point"] == record.knee
    assert read_front(front).picked_by == "knee"
    assert "by knee" in (front / "report.html").read_text()
    assert json.loads(invoke("pareto", "pick", front, "--best-validation", "--json"))["point"] == record.best_validation
    np.savez(tmp_path / "new.npz", x=np.ones((2, 3), np.float32), y=np.array([0, 1]))
    assert json.loads(invoke("personalize", front, "--data", tmp_path / "new.npz", "--json"))["samples"] == 2


def test_within_bounds_the_least_is_of_the_loss_that_points_are_judged_by():
    point = lambda number, **about: PointRecord.model_construct(point=number, judged_by="worst loss", **about)
    points = [
        point(0, loss=0.1, worst_loss=0.9, norm=1.0, criteria={}, dominated=False),
        point(1, loss=0.2, worst_loss=0.5, norm=1.0, criteria={}, dominated=False),
    ]
    record = FrontRecord.model_construct(points=points, criteria=[])
    assert choose_point(record, max_norm=2.0) == (1, "norm ≤ 2")


def leaves(deployment) -> list:
    return jax.tree.leaves(deployment.server.value)


def test_what_a_regulator_would_want_to_know_is_said(front):
    record = json.loads((front / "front.json").read_text())
    zero = next(p["point"] for p in record["points"] if p["lambda"] == 0)
    for place, point in enumerate(record["points"]):
        point |= {"decision_gaps": {"demographic_parity": 0.25 + place / 100}, "centralized_gap": 0.5}
    alter(front / "front.json", **(record | {"picked": zero}))
    text = " ".join(invoke("pareto", "show", front).split())
    assert "decisions" in text
    for words in ("25.0 %", "29.0 %", "up to 50 % above the least F", "at λ = 0 the criteria do not count"):
        assert words in text
    cells = columns(read_front(front))
    assert cells["Demographic parity of decisions"][4] == "29.0 %"
    assert cells["F/F* − 1"][0] == "5.0e-01"
    alter(front / "front.json", picked=zero + 1)
    assert "do not count" not in invoke("pareto", "show", front)


def test_choices_that_cannot_be_made(front):
    assert "choose in one way" in refused("pareto", "pick", front, "--knee", "--max-norm", "1")
    assert "say which point" in refused("pareto", "pick", front)
    assert "the least values on it are: norm" in refused("pareto", "pick", front, "--max-norm", "1e-6")
    assert "did you mean 'squared_norm'" in refused("pareto", "pick", front, "--limit", "squared-nrm=1")
    assert "criterion=value" in refused("pareto", "pick", front, "--limit", "squared-norm")
    assert "from 0 to 4" in refused("pareto", "pick", front, "--point", "5")
    assert "--max-norm must be a number" in refused("pareto", "pick", front, "--max-norm", "nan")


def test_damaged_and_foreign_folders(front, tmp_path):
    def altered(change) -> str:
        content = json.loads(whole)
        del content["check"]
        change(content)
        (front / "front.json").write_text(json.dumps(content))
        return refused("pareto", "show", front)

    whole = (front / "front.json").read_text()
    points = [point | {"accuracy": 0.5} for point in json.loads(whole)["points"]]
    (front / "front.json").write_text(json.dumps(json.loads(whole) | {"points": points}))
    assert "front.json was altered" in refused("pareto", "show", front)
    assert "front.json was altered" in refused("pareto", "pick", front, "--knee")
    assert "there is no point 9" in altered(lambda c: c.update(knee=9))
    assert "points.1.norm" in altered(lambda c: c["points"][1].update(norm="large"))
    assert "not numbered" in altered(lambda c: c["points"].pop(0))
    assert "reads format 2" in altered(lambda c: c.update(format=3))
    assert "config.toml again" in altered(lambda c: c.update(format=1))
    assert "different losses" in altered(lambda c: c["points"][1].update(judged_by="worst loss"))
    assert "not written by Majorant" in altered(lambda c: c.pop("points"))
    (front / "front.json").write_text(whole[: len(whole) // 2])
    assert "is cut short or altered" in refused("pareto", "pick", front, "--knee")

    (front / "front.json").write_text(whole)
    shutil.rmtree(front / "models" / "point-001")
    shutil.copytree(front / "models" / "point-002", front / "models" / "point-001")
    assert "another point" in refused("pareto", "pick", front, "--point", "1")
    arrays = front / "models" / "point-003" / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"!")
    assert "checksum" in refused("pareto", "pick", front, "--point", "3")
    assert "not the folder of a finished front" in refused("pareto", "pick", tmp_path, "--knee")
    assert "there is no folder" in refused("pareto", "pick", tmp_path / "none", "--knee")
    (tmp_path / "summary.json").write_text("{}")
    assert "the folder of a run" in refused("pareto", "pick", tmp_path, "--knee")


BAD = {
    "--criterion squared-norm --weights 0,1": "less than 1, got 1",
    "--criterion squared-norm --weights=-0.1,0.5": "at least 0",
    "--criterion squared-norm --weights 0,nan": "numbers between commas",
    "--criterion squared-norm --weights 0;0.5": "numbers between commas",
    "--criterion squared-norm --weights 0.5,0.5": "at least two different",
    "--criterion squared-norm --weights 0,0.5 --points 3": "not both",
    "--weights 0,0.5": "give at least one --criterion",
    "--criterion squared-nom": "did you mean 'squared-norm'?",
    "--criterion l1:scale=2": "unknown option 'scale'",
    "--criterion l1:-1": "factor must be",
    "--criterion l1 --criterion group-lasso": "is not made of theirs",
    "--criterion l1 --step explicit": "not differentiable",
    "--criterion squared-norm --criterion l1 --criteria-weights 0.5,0.6": "sum to 1",
    "--criterion squared-norm --criteria-weights 0.5,0.5": "1 criteria but 2",
    "--criterion squared-norm --criteria-weights a": "numbers between commas",
    "--criterion squared-norm --choose best": "choose",
    "--criterion l1 --momentum 0.9": "--momentum 0",
    "--criterion distance": "needs run",
    "--criterion distance:run=nowhere": "not a run folder",
    "--criterion public-loss:file=nothing.npz": "there is no file",
    "--criterion public-loss:file=some.csv": "as an .npz file",
    "--criterion squared-norm --data synthetic:clients=4,variant=released --choose validation": "no validation samples",
    "--criterion squared-norm --model lineer": "did you mean 'linear'?",
    "--criterion squared-norm --ramp 1": "less than 1",
    "--criterion squared-norm --scalarization max": "scalarization",
    "--criterion squared-norm --scalarization chebyshev --step implicit": "step does not go with --scalarization cheb",
    "--criterion squared-norm --memory 0.5": "memory does not go with --scalarization weighted-sum",
    "--criterion squared-norm --scalarization chebyshev --optimizer adam": "give criteria_lr",
    "--criterion l1 --criterion group-lasso --scalarization chebyshev": "is not made of theirs",
    "--criterion squared-norm --scalarization chebyshev --centralized": "solves weighted sums",
    "--criterion squared-norm --model mlp --centralized": "not known to be convex",
}


@pytest.mark.parametrize("flags", list(BAD))
def test_bad_input_is_refused_before_anything_is_trained(flags, tmp_path, monkeypatch):
    monkeypatch.setattr("majorant.tradeoffs.sweep.simulate", lambda *a, **k: pytest.fail("training began"))
    assert BAD[flags] in refused("pareto", "--data", DATA, *flags.split(), "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_in_use_is_kept(made):
    before = (made / "front.json").read_bytes()
    assert "is not empty" in refused("pareto", "--data", DATA, "--criterion", "squared-norm", *SMALL, "--out", made)
    assert (made / "front.json").read_bytes() == before


def test_a_file_and_flags_describe_a_front_together(made):
    text = invoke("pareto", "--config", made / "config.toml", "--weights", "0,0.25", "--dry-run")
    found = tomllib.loads(text)
    assert (found["weights"], found["criteria"]) == ([0.0, 0.25], ["squared-norm"])
    assert found["local"]["momentum"] == 0  # not the default of runs: criteria are met by plain steps
    text = invoke("pareto", "--config", made / "config.toml", "--points", "3", "--dry-run")
    assert tomllib.loads(text)["points"] == 3
    assert "weights" not in tomllib.loads(text)  # a flag is instead of what the file has
    again = made.parent / "again.toml"
    again.write_text(text)
    text = invoke("pareto", "--config", again, "--weights", "0,0.3", "--dry-run")
    assert tomllib.loads(text)["weights"] == [0.0, 0.3]


def test_runs_and_fronts_are_told_apart(made, tmp_path):
    assert "majorant pareto" in refused("run", "--config", made / "config.toml")
    assert "majorant pareto" in refused("run", "--resume", made)
    assert "report of its own" in refused("report", made, made)
    invoke("report", made, "--out", tmp_path / "page.html")
    assert "Deployed is point" in (tmp_path / "page.html").read_text()
    (found,) = find_runs(made.parent)
    record = read_front(made)
    assert (found.folder, found.state, found.method) == (str(made), "finished", f"pareto, {len(record.points)} points")
    assert (found.data, found.rounds, found.mean) == (record.dataset, 60, record.points[record.picked].accuracy)
    (tmp_path / "run.toml").write_text('algorithm = "fedavg"')
    assert "leave algorithm out" in refused("pareto", "--config", tmp_path / "run.toml", "--criterion", "l1")


def test_an_interrupted_front_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*args, **kwargs) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("majorant.tradeoffs.front.pareto_front", interrupted)
    flags = ["--data", DATA, "--criterion", "l1", "--out", tmp_path / "front"]
    assert "nothing of the front is kept" in invoke("pareto", *flags, code=130)
    assert not (tmp_path / "front").exists()


def test_criteria_refer_to_files_and_saved_models(made, tmp_path):
    from majorant.app.catalogue import criteria, datasets, models
    from majorant.app.named_criteria import Setting

    data = datasets.make(DATA)
    model = models.make("auto", data)
    setting = Setting(model, data.spec.features, data.classes)
    reference = load_deployment(made)[0].server.value
    near = criteria.make(f"distance:run={made},factor=3", setting)
    assert near.value(reference) == 0
    size = sum(leaf.size for leaf in jax.tree.leaves(reference))
    assert near.value(jax.tree.map(lambda a: a + 1, reference)) == pytest.approx(3 / 2 * size)
    x, y, group = data.test.x[:40], data.test.y[:40], np.arange(40) % 2
    np.savez(tmp_path / "public.npz", x=x, y=y, sex=group)
    public = criteria.make(f"public-loss:file={tmp_path / 'public.npz'}", setting).value(reference)
    assert public == pytest.approx(float(model.losses(reference, x, y).mean()))
    parity = criteria.make(f"demographic-parity:file={tmp_path / 'public.npz'},group=sex", setting).value(reference)
    p = np.asarray(model.predict(reference, x))[:, 1]
    assert parity == pytest.approx((p[group == 0].mean() - p[group == 1].mean()) ** 2, abs=1e-7)
    named, text = setting._replace(classes=("no", "yes")), f"demographic-parity:file={tmp_path / 'public.npz'},group="
    assert criteria.make(f"{text}sex,label=yes", named).value(reference) == parity
    with pytest.raises(ValueError, match=r"'no' \(0\), 'yes' \(1\); got 'maybe'"):
        criteria.make(f"{text}sex,label=maybe", named)
    np.savez(tmp_path / "public.npz", x=x, y=y, sex=group, age=np.arange(40))
    with pytest.warns(UserWarning, match="'age' makes 40 groups, the smallest of 1"):
        criteria.make(f"{text}age", named)
    with pytest.raises(ValueError, match="no array 'group'"):
        criteria.make(f"equalized-odds:file={tmp_path / 'public.npz'}", setting)
    for content in (b"no archive", b"PK\x03\x04"):
        (tmp_path / "broken.npz").write_bytes(content)
        with pytest.raises(ValueError, match="not a readable"):
            criteria.make(f"public-loss:file={tmp_path / 'broken.npz'}", setting)
    with (tmp_path / "broken.npz").open("wb") as file:
        np.save(file, x)
    with pytest.raises(ValueError, match="one array"):
        criteria.make(f"public-loss:file={tmp_path / 'broken.npz'}", setting)
    wider = Setting(models.make("mlp", data), data.spec.features, data.classes)
    with pytest.raises(ValueError, match="other parameters"):
        criteria.make(f"distance:run={made}", wider)


def test_public_samples_in_a_table_are_read_as_training_read_its_own(tmp_path):
    """Rows and groups of a file stay together, whatever the order of its columns, and labels are those of training."""
    from majorant.app.catalogue import criteria, models
    from majorant.app.named_criteria import Setting
    from majorant.data import encode_table, from_table

    write_visits(tmp_path / "visits.csv", range(3))
    data, encoding = from_table(tmp_path / "visits.csv", client_column="hospital", label_column="outcome")
    setting = Setting(models.make("auto", data), data.spec.features, data.classes, encoding)
    params = setting.model.init(jax.random.key(1))
    rows = list(csv.DictReader(write_visits(tmp_path / "public.csv", range(7, 9), seed=1).read_text().splitlines()))
    for i, row in enumerate(rows):
        row["sex"] = "fm"[i % 3 % 2]
    with (tmp_path / "public.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["outcome", "sex", "ward", "dose", "age"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    x, labels = encode_table(tmp_path / "public.csv", encoding)
    assert labels.tolist() == [row["outcome"] for row in rows]
    np.savez(tmp_path / "public.npz", x=x, y=labels, sex=np.array([row["sex"] for row in rows]))
    for name in ("public-loss:", "demographic-parity:group=sex,label=sick,", "equalized-odds:group=sex,label=sick,"):
        found = (criteria.make(f"{name}file={tmp_path / 'public'}{end}", setting) for end in (".csv", ".npz"))
        table, arrays = (float(each.value(params)) for each in found)
        assert 0 < table == pytest.approx(arrays, rel=1e-6)
    with pytest.raises(ValueError, match="no column 'gender'"):
        criteria.make(f"demographic-parity:file={tmp_path / 'public.csv'},group=gender", setting)


def test_several_weights_of_the_criteria_make_one_front(tmp_path, monkeypatch):
    """The sweep is made up: a point of the second weights dominates one of the first; λ = 0 is a point of both."""

    def sweep(model, data, criteria, *, weights, criteria_weights, on_progress, **options) -> Front:
        assert criteria_weights == [(0.5, 0.5), (0.2, 0.8)]
        params = model.init(jax.random.key(0))
        values = [(0.5, 3.0, 3.0), (2.5, 1.5, 1.5), (2.0, 1.0, 1.0)]
        places = [(criteria_weights[0], weights[0]), *((v, weights[1]) for v in criteria_weights)]
        scores = {"accuracy": 0.5, "macro_f1": 0.5, "certificate": 0.1, "norm": 1.0, "params": params}
        points = [
            Point(
                weight=weight,
                loss=a,
                worst_loss=9.0,
                criteria={"squared_norm": b, "l1": c},
                criteria_weights=v,
                **scores,
            )
            for (v, weight), (a, b, c) in zip(places, values, strict=True)
        ]
        on_progress(0, 1)
        return Front(model, (points[0], points[2]), (points[1],))

    monkeypatch.setattr("majorant.tradeoffs.front.pareto_front", sweep)
    flags = ["--criterion", "squared-norm", "--criterion", "l1", "--weights", "0,0.2"]
    each = ["--criteria-weights", "0.5,0.5", "--criteria-weights", "0.2,0.8"]
    text = invoke("pareto", "--data", DATA, *flags, *each, *SMALL, "--out", tmp_path / "front")
    record = read_front(tmp_path / "front")
    assert "spread –" in text  # two points
    assert [point.dominated for point in record.points] == [False, True, False]
    assert record.preferences == [(0.5, 0.5), (0.2, 0.8)]
    assert [point.point for point in record.path((0.2, 0.8))] == [0, 2]
    assert "0.2 0.8" in text
    svg = render(draw_front(record)["front"], "svg", text=True).decode()
    assert "with its number" in svg  # points go by their numbers, as a λ stands for several of them


def test_a_front_by_the_worst_agents_loss(tmp_path):
    flags = ["--criterion", "l1", "--scalarization", "chebyshev", "--weights", "0,0.3", "--epochs", "1"]
    text = invoke("pareto", "--data", DATA, *flags, "--rounds", "30", "--lr", "0.3", "--out", tmp_path / "front")
    assert "worst" in text
    record = read_front(tmp_path / "front")
    assert record.names == ["worst loss", "l1"]
    for point in record.points:
        assert point.values[0] == point.worst_loss > point.loss
    assert record.points[0].worst_loss < record.points[1].worst_loss
    assert record.points[0].criteria["l1"] > record.points[1].criteria["l1"]
    page = (tmp_path / "front" / "report.html").read_text()
    for words in ("by the worst agent&#x27;s training loss", "Worst loss", "Mean loss"):
        assert words in page
    assert "worst loss" in invoke("pareto", "pick", tmp_path / "front", "--point", "1")


def test_the_page_lets_a_person_choose(made):
    page, record = (made / "report.html").read_text(), read_front(made)
    for point in record.points:
        assert f"<td>{point.loss:.4g}</td>" in page
        assert f"<title>point {point.point}" in page
    assert f"majorant pareto pick {made} --point N" in page
    assert {path.name for path in (made / "figures").iterdir()} == {"front.svg", "path.svg"}
