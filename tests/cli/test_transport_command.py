"""``majorant transport``: from two tables to a map, and from a map and a table to rows."""

from __future__ import annotations

import csv
import json

import jax
import numpy as np
import pytest

from commands import invoke, refused
from majorant.app.transport import draw, load_map, save_map
from majorant.app.trees import load_tree, save_tree
from majorant.models import dense_icnn


def write(path, rows, names, clients=None):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, *(["site"] if clients is not None else [])])
        for i, row in enumerate(rows):
            writer.writerow([*row, *([f"s{clients[i]}"] if clients is not None else [])])
    return str(path)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    place, rng = tmp_path_factory.mktemp("transport"), np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), 2 * rng.normal(size=(80, 2)) + 3
    data = write(place / "a.csv", x.tolist(), ["u", "v"], np.arange(60) % 3)
    reference = write(place / "b.csv", y.tolist(), ["u", "v"])
    out = place / "run"
    flags = ["--client-column", "site", "--method", "gaussian", "--out", str(out), "--json"]
    done = invoke("transport", "--data", data, "--reference", reference, *flags)
    return place, data, reference, out, done, y


def test_a_map_between_tables(tables):
    _, _, _, out, done, y = tables
    found = json.loads(done)
    assert (found["clients"], found["rows"], found["columns"]) == (3, 60, ["u", "v"])
    assert found["distance_after"] < 0.2 * found["distance_before"]
    assert json.loads((out / "summary.json").read_text())["reference_rows"] == 80
    with (out / "transported.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["site"] for row in rows} == {"s0", "s1", "s2"}
    moved = np.array([[float(row["u"]), float(row["v"])] for row in rows])
    np.testing.assert_allclose(moved.mean(axis=0), y.mean(axis=0), atol=1e-4)
    assert (out / "transport.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_shows_rows_before_and_after(tmp_path, monkeypatch):
    """On the left the clients' own, on the right those that were carried onto the reference."""
    figures, x = [], np.random.default_rng(0).normal(size=(20, 2))
    monkeypatch.setattr("majorant.app.report.figures.render", lambda figure, kind: figures.append(figure) or b"")
    draw(tmp_path / "transport.png", ["u", "v"], x, x + 10, x + 10)
    for axes, words, first in zip(figures[0].axes, ("samples", "transported"), (x, x + 10), strict=True):
        (dots,) = [each for each in axes.collections if each.get_label() == words]
        np.testing.assert_allclose(np.sort(dots.get_offsets(), axis=0), np.sort(first, axis=0), rtol=1e-6)


def test_a_saved_map_carries_other_rows(tables):
    place, data, _, out, _, _ = tables
    target = place / "again.csv"
    invoke("transport", "--data", data, "--map", out, "--out", target)
    again = np.loadtxt(target, delimiter=",", skiprows=1)
    before = np.loadtxt(out / "transported.csv", delimiter=",", skiprows=1, usecols=(1, 2))
    np.testing.assert_allclose(again, before)


def test_a_map_whose_networks_are_not_convex_is_refused(tables, tmp_path):
    tree, meta = load_tree(tables[3] / "map")
    params = {k: np.asarray(v) for k, v in dense_icnn(2, hidden=(4, 4, 4)).init(jax.random.key(0)).items()}
    tree["potentials"] = {"forward": params, "inverse": params | {"u": -params["u"]}}
    save_tree(tmp_path / "map", tree, meta | {"options": meta["options"] | {"hidden": [4, 4, 4]}})
    with pytest.raises(ValueError, match="u of the dense convex network has 4 weights below 0"):
        load_map(tmp_path / "map")
    applied = refused("transport", "--data", tables[2], "--map", tmp_path / "map", "--out", tmp_path / "moved.csv")
    assert "4 weights below 0, so that it is not convex" in applied
    assert not (tmp_path / "moved.csv").exists()
    tree["potentials"]["inverse"] = {name: 2 * values for name, values in params.items()}
    save_tree(tmp_path / "networks", tree, meta | {"options": meta["options"] | {"hidden": [4, 4, 4]}})
    model, names = load_map(tmp_path / "networks")
    save_map(tmp_path / "again", model, names)
    again, _ = load_map(tmp_path / "again")
    x = np.random.default_rng(0).normal(size=(9, 2))
    for way in ("transform", "inverse_transform"):  # of the two networks each has its own
        np.testing.assert_array_equal(getattr(again, way)(x), getattr(model, way)(x))
    assert not np.allclose(model.transform(x), load_map(tables[3] / "map")[0].transform(x))
    del tree["potentials"]
    tree["coordinates"] = dict(tree["coordinates"]) | {"target": np.array([1.0, np.nan])}
    save_tree(tmp_path / "gaps", tree, meta)
    with pytest.raises(ValueError, match="target of the coordinates must be finite"):
        load_map(tmp_path / "gaps")


def test_people_are_told_what_is_wrong(tables, tmp_path):
    _, data, reference, _, _, _ = tables
    wide = write(tmp_path / "wide.csv", np.ones((9, 3)).tolist(), ["u", "v", "w"])
    gaps = write(tmp_path / "gaps.csv", [[1.0, 2.0], [3.0, ""], [2.0, 2.0], [5.0, 1.0]], ["u", "v"])
    wild = write(tmp_path / "wild.csv", [[1.0, 2.0], [3.0, "inf"], *([[2.0, 2.0]] * 40)], ["u", "v"])
    few = write(tmp_path / "few.csv", [[1.0, 2.0]], ["u", "v"])
    cases = {
        "only one has 'w'": ["--reference", wide, "--client-column", "site"],
        "column v has 1 missing values, first in row 2": ["--reference", gaps, "--client-column", "site"],
        "'inf' in row 2 is not one": ["--reference", wild, "--client-column", "site"],
        "1 reference samples are too few": ["--reference", few, "--client-column", "site"],
        "give --reference to learn a map, or --map": [],
        "sight": ["--reference", reference, "--client-column", "sight"],
        "--rounds must be at least 1, got 0": ["--reference", reference, "--client-column", "site", "--rounds", "0"],
        "there is no map in ": ["--map", tmp_path / "nowhere"],
        "--cycle must be a number, got 'nan'": ["--reference", reference, "--client-column", "site", "--cycle", "nan"],
        "cycle == -1.0, must be >= 0": ["--reference", reference, "--client-column", "site", "--cycle", "-1"],
    }
    for words, flags in cases.items():
        assert words in refused("transport", "--data", data, "--out", tmp_path / "run", *flags)
        assert not (tmp_path / "run").exists()  # nothing is left of what was refused
