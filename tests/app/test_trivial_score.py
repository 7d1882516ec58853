"""A run tells what a model without features would have scored: scikit-learn's dummies say the same."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from tests.commands import invoke

from majorant.app.config import make_config
from majorant.app.execute import run_in_folder
from majorant.app.report import html
from majorant.app.report.record import load_run


def table(folder: Path, seed: int = 0) -> tuple[Path, dict[str, np.ndarray]]:
    """Clinics of several sizes, a rare class, targets in thousands, and who is in which part."""
    rng = np.random.default_rng(seed)
    clinic = np.repeat(["north", "south", "east"], [90, 40, 30])
    rows = len(clinic)
    ill = rng.random(rows) < np.where(clinic == "south", 0.7, 0.1)
    about = {
        "clinic": clinic,
        "age": rng.normal(50, 9, rows).round(3),
        "ill": np.where(ill, "yes", "no"),
        "cost": (4000 + 2500 * (clinic == "east") + rng.normal(0, 600, rows)).round(2),
        "part": rng.choice(["train", "validation", "test"], rows, p=[0.5, 0.2, 0.3]),
    }
    lines = [",".join(about), *(",".join(map(str, row)) for row in zip(*about.values(), strict=True))]
    path = folder / "clinics.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, about


def told(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    run_in_folder(make_config({"algorithm": "fedavg", "rounds": 1, **settings}), folder)
    return json.loads((folder / "summary.json").read_text())


def of_dummies(about: dict[str, np.ndarray], label: str) -> np.ndarray:
    """What a dummy of each clinic, which has seen its training rows, predicts for its rows."""
    train, y = about["part"] == "train", about[label]
    predicted = np.zeros(len(y), y.dtype)
    dummy = DummyClassifier(strategy="most_frequent") if label == "ill" else DummyRegressor()
    for clinic in np.unique(about["clinic"]):
        here = about["clinic"] == clinic
        predicted[here] = dummy.fit(about["age"][here & train, None], y[here & train]).predict(about["age"][here, None])
    return predicted


@pytest.mark.parametrize("label", ["ill", "cost"])
def test_the_trivial_score_is_that_of_a_dummy_for_each_client(tmp_path: Path, label: str) -> None:
    path, about = table(tmp_path)
    own = {"data": str(path), "client_column": "clinic", "split_column": "part", "label_column": label}
    trivial = told(own, tmp_path / "run")["trivial"]
    test, y, predicted = about["part"] == "test", about[label], of_dummies(about, label)
    right = (predicted == y)[test].mean() if label == "ill" else np.sqrt(((predicted - y)[test] ** 2).mean())
    assert trivial["score"] == pytest.approx(right, rel=1e-5)
    page = html.page([load_run(tmp_path / "run")])
    words = f"The trivial model (each client&#x27;s majority class) has {100 * right:.1f} %."
    assert (words if label == "ill" else "mean training target) has") in page
    assert f'scope="row">{trivial["name"]}' in page


def test_the_terminal_tells_it(tmp_path: Path) -> None:
    path, _ = table(tmp_path)
    flags = ["--client-column", "clinic", "--label-column", "ill", "--split-column", "part", "--drop", "cost"]
    output = invoke("run", "fedavg", "--data", path, *flags, "--rounds", "1", "--out", tmp_path / "run")
    share = json.loads((tmp_path / "run" / "summary.json").read_text())["trivial"]["score"]
    assert f"trivial model    {100 * share:.1f} % (each client's majority class)" in output


def test_unseen_clients_do_not_count_and_hostile_ones_have_no_trivial_score(tmp_path: Path) -> None:
    path, about = table(tmp_path)
    own = {"data": str(path), "client_column": "clinic", "label_column": "ill", "unseen": 0.34, "split_column": "part"}
    score = told(own, tmp_path / "unseen")["trivial"]["score"]
    with (tmp_path / "unseen" / "clients.csv").open(newline="") as file:
        clients = list(csv.DictReader(file))
    seen = [client["name"] for client in clients if client["unseen"] == "0"]
    assert len(seen) == len(clients) - 1
    rows = (about["part"] == "test") & np.isin(about["clinic"], seen)
    assert score == pytest.approx((of_dummies(about, "ill") == about["ill"])[rows].mean())
    attacked = {"data": str(path), "client_column": "clinic", "label_column": "ill", "attack": "sign-flip:0.4"}
    attacked_summary = told(attacked, tmp_path / "attacked")
    assert "trivial" not in attacked_summary
    who = ", ".join(attacked_summary["attack"]["hostile"])
    words = f"Under attack (sign-flip:0.4 by {who}): scores are those of the honest clients."
    assert words in html.page([load_run(tmp_path / "attacked")])
    flags = ["--client-column", "clinic", "--label-column", "cost", "--attack", "sign-flip:0.4", "--rounds", "1"]
    output = invoke("compare", "local", "fedavg", "--data", path, *flags, "--out", tmp_path / "compared")
    assert f"{words} There is no verdict" in " ".join(output.split())
    assert "worst decile" in output
    assert "bottom decile" not in output
