"""Every client's scores at an evaluation, and their summaries over clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from majorant.data.federated import PARTS, FederatedData
from majorant.metrics.scores import across_clients


class Scores(NamedTuple):
    """Each client's loss and score on its own samples, in the order of the clients."""

    values: dict[str, np.ndarray]  # train_loss, train_score, …, and pi where the method has mixture weights
    samples: dict[str, np.ndarray]  # of train, validation and test
    unseen: np.ndarray
    hostile: np.ndarray | None = None  # clients that attack: what is said of all is said of the others

    @classmethod
    def of(
        cls,
        values: dict[str, np.ndarray],
        data: FederatedData,
        unseen: np.ndarray,
        metric: str,
        hostile: np.ndarray | None = None,
    ) -> Scores:
        """Scores with the sizes of the data's parts; RMSE in the original units of the targets."""
        if metric == "rmse" and data.target_scale is not None:
            unit = data.target_scale.scale
            values = values | {name: unit * each for name, each in values.items() if name.endswith("_score")}
        return cls(values, {part: getattr(data, part).sizes for part in PARTS}, unseen, hostile)

    @property
    def seen(self) -> np.ndarray:
        """The honest clients that train."""
        return ~self.unseen if self.hostile is None else ~self.unseen & ~self.hostile

    def lost(self) -> bool:
        """Whether the models of most clients that train give NaN on their own training samples."""
        known = self.seen & (self.samples["train"] > 0)
        return 2 * int(np.isnan(self.values["train_loss"][known]).sum()) > int(known.sum())

    def summary(self, metric: str) -> dict[str, Any]:
        """Weighted means, bottom deciles and standard deviations: seen clients, then unseen ones."""
        seen, new = self.seen, self.unseen
        found: dict[str, Any] = {}
        for part, samples in self.samples.items():
            if f"{part}_score" not in self.values or (metric == "objective" and not samples.any()):
                continue
            score, loss = self.values[f"{part}_score"], self.values[f"{part}_loss"]
            found[f"{part}_{metric}"] = across_clients(score[seen], samples[seen], metric)
            there = seen & (samples > 0)  # of a silo that did not answer nothing is known
            if there.any():
                found[f"{part}_loss"] = float(np.average(loss[there], weights=samples[there]))
            if new.any():
                name = f"unseen_{metric}" if part == "test" else f"unseen_{part}_{metric}"
                found[name] = across_clients(score[new], samples[new], metric)
        return found

    def table(self, names: Sequence[str], metric: str) -> dict[str, Any]:
        """A column per fact about clients, for files and figures."""
        columns: dict[str, Any] = {
            "name": list(names),
            "unseen": self.unseen.astype(int),
            **({} if self.hostile is None else {"hostile": self.hostile.astype(int)}),
            "train_samples": self.samples["train"],
            "test_samples": self.samples["test"],
        }
        for part in ("train", "test"):
            if f"{part}_score" in self.values:
                columns[f"{part}_{metric}"] = self.values[f"{part}_score"]
        for m, weights in enumerate(self.values["pi"].T if "pi" in self.values else []):
            columns[f"pi_{m + 1}"] = weights
        return columns
