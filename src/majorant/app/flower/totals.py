"""Scores of silos from sums: what a run's history and summary say of them, and nothing of a single silo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from majorant.app.flower.letters import Evaluation
from majorant.data.federated import PARTS, FederatedData
from majorant.engines.client_scores import Scores

NAN = float("nan")


class Totals(NamedTuple):
    """The sums of all silos together, in the place of `Scores`; bottom decile and spread over silos are not known."""

    parts: dict[str, tuple[int, float, float]]  # samples, sum of losses, sum of scores
    silos: dict[str, np.ndarray]  # samples of each
    unit: float
    most_are_lost: bool  # whether most silos' models give NaN on their own training samples

    def lost(self) -> bool:
        """Whether the run will not recover."""
        return self.most_are_lost

    def summary(self, metric: str) -> dict[str, Any]:
        """Means over all samples."""
        found: dict[str, Any] = {}
        for part, (count, loss, score) in self.parts.items():
            mean = score / count if count else NAN
            mean = self.unit * float(np.sqrt(mean)) if metric == "rmse" else mean
            found[f"{part}_{metric}"] = {"mean": mean, "bottom_decile": NAN, "std": NAN}
            if count:
                found[f"{part}_loss"] = loss / count
        return found

    def table(self, names: Sequence[str], metric: str) -> dict[str, Any]:
        """A column per fact about silos: their sizes, where they are known."""
        sizes = {f"{part}_samples": self.silos[part] for part in ("train", "test") if part in self.silos}
        return {"name": list(names), "unseen": np.zeros(len(names), int), **sizes}


def totals_of(sums: Mapping[str, Any], lost: bool, data: FederatedData, metric: str) -> Totals:
    """The scores of all silos together, from sums that nobody has seen the parts of."""
    unit = data.target_scale.scale if metric == "rmse" and data.target_scale is not None else 1.0
    number = lambda value: NAN if value is None else value
    parts = {part: (count, number(loss), number(score)) for part, (count, loss, score) in sums.items()}
    return Totals(parts, {}, unit, lost)


def scores_of(found: Mapping[int, Evaluation], data: FederatedData, metric: str, *, each: bool) -> Any:
    """The scores of the silos that have answered, by slot: each one's, or their sums."""
    unit = data.target_scale.scale if metric == "rmse" and data.target_scale is not None else 1.0
    number = lambda value: NAN if value is None else value
    parts = [part for part in PARTS if any(part in e.sums for e in found.values())]
    if not each:
        sums = {}
        for part in parts:
            told: list[Any] = [own for e in found.values() for name, own in e.sums.items() if name == part]
            total = lambda name, told=told: float(sum(number(getattr(s, name)) for s in told))
            sums[part] = (sum(s.count for s in told), total("loss"), total("score"))
        lost = sum(e.sums["train"].loss is None for e in found.values() if "train" in e.sums)
        return Totals(sums, {part: getattr(data, part).sizes for part in PARTS}, unit, 2 * lost > len(found))
    values: dict[str, np.ndarray] = {}
    samples = {part: np.zeros(data.clients, np.int64) for part in PARTS}
    for part in parts:
        values |= {f"{part}_loss": np.full(data.clients, NAN), f"{part}_score": np.full(data.clients, NAN)}
        for slot, evaluation in found.items():
            own: Any = {str(name): sums for name, sums in evaluation.sums.items()}.get(part)
            if own is not None and own.count:
                samples[part][slot] = own.count
                mean = number(own.score) / own.count
                values[f"{part}_loss"][slot] = number(own.loss) / own.count
                values[f"{part}_score"][slot] = unit * np.sqrt(mean) if metric == "rmse" else mean
    weights = [e.weights for e in found.values() if e.weights]
    if weights:
        values["pi"] = np.full((data.clients, len(weights[0])), NAN)
        for slot, evaluation in found.items():
            if evaluation.weights:
                values["pi"][slot] = evaluation.weights
    return Scores(values, samples, np.zeros(data.clients, bool))
