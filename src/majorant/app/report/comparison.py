"""The verdict of a comparison, as the comparison folder's own ``summary.json`` holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from majorant.app.folders import slug
from majorant.app.records import Record, checked
from majorant.app.signed import read_signed

Interval = Annotated[tuple[float, float], Field(strict=False)]
Judgement = Literal["gains", "loses", "unclear", "diverged"]


class Group(Record):
    """The rows of a group, and the score on them."""

    rows: int
    score: float | None = None


class Gaps(Record):
    """The scores of a method by the groups of a column, and the gap between the best and the worst."""

    column: str
    groups: dict[str, Group]
    gap: float | None = None


class Method(Record):
    """What a method came to, over all clients."""

    mean: float | None = None
    interval: Interval | None = None
    bottom_decile: float | None = None
    scores: dict[str, float | None] = Field(default_factory=dict)
    std: float | None = None  # over clients
    std_over_splits: float | None = None
    diverged: list[str] = Field(default_factory=list)
    gaps: Gaps | None = None
    folder: str | None = None  # of its run, in the comparison's


class Client(Record):
    """What a client came to, by every method."""

    name: str
    train: int | None = None
    test: int | None = None
    scores: dict[str, float | None] = Field(default_factory=dict)
    trivial: float | None = None
    gain: float | None = None
    interval: Interval | None = None
    verdict: Judgement | None = None


class Trivial(Record):
    """A model that looks at no feature."""

    name: str
    score: float | None = None
    beaten: bool | None = None


class Verdict(Record):
    """The conclusion."""

    best: str | None = None
    over: str | None = "local"  # None where nobody trained alone
    worth_it: Literal["yes", "no", "unclear"] = "unclear"
    gain: float | None = None
    interval: Interval | None = None
    gain_clients: list[str] = Field(default_factory=list)
    lose_clients: list[str] = Field(default_factory=list)
    unclear_clients: int = 0
    trivial: Trivial | None = None
    small_clients: list[str] = Field(default_factory=list)
    diverged: dict[str, list[str]] = Field(default_factory=dict)
    megabytes: float | None = None
    sentences: list[str] = Field(default_factory=list)


class Comparison(Record):
    """The summary of a comparison."""

    metric: str
    higher_is_better: bool = True
    methods: dict[str, Method] = Field(default_factory=dict)
    clients: list[Client] = Field(default_factory=list)
    verdict: Verdict


def load_comparison(folder: Path) -> Comparison | None:
    """The verdict of a comparison's folder; None where the folder holds none."""
    path = folder / "summary.json"
    content: Any = read_signed(path) if path.is_file() else None
    if not isinstance(content, dict) or "verdict" not in content:
        return None
    return checked(Comparison, content, path)


def runs_in(folder: Path) -> list[tuple[Path, str | None]]:
    """The run folders of a comparison with labels, or those in any other folder and comparisons in it, or itself."""
    comparison = load_comparison(folder)
    if comparison is not None:
        places = {label: folder / (method.folder or slug(label)) for label, method in comparison.methods.items()}
        known: list[tuple[Path, str | None]] = [
            (place, label) for label, place in places.items() if (place / "summary.json").is_file()
        ]
        if known:
            return known
    elif (folder / "summary.json").exists() or not folder.is_dir():
        return [(folder, None)]
    inside = (path.parent for path in sorted(folder.glob("*/summary.json")) if not path.parent.is_symlink())
    return [(run, None) for place in inside for run, _ in runs_in(place)] or [(folder, None)]
