"""What the check of a surrogate has found: for every condition the worst violation, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Condition(NamedTuple):
    """One condition: its worst violation, relative to the values involved, and where that was."""

    name: str
    violation: float
    where: str
    point: dict[str, Any]  # what was tried there, as NumPy arrays: u0, v0, u, v, or tau and theta


@dataclass(frozen=True)
class SurrogateReport:
    """The conditions as they were found; printing it gives a table."""

    surrogate: str
    conditions: tuple[Condition, ...]
    smoothness: float | None  # the largest curvature of g − f in u that was seen: a lower estimate of its L
    tolerance: float
    points: int  # how many points were looked at

    @property
    def ok(self) -> bool:
        """Whether no violation is above the tolerance."""
        return not self.failed

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The conditions that do not hold, the worst first."""
        wrong = [c for c in self.conditions if not c.violation <= self.tolerance]
        return tuple(sorted(wrong, key=lambda c: -c.violation))

    @property
    def worst(self) -> Condition:
        """The condition with the largest violation."""
        return max(self.conditions, key=lambda c: c.violation)

    def raise_if_wrong(self) -> SurrogateReport:
        """The report itself; a ValueError that says what fails, by how much and where, if something does."""
        if self.failed:
            what = "; ".join(f"{c.name} by {c.violation:.1e} at {c.where}" for c in self.failed)
            raise ValueError(f"the {self.surrogate} surrogate violates (relative to the values there) {what}")
        return self

    def __str__(self) -> str:
        count = len(self.failed)
        fails = "1 condition fails" if count == 1 else f"{count} conditions fail"
        verdict = fails if count else "every condition holds"
        width = max(len(c.name) for c in self.conditions)
        rows = [
            f"{c.name:<{width}}  {c.violation:8.1e}  {'ok' if c.violation <= self.tolerance else 'WRONG, ' + c.where}"
            for c in self.conditions
        ]
        lines = [
            f"{self.surrogate} surrogate at {self.points} points: {verdict}",
            f"{'condition':<{width}}  violation",
            *rows,
        ]
        if self.smoothness is not None:
            lines.append(
                f"g − f has curvatures up to {self.smoothness:.3g} in u, as far as seen (its L is at least that)"
            )
        return "\n".join(lines)
