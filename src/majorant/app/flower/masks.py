"""A silo's part of secure sums: what it must remember between the steps of one is a file in its folder.

The steps are those of `exchange.secagg`. The threshold is that of the silo's own study, and a vector leaves masked or
not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from majorant.app.files import atomic_write_bytes, read_bytes
from majorant.app.flower.letters import (
    Facts,
    Keys,
    KeysWanted,
    Letter,
    Received,
    Revealed,
    RevealWanted,
    SharesGiven,
    SharesWanted,
    read_facts,
)
from majorant.app.flower.states import NoState, Place
from majorant.exchange import exact_sums
from majorant.exchange.secagg import Member, Modulus
from majorant.exchange.secure_sum import SecureSum


class Masks:
    """The secure sums of one silo in one run; the newest one alone is remembered."""

    def __init__(self, place: Place, spec: SecureSum) -> None:
        self.place, self.spec = place, spec

    def at(self, sum: str) -> Path:
        """Where a sum's secrets are."""
        return self.place.folder / f"sum-{sum}.json"

    def member(self, sum: str) -> Member:
        """The silo as a member of a sum that it has begun."""
        try:
            return Member.restored(read_bytes(self.at(sum)))
        except (OSError, ValueError, KeyError, TypeError):
            raise NoState(f"the secrets of the secure sum {sum} are not there") from None

    def keep(self, sum: str, member: Member) -> None:
        """Remembers what a member must not forget."""
        atomic_write_bytes(self.at(sum), member.saved())

    def keys(self, wanted: KeysWanted) -> Facts:
        """Begins a sum, or says the same again."""
        if self.at(wanted.sum).exists():
            member = self.member(wanted.sum)
        else:
            for old in self.place.folder.glob("sum-*.json"):
                old.unlink(missing_ok=True)
            member = Member(wanted.slot, self.spec.threshold)
            self.keep(wanted.sum, member)
        return Keys(sum=wanted.sum, keys=(member.public[0].hex(), member.public[1].hex()))

    def shares(self, wanted: SharesWanted) -> Facts:
        """Shares of the silo's secrets for everybody."""
        member = self.member(wanted.sum)
        public = {slot: (bytes.fromhex(one), bytes.fromhex(two)) for slot, (one, two) in wanted.public.items()}
        given = member.shares(public)
        self.keep(wanted.sum, member)
        return SharesGiven(sum=wanted.sum, shares=hexed(given))

    def reveal(self, wanted: RevealWanted) -> Facts:
        """The shares that open a sum."""
        member = self.member(wanted.sum)
        given = member.reveal(set(wanted.arrived), set(wanted.lost))
        self.keep(wanted.sum, member)
        return Revealed(sum=wanted.sum, seeds=hexed(given.seeds), keys=hexed(given.keys))

    def masked(self, residues: np.ndarray, modulus: Modulus, received: Received) -> np.ndarray:
        """A vector as it leaves."""
        member = self.member(received.sum)
        found = member.masked(residues, modulus, {slot: bytes.fromhex(s) for slot, s in received.shares.items()})
        self.keep(received.sum, member)
        return found

    def exact(self, values: Any, received: Received) -> bytes:
        """Numbers of an exact sum, as they leave."""
        masked = self.masked(exact_sums.residues(values), exact_sums.BITS, received)
        return exact_sums.to_bytes(masked)


STEPS: dict[str, Any] = {
    "keys": (KeysWanted, Masks.keys),
    "shares": (SharesWanted, Masks.shares),
    "reveal": (RevealWanted, Masks.reveal),
}


def step_of(letter: Letter) -> Any:
    """What a letter about a secure sum asks for."""
    return read_facts(STEPS[letter.kind][0], letter, "the server")


def hexed(shares: Mapping[int, bytes]) -> dict[int, str]:
    """Shares for JSON."""
    return {slot: share.hex() for slot, share in shares.items()}
