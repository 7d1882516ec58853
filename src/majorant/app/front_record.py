"""The folder of a front: what ``front.json`` says, where the models lie, and which of them is deployed.

::

    config.toml          the settings: majorant pareto --config runs it again
    front.json           every point's numbers, and the chosen ones; a folder without it did not finish
    models/point-000/    every point's model
    model/               the picked point's model, for majorant personalize
    report.html          table and figures
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from majorant.app.files import DamagedFile, read_json
from majorant.app.folders import claimed
from majorant.app.names import nearest
from majorant.app.records import Count, Number, Record, Share, Whole, checked
from majorant.app.signed import verified, write_signed
from majorant.app.trees import load_tree, save_tree

FORMAT = 2


class PointRecord(Record):
    """A model of a front in numbers; those that are not known, or not finite, are NaN here and null in the file."""

    model_config = ConfigDict(populate_by_name=True)

    point: Whole
    weight: float = Field(alias="lambda", ge=0, lt=1)
    criteria_weights: Annotated[list[float], Field(strict=False)]  # the criteria's shares in λ
    loss: Number  # the agents' mean training loss
    worst_loss: Number  # the largest of the agents' training losses
    judged_by: Literal["mean loss", "worst loss"]  # which of the two is a coordinate of the front
    criteria: dict[str, Number]
    decision_gaps: dict[str, Share] = Field(
        {}
    )  # of criteria about groups: the largest difference of rates of decisions
    accuracy: Share  # on the test samples, as macro F1
    macro_f1: Share
    test_loss: Number = math.nan  # the mean over the test samples of all clients
    validation_accuracy: Share
    validation_loss: Number
    certificate: Number
    centralized_gap: Number = math.nan  # F/F* − 1, where a centralized solve was asked for
    norm: Number
    dominated: bool

    @property
    def values(self) -> list[float]:
        """The agents' loss that is a coordinate of the front, and the criteria."""
        return [self.worst_loss if self.judged_by == "worst loss" else self.loss, *self.criteria.values()]

    @property
    def diverged(self) -> bool:
        """Whether training led to numbers that are not finite."""
        return not all(map(math.isfinite, self.values))


class FrontRecord(Record):
    """A front in numbers."""

    format: int
    dataset: str
    model: str
    clients: Count
    rounds: Count
    seed: Whole
    scalarization: str
    criteria: list[str]
    points: list[PointRecord] = Field(min_length=1)
    knee: Whole
    best_validation: Whole | None
    picked: Whole
    picked_by: str
    hypervolume: Number
    hypervolume_reference: list[float]
    spread: Number
    scales: dict[str, Number] = Field({})  # of the criteria: λ weighs scale · criterion against the loss
    seconds: Number

    @model_validator(mode="after")
    def consistent(self) -> FrontRecord:
        """Points are numbered, have the same criteria, and the chosen ones exist."""
        if [point.point for point in self.points] != list(range(len(self.points))):
            raise ValueError("points are not numbered 0, 1, 2, …")
        if any(list(point.criteria) != self.criteria for point in self.points):
            raise ValueError("a point has other criteria than the front")
        if len({point.judged_by for point in self.points}) > 1:
            raise ValueError("points are judged by different losses")
        for place in (self.knee, self.best_validation, self.picked):
            if place is not None and not 0 <= place < len(self.points):
                raise ValueError(f"there is no point {place}")
        if all(point.dominated for point in self.points):
            raise ValueError("every point is dominated")
        if any(point.diverged and not point.dominated for point in self.points):
            raise ValueError("a point of the front has values that are not finite")
        return self

    @property
    def names(self) -> list[str]:
        """The coordinates of the front in words."""
        return [self.points[0].judged_by, *(name.replace("_", " ") for name in self.criteria)]

    @property
    def by_worst(self) -> bool:
        """Whether points are judged by the worst agent's loss."""
        return self.points[0].judged_by == "worst loss"

    @property
    def preferences(self) -> list[tuple[float, ...]]:
        """The different weights of the criteria, in the order of the points."""
        return list(dict.fromkeys(tuple(point.criteria_weights) for point in self.points))

    def path(self, shares: tuple[float, ...]) -> list[PointRecord]:
        """The points with these weights of the criteria, from λ = 0 on, where all weights have the same point."""
        return [point for point in self.points if point.weight == 0 or tuple(point.criteria_weights) == shares]

    @property
    def on_front(self) -> list[PointRecord]:
        """The points that none dominates."""
        return [point for point in self.points if not point.dominated]

    def roles(self, place: int) -> list[str]:
        """What is special about a point, in words."""
        point = self.points[place]
        return (
            [self.why_off(point)] * point.dominated
            + ["knee"] * (place == self.knee)
            + ["best validation"] * (place == self.best_validation)
            + ["picked"] * (place == self.picked)
        )

    def why_off(self, point: PointRecord) -> str:
        """Why a point is not on the front."""
        if point.diverged:
            return "diverged"
        twin = next((other.point for other in self.on_front if other.values == point.values), None)
        return "dominated" if twin is None else f"as {twin}"


