"""The command line as a person uses it: a run on a file of one's own, what follows from it, and bad input."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest

from commands import COLUMNS, SETTINGS, alter, invoke, read, refused, timeless, write_visits


def test_a_run_folder_keeps_the_contract(place):
    run = place / "run"
    summary = json.loads((run / "summary.json").read_text())
    for key in ("algorithm", "dataset", "seed", "rounds", "clients", "seconds", "communication", "unseen_accuracy"):
        assert key in summary
    assert set(summary["test_accuracy"]) >= {"mean", "bottom_decile", "std"}
    assert set(summary["seconds"]) == {"compile", "train", "evaluate"}
    assert summary["communication"]["rounds"] == 60
    # 6 clients train: 2 components × (4 features + bias), a weight and a loss, of 4 bytes each, in each of 60 rounds
    assert summary["communication"]["bytes_up"] == 60 * 6 * (2 * 5 + 2) * 4
    assert summary["test_accuracy"]["mean"] > 0.8  # a single linear model cannot: its clients contradict each other
    assert summary["unseen_accuracy"]["mean"] > 0.8
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [15, 30, 45, 60]
    clients = read(run / "clients.csv")
    assert len(clients) == 8
    assert sum(int(c["unseen"]) for c in clients) == 2
    assert float(clients[0]["pi_1"]) + float(clients[0]["pi_2"]) == pytest.approx(1, abs=1e-5)
    assert (run / "report.html").stat().st_size > 10_000
    assert list((run / "figures").glob("*.svg"))


def test_a_finished_run_personalizes_a_new_client(place, tmp_path):
    new = write_visits(tmp_path / "new.csv", range(9, 10), seed=1)  # odd: of the first kind
    later = write_visits(tmp_path / "later.csv", range(9, 10), seed=2, labels=False)
    result = json.loads(
        invoke("personalize", place / "run", "--data", new, "--predict", later, "--out", tmp_path / "p.csv", "--json")
    )
    assert sum(result["mixture_weights"]) == pytest.approx(1, abs=1e-3)
    assert max(result["mixture_weights"]) > 0.9
    predicted = [row["prediction"] for row in read(tmp_path / "p.csv")]
    rows = read(later)
    truth = ["sick" if (float(r["age"]) - 50) / 20 + float(r["dose"]) - 3 > 0 else "well" for r in rows]
    assert np.mean([p == t for p, t in zip(predicted, truth, strict=True)]) > 0.8


def test_an_empty_table_still_gives_a_model(place, tmp_path):
    empty = tmp_path / "empty.csv"
    empty.write_text("hospital,age,dose,ward,outcome\n")
    text = invoke("personalize", place / "run", "--data", empty, "--json")
    assert json.loads(text)["mixture_weights"] == [0.5, 0.5]


def test_report_is_written_again_for_finished_runs(place, tmp_path):
    assert "page.html" in invoke("report", place / "run", "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000
    invoke("report", place / "run", place / "run", "--out", tmp_path / "both.html")
    assert "fedem and fedem (2) on" in (tmp_path / "both.html").read_text()  # told apart
    assert "is not a run folder" in refused("report", tmp_path / "nothing")


def test_compare_runs_methods_on_the_same_data(tmp_path):
    data = "synthetic:clients=6,dimension=4"
    text = invoke(
        "compare", "fedavg", "local:lr=0.05", "--data", data, *SETTINGS, "--seeds", "2", "--out", tmp_path / "c"
    )
    assert "±" in text
    assert "local:lr=0.05" in text
    first, second = (json.loads((tmp_path / "c" / n / "summary.json").read_text()) for n in ("fedavg", "local-lr-0-05"))
    assert first["communication"]["bytes_up"] > 0 == second["communication"]["bytes_up"]
    assert first["test_accuracy"]["std_over_runs"] >= 0
    assert "lr = 0.05" in (tmp_path / "c" / "local-lr-0-05" / "config.toml").read_text()
    assert (tmp_path / "c" / "report.html").exists()
    assert "name one of them" in refused("personalize", tmp_path / "c", "--data", "x.npz")


def test_a_model_for_the_worst_client_is_deployed_to_a_newcomer(place, tmp_path):
    """The server of AFL keeps numbers of every client, unseen ones included; q-FFL and FedMGDA+ run beside it."""
    methods = ["afl:mirror_rate=1", "q-ffl:q=2", "fedmgda+"]
    invoke("compare", *methods, "--data", place / "visits.csv", *COLUMNS, *SETTINGS, "--out", tmp_path / "fair")
    newcomer = write_visits(tmp_path / "new.csv", range(8, 9))
    text = invoke("personalize", tmp_path / "fair" / "afl-mirror_rate-1", "--data", newcomer, "--folds", "0")
    assert "a personal model" in text


def test_dry_run_shows_what_a_file_and_flags_make_together(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text('algorithm = "fedem"\nrounds = 7\n[local]\nlr = 0.5\n')
    text = invoke("run", "--config", study, "--rounds", "9", "--dry-run")
    assert "rounds = 9" in text
    assert "lr = 0.5" in text
    assert not (tmp_path / "runs").exists()


def test_past_runs_fit_a_narrow_screen(place, tmp_path, monkeypatch):
    """A run with long names, in a folder with a long name: rows of at most 80 letters, the whole path, the numbers."""
    long = tmp_path / "runs" / f"20260102-030405-{'x' * 60}"
    shutil.copytree(place / "run", long)
    summary = json.loads((long / "summary.json").read_text())
    alter(long / "summary.json", dataset="d" * 50, algorithm="a" * 50)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke("runs").splitlines()
    assert max(map(len, lines)) <= 80
    for number in (60, f"{100 * summary['test_accuracy']['mean']:.1f} %"):
        assert str(number) in lines[1]
    assert "".join(line.strip() for line in lines[2:]) == str(long.relative_to(tmp_path))
    (found,) = json.loads(invoke("runs", "--json"))
    assert found["mean"] == summary["test_accuracy"]["mean"]
    assert found["bottom_decile"] == summary["test_accuracy"]["bottom_decile"]
    assert found["bytes"] == summary["communication"]["bytes_up"] + summary["communication"]["bytes_down"]


def test_lists_name_everything():
    assert "fedem" in invoke("list", "algorithms")
    assert "fedem/table2-synthetic" in invoke("list", "experiments")
    assert "there is no list of 'nonsense'" in refused("list", "nonsense")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedem/j4-clusters", "clusters recovered"),
        ("unified/personalization", "traditional"),
    ],
)
def test_quick_experiments_run(name, words, tmp_path):
    text = invoke("reproduce", name, "--quick", "--seeds", "1", "--out", tmp_path / "e")
    assert words in text
    assert "its numbers are NOT comparable" in " ".join(text.split())
    assert json.loads((tmp_path / "e" / "results.json").read_text())["quick"] is True
    assert "did you mean" in refused("reproduce", "fedem/table2", "--out", tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_peers_learn_without_a_server(place, tmp_path):
    """A run on a ring: what is told, logged and drawn, and a client that joins its saved models later."""
    flags = ["--topology", "ring", "--diagnostics", "--rounds", "60", "--lr", "0.5", "--evaluate-every", "30"]
    run = tmp_path / "run"
    text = invoke("run", "fedem:components=2", "--data", place / "visits.csv", *COLUMNS, *flags, "--out", run)
    assert "network: 6 nodes, 6 links, spectral gap 0.333" in " ".join(text.split())
    summary = json.loads((run / "summary.json").read_text())
    assert summary["algorithm"] == "d-fedem"
    assert summary["network"]["nodes"] == 6
    assert summary["communication"]["bytes_per_link"] == 2 * 5 * 4
    assert summary["communication"]["bytes_up"] == 60 * 12 * 2 * 5 * 4
    assert summary["unseen_accuracy"]["mean"] > 0.8
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    for name in ("consensus_distance", "gradient_squared", "v_gain", "v_distance", "objective"):
        assert last[name] >= 0
    assert 0 <= last["alpha"] < 1
    page = (run / "report.html").read_text()
    assert 'id="network"' in page
    assert 'id="rates"' in page
    new = write_visits(tmp_path / "new.csv", range(9, 10), seed=1)
    weights = json.loads(invoke("personalize", run, "--data", new, "--folds", "0", "--json"))["mixture_weights"]
    assert max(weights) > 0.8


def test_personalized_objectives_are_solved_to_a_bound_and_deployed(place, tmp_path):
    """Two solvers in double precision, measured against the minimum: one stops at the bound, the other does not."""
    columns = ["--client-column", "hospital", "--label-column", "outcome"]
    flags = ["--objective", "mixture:lambda=0.01,l2=0.01", "--precision", "double", "--until", "suboptimality<1e-9"]
    out = ["--rounds", "80", "--evaluate-every", "5", "--out", tmp_path / "c"]
    text = invoke("compare", "acd", "lsgd", "--data", place / "visits.csv", *columns, *flags, *out)
    for words in ("F − F*", "gradient norm", "in β", "stopped early by --until", "minimum F* is 0."):
        assert words in text
    acd, lsgd = (json.loads((tmp_path / "c" / n / "summary.json").read_text()) for n in ("acd", "lsgd"))
    assert acd["test_accuracy"]["mean"] > 0.8  # personal models: a shared one cannot
    assert acd["stopped"] == "suboptimality < 1e-09"
    assert acd["rounds"] == acd["communication"]["rounds"] < lsgd["rounds"] == 80
    assert lsgd["stopped"] is None
    assert 0 <= acd["suboptimality"] < 1e-9 < lsgd["suboptimality"]
    assert acd["objective"] == pytest.approx(acd["optimum"] + acd["suboptimality"], abs=1e-14)
    assert acd["gradients"]["beta"] > acd["gradients"]["w"] > 0
    assert acd["communication"]["bytes_up"] == acd["rounds"] * 8 * 6 * 8  # 8 clients, 5 numbers and a weight of 8 bytes
    lines = [json.loads(line) for line in (tmp_path / "c" / "acd" / "metrics.jsonl").read_text().splitlines()]
    assert [line["suboptimality"] < 1e-9 for line in lines] == [False] * (len(lines) - 1) + [True]
    page = (tmp_path / "c" / "report.html").read_text()
    assert 'id="objective"' in page
    assert 'id="rates"' not in page
    new = write_visits(tmp_path / "new.csv", range(9, 10), seed=1)
    said = json.loads(invoke("personalize", tmp_path / "c" / "acd", "--data", new, "--folds", "0", "--json"))
    assert "accuracy" in said["fit"]
    assert "stopped by suboptimality < 1e-09" in invoke("run", "--resume", tmp_path / "c" / "acd")
    again = json.loads((tmp_path / "c" / "acd" / "summary.json").read_text())
    assert timeless(again) == timeless(acd)


TABLE = ["--data", "{table}", "--client-column", "hospital"]
SMALL = ["--data", "synthetic:clients=5,dimension=2"]
BAD = {
    "an unknown method": (["fedemm"], "did you mean 'fedem'"),
    "an unknown option": (["fedem:component=3"], "components"),
    "an unknown data set": (["fedem", "--data", "syntetic"], "did you mean 'synthetic'"),
    "an unknown model": (["fedem", "--model", "linaer"], "did you mean 'linear'"),
    "no method at all": ([], "name an algorithm"),
    "a negative learning rate": (["fedem", "--lr", "-1"], "lr must be"),
    "an infinite learning rate": (["fedem", "--lr", "inf"], "lr must be"),
    "zero clients": (["fedem", "--data", "synthetic:clients=0"], "clients"),
    "zero rounds": (["fedem", "--rounds", "0"], "rounds"),
    "zero components": (["fedem:components=0", "--data", "synthetic:clients=3,dimension=2"], "components must be"),
    "more components than sense": (["fedem:components=9999", "--data", "synthetic:clients=3,dimension=2"], "use fewer"),
    "both epochs and steps": (["fedem", "--epochs", "1", "--steps", "2"], "not both"),
    "a share that is none": (["fedem", "--participation", "uniform:1.5"], "(0, 1]"),
    "everybody unseen": (["fedem", "--unseen", "1"], "unseen"),
    "a missing file": (["fedem", "--data", "no.csv", "--client-column", "a", "--label-column", "b"], "no.csv"),
    "a table without columns named": (["fedem", "--data", "no.csv"], "--client-column"),
    "columns without a table": (["fedem", "--label-column", "b"], "goes with a CSV or Parquet file"),
    "a model for images": (["fedem", "--model", "cnn", "--data", "synthetic:clients=3"], "image"),
    "a method that needs everyone": (["clustered", "--participation", "uniform:0.5"], "every client"),
    "an unknown network": (["fedem", "--topology", "rin"], "did you mean 'ring'"),
    "a network that falls apart": (["fedem", *SMALL, "--topology", "erdos-renyi:0.01"], "is not connected"),
    "links of unknown nodes": (["fedem", *SMALL, "--topology", "edges:{table}.links"], "7"),
    "links that are not there": (["fedem", *SMALL, "--topology", "edges:no.csv"], "no.csv"),
    "a torus of a prime number": (["fedem", *SMALL, "--topology", "torus"], "torus"),
    "weights that do not exist": (["fedem", *SMALL, "--topology", "ring:weights=best"], "metropolis"),
    "clusters without a server": (["clustered", *SMALL, "--topology", "ring"], "cannot run without a server"),
    "nobody to talk to": (["local", *SMALL, "--topology", "ring"], "cannot run without a server"),
    "one-sided links": (["fedem", *SMALL, "--topology", "one-peer-exponential:link_failure=0.1"], "symmetric"),
    "a scaling": (["fedem", *SMALL, "--topology", "ring", "--scaling", "sise"], "scaling must be"),
    "a solver for other models": (["fedem", *SMALL, "--optimizer", "least-squares"], "squared loss"),
    "steps of a solver in one piece": (["apfl", *SMALL, "--optimizer", "newton"], "local_sgd or local_optax"),
    "a solver's option": (["fedem", *SMALL, "--optimizer", "newton:step=3"], "steps"),
    "a solver without an objective": (["asvrcd", *SMALL], "give --objective"),
    "an objective for others": (["fedem", *SMALL, "--objective", "mixture"], "objective goes with"),
    "an unknown objective": (["acd", *SMALL, "--objective", "mixtur"], "did you mean 'mixture'"),
    "a negative lambda": (["acd", *SMALL, "--objective", "mixture:lambda=-1"], "lambda"),
    "a blend that is none": (["acd", *SMALL, "--objective", "apfl2:alpha=1"], "alpha"),
    "a split of everything": (["lsgd", *SMALL, "--objective", "weight-sharing:shared=0+1+bias"], "shared"),
    "an objective without a step": (["lsgd", *SMALL, "--objective", "maml"], "lr"),
    "a bound without a number": (["fedem", *SMALL, "--until", "test_accuracy >"], "as in 'gradient_norm < 1e-6'"),
    "a bound on nothing": (["fedem", *SMALL, "--until", "gradnorm<1"], "did you mean 'gradient_norm'"),
    "a distance from no minimum": (["fedem", *SMALL, "--until", "suboptimality<1"], "needs the minimum"),
    "an unknown precision": (["fedem", *SMALL, "--precision", "half"], "one of 'single', 'double'"),
    "an objective that is not convex": (["acd", *SMALL, "--objective", "maml"], "use lsgd with a step size"),
    "another objective than L2SGD+'s": (["l2sgd+", *SMALL, "--objective", "multi-task"], "minimises the mixture"),
    "a figure format": (["fedem", "--figures", "gif"], "pdf, png or svg"),
    "regression for MOCHA": (["mocha", *TABLE, "--label-column", "dose"], "classification"),
    "a missing column": (["fedem", *TABLE, "--label-column", "outcom"], "outcome"),
    "labels that are no numbers": (["fedem", *TABLE, "--label-column", "outcome", "--task", "regression"], "numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_a_run_exists(case, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, complaint = BAD[case]
    arguments = [a.format(table=place / "visits.csv") for a in arguments]
    assert complaint in refused("run", *arguments)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("column", "value"), [("age", "inf"), ("age", "4O"), ("outcome", "nan"), ("hospital", "")])
def test_holes_in_a_table_are_named(column, value, place, tmp_path):
    lines = (place / "visits.csv").read_text().splitlines()
    cells = lines[5].split(",")
    cells[lines[0].split(",").index(column)] = value
    table = tmp_path / "holes.csv"
    table.write_text("\n".join([*lines[:5], ",".join(cells), *lines[6:]]) + "\n")
    out = tmp_path / "out"
    assert column in refused(
        "run", "fedem", "--data", table, "--client-column", "hospital", "--label-column", "outcome", "--out", out
    )
    assert not out.exists()


def test_a_client_too_small_to_split_is_named(place, tmp_path):
    table = tmp_path / "small.csv"
    table.write_text((place / "visits.csv").read_text() + "tiny,50,3,a,sick\n")
    text = refused("run", "fedem", "--data", table, "--client-column", "hospital", "--label-column", "outcome")
    assert "'tiny' has 1 sample," in text


def test_an_unwritable_place_is_refused(place, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    data = ["--data", "synthetic:clients=3,dimension=2"]
    text = refused("run", "fedavg", *data, "--rounds", "1", "--out", blocker / "run")
    assert str(blocker) in text
    assert "is not empty" in refused("run", "fedavg", *data, "--rounds", "1", "--out", place / "run")


def test_a_full_disk_leaves_no_half_written_run(tmp_path, monkeypatch):
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    data = ["--data", "synthetic:clients=3,dimension=2"]
    text = refused("run", "fedavg", *data, "--rounds", "2", "--out", tmp_path / "run")
    assert "space" in text or "full" in text
    assert not (tmp_path / "run").exists()


def test_divergence_stops_with_advice(tmp_path):
    table = write_visits(tmp_path / "v.csv", range(3))
    columns = ["--client-column", "hospital", "--label-column", "dose", "--task", "regression"]
    text = refused(
        "run", "fedavg", "--data", table, *columns, "--lr", "1e38", "--rounds", "20", "--out", tmp_path / "d"
    )
    assert "Lower the learning rate" in text
    assert not (tmp_path / "d").exists()
