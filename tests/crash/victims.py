"""Small runs in folders, one of each kind that keeps something between rounds, and what they must leave."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import majorant as mj
import zoo
from majorant.app import execute
from majorant.app.build import Problem
from majorant.app.config import RunConfig, make_config
from majorant.app.signed import read_signed
from majorant.engines.options import Resources

ROUNDS, EVERY = 6, 2  # three evaluations, each with a checkpoint
FILES = {"config.toml", "metrics.jsonl", "summary.json", "clients.csv", "checkpoint", "model"}


class Victim(NamedTuple):
    """A run: its algorithm in the zoo, how messages are exchanged, and whether states lie in files."""

    algorithm: str
    exchange: dict[str, Any] = {}  # noqa: RUF012 - never mutated
    in_files: bool = False


VICTIMS = {
    "FedEM": Victim("fedem", {"participation": mj.participation.uniform(0.5)}),
    "pFedMe": Victim("pfedme"),
    "APFL": Victim("apfl:adaptive"),
    "gossip": Victim("fedem", {"exchange": mj.gossip(mj.topology.ring())}),
    "compressed": Victim("fedavg", {"channel": mj.channel.top_k(0.3)}),
    "ASVRCD": Victim("asvrcd"),
    "FedMM": Victim("fedmm"),
    "in files": Victim("fedem", in_files=True),
}


def config() -> RunConfig:
    """The settings that are written to the folder; the problem itself is given."""
    return make_config({}, algorithm="fedem", rounds=ROUNDS, evaluate_every=EVERY)


@functools.cache
def problem(name: str) -> Problem:
    """The problem of a victim: the same object every time, as compiled programs are remembered by it."""
    victim = VICTIMS[name]
    return Problem(zoo.problem(), zoo.model(), zoo.algorithm(victim.algorithm), victim.exchange, None)


def train(name: str, folder: Path, *, resume: bool = False) -> None:
    """Runs a victim in a folder, with a checkpoint after every evaluation."""
    with states_in_files(folder.parent / "states") if VICTIMS[name].in_files else contextlib.nullcontext():
        execute.run_in_folder(config(), folder, problem=problem(name), resume=resume, checkpoint_seconds=0)


@contextlib.contextmanager
def states_in_files(place: Path) -> Iterator[None]:
    """Runs are streamed, with states in files under ``place``."""
    with mock.patch.object(execute, "Resources", functools.partial(Resources, state_folder=place)):
        yield


def finish(name: str, folder: Path) -> None:
    """Goes on with what a fault left: by resuming, or anew where there is nothing to resume, as a person would."""
    train(name, folder, resume=(folder / "config.toml").exists() or (folder / "checkpoint").exists())


def content(folder: Path) -> dict[str, Any]:
    """All that a finished run says that does not depend on time."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timeless = [{k: v for k, v in line.items() if k != "seconds"} for line in lines]
    summary = read_signed(folder / "summary.json")
    arrays = {part: (folder / part / "arrays.safetensors").read_bytes() for part in ("checkpoint", "model")}
    table = (folder / "clients.csv").read_text()
    return arrays | {"lines": timeless, "summary": summary | {"seconds": None, "sha256": None}, "table": table}


def left_over(folder: Path) -> set[str]:
    """What is in a run folder, or beside it, that does not belong there."""
    beside = folder.parent / "states"
    return {p.name for p in folder.iterdir()} - FILES | (
        {p.name for p in beside.iterdir()} if beside.exists() else set()
    )
