"""Mixture weights: which clients are made of which components, and what the components are."""

from __future__ import annotations

import numpy as np

from majorant.app._text import html_text as escape
from majorant.app.report.chart import SIGNS, WEIGHTS, Points, colour_of, css, figure, frame, gradient, picture
from majorant.app.report.clients import Clients
from majorant.app.report.components import Components
from majorant.app.report.gains import listed, room_for
from majorant.app.report.page import framed
from majorant.app.report.record import RunRecord

NAMED = 40  # so many clients have a row with their name; more are columns of a map
SIDE = 2048  # columns of a map, at most
TYPICAL = 4  # clients that are named for a component


def mixture_figure(record: RunRecord, clients: Clients, name: str) -> tuple[str, Points | None]:
    """The weights of all clients, and for long maps the points that the script finds."""
    weights, places = record.mixture, clients.places()
    who = [str(each) for each in record.clients["name"]]
    order = np.lexsort((-weights.max(axis=1, initial=0), weights.argmax(axis=1)))
    at = [places.get(who[i], -1) for i in order]
    known = len(who) <= NAMED
    body, points = (rows(record, order, at), None) if known else long_map(record, order, at, name)
    scale = f'<p class="y-name">0 <span class="scale" style="background:{gradient(WEIGHTS)}"></span> 1, the weight</p>'
    return figure(name, f"<h3>{escape(record.label)}</h3>{scale}{body}", caption(record, known)), points


def rows(record: RunRecord, order: np.ndarray, at: list[int]) -> str:
    """A row for every client, with its name and its weights."""
    count = record.mixture.shape[1]
    head = "".join(f'<span class="cell">π {m + 1}</span>' for m in range(count))
    lines = [f'<div class="head"><span></span>{head}</div>']
    for i, place in zip(order, at, strict=True):
        cells = "".join(cell(weight) for weight in record.mixture[i])
        name = str(record.clients["name"][i]) + (" (unseen)" if record.unseen[i] else "")
        client = f' data-client="{place}"' if place >= 0 else ""
        lines.append(f'<div{client}><span title="{escape(name)}">{escape(name)}</span>{cells}</div>')
    room = room_for(map(str, record.clients["name"]))
    return f'<div class="weights" style="--components:{count};--name:{room}">{"".join(lines)}</div>'


def cell(weight: float) -> str:
    """A weight on its colour."""
    red, green, blue = colour_of(float(weight), WEIGHTS)
    ink = "#000" if 0.3 * red + 0.59 * green + 0.11 * blue > 120 else "#fff"
    text = f"{weight:.2f}" if np.isfinite(weight) else "–"
    return f'<span class="cell" style="background:{css((red, green, blue))};color:{ink}">{text}</span>'


def long_map(record: RunRecord, order: np.ndarray, at: list[int], name: str) -> tuple[str, Points | None]:
    """A column for every client (or for the mean of neighbours), a band for every component."""
    weights = record.mixture[order]
    clients, count = weights.shape
    groups = np.array_split(np.arange(clients), min(clients, SIDE))
    columns = np.stack([weights[group].mean(axis=0) for group in groups], axis=1)
    image = (
        f'<image href="{picture(columns, WEIGHTS)}" width="1000" height="1000" preserveAspectRatio="none" class="map"/>'
    )
    body = frame(
        name, image, label="Mixture weights", height=34 * count + 10,
        y_ticks=[(1000 * (m + 0.5) / count, f"π {m + 1}") for m in range(count)],
        x_name=f"{clients:,} clients, grouped by their largest weight", left="2.2rem",
    )  # fmt: skip
    if min(at) < 0:
        return body, None
    tips = ["π = " + ", ".join(f"{w:.2f}" for w in each) for each in weights]
    return body, {"y": [500.0] * clients, "clients": at, "tips": tips, "upright": True}


def caption(record: RunRecord, named: bool) -> str:
    """What the map shows, and who is typical of each component."""
    words = (
        "The weight π of each component in each client's model. Clear blocks mean that groups of alike clients were"
        " found; even colours mean that everybody mixes everything."
    )
    if not named:
        words += " The pointer names the clients."
    if record.components is None:
        words += " What they differ in is not shown: the saved model has other layers than dense ones, or is not there."
    weights, names = record.mixture, record.clients["name"]
    for m in range(weights.shape[1]):
        most = [str(names[i]) for i in np.argsort(-weights[:, m], kind="stable") if weights[i, m] > 0.5]
        if most:
            words += f" Mostly component {m + 1}: {listed(most, TYPICAL)}."
    return words


def components_figure(record: RunRecord, found: Components, name: str) -> str:
    """What the components differ in."""
    body = pictures(found) if found.image else table(found)
    what = "coefficients" if found.linear else "slopes at an average sample"
    if found.image:
        words = (
            f"The {what} of the components, a row for each, as images: where a bright pixel speaks for the class (blue)"
            " and where against it (brown)."
        )
    else:
        some = {0: "raise the prediction", 2: f"speak for {found.classes[-1]}" if found.classes else ""}
        words = (
            f"The {what} in which the components differ most; positive ones"
            f" {some.get(len(found.classes), 'speak for the class')}. They are those of the columns as the model sees"
            " them: numbers standardised, categories as 0 or 1."
        )
    return figure(name, f"<h3>What the components differ in ({escape(record.label)})</h3>{body}", words)


def table(found: Components) -> str:
    """The largest differences, with a colour behind each coefficient."""
    differences = found.differences()
    most = max(float(np.abs(values).max()) for _, values in differences) or 1.0
    count = len(found.coefficients)
    head = "".join(f'<th scope="col">Component {m + 1}</th>' for m in range(count))
    lines = []
    for label, values in differences:
        cells = ""
        for value in values:
            colour = colour_of(0.5 + 0.5 * float(value) / most, SIGNS)
            ink = "#000" if 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] > 120 else "#fff"
            number = f"{value:+.2f}".replace("-", "−")
            cells += f'<td class="tint" style="background:{css(colour)};color:{ink}">{number}</td>'
        lines.append(f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>')
    return framed(f'<th scope="col">Column</th>{head}', lines)


def pictures(found: Components) -> str:
    """Coefficients as images: a row for each component, a column for each class."""
    shown = found.pictures()
    cells = ["<span></span>", *(f"<span>{escape(label)}</span>" for label, _ in shown)]
    for m in range(len(found.coefficients)):
        cells.append(f"<span>{m + 1}</span>")
        cells += [
            f'<img src="{picture(images[m], SIGNS)}" alt="component {m + 1}, class {escape(label)}">'
            for label, images in shown
        ]
    return f'<div class="pictures" style="--pictures:{len(shown)}">{"".join(cells)}</div>'
