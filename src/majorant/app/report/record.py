"""What a report is made from: the plain contents of a run folder."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from majorant.app._text import uncell
from majorant.app.config import read_settings
from majorant.app.files import DamagedFile
from majorant.app.logs import read_jsonl
from majorant.app.records import Line, Summary, checked
from majorant.app.report.components import Components, read_model
from majorant.app.report.words import metric
from majorant.app.signed import read_signed


@dataclass(frozen=True)
class RunRecord:
    """One run: its configuration, its summary, a line per evaluation, and a column per quantity of the clients.

    >>> record = RunRecord("FedEM", summary={"metric": "accuracy", "test_accuracy": {"mean": 0.8}})
    >>> record.metric, record.score("test", "mean"), record.higher_is_better
    ('accuracy', 0.8, True)
    """

    label: str
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    clients: dict[str, np.ndarray] = field(default_factory=dict)
    classes: int = 0  # of the labels; 0 where they are not known, and for regression
    components: Components | None = None  # of a mixture

    def relabelled(self, label: str) -> RunRecord:
        """The same run under another name."""
        return replace(self, label=label)

    @property
    def alone(self) -> bool:
        """Whether every client trained alone."""
        return str(self.config.get("algorithm", self.summary.get("algorithm", ""))).partition(":")[0].lower() == "local"

    @property
    def metric(self) -> str:
        """What the run is judged by: "accuracy", "rmse", or "objective" for problems without labels."""
        default = next((name for name in ("accuracy", "rmse") if f"test_{name}" in self.summary), "objective")
        return str(self.summary.get("metric", default))

    @property
    def solves(self) -> bool:
        """Whether the run minimised a personalized objective: then how far it came is of interest beside the scores."""
        return "objective" in self.config or "gradients" in self.summary

    @property
    def higher_is_better(self) -> bool:
        """Whether the metric is a gain (accuracy) rather than a loss (rmse, objective)."""
        return metric(self.metric).higher_is_better

    def score(self, part: str, statistic: str, line: dict[str, Any] | None = None) -> float:
        """A statistic ("mean", "bottom_decile", "std") of a part ("test", "unseen") in the summary, or in a line of the
        history; NaN where it is not known."""
        source = self.summary if line is None else line
        value = source.get(f"{part}_{self.metric}", source.get(self.metric) if part == "test" else None)
        if isinstance(value, dict):
            value = value.get(statistic)
        elif statistic != "mean":
            value = None
        return number(value)

    @property
    def seeds(self) -> list[Any]:
        """The seeds of the history, in order of appearance; one None where the lines carry none."""
        return list(dict.fromkeys(line.get("seed") for line in self.history)) or [None]

    def series(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rounds (R,), bytes sent and received until then (R,), and the mean test score per seed (seeds, R)."""
        rounds = sorted({int(line["round"]) for line in self.history if "round" in line})
        row, column = ({value: place for place, value in enumerate(values)} for values in (self.seeds, rounds))
        sent, values = np.full((2, len(row), len(rounds)), np.nan)
        for line in self.history:
            if "round" in line:
                at = row[line.get("seed")], column[int(line["round"])]
                values[at] = self.score("test", "mean", line)
                sent[at] = number(line.get("bytes_up", 0)) + number(line.get("bytes_down", 0))
        known = np.isfinite(values).any(axis=0)
        total = np.where(np.isfinite(sent), sent, 0).sum(axis=0) / np.maximum(np.isfinite(sent).sum(axis=0), 1)
        return np.array(rounds, float)[known], total[known], values[:, known]

    def per_client(self) -> np.ndarray:
        """The test score of each client, (clients,), or an empty array where it was not written."""
        return self.clients.get(f"test_{self.metric}", np.zeros(0))

    @property
    def unseen(self) -> np.ndarray:
        """Which clients took no part in training, (clients,)."""
        count = len(next(iter(self.clients.values()), ()))
        return np.nan_to_num(self.clients.get("unseen", np.zeros(count))).astype(bool)

    @property
    def mixture(self) -> np.ndarray:
        """The mixture weights of the clients, (clients, M); M is 0 for methods without them."""
        names = sorted((n for n in self.clients if n[:3] == "pi_" and n[3:].isdecimal()), key=lambda n: int(n[3:]))
        return np.stack([self.clients[n] for n in names], axis=1) if names else np.zeros((len(self.unseen), 0))


def common_trivial(records: Sequence[RunRecord], name: str) -> tuple[str, float] | None:
    """The trivial model and its score by some metric, where all runs were judged by it and say the same."""
    told = [r.summary.get("trivial") or {} for r in records if r.metric == name]
    score = number(told[0].get("score")) if told else math.nan
    if len(told) < len(records) or not math.isfinite(score) or any(each != told[0] for each in told):
        return None
    return str(told[0]["name"]), score


def number(value: Any) -> float:
    """A number from JSON, where null stands for NaN."""
    return float(value) if isinstance(value, int | float) else float("nan")


def amount(costs: dict[str, Any], key: str) -> float:
    """A cost, 0 where it was not counted."""
    value = costs.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def load_run(folder: str | Path, label: str | None = None) -> RunRecord:
    """Reads a run folder: ``config.toml``, ``summary.json``, ``metrics.jsonl``, and ``clients.csv`` if there is one.

    The label is the algorithm's name unless one is given.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a run folder: " + ("it is a file" if folder.exists() else "it does not exist")
        )
    if (folder / "front.json").is_file():
        raise ValueError(f"{folder} is the folder of a front, which has a report of its own: give it alone")
    if not (folder / "summary.json").is_file():
        started = (folder / "metrics.jsonl").exists() or (folder / "config.toml").exists()
        reason = "the run has not finished" if started else "this is not a run folder"
        raise ValueError(f"{folder} has no summary.json: {reason}")
    summary = read_signed(folder / "summary.json")
    checked(Summary, summary, folder / "summary.json")
    config = read_settings(folder / "config.toml") if (folder / "config.toml").exists() else {}
    history = read_jsonl(folder / "metrics.jsonl")
    for place, line in enumerate(history, 1):
        checked(Line, line, f"line {place} of {folder / 'metrics.jsonl'}")
    clients = read_columns(folder / "clients.csv")
    if clients and summary.get("clients") not in (None, len(clients["name"])):
        raise DamagedFile(f"{folder / 'clients.csv'} does not have a row for every client of summary.json")
    label = label or str(summary.get("algorithm") or folder.name)
    record = RunRecord(label, config, summary, history, clients)
    classes, components = read_model(folder / "model", record.mixture.shape[1])
    return replace(record, classes=classes, components=components)


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a CSV file: ``name`` as text, all else as numbers with NaN for empty cells."""
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DamagedFile(f"{path} is damaged: {error}") from None
    if not rows:
        return {}
    header, body = rows[0], [row for row in rows[1:] if row]
    columns: dict[str, np.ndarray] = {"name": np.zeros(0, str)}
    for place, name in enumerate(header):
        try:
            cells = [row[place] for row in body]
            texts = name == "name"
            columns[name] = np.array([uncell(c) if texts else float(c or "nan") for c in cells])
        except (IndexError, ValueError) as error:
            raise DamagedFile(f"column {name!r} of {path} is damaged: {error}") from None
    return columns
