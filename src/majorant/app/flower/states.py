"""A silo's folder: what was agreed on, its private state by the round that it is of, and its model.

``STATE/RUN/round-000012/`` is what the silo holds once its upload of round 12 has arrived. It is written before the
upload leaves. Whether it arrived, the server says in its next letter: the state of that round is the one to go on from,
and the others are removed. So a silo that is killed at any moment, or whose upload was lost, goes on from what was
delivered, and nothing has to be undone. Trees have checksums, and belong to one run and one silo.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from majorant.app.files import DamagedFile, atomic_write_bytes, make_folder, read_bytes
from majorant.app.flower.letters import Agreement
from majorant.app.signed import read_signed, write_signed
from majorant.app.trees import load_tree, save_tree
from majorant.core import Tree

ROUND = re.compile(r"round-(\d{6,})")


class NoState(Exception):
    """The state that was delivered last is not there, or not whole."""


class Place:
    """The folder of one silo in one run."""

    def __init__(self, state: str, run: str, name: str) -> None:
        self.folder, self.run, self.name = Path(state) / run, run, name
        self.belongs = {"kind": "silo state", "run": run, "silo": name}
        self.model = Path(state) / "model"

    def make(self) -> None:
        """Creates the folder, for its owner alone."""
        make_folder(self.folder.parent)
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def remember(self, agreement: Agreement, digest: str) -> None:
        """Keeps what was agreed on, and a digest of the rows that it was agreed on for."""
        self.make()
        content = {**self.belongs, "agreement": agreement.model_dump(mode="json"), "rows": digest}
        write_signed(self.folder / "agreement.json", content)

    def agreement(self) -> tuple[Agreement, str]:
        """What was agreed on, and the digest of the rows."""
        try:
            content = read_signed(self.folder / "agreement.json")
            self.check(content)
            return Agreement.model_validate(content["agreement"]), content["rows"]
        except (DamagedFile, ValueError, KeyError, TypeError) as error:
            raise NoState(str(error)) from None

    def secret(self) -> bytes:
        """A random number that nobody but this silo knows, the same in the whole run."""
        path = self.folder / "secret"
        if not path.exists():
            atomic_write_bytes(path, os.urandom(32))
        return read_bytes(path)

    def keep(self, round: int, held: Tree) -> None:
        """Keeps what the silo will hold if its message of a round arrives."""
        save_tree(self.at(round), held, self.belongs | {"round": round}, private=True)

    def load(self, round: int, like: Tree) -> Tree:
        """What the silo holds after a round; other rounds' states are removed: they were not delivered, or are old."""
        try:
            held, meta = load_tree(self.at(round), like)
            self.check(meta)
            if meta.get("round") != round:
                raise NoState(f"{self.at(round)} is of round {meta.get('round')}")
        except (DamagedFile, ValueError, OSError) as error:
            raise NoState(str(error)) from None
        for entry in list(self.folder.iterdir()):
            found = ROUND.fullmatch(entry.name)
            if found and int(found[1]) != round:
                shutil.rmtree(entry, ignore_errors=True)
        return held

    def at(self, round: int) -> Path:
        """The folder of a round's state."""
        return self.folder / f"round-{round:06d}"

    def check(self, meta: Any) -> None:
        """Refuses what belongs to another run or silo."""
        if not isinstance(meta, dict) or any(meta.get(key) != value for key, value in self.belongs.items()):
            raise NoState(f"{self.folder} holds the state of another run, or of another silo than {self.name!r}")
