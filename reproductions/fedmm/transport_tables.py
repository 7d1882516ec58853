"""Tables and curves of Figure 3 from the files of its pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from majorant.app.files import atomic_write_bytes
from majorant.app.reproduce import Result

LEVEL = 20.0  # the L2-UVP that megabytes are counted to
CUT = 100.0  # curves are drawn up to here, the error of a map that sends everything to the mean of Q
DRAWN = (
    "FedMM-OT, max-min",
    "FedMM-OT, cycle",
    "FedMM-OT, Gaussian coordinates",
    "FedAdam, cycle",
    "FedAdam, max-min",
    "centralized",
    "FedAdam, cycle, tuned on all rounds",
)
Record = dict[str, Any]


def results_of(folder: Path) -> list[Result]:
    """All dimensions in one table, then one for each."""
    found = read(folder)
    dimensions = sorted({r["dimension"] for r in found})
    return [overview(found, dimensions), *(result_in(d, [r for r in found if r["dimension"] == d]) for d in dimensions)]


def read(folder: Path) -> list[Record]:
    """The files of a folder."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("d*-*.json"))]


def curves_of(folder: Path, path: Path) -> None:
    """Draws the curves of all dimensions side by side: the map to a file, its inverse to one named so beside it."""
    from majorant.app.report.figures import lines, render

    found = read(folder)
    for way, file in (("forward", path), ("inverse", path.with_stem(path.stem + "-inverse"))):
        curves, bands = medians(found, way)
        atomic_write_bytes(file, render(lines(curves, "round", f"L2-UVP, {way} map (%)", bands), "png"))


def medians(records: list[Record], way: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Curves of the medians over runs, and bands between the least and the largest."""
    curves, bands = {}, {}
    for record in sorted((r for r in records if r["piece"] in DRAWN), key=place):
        name, path = f"d = {record['dimension']} | {record['piece']}", np.minimum(np.array(record[way], float), CUT)
        curves[name] = (record["rounds"], np.nanmedian(path, axis=0).tolist())
        bands[name] = (np.nanmin(path, axis=0).tolist(), np.nanmax(path, axis=0).tolist())
    return curves, bands


def place(record: Record) -> tuple[int, int]:
    """Where a curve stands among the others."""
    return record["dimension"], DRAWN.index(record["piece"])


def overview(records: list[Record], dimensions: list[int]) -> Result:
    """Means and standard deviations over runs of both errors, and curves of the forward one."""
    columns, rows = ["method"], {r["piece"]: [r["piece"]] for r in records}
    for d in dimensions:
        columns += [f"d = {d}: forward", "inverse"]
        here = {r["piece"]: r for r in records if r["dimension"] == d}
        for name, row in rows.items():
            row += [around(here[name][way]) if name in here else "–" for way in ("forward", "inverse")]
    title = "Mix3 → Mix10: L2-UVP in per cent, means ± standard deviations over runs"
    curves, bands = medians(records, "forward")
    return Result(title, columns, list(rows.values()), curves=curves, axes=("round", "L2-UVP (%)"), bands=bands)


def result_in(dimension: int, records: list[Record]) -> Result:
    """One dimension: errors at the end, what was sent in all and until a level, and hyperparameters."""
    rows = []
    for record in sorted(records, key=lambda r: middle(r["forward"])):
        low, high = spread(record["forward"])
        rows.append(
            [
                record["piece"],
                f"{middle(record['forward']):.1f}",
                f"{low:.1f} to {high:.1f}",
                f"{middle(record['inverse']):.1f}",
                record["rounds"][-1],
                f"{record['bytes_up'][-1] / 1e6:.0f}" if record.get("bytes_up") else "–",
                until(record, LEVEL),
                ", ".join(f"{key} {value:g}" for key, value in (record.get("chosen") or {}).items()) or "–",
            ]
        )
    title = f"d = {dimension}: L2-UVP in per cent, median over runs"
    columns = ["method", "forward", "runs", "inverse", "rounds", "MB up", f"until {LEVEL:g} %", "hyperparameters"]
    return Result(title, columns, rows)


def until(record: Record, level: float) -> str:
    """Megabytes that all clients have sent when the median of the forward error is first at most a level."""
    below = np.nonzero(np.median(np.array(record["forward"], float), axis=0) <= level)[0]
    if not record.get("bytes_up") or not len(below):
        return "–"
    return f"{record['bytes_up'][below[0]] / 1e6:.0f} (round {record['rounds'][below[0]]})"


def around(paths: list[list[float | None]]) -> str:
    """Mean ± standard deviation at the end."""
    ends = np.array([np.inf if path[-1] is None else path[-1] for path in paths])
    if not np.isfinite(ends).all():
        return "diverged"
    form = ".1f" if ends.mean() < 1000 else ".1e"
    return f"{ends.mean():{form}}" + (f" ± {ends.std(ddof=1):{form}}" if len(ends) > 1 else "")


def middle(paths: list[list[float | None]]) -> float:
    """The median over runs at the end; runs that diverged count as infinite."""
    return float(np.median([np.inf if path[-1] is None else path[-1] for path in paths]))


def spread(paths: list[list[float | None]]) -> tuple[float, float]:
    """The least and the largest at the end."""
    ends = [np.inf if path[-1] is None else path[-1] for path in paths]
    return min(ends), max(ends)
