"""The unified framework's experiments on images: their constants, what they conclude, and a small one that runs."""

import json

import numpy as np
import pytest
from majorant_reproductions.unified import images, settings
from majorant_reproductions.unified.settings import FAMILIES, Setting, Trace, constants, image_sets, of_classes
from rich.console import Console

from majorant.app.reproduce import Context, reproduce
from majorant.engines.settings import hyper_after_setup

QUICK = Context(quick=True, seeds=2, tell=lambda text: None)


def share_of_w(found):
    return found.sample_smooth_w / (found.sample_smooth_w + found.sample_smooth_beta)


@pytest.mark.parametrize(("family", "reported"), [("MT2", 0.5), ("MX2", 0.25), ("APFL2", 0.55)])
def test_theory_has_the_papers_p_w(family, reported):
    """Caption of Figure 6."""
    assert share_of_w(constants(family, of_classes(2), 20)) == pytest.approx(reported, abs=0.006)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("setting", [of_classes(2), of_classes(8, rescale=False), Setting(0.1, 10.0, 0.3)])
def test_constants_are_the_objectives_own_and_cover_samples_of_unit_norm(family, setting, monkeypatch):
    data = image_sets(QUICK, 2)["digits"]
    own = FAMILIES[family].make(data, setting).constants(data)
    stated = constants(family, setting, data.clients)
    assert own.sample_smooth_w <= stated.sample_smooth_w * (1 + 1e-5)
    assert own.sample_smooth_beta <= stated.sample_smooth_beta * (1 + 1e-5)
    alone = FAMILIES["MX2"].make(data, Setting(0.0)).constants(data)
    monkeypatch.setattr(settings, "SMOOTH", data.clients * alone.sample_smooth_beta)
    exact = constants(family, setting, data.clients)
    assert exact.sample_smooth_w == pytest.approx(own.sample_smooth_w)
    assert exact.sample_smooth_beta == pytest.approx(own.sample_smooth_beta)


def flat(loss, accuracy=90.0, spread=0.0):
    """Runs that stay where they are."""
    values = np.array([[loss - spread] * 2, [loss + spread] * 2])
    return Trace([10.0, 20.0], values, np.full((2, 2), accuracy), values, 40.0, 20.0)


@pytest.mark.parametrize(
    ("loss_of", "verdict"),
    [
        (lambda p: flat(abs(p - 0.25)), "best"),
        (lambda p: flat(1 + p, spread=0.2), "within noise"),
        (lambda p: flat(1 + p), "not best"),
        (lambda p: flat(np.nan if p > 0.3 else 1 - p), "best"),
    ],
)
def test_figure_6_compares_theory_with_the_best_other_p_w(loss_of, verdict, monkeypatch):
    seen = []

    def fake(context, algorithm, data, hyper):
        steep = np.array([0.5, 1.5]) / data.clients / [hyper["p_w"], 1 - hyper["p_w"]]
        assert hyper["lr"] == pytest.approx(1 / (8 * steep.max()))
        assert hyper["theta_1"] == pytest.approx(min(0.8, 1 / hyper["lr"]))
        seen.append(hyper["p_w"])
        return loss_of(hyper["p_w"])

    monkeypatch.setattr(images, "trained", fake)
    first, *panels = images.figure6(QUICK)
    assert seen == pytest.approx([0.1, 0.25, 0.5, 0.9])
    assert first.rows[0][-1] == verdict
    assert "p_w = 0.25 (theory)" in panels[0].curves


def test_figures_7_and_8_vary_what_they_should(monkeypatch):
    seen = []

    def fake(context, algorithm, data, **options):
        hyper = hyper_after_setup(algorithm, data)
        seen.append((algorithm.name, hyper["p_w"]))
        return flat(1 - hyper["p_w"], accuracy=100 * hyper["p_w"])

    monkeypatch.setattr(images, "trained", fake)
    first = images.figure7(QUICK)[0]
    assert [p for _, p in seen] == pytest.approx([0.25, 3 / 4.5])  # λ/(1 + 2λ), and with six clients 6λ/(1 + 7λ)
    assert "the loss is lower in 0 and the accuracy higher in 0 of 1 cases" in " ".join(first.notes)
    seen.clear()
    monkeypatch.setattr(images, "by_rate", lambda context, algorithm, data, rates: [flat(2.0) for _ in rates])
    first, accuracy, _ = images.figure8(QUICK)
    assert [name for name, _ in seen] == ["ascd", "acd"] * 2
    assert [p for _, p in seen[::2]] == pytest.approx([0.5, 100.1 / 101.2])
    assert [row[1] for row in first.rows] == ["1", "100"] * 3
    assert set(accuracy.curves) == {f"{name}, Λ = {value}" for name in ("ASCD-PFL", "LSGD-PFL") for value in (1, 100)}


def test_what_diverges_is_said_to(monkeypatch):
    data = image_sets(QUICK, 2)["digits"]

    def diverging(*arguments, **options):
        raise settings.Diverged

    monkeypatch.setattr(settings, "simulated", diverging)
    found = settings.trained(QUICK, None, data)
    assert settings.written(found.end()) == "diverged"
    assert found.rounds == [10.0, 20.0]
    assert images.least([found, flat(3.0), flat(2.0)]) == 2


def test_a_quick_comparison_runs(tmp_path):
    """The paper's order: ASCD-PFL below LSGD-PFL with the stated rate, and below ASVRCD-PFL."""
    reproduce("unified/figure3", tmp_path, quick=True, seeds=1, console=Console(quiet=True))
    table, loss, accuracy = json.loads((tmp_path / "results.json").read_text())["results"]
    ends = {row[1]: float(row[3]) for row in table["rows"]}
    assert ends["ASCD-PFL"] < ends["LSGD-PFL, η = 0.01"] < np.log(10)
    assert ends["ASCD-PFL"] < ends["ASVRCD-PFL"] < np.log(10)
    assert ends["LSGD-PFL, tuned"] <= ends["LSGD-PFL, Theorem 1's η"]
    assert ends["ASCD-PFL, tuned"] <= ends["ASCD-PFL"]
    assert loss["curves"].keys() == accuracy["curves"].keys() == ends.keys()
    assert loss["curves"]["ASCD-PFL"][0] == [10, 20]
    assert {path.name for path in tmp_path.glob("*.png")} == {"figure2.png", "figure3.png"}
