"""The report as a person uses it: sorting, searching, pointing, at night, on a phone and on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from devtools import Browser, Page

from fake_runs import compared, fake_records, renamed
from majorant.app.report.html import write_report

HOSTILE = {0: "<script>document.title = 'taken'</script>", 1: "=cmd|' /C calc'!A0", 2: "a\x1b[31m\u202eb", 3: "[bold]z"}
MANY, FEW = 2000, 12


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    """One browser for all tests."""
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, Path]:
    """Pages with many clients, with few, and of a single run; some names mean harm."""
    folder = tmp_path_factory.mktemp("reports")
    made = {}
    for name, clients in (("many", MANY), ("few", FEW)):
        records = [renamed(record, HOSTILE) for record in fake_records(clients=clients)]
        made[name] = write_report(records, folder / f"{name}.html", compared(records))
    made["single"] = write_report(fake_records(clients=FEW, seeds=2)[:1], folder / "single.html")
    return made


@pytest.fixture(params=["many", "few", "single"])
def each(request, browser, reports) -> Iterator[Page]:
    """Every page in turn."""
    page = browser.page(reports[request.param])
    yield page
    page.close()


@pytest.fixture
def many(browser, reports) -> Iterator[Page]:
    """The page with many clients."""
    page = browser.page(reports["many"])
    yield page
    page.close()


def numbers(texts: list[str]) -> list[float]:
    """Texts as numbers, dashes left out."""
    return [float(t.replace("−", "-").replace(",", "").split()[0]) for t in texts if t != "–"]


def column(page: Page, place: int) -> list[str]:
    """What is shown of a column of the table of clients."""
    return page.texts(f"#clients tbody tr > :nth-child({place})")


def test_nothing_is_loaded_and_nothing_complains(each):
    each.send("Input.dispatchMouseEvent", type="mouseMoved", x=400, y=400)
    assert each.complaints() == []
    assert [address for address in each.requests() if not address.startswith("file:")] == []
    assert len(each.requests()) == 1
    assert each.run("document.title") != "taken"


def test_a_click_on_a_head_sorts_and_another_turns_it_round(many):
    gain = "#clients thead th:nth-child(2) button"
    assert many.texts("#clients thead th")[1] == "Gain, points"
    many.click(gain)
    falling = numbers(column(many, 2))
    assert falling == sorted(falling, reverse=True)
    many.click(gain)
    rising = numbers(column(many, 2))
    assert rising == sorted(rising)
    assert rising[0] < falling[-1]  # of all clients, not of those that were shown
    assert many.run("document.querySelector('#clients th[aria-sort]').getAttribute('aria-sort')") == "ascending"
    many.click("#clients thead th:nth-child(1) button")
    names = [name for name in column(many, 1) if name.startswith("client-")]
    assert names[:7] == [f"client-{k}" for k in range(4, 11)]  # as people count: 9 before 10
    many.click("#clients .on")
    assert len(column(many, 1)) == 50
    assert "51–100" in many.texts("#clients .count")[0]


def test_searching_finds_by_name_and_by_verdict(many):
    many.click("#clients input")
    many.type("client-199")
    found = column(many, 1)
    assert {name.split(" (")[0] for name in found} == {"client-199", *(f"client-199{k}" for k in range(10))}
    assert "11 found, of 2000 clients" in many.texts("#clients .count")[0]
    many.run("document.querySelector('#clients input').value = ''")
    many.click("#clients input")
    many.type("loses")
    assert set(column(many, 4)) == {"loses"}
    many.run("document.querySelector('#clients input').select()")
    many.type("nobody has this name")
    assert column(many, 1) == []
    many.run("document.querySelector('#clients input').select()")
    many.type("<SCRIPT>")
    assert len(column(many, 1)) == 1


def test_pointing_names_the_client(many):
    many.move("[data-chart=gains]", x=0.0001)
    first = many.texts("#tip b")
    assert first == column(many, 1)[:1]  # who gains most is at the left of the chart and on top of the table
    assert re.search(r"Gain, points: \+\d", many.texts("#tip")[0])
    assert many.run("document.querySelectorAll('.spot').length") == 1
    many.press("ArrowRight")
    many.run("document.querySelector('[data-chart=gains]').focus()")
    many.press("ArrowRight")
    assert many.texts("#tip b") == column(many, 1)[1:2]
    many.move("h1")
    assert many.run("document.getElementById('tip').hidden")
    many.move("[data-chart='mixture-1']", x=0.5)
    assert "π = " in many.texts("#tip")[0]
    x, y = many.run("(() => { const c = JSON.parse(data.textContent).charts.rounds; return [c.x[5], c.y[5]]; })()")
    many.move("[data-chart=rounds]", x=x / 1000, y=y / 1000)
    assert re.match(r"(FedEM|FedAvg|Local)round \d+: \d", many.texts("#tip")[0])


def test_rows_of_few_clients_tell_all_about_them(browser, reports):
    page = browser.page(reports["few"])
    assert page.run("document.querySelectorAll('#gains .row[data-client]').length") == FEW
    page.move("#gains .row[data-client]:nth-of-type(3)")
    assert page.texts("#tip b") == page.texts("#gains .row[data-client]:nth-of-type(3) .who")
    assert "Training rows" in page.texts("#tip")[0]
    page.close()


def test_small_tables_sort_too(many):
    methods = "table.sortable thead th:nth-child(2) button"
    many.click(methods)
    means = numbers([t.split()[0] for t in many.texts("table.sortable tbody tr > :nth-child(2)")])
    assert means == sorted(means, reverse=True)


@pytest.mark.parametrize("dark", [False, True])
def test_day_and_night_have_their_colours(browser, reports, dark):
    page = browser.page(reports["few"], dark=dark)
    look = "getComputedStyle(document.body)"
    paper, ink = (page.run(f"{look}.{what}") for what in ("backgroundColor", "color"))
    light = lambda colour: sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128
    assert (light(paper), light(ink)) == (not dark, dark)
    page.close()


@pytest.mark.parametrize("name", ["many", "few", "single"])
def test_a_phone_shows_all_of_it(browser, reports, name):
    page = browser.page(reports[name], width=360, height=740, touch=True)
    assert page.run("document.documentElement.scrollWidth") == 360  # wide tables scroll in their own frame
    sizes = page.run("[...document.querySelectorAll('figure *')].filter((e) => e.childNodes.length === 1 &&"
                     " e.firstChild.nodeType === 3).map((e) => parseFloat(getComputedStyle(e).fontSize))")  # fmt: skip
    assert min(sizes) >= 11.5
    page.close()


def test_paper_gets_every_client_in_black_on_white(browser, reports):
    page = browser.page(reports["few"], dark=True)
    assert page.pdf().startswith(b"%PDF")
    page.send("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(254, 254, 254)"
    assert page.run("getComputedStyle(document.querySelector('.tools')).display") == "none"
    page.close()
    page = browser.page(reports["many"])
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert len(column(page, 1)) == 1000
    page.run("dispatchEvent(new Event('afterprint'))")
    assert len(column(page, 1)) == 50
    page.close()


def test_without_scripts_the_page_still_reads(browser, reports, tmp_path):
    text = re.sub(r"<script>.*?</script>", "", reports["many"].read_text(), flags=re.DOTALL)
    still = tmp_path / "still.html"
    still.write_text(text.replace('<html lang="en">', '<html lang="en" class="ready">'))
    page = browser.page(still)
    assert len(page.texts("#clients tbody tr")) == 50
    assert page.run("document.querySelector('.tools').offsetHeight") == 0
    page.close()
