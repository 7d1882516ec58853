"""Runs and comparisons that no training made, for the tests of reports, and a reader of their pages."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import numpy as np

from majorant.app.records import checked
from majorant.app.report import RunRecord
from majorant.app.report.comparison import Comparison

METHODS = (("FedEM", 0.83, 3), ("FedAvg", 0.74, 0), ("Local", 0.7, 0))


def fake_record(label: str, level: float, components: int, *, seeds: int = 1, clients: int = 60) -> RunRecord:
    """A run that looks like a real one."""
    rng = np.random.default_rng(sum(map(ord, label)))
    sent = 0 if label == "Local" else 48_000 * max(components, 1)
    unseen = (np.arange(clients) % 5 == 0).astype(float)
    score = np.clip(level + 0.08 * rng.standard_normal(clients) - 0.03 * unseen, 0, 1)
    pi = rng.dirichlet(np.full(max(components, 1), 0.3), clients)
    spread = {"mean": level, "bottom_decile": float(np.quantile(score, 0.1)), "std": float(score.std())}
    unseen_spread = spread | {"mean": level - 0.03}
    history: list[dict[str, Any]] = []
    for seed in range(seeds):
        for r in range(10, 210, 10):
            now = level - 0.3 * np.exp(-r / 40) + 0.005 * rng.standard_normal()
            line = {"round": r, "seconds": 0.06 * r, "bytes_up": sent * r, "bytes_down": sent * r, "clients": clients}
            line |= {"test_accuracy": {"mean": now, "bottom_decile": now - 0.1, "std": 0.08}, "rejected": 0}
            history.append(line | ({"seed": seed} if seeds > 1 else {}))
    summary = {
        "algorithm": label, "dataset": "synthetic:clients=300", "seed": 0, "rounds": 200, "clients": clients,
        "metric": "accuracy", "test_accuracy": spread, "unseen_accuracy": unseen_spread,
        "seconds": {"compile": 2.1, "train": 12.0 * level, "evaluate": 0.8},
        "communication": {"rounds": 200, "bytes_up": sent * 200, "bytes_down": sent * 200},
    }  # fmt: skip
    columns: dict[str, np.ndarray] = {"name": np.array([f"client-{c}" for c in range(clients)]), "unseen": unseen}
    columns |= {
        "train_samples": rng.integers(20, 500, clients) * 1.0,
        "test_samples": rng.integers(5, 99, clients) * 1.0,
    }
    columns |= {"train_accuracy": np.clip(score + 0.05, 0, 1), "test_accuracy": score}
    columns |= {f"pi_{m + 1}": pi[:, m] for m in range(components)}
    config = {"algorithm": label.lower(), "rounds": 200, "local": {"rate": 0.1, "batch_size": 128}, "seeds": [0, 1]}
    return RunRecord(label, config, summary, history, columns)


def fake_records(**options: Any) -> list[RunRecord]:
    return [fake_record(*method, **options) for method in METHODS]


def as_regression(record: RunRecord) -> RunRecord:
    """The same run, as if its scores were errors."""
    summary, history = json.loads(json.dumps([record.summary, record.history]).replace("accuracy", "rmse"))
    clients = {name.replace("accuracy", "rmse"): column for name, column in record.clients.items()}
    return RunRecord(record.label, record.config, summary, history, clients)


def renamed(record: RunRecord, names: dict[int, str]) -> RunRecord:
    """The same run with other names for some of its clients."""
    every = record.clients["name"].astype(object)
    for place, name in names.items():
        every[place] = name
    clients = record.clients | {"name": np.array(every.tolist())}
    return RunRecord(record.label, record.config, record.summary, record.history, clients)


def compared(records: list[RunRecord], noise: float = 0.05, **verdict: Any) -> Comparison:
    """What a comparison says of the first run against the last; a gain is beyond noise where it is larger."""
    best, alone = records[0], records[-1]
    sign = 1 if best.higher_is_better else -1
    clients = []
    for place, name in enumerate(alone.clients["name"]):
        gain = float(sign * (best.per_client()[place] - alone.per_client()[place]))
        known = bool(np.isfinite(gain))
        said = ("gains" if gain > noise else "loses" if gain < -noise else "unclear") if known else "diverged"
        scores = {r.label: float(v) if np.isfinite(v := r.per_client()[place]) else None for r in records}
        interval = [gain - noise, gain + noise] if known else None
        sizes = {part: int(alone.clients[f"{part}_samples"][place]) for part in ("train", "test")}
        clients.append(
            {"name": str(name), **sizes, "scores": scores, "trivial": 0.55, "gain": gain if known else None,
             "interval": interval, "verdict": said}
        )  # fmt: skip
    mean = lambda r: None if np.isnan(r.score("test", "mean")) else r.score("test", "mean")
    methods = {
        r.label: {"mean": mean(r), "bottom_decile": r.score("test", "bottom_decile"), "scores": {"log_loss": 0.25 + i}}
        for i, r in enumerate(records)
    }
    who = lambda said: [client["name"] for client in clients if client["verdict"] == said]
    conclusion = {
        "best": best.label, "over": alone.label, "worth_it": "yes", "gain": 0.13, "interval": [0.1, 0.16],
        "gain_clients": who("gains"), "lose_clients": who("loses"), "unclear_clients": len(who("unclear")),
        "trivial": {"name": "majority class", "score": 0.55, "beaten": True}, "small_clients": [],
        "diverged": {}, "megabytes": 28.8, "sentences": ["Yes, it is worth it.", "Some gain & some lose."],
    }  # fmt: skip
    content = {"metric": best.metric, "higher_is_better": sign > 0, "methods": methods, "clients": clients}
    return checked(Comparison, content | {"verdict": conclusion | verdict}, "a comparison")


class Page(HTMLParser):
    """Collects tags, attributes and text, and checks that what is opened is closed."""

    void = ("meta", "br", "img", "hr", "link", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.texts: dict[str, str] = {}  # of scripts, by id
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        attrs = self.tags[-1][1] if self.tags else {}
        if self.open[-1:] == ["script"]:
            self.texts[str(attrs.get("id"))] = self.texts.get(str(attrs.get("id")), "") + data
        else:
            self.text += data

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script shows."""
        return json.loads(self.texts["data"])
