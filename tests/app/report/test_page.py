"""The interactive page: its numbers are those of the files, its texts are harmless, its size is bounded."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re

import numpy as np
import pytest
from PIL import Image

from fake_runs import Page, as_regression, compared, fake_record, fake_records, renamed
from majorant.app.files import strict_json
from majorant.app.report import RunRecord, figures, html
from majorant.app.report.chart import Axis, picture
from majorant.app.report.clients import columns, gather
from majorant.app.report.comparison import load_comparison, runs_in
from majorant.app.report.components import Components, components_of, slopes_at
from majorant.app.report.conclusion import plain_sentences
from majorant.app.report.curves import curve_figure
from majorant.app.report.gains import NAMED, gains_figure
from majorant.app.report.labels import told_apart
from majorant.app.report.limits import curve_limits, value_limits
from majorant.app.report.words import metric

HOSTILE = {
    0: "=cmd|' /C calc'!A0", 1: "<script>alert(1)</script>", 2: "[bold]x[/bold]", 3: "a\x1b[31m\u202eb\nc",
    4: "</script><img src=x onerror=alert(1)>", 5: "\u2028", 6: '"><b onmouseover=alert(1)>',
}  # fmt: skip


def table_of(page: Page) -> dict[str, list[str]]:
    """The table of clients that the script shows, by the names of its columns."""
    return {column["name"]: column["texts"] for column in page.data["columns"]}


def test_the_page_has_the_numbers_of_the_comparison() -> None:
    records = fake_records()
    comparison = compared(records)
    page = Page(html.page(records, comparison))
    table, by_name = table_of(page), {client.name: client for client in comparison.clients}
    assert len(table["Client"]) == len(by_name) == 60
    for place, name in enumerate(table["Client"]):
        client = by_name[name]
        assert table["Gain, points"][place] == f"{100 * client.gain:+.1f}".replace("-", "−")
        assert table["FedAvg"][place] == f"{100 * client.scores['FedAvg']:.1f} %"
        assert table["Verdict"][place] == client.verdict
        assert table["Test rows"][place] == str(client.test)
    gains = [client.gain for client in comparison.clients]
    assert table["Gain, points"][0] == f"{100 * max(gains):+.1f}"  # who gains most comes first
    for sentence in comparison.verdict.sentences:
        assert sentence in page.text
    assert page.text.index("Yes, it is worth it.") < page.text.index("Who gains")
    lost = len(comparison.verdict.lose_clients)
    for words in (f"{lost} clients lose", "interval +10.0 to +16.0", "28.8 MB", "majority class is beaten", "0.25"):
        assert words in page.text


def test_names_are_texts_and_nothing_else() -> None:
    records = [renamed(record, HOSTILE) for record in fake_records(clients=12)]
    for comparison in (None, compared(records)):
        text = html.page(records, comparison)
        page = Page(text)
        tags = [tag for tag, _ in page.tags]
        assert tags.count("script") == 2
        assert "b" not in tags
        assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
        assert not re.search(r"[\x00-\x08\x0e-\x1f\u202a-\u202e\u2028\u2029]", text)
        names = table_of(page)["Client"]
        assert {"=cmd|' /C calc'!A0", "<script>alert(1)</script>", "[bold]x[/bold]"} <= {
            n.split(" (unseen")[0] for n in names
        }


def test_the_page_runs_its_own_script_only() -> None:
    page = Page(html.page(fake_records(clients=5)[:1]))
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    digest = base64.b64encode(hashlib.sha256(page.texts["None"].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_thousands_of_clients_stay_small() -> None:
    records = fake_records(clients=5_000)
    text = html.page(records, compared(records))
    page = Page(text)
    assert len(text) < 1.5e6
    assert len([tag for tag, _ in page.tags]) < 4000
    assert len(table_of(page)["Client"]) == 5_000
    points = page.data["charts"]["gains"]
    assert sorted(points["clients"]) == list(range(5_000))  # the pointer finds everyone
    assert points["y"] == sorted(points["y"])


def test_a_run_alone_and_several_without_a_verdict() -> None:
    single = Page(html.page(fake_records()[:1]))
    assert "FedEM has a test accuracy of 83.0 % over the clients" in single.text
    assert "Who gains" not in single.text
    several = Page(html.page(fake_records()))
    assert "FedEM against Local: +13.0 points" in several.text
    assert "not compared with noise" in several.text
    assert set(table_of(several)) == {
        "Client",
        "Gain, points",
        "FedEM",
        "FedAvg",
        "Local",
        "Training rows",
        "Test rows",
    }


def test_gains_of_errors_are_positive_where_the_error_is_smaller() -> None:
    records = [as_regression(record) for record in fake_records()]
    clients = gather(records)
    best = {r.label: r for r in records}[str(clients.best)]
    assert best.score("test", "mean") == min(r.score("test", "mean") for r in records if not r.alone)
    row = clients.rows[0]
    assert row.gain == pytest.approx(row.scores["Local"] - row.scores[str(clients.best)])
    assert row.gain > 0
    text = Page(html.page(records)).text
    for words in ("lower is better", "Worst decile", "RMSE"):
        assert words in text
    assert "percentage points" not in text


def test_few_clients_have_rows_and_many_have_points() -> None:
    few = fake_records(clients=NAMED)
    drawn, points = gains_figure(gather(few, compared(few)))
    assert points is None
    assert drawn.count('class="row"') == NAMED
    assert drawn.count('class="whisker"') == NAMED
    many = fake_records(clients=NAMED + 1)
    drawn, points = gains_figure(gather(many, compared(many)))
    assert points is not None
    assert len(points["y"]) == NAMED + 1


def test_gains_that_are_drawn_where_they_lie_are_not_called_beyond_the_axis() -> None:
    records = fake_records(clients=NAMED)
    scores = records[0].clients["test_accuracy"]
    scores[:] = records[-1].clients["test_accuracy"] + np.linspace(0, 0.01, NAMED)
    for gain, beyond in ((0.04, False), (0.9, True)):  # others gain at most 0.01
        scores[7] = records[-1].clients["test_accuracy"][7] + gain
        drawn, _ = gains_figure(gather(records, compared(records, noise=0.1)))
        assert ('class="dot beyond"' in drawn) == beyond
        assert ("drawn at its end: client-7." in drawn) == beyond


def test_a_drawing_brings_no_style_for_the_whole_page() -> None:
    file = (
        '<?xml version="1.0"?><svg width="9"><defs><style type="text/css">*{stroke-linecap: butt}</style></defs></svg>'
    )
    assert "style" not in html.inline_svg(file, "rates")
    assert "style" in figures.render(figures.convergence(fake_records()), "svg").decode()  # Matplotlib writes one


def test_clients_without_a_gain_are_named() -> None:
    records = fake_records(clients=8)
    records[-1].clients["test_accuracy"][2] = np.nan
    comparison = compared(records, diverged={"Local": ["client-2"]})
    text = Page(html.page(records, comparison)).text
    assert "Not shown, without a gain: client-2" in text
    assert "1 client diverged with Local" in text
    assert "diverged on 1" in text
    cells = {column["name"]: column["texts"] for column in columns(gather(records, comparison))}
    last = cells["Client"].index("client-2")
    assert last == 7
    assert (cells["Gain, points"][last], cells["Verdict"][last]) == ("–", "diverged")


def test_a_method_that_diverged_is_never_the_best() -> None:
    records = [as_regression(record) for record in fake_records()]
    records[-1].summary["test_rmse"] |= {"mean": None, "bottom_decile": 0.01}
    text = html.page(records)
    assert "0.01</td>" in text
    assert 'class="best">0.01' not in text
    assert "Without a finite score: Local" in text


def test_one_outlier_does_not_flatten_the_curves() -> None:
    records = [as_regression(record) for record in fake_records()]
    for turn, line in enumerate(records[-1].history):
        line["test_rmse"]["mean"] = 10.0**turn
    drawn, points = curve_figure(records, "rounds")
    assert "beyond it: Local" in Page(drawn).text
    seen = [y for y, tip in zip(points["y"], points["tips"], strict=True) if not tip.startswith("Local")]
    assert np.ptp(seen) > 500  # the others fill more than half of the frame
    axes = figures.convergence(records).axes[0]
    assert axes.get_ylim()[1] < 2
    calm, _ = curve_figure(records[:2], "rounds")
    assert "beyond" not in calm


def test_limits_keep_what_belongs_together() -> None:
    whole = np.linspace(0.1, 0.9, 20)
    share, error = metric("accuracy"), metric("rmse")
    assert curve_limits([whole, whole - 0.05], share)[:2] == pytest.approx((0.05, 0.9))
    assert curve_limits([whole, np.full(20, 0.9)], share, keep=[0.02])[:2] == pytest.approx((0.02, 0.9))
    assert curve_limits([np.concatenate([[3.0], np.full(9, 2.0)])], error).high > 2.03  # noise is not drawn large
    late = np.concatenate([[1e6], np.full(19, 1.0) - 0.01 * np.arange(19)])  # the first round alone is astray
    found = curve_limits([late], error)
    assert found.high < 2
    assert found.beyond == [0]
    assert curve_limits([np.full(3, np.nan)], share) == (0.0, 1.0, [])
    assert value_limits(np.full(4, 2.0))[:2] == (2.0, 2.0)
    assert Axis.over([2.0, 2.0]).high > 2


def test_chance_and_the_trivial_model_are_drawn_and_named() -> None:
    records = [RunRecord(r.label, r.config, r.summary, r.history, r.clients, classes=4) for r in fake_records()]
    text = html.page(records, compared(records))
    assert text.count('class="level') >= 2 * 3  # in strips and in both curves; and two rows of the table
    page = Page(text)
    assert "chance 25.0 %" in page.text
    assert "majority class 55.0 %" in page.text


def test_equal_labels_are_told_apart() -> None:
    first, second = fake_record("FedEM", 0.8, 2, clients=5), fake_record("FedEM", 0.7, 2, clients=5)
    other = RunRecord(
        "FedEM",
        second.config | {"local": {"rate": 0.5, "batch_size": 128}},
        second.summary,
        second.history,
        second.clients,
    )
    assert [r.label for r in told_apart([first, other])] == ["FedEM, rate 0.1", "FedEM, rate 0.5"]
    assert [r.label for r in told_apart([first, first])] == ["FedEM", "FedEM (2)"]
    assert {"FedEM, rate 0.1", "FedEM, rate 0.5"} <= set(table_of(Page(html.page([first, other]))))


def test_components_are_told_by_the_columns_in_which_they_differ(tmp_path) -> None:
    weight = np.zeros((2, 3, 1))
    weight[0, 1], weight[1, 1], weight[:, 2] = 2.0, -1.5, 9.0  # the last is large, and the same in both
    layer = [(weight, np.zeros((2, 1)))]
    found = components_of(layer, {"spec": [[3], 2], "classes": ["no", "yes"]}, 2)
    assert found is not None
    assert found.linear
    np.testing.assert_array_equal(found.coefficients, weight)
    named = Components(found.coefficients, (3,), ("age", "<b>dose", "sex"), ("no", "yes"))
    record = fake_record("FedEM", 0.8, 2, clients=6)
    record = RunRecord(record.label, {}, record.summary, record.history, record.clients, 2, named)
    text = Page(html.page([record])).text
    assert text.index("<b>dose") < text.index("−1.50") < text.index("sex")
    assert "speak for yes" in text
    assert components_of(layer, {"spec": [[4], 2], "classes": ["no", "yes"]}, 2) is None
    assert components_of([(np.zeros((2, 3)), np.zeros(2))], {"spec": [[3], 2], "classes": ["no", "yes"]}, 2) is None
    scaled = components_of(layer, {"spec": [[3], 0], "classes": [], "target_scale": [5.0, 10.0]}, 2)
    assert scaled is not None
    assert scaled.differences()[0][1].tolist() == [20.0, -15.0]  # in the units of the target


def test_components_of_images_are_images() -> None:
    weight = np.random.default_rng(0).normal(size=(3, 16, 12))
    found = components_of([(weight, np.zeros((3, 12)))], {"spec": [[4, 4, 1], 12], "classes": list(range(12))}, 3)
    assert found is not None
    assert found.image
    shown = found.pictures()
    assert len(shown) == 10  # of twelve classes those that differ most
    assert all(
        image.shape == (4, 4) and 0 <= image.min() <= image.max() <= 1 for _, images in shown for image in images
    )


def test_slopes_of_perceptrons_are_those_of_their_outputs() -> None:
    rng = np.random.default_rng(1)
    layers = [(rng.normal(size=(5, 7)), rng.normal(size=7)), (rng.normal(size=(7, 3)), rng.normal(size=3))]
    x, small = rng.normal(size=5), 1e-6

    def outputs(x: np.ndarray) -> np.ndarray:
        return np.maximum(x @ layers[0][0] + layers[0][1], 0) @ layers[1][0] + layers[1][1]

    measured = np.stack([(outputs(x + small * unit) - outputs(x - small * unit)) / (2 * small) for unit in np.eye(5)])
    np.testing.assert_allclose(slopes_at(x, layers), measured, atol=1e-6)


def test_runs_of_other_metrics_are_not_mixed_in() -> None:
    records = fake_records(clients=6)
    page = Page(html.page([records[0], as_regression(records[1])]))
    assert "FedAvg" not in table_of(page)
    better = [as_regression(records[1]), *records[:1]]
    for others in ([records[0], better[0]], better):  # the sentences are about runs that are scored alike
        best, *_, left = plain_sentences(others)
        assert best.startswith(f"{others[0].label} has a test {others[0].metric.replace('rmse', 'RMSE')} of")
        assert left.startswith("Scored otherwise, and compared with nothing here: " + others[1].label)
    assert not any(tip.startswith("FedAvg") for tip in page.data["charts"]["rounds"]["tips"])


def test_a_picture_is_a_png_of_its_values() -> None:
    address = picture(np.array([[0.0, 1.0, np.nan]]), ((0, (10, 20, 30)), (1, (200, 100, 50))))
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))
    assert pixels.tolist() == [[[10, 20, 30], [200, 100, 50], [128, 128, 128]]]


def test_comparisons_are_found_with_their_runs(tmp_path) -> None:
    tmp_path = tmp_path / "study"
    tmp_path.mkdir()
    records = fake_records(clients=5)
    comparison = compared(records)
    content = json.loads(comparison.model_dump_json())
    (tmp_path / "summary.json").write_text(strict_json(content))
    for name in ("FedEM", "Local"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text("{}")
    assert load_comparison(tmp_path) == comparison
    assert runs_in(tmp_path) == [(tmp_path / "FedEM", "FedEM"), (tmp_path / "Local", "Local")]
    assert runs_in(tmp_path / "Local") == [(tmp_path / "Local", None)]
    assert runs_in(tmp_path.parent) == [(tmp_path / "FedEM", None), (tmp_path / "Local", None)]
    assert load_comparison(tmp_path / "Local") is None
    content["verdict"]["worth_it"] = "perhaps"
    (tmp_path / "summary.json").write_text(strict_json(content))
    with pytest.raises(ValueError, match=r"summary.json was altered, or is not ours: verdict\.worth_it"):
        load_comparison(tmp_path)


def test_what_is_not_known_is_a_dash() -> None:
    scale = metric("accuracy")
    assert {scale.show(None), scale.show(math.nan), scale.show_gain(math.inf)} == {"–"}
    assert metric("something_new").words == "something new"
