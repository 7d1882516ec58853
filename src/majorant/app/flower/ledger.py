"""The server's run folder: a checkpoint after every round, a line per evaluation, and in the end as after a simulation.

The checkpoint is written before any silo is told that its upload has arrived. So a server that is killed at any moment
goes on from a round that all silos can go on from: what they were told is in it.
"""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from majorant.app._checkpoint import NETWORK
from majorant.app._text import csv_text
from majorant.app.files import DamagedFile, atomic_write_text, strict_json
from majorant.app.flower.letters import Agreement
from majorant.app.flower.study import Study, differences, parse_study
from majorant.app.logs import append_jsonl
from majorant.app.saved_model import model_meta
from majorant.app.signed import write_signed
from majorant.app.trees import load_meta, load_tree, save_tree, tree_exists
from majorant.core import Server
from majorant.data.federated import FederatedData, Ragged
from majorant.data.labels import TargetScale
from majorant.data.splitting import offsets_of
from majorant.data.tabular.encoding import Encoding
from majorant.engines.run import Run
from majorant.engines.tally import Tally


@dataclass
class Record:
    """What a server knows of a run beside its state; all of it is in the checkpoint."""

    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    names: list[str] = field(default_factory=list)  # of the silos, by slot
    features: list[int] = field(default_factory=list)
    classes: list[Any] = field(default_factory=list)
    encoding: dict[str, Any] | None = None
    rate: float | None = None  # the learning rate, where the study leaves it open
    sizes: list[list[int]] = field(default_factory=list)  # of train, validation and test parts, by slot
    secret: str = ""  # what random numbers are drawn from where noise hides silos: the seed is no secret among them
    totals: list[int] = field(default_factory=list)  # of all silos' parts together, where sums are secure
    heard: list[int] = field(default_factory=list)  # the last round whose upload arrived, by slot
    round: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    communication: dict[str, int] = field(
        default_factory=lambda: {"rounds": 0, "bytes_up": 0, "bytes_down": 0, "wire_up": 0, "wire_down": 0}
    )
    seconds: dict[str, float] = field(default_factory=lambda: {"compile": 0.0, "train": 0.0, "evaluate": 0.0})

    def agreement(self, slot: int) -> Agreement:
        """What the silo in a slot is told of what was agreed on."""
        shape: dict[str, Any] = {"features": self.features, "classes": self.classes, "encoding": self.encoding}
        return Agreement(run=self.run, clients=len(self.names), slot=slot, **shape)

    def table(self) -> Encoding | None:
        """The encoding of the silos' tables."""
        return Encoding.from_dict(self.encoding) if self.encoding else None


class Ledger:
    """A run folder that a server writes."""

    def __init__(self, folder: Path, study: Study) -> None:
        self.folder, self.study, self.log = folder, study, folder / "metrics.jsonl"

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return tree_exists(self.folder / "checkpoint")

    def start(self) -> None:
        """A new run."""
        atomic_write_text(self.folder / "config.toml", self.study.to_toml())
        (self.folder / "summary.json").unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)

    def save(self, server: Server, tally: Tally, record: Record) -> None:
        """The checkpoint after a round; the tally is what was counted since the last evaluation."""
        meta = {"kind": NETWORK, "study": self.study.to_toml(), "record": vars(record)}
        states = jax.tree.map(np.asarray, {"server": server, "tally": tally})
        save_tree(self.folder / "checkpoint", states, meta, private=True)

    def record(self) -> Record:
        """What the checkpoint knows; refuses one of another study."""
        place = self.folder / "checkpoint"
        meta = load_meta(place)
        if meta.get("kind") != NETWORK:
            raise ValueError(f"{self.folder} is no run on a network: it cannot be resumed here")
        try:
            found, started = Record(**meta["record"]), parse_study(meta["study"])
        except (KeyError, TypeError) as error:
            raise DamagedFile(f"{place} was altered, or is not ours: {error}") from None
        different = differences(self.study, started)
        if different:
            raise ValueError(
                f"{self.folder} was started with another study ({'; '.join(different)}): resume with the same"
            )
        atomic_write_text(self.log, "".join(f"{strict_json(line)}\n" for line in found.history))
        (self.folder / "summary.json").unlink(missing_ok=True)
        return found

    def states(self, server: Server, tally: Tally) -> tuple[Server, Tally]:
        """The server and the tally of the checkpoint, which are like these."""
        found, _ = load_tree(self.folder / "checkpoint", {"server": server, "tally": tally})
        return found["server"], found["tally"]

    def tell(self, line: str) -> None:
        """What happened on the network, for people."""
        with (self.folder / "network.log").open("a", encoding="utf-8") as log:
            log.write(f"{datetime.datetime.now().isoformat(' ', 'seconds')} {line}\n")

    def line(self, record: dict[str, Any]) -> None:
        """One more evaluation."""
        append_jsonl(self.log, record)

    def finish(self, run: Run, data: FederatedData, encoding: Encoding | None) -> None:
        """What a simulation leaves: a line per client, the server's model, the summary."""
        columns = run.clients
        atomic_write_text(
            self.folder / "clients.csv", csv_text([list(columns), *map(list, zip(*columns.values(), strict=True))])
        )
        meta = model_meta(self.study.config, data, encoding, self.study.config.seed)
        save_tree(self.folder / "model", run.deployment.server, meta)
        write_signed(self.folder / "summary.json", run.summary(), ("metrics.jsonl", "clients.csv"))


def outline(record: Record, name: str, precision: Any) -> FederatedData:
    """Data of the silos' names, sizes and shape, without any of their rows: zeros, which take no memory."""
    kind = np.int32 if record.classes else precision

    def part(place: int) -> Ragged:
        sizes = np.array([sizes[place] for sizes in record.sizes])
        rows = int(sizes.sum())
        x = np.broadcast_to(np.zeros((), precision), (rows, *record.features))
        return Ragged(x, np.broadcast_to(np.zeros((), kind), (rows,)), offsets_of(sizes))

    encoding = record.table()
    scale: TargetScale | None = encoding.target_scale if encoding else None
    nobody = np.zeros(len(record.names), bool)
    train, validation, test = map(part, range(3))
    return FederatedData(
        train, validation, test, nobody, tuple(record.names), tuple(record.classes), name, target_scale=scale
    )