def model_folder(folder: Path, place: int) -> Path:
    """Where the model of a point lies."""
    return folder / "models" / f"point-{place:03d}"


def write_front(folder: Path, record: FrontRecord) -> None:
    """Writes ``front.json``."""
    values = record.model_dump(by_alias=True)
    for place, point in enumerate(values["points"]):
        point["model"] = model_folder(Path(), place).as_posix()
    write_signed(folder / "front.json", values)


def read_front(folder: Path) -> FrontRecord:
    """What ``front.json`` says; complaints tell a foreign folder from a damaged one."""
    path = folder / "front.json"
    if not path.is_file():
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}")
        what = "the folder of a run" if (folder / "summary.json").exists() else "not the folder of a finished front"
        raise ValueError(f"{folder} is {what}: it has no front.json, which majorant pareto writes")
    content = read_json(path)
    if not isinstance(content, dict) or "format" not in content or "points" not in content:
        raise DamagedFile(f"{path} was not written by Majorant, or was altered")
    if content["format"] != FORMAT:
        again = f": run majorant pareto --config {folder / 'config.toml'} again"
        raise DamagedFile(
            f"{path} has format {content['format']!r}; this version of Majorant reads format {FORMAT}"
            + (again if content["format"] == 1 else "")
        )
    return checked(FrontRecord, verified(content, path), path)


def choose_point(
    record: FrontRecord,
    *,
    knee: bool = False,
    best_validation: bool = False,
    point: int | None = None,
    max_norm: float | None = None,
    limits: dict[str, float] | None = None,
) -> tuple[int, str]:
    """The point that is asked for in one way, and the way in words; bounds may be several."""
    ways = [knee, best_validation, point is not None, max_norm is not None or bool(limits)]
    if sum(ways) != 1:
        every = "--knee, --best-validation, --point N, or bounds (--max-norm X, --limit criterion=value)"
        raise ValueError(f"{'say which point' if not any(ways) else 'choose in one way'}: {every}")
    if point is not None:
        if not 0 <= point < len(record.points):
            raise ValueError(f"there is no point {point}: they go from 0 to {len(record.points) - 1}")
        if record.points[point].diverged:
            raise ValueError(f"training diverged at point {point}: its model is of no use")
        return point, f"point {point}"
    if best_validation:
        if record.best_validation is None:
            raise ValueError("the data has no validation samples to choose by: take --knee, or a bound")
        return record.best_validation, "best validation"
    if knee:
        return record.knee, "knee"
    unknown = set(limits or {}) - set(record.criteria)
    if unknown:
        name = unknown.pop()
        near = nearest(name, record.criteria)
        raise ValueError(f"the front has no criterion {name!r}{near} It has: {', '.join(record.criteria)}")
    return within(record, max_norm, limits or {})


def within(record: FrontRecord, max_norm: float | None, limits: dict[str, float]) -> tuple[int, str]:
    """The point of least loss within bounds on the parameters' norm and on criteria."""
    bounds = ({} if max_norm is None else {"norm": max_norm}) | limits
    for name, bound in bounds.items():
        if not math.isfinite(bound):
            raise ValueError(f"the bound on {name} must be a finite number, got {bound}")
    value = lambda point, name: point.norm if name == "norm" else point.criteria[name]
    fits = [p for p in record.on_front if all(value(p, name) <= bound for name, bound in bounds.items())]
    if not fits:
        least = ", ".join(f"{name} {min(value(p, name) for p in record.on_front):.6g}" for name in bounds)
        raise ValueError(f"no point of the front is within the bounds; the least values on it are: {least}")
    words = ", ".join(f"{name} ≤ {bound:g}" for name, bound in bounds.items())
    return min(fits, key=lambda p: p.values[0]).point, words


def deploy(folder: Path, record: FrontRecord, place: int, by: str) -> FrontRecord:
    """Puts a point's model in ``model/``, where commands on run folders look for it, and says so in ``front.json``."""
    source = model_folder(folder, place)
    tree, meta = load_tree(source)
    if meta.get("point") != place or meta.get("lambda") != record.points[place].weight:
        raise DamagedFile(f"{source} holds the model of another point than front.json says")
    save_tree(folder / "model", tree, meta)
    record = record.model_copy(update={"picked": place, "picked_by": by})
    write_front(folder, record)
    return record


def pick(folder: Path, **how: Any) -> FrontRecord:
    """Reads a folder, chooses a point (see `choose_point`) and deploys it."""
    record = read_front(folder)
    chosen = choose_point(record, **how)
    with claimed(folder):
        return deploy(folder, record, *chosen)
