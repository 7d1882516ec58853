"""The folder ``checkpoint/`` of a run: the states of server and clients, and what the run depends on."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from majorant.app import catalogue
from majorant.app._fingerprint import divided_digest, network_digest, same_data, settings_digest, weights_digest
from majorant.app.build import Problem
from majorant.app.config import RunConfig, load_config, make_config, to_toml
from majorant.app.files import DamagedFile
from majorant.app.folders import check_run_folder
from majorant.app.names import parse_raw
from majorant.app.records import Amount, Line, Record, Whole, checked
from majorant.app.trees import MANIFEST, load_meta, load_tree, save_tree, tree_exists
from majorant.engines.hosts import decided
from majorant.engines.snapshots import Snapshot

NETWORK = "network run"  # the kind of checkpoints that servers of network runs write


class Logged(Line):
    """A line of the history, which goes on where it ended: nothing of what is counted may be missing."""

    seed: Whole
    seconds: Amount
    bytes_up: Amount
    bytes_down: Amount
    rejected: Whole


class Sent(Record):
    """What a run has sent."""

    __pydantic_extra__: dict[str, Amount]

    rounds: Whole
    bytes_up: Amount
    bytes_down: Amount


class Seconds(Record):
    """What a run has taken."""

    __pydantic_extra__: dict[str, Amount]

    compile: Amount
    train: Amount
    evaluate: Amount


class Counters(Record):
    """The history and the counters of all runs of a checkpoint."""

    history: list[Annotated[list[Logged], Field(min_length=1)]] = Field(min_length=1)  # of each seed
    communication: list[Sent]  # of each seed
    seconds: Seconds


class CheckpointMeta(Record):
    """What is saved beside the states."""

    round: Whole
    config: str  # as TOML
    settings: str  # digests, as the two below
    data: str
    network: str | None
    weights: str | None = None  # of a file that the model begins with
    counters: Counters

    @model_validator(mode="after")
    def of_one_moment(self) -> CheckpointMeta:
        """All seeds have come equally far, and as far as the checkpoint says."""
        if len({tuple(line.round for line in lines) for lines in self.counters.history}) > 1:
            raise ValueError("the seeds have not come equally far")
        if len(self.counters.communication) != len(self.counters.history):
            raise ValueError("what was sent is not told of every seed")
        rounds = [line.round for line in self.counters.history[0]]
        if rounds != sorted(set(rounds)) or rounds[-1] != self.round:
            raise ValueError(f"the history does not lead to round {self.round}")
        return self


def read_meta(folder: Path) -> CheckpointMeta:
    """What the checkpoint of a run folder says."""
    place = folder / "checkpoint"
    if place.exists() and not (place / MANIFEST).is_file():
        words = "restore the file, or start a new run"
        raise DamagedFile(f"{place / MANIFEST} is missing, so the run cannot resume from its checkpoint: {words}")
    meta = load_meta(place)
    if meta.get("kind") == NETWORK:
        raise ValueError(f"{folder} is a run on a network: resume it with majorant flower up --resume {folder}")
    return checked(CheckpointMeta, meta, place / MANIFEST)


def started_with(folder: Path) -> RunConfig:
    """The settings that a run was started with: as its checkpoint, which must be whole, remembers them."""
    if not tree_exists(folder / "checkpoint"):
        check_run_folder(folder)
        return load_config(folder / "config.toml")
    meta = read_meta(folder)
    load_tree(folder / "checkpoint")  # complaints about the arrays come before any work
    try:
        config = make_config(tomllib.loads(meta.config))
    except ValueError as error:
        raise DamagedFile(f"{folder} has settings that this version does not know: {error}") from None
    if settings_digest(config) != meta.settings:
        raise DamagedFile(f"the settings of {folder} mean something else in this version: start a new run")
    if len(meta.counters.history) != config.seeds:
        raise DamagedFile(f"{folder / 'checkpoint' / MANIFEST} was altered: it has not the history of every seed")
    return config


def planned_rounds(folder: Path) -> int:
    """The rounds that a checkpoint is on the way to."""
    return int(tomllib.loads(read_meta(folder).config)["rounds"])


def check_settings(folder: Path, started: RunConfig, wanted: RunConfig) -> None:
    """A run goes on with the settings that it was started with, or with more rounds where that is all the same.

    It is where nothing is laid out over the rounds: a longer run then begins with all rounds of the shorter one.
    """
    different = wanted.model_copy(update={"rounds": started.rounds}).differences(started)
    longer = wanted.rounds > started.rounds
    if different or wanted.rounds < started.rounds:
        all_of_them = "; ".join(wanted.differences(started))
        raise ValueError(
            f"{folder} was started with another configuration ({all_of_them}): resume with the same settings, in"
            " config.toml too, or with more --rounds, or start a new run"
        )
    if longer and started.epsilon is not None and not any(parse_raw(s)[0] in catalogue.NOISES for s in started.channel):
        raise ValueError(
            f"{folder} cannot be extended to {wanted.rounds} rounds: its noise was chosen so that {started.rounds} "
            f"rounds spend ε = {started.epsilon:g}, and more would spend more. Start a new run"
        )
    if longer and over_the_rounds(started):
        raise ValueError(
            f"{folder} cannot be extended to {wanted.rounds} rounds: its learning rate falls over {started.rounds}"
            f" rounds ({started.local.schedule}), and would have been another one from the start. Runs with --schedule"
            f" constant can; majorant run --config {folder / 'config.toml'} --rounds {wanted.rounds} trains anew"
        )


def over_the_rounds(config: RunConfig) -> bool:
    """Whether something in a run depends on how many rounds are planned."""
    uses_rate = catalogue.algorithms.takes(config.algorithm, "local") and config.objective is None
    exact = parse_raw(config.local.optimizer)[0] in catalogue.exact_solvers
    return uses_rate and not exact and parse_raw(config.local.schedule)[0] != "constant"


class Checkpoint:
    """Saves the state of a run after evaluations, at most every so many seconds, and restores it."""

    def __init__(self, folder: Path, config: RunConfig, problem: Problem, seconds: float, writes: bool = True) -> None:
        self.folder, self.place, self.seconds, self.writes = folder, folder / "checkpoint", seconds, writes
        self.depends = {
            "config": to_toml(config),
            "settings": settings_digest(config),
            "data": divided_digest(problem.data, problem.encoding),
            "network": network_digest(problem.federation),
            "weights": weights_digest(config),
        }
        self.problem, self.config, self.saved, self.last = problem, config, 0, time.monotonic()

    def after(self, done: int, snapshot: Callable[[], Snapshot]) -> None:
        """Saves, where the last time is long enough ago: of several processes all take part in the snapshot."""
        if decided(time.monotonic() - self.last >= self.seconds):
            self.save(done, snapshot())

    def save(self, done: int, taken: Snapshot) -> None:
        """Saves the state after so many rounds, unless that is there already."""
        if self.saved < done:
            meta = self.depends | {"round": done, "counters": taken.counters}
            if self.writes:
                save_tree(self.place, states_of(taken), meta, private=True)
            self.saved, self.last = done, time.monotonic()

    def restore(self, like: Snapshot) -> Snapshot:
        """The saved state of a run with the same settings, data and network; it may be of fewer rounds."""
        meta = read_meta(self.folder)
        check_settings(self.folder, make_config(tomllib.loads(meta.config)), self.config)
        same = {
            "on other data": same_data(meta.data, self.problem.data, self.problem.encoding, str(self.depends["data"])),
            "on other links": meta.network == self.depends["network"],
            "from other weights": meta.weights in (None, self.depends["weights"]),
        }
        for words in [words for words, holds in same.items() if not holds]:
            raise ValueError(f"{self.folder} was trained {words} than there are now: it cannot be resumed")
        tree, raw = load_tree(self.place, states_of(like))
        self.saved = meta.round
        return like._replace(counters=raw["counters"], **tree)


def states_of(snapshot: Snapshot) -> dict[str, Any]:
    """What server and clients hold, what the channel keeps on clients, and with patience the best of these so far."""
    found = {"server": snapshot.server, "clients": snapshot.clients, "memory": snapshot.memory}
    return found | ({"best": snapshot.best} if snapshot.best else {})


def lines_of(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The lines of all seeds, in the order in which they were logged."""
    return [line for together in zip(*snapshot.counters["history"], strict=True) for line in together]
