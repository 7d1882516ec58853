"""Runs on messy tables: what the configuration says about a table holds, and people read the units of their labels."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from commands import invoke, refused
from made_tables import lines

MEAN, SCALE = 5000.0, 800.0
HEADER = "shop;size;when;kind;ticket;price"


def sales(shops: list[str], seed: int, count: int = 30) -> list[str]:
    """Sales with gaps, semicolons, decimal commas and dates of the day-first kind."""
    rng = np.random.default_rng(seed)
    rows = []
    for shop in shops:
        for i in range(count):
            size = rng.normal()
            price = MEAN + SCALE * (size + 0.1 * rng.normal())
            cell = "?" if i % 15 == 14 else f"{size:.3f}".replace(".", ",")
            rows.append(f"{shop};{cell};{1 + i % 28:02}/03/2024;{'ab'[i % 2]};t{shop}-{i};{price:.2f}")
    return rows


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sales")
    lines(folder / "sales.csv", HEADER, [*sales(["01", "1", "2"], 0), *sales(["tiny"], 9, 2)])
    study = f"""
        algorithm = "fedavg"
        data = "{folder / "sales.csv"}"
        client_column = "shop"
        label_column = "price"
        min_samples = 3
        time_column = "when"
        rounds = 40
        [local]
        lr = 0.3
    """
    (folder / "study.toml").write_text(study)
    return folder


@pytest.mark.filterwarnings("ignore::majorant.data.TableNotice")
def test_a_run_on_a_messy_table_speaks_in_the_units_of_its_labels(place, tmp_path):
    invoke("run", "--config", place / "study.toml", "--out", tmp_path / "run")
    with (tmp_path / "run" / "clients.csv").open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["01", "1", "2"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert 0.02 * SCALE < summary["test_rmse"]["mean"] < 0.9 * SCALE
    lines(tmp_path / "new.csv", HEADER, sales(["new"], 5))
    lines(tmp_path / "later.csv", HEADER.removesuffix(";price"), [r.rpartition(";")[0] for r in sales(["new"], 6)])
    text = invoke(
        "personalize", tmp_path / "run", "--data", tmp_path / "new.csv", "--predict", tmp_path / "later.csv",
        "--out", tmp_path / "p.csv", "--json",
    )  # fmt: skip
    fit = float(json.loads(text)["fit"].split()[1])
    assert 0.02 * SCALE < fit < 0.9 * SCALE
    saved = json.loads((tmp_path / "run" / "model" / "manifest.json").read_text())["meta"]
    mean, scale = saved["target_scale"]
    assert abs(mean - MEAN) < SCALE
    assert 0.5 * SCALE < scale < 2 * SCALE
    with (tmp_path / "p.csv").open() as file:
        predicted = [float(row["prediction"]) for row in csv.DictReader(file)]
    truth = [float(row.rpartition(";")[2]) for row in sales(["new"], 6)]
    assert np.sqrt(np.mean((np.array(predicted) - truth) ** 2)) < 0.9 * SCALE


@pytest.mark.filterwarnings("ignore::majorant.data.TableNotice")
@pytest.mark.parametrize("forged", [None, [0.0, 1.0], [MEAN, 0.0], [MEAN, -SCALE], [MEAN], "units"])
def test_other_units_than_those_of_the_table_are_refused(place, tmp_path, forged):
    if not (place / "short").exists():
        invoke("run", "--config", place / "study.toml", "--rounds", "1", "--out", place / "short")
    folder = Path(shutil.copytree(place / "short", tmp_path / "run"))
    path = folder / "model" / "manifest.json"
    content = json.loads(path.read_text())
    del content["check"]
    content["meta"]["target_scale"] = forged
    check = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(content | {"check": check}))
    new = lines(tmp_path / "new.csv", HEADER, sales(["new"], 5))
    assert "manifest.json was altered" in refused("personalize", folder, "--data", new)
