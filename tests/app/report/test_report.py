"""Records, figures and the page."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from fake_runs import Page, fake_record, fake_records
from majorant.app.files import strict_json
from majorant.app.logs import append_jsonl
from majorant.app.report import RunRecord, figures, html, load_run
from majorant.app.report.labels import title_of


def write_run(folder: Path, record: RunRecord) -> None:
    folder.mkdir()
    (folder / "summary.json").write_text(strict_json(record.summary))
    (folder / "config.toml").write_text('algorithm = "fedem"\n[local]\nrate = 0.1\n')
    for line in record.history:
        append_jsonl(folder / "metrics.jsonl", line)
    with open(folder / "clients.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(record.clients)
        writer.writerows(zip(*(column.tolist() for column in record.clients.values()), strict=True))


def test_a_run_folder_round_trips(tmp_path: Path) -> None:
    record = fake_record("FedEM", 0.8, 3)
    record.clients["name"][0] = 'a, "b"\nc'
    write_run(tmp_path / "run", record)
    found = load_run(tmp_path / "run")
    assert (found.label, found.summary) == ("FedEM", record.summary)
    assert found.history == record.history
    assert found.config == {"algorithm": "fedem", "local": {"rate": 0.1}}
    assert list(found.clients) == list(record.clients)
    for name, column in record.clients.items():
        np.testing.assert_array_equal(found.clients[name], column)
    np.testing.assert_allclose(found.mixture.sum(axis=1), 1)
    assert load_run(tmp_path / "run", label="mine").label == "mine"


def test_folders_that_are_not_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        load_run(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="it is a file"):
        load_run(tmp_path / "file")
    with pytest.raises(ValueError, match=r"no summary\.json: this is not a run folder"):
        load_run(tmp_path)
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(ValueError, match="has not finished"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("summary.json", b"{", "is not JSON"),
        ("summary.json", b"[]", "not ours"),
        ("summary.json", b"\xff\xfe\xfd", "is not JSON"),
        ("config.toml", b"= 1", "not a valid TOML"),
        ("metrics.jsonl", b"{}\nx\n{}\n", "line 2"),
        ("clients.csv", b"name,test_accuracy\na,high\n", "column 'test_accuracy'"),
        ("clients.csv", b"name,test_accuracy\na\n", "column 'test_accuracy'"),
    ],
)
def test_damaged_runs_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    write_run(tmp_path / "run", fake_record("FedEM", 0.8, 3, clients=5))
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_run(tmp_path / "run")


def test_series_align_the_seeds() -> None:
    record = fake_record("FedEM", 0.8, 3, seeds=3)
    rounds, total, values = record.series()
    assert rounds.tolist() == list(range(10, 210, 10))
    assert values.shape == (3, 20)
    assert total[-1] == record.summary["communication"]["bytes_up"] * 2
    assert values[1, -1] == record.history[39]["test_accuracy"]["mean"]


@pytest.mark.parametrize(("format", "magic"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_figures_are_saved_and_reproducible(tmp_path: Path, format: str, magic: bytes) -> None:
    before = dict(matplotlib.rcParams)
    paths = figures.save_figures(fake_records(clients=20), tmp_path / "a", format)
    assert [p.stem for p in paths] == ["convergence", "communication", "distribution", "mixture", "costs"]
    again = figures.save_figures(fake_records(clients=20), tmp_path / "b", format)
    for first, second in zip(paths, again, strict=True):
        assert first.read_bytes().startswith(magic)
        assert first.read_bytes() == second.read_bytes()
    assert dict(matplotlib.rcParams) == before


def test_other_formats_are_refused() -> None:
    with pytest.raises(ValueError, match="pdf, png or svg, not 'gif'"):
        figures.save_figures([], "unused", "gif")


def test_the_mixture_map_groups_clients_by_their_largest_weight() -> None:
    image = figures.mixture(fake_record("FedEM", 0.8, 3)).axes[0].images[0].get_array()
    assert image is not None
    assert (np.diff(np.asarray(image).argmax(axis=0)) >= 0).all()


def test_the_density_is_where_the_clients_are() -> None:
    grid, height = figures.density(np.full(50, 0.25), 0.0, 1.0)
    assert abs(grid[height.argmax()] - 0.25) < 0.01
    assert height[grid > 0.5].max() < 1e-6
    grid, height = figures.density(np.random.default_rng(0).random(100_000), 0.0, 1.0)
    assert height.min() > 0.9  # no mass is lost at the ends


HOSTILE = '<script>alert("1")</script> & $\\frac{ --> \x00\n_'


@pytest.mark.parametrize("label", [HOSTILE, "_hidden", "联邦", "x" * 300, ""])
def test_the_page_is_whole_and_needs_nothing_else(tmp_path: Path, label: str) -> None:
    hostile = fake_record(label, 0.8, 3, seeds=2)
    hostile = RunRecord(
        label, {label: {"x": label}}, hostile.summary | {"dataset": label}, hostile.history, hostile.clients
    )
    path = html.write_report([hostile, *fake_records()[1:]], tmp_path / "deep" / "report.html")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    names = [attrs["id"] for tag, attrs in page.tags if tag == "figure"]
    assert names == ["gains", "strips", "rounds", "traffic", "mixture-1"]
    tags = [tag for tag, _ in page.tags]
    assert tags.count("figcaption") == 5
    assert tags.count("script") == 2  # the data, and what shows it
    assert not {"link", "iframe", "object"} & set(tags)
    assert not re.findall(r"https?://", text)
    ids = [attrs["id"] for _, attrs in page.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    assert used <= set(ids)
    for word in ("74.0 %", "Bottom decile", "Unseen", "28.8 MB"):
        assert word in page.text
    assert label.strip()[:20] in page.text


def test_many_runs_are_counted_in_the_title() -> None:
    records = [fake_record(f"method {place}", 0.5, 0, clients=5) for place in range(6)]
    assert title_of(records) == "6 methods on synthetic"
    assert title_of(records[:2]) == "method 0 and method 1 on synthetic"


def test_the_best_of_a_column_is_marked() -> None:
    page = html.page(fake_records())
    assert '<td class="best">83.0 %</td>' in page
    assert '<td class="best">74.0 %</td>' not in page
    assert 'class="best"' not in html.page(fake_records()[:1]).split("</style>")[1]


def test_regression_reports_errors_where_less_is_better() -> None:
    runs = []
    for record, level in zip(fake_records(), (1.5, 0.5, 1.0), strict=True):
        text = json.dumps([record.summary, record.history]).replace("accuracy", "rmse")
        summary, history = json.loads(text)
        summary["test_rmse"]["mean"] = level
        clients = {name.replace("accuracy", "rmse"): column for name, column in record.clients.items()}
        runs.append(RunRecord(record.label, {}, summary, history, clients))
    page = html.page(runs)
    assert '<td class="best">0.5</td>' in page
    assert "Worst decile" in page
    assert "RMSE" in page


def test_a_report_is_made_from_whatever_a_run_has() -> None:
    bare = RunRecord("bare", summary={"metric": "objective", "objective": 1.25})
    text = Page(html.page([bare])).text
    assert "1.25" in text
    odd = fake_record("odd", 0.5, 2)
    odd.history[3]["test_accuracy"] = None
    odd.history[4]["test_accuracy"]["mean"] = None
    odd.clients["test_accuracy"][:3] = np.nan
    odd.clients["test_accuracy"][3:] = 0.5
    Page(html.page([odd] * 9))  # nine runs: more than there are colours
    with pytest.raises(ValueError, match="at least one run"):
        html.page([])
