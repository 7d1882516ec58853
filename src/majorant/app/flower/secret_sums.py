"""The server's part of secure sums: it asks silos for the steps of one, and opens it.

A silo that does not answer a step in time is out of the sum, or in it if its vector has come; with fewer than the
threshold left at any step nothing is opened, and the run stops where it can be resumed. Every attempt is a sum of its
own, with keys of its own.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Container, Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from majorant.app.flower.gathering import Gathering
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
from majorant.app.flower.masks import hexed
from majorant.app.flower.office import Failed, Reply
from majorant.app.flower.silo import told
from majorant.engines.remote.wire import Refused
from majorant.exchange import exact_sums
from majorant.exchange.secagg import Collector, Modulus, Shares, Stopped

ANSWERS: dict[str, Any] = {"keys": Keys, "shares": SharesGiven, "reveal": Revealed}
Send = Callable[[int, Received], Letter]
Hear = Callable[[int, Reply], bool]


class SecretSum:
    """One secure sum among the silos of a run."""

    def __init__(
        self, gathering: Gathering, threshold: int, modulus: Modulus, *, round: int, seconds: float, needed: int
    ) -> None:
        self.gathering, self.office, self.record = gathering, gathering.office, gathering.record
        self.sum, self.round = uuid.uuid4().hex, round
        self.collector = Collector(threshold, modulus)
        self.seconds, self.needed = seconds, needed
        self.lost: list[int] = []  # silos that have lost their state
        self.rejected: list[int] = []  # silos whose numbers were of no use
        self.up = self.down = 0  # bytes, beside those of the vectors
        self.vectors: dict[int, np.ndarray] = {}

    def opened(self, whom: Iterable[int], send: Send, hear: Hear) -> np.ndarray:
        """The sum of the vectors that ``hear`` puts into ``vectors``; ``send`` asks a silo for its own."""
        run, own = self.record.run, self.sum
        begin = lambda slot: KeysWanted(run=run, sum=own, slot=slot, round=self.round)
        keys = {slot: answer.keys for slot, answer in self.step("keys", whom, begin).items()}
        public = self.collector.with_keys(
            {s: (bytes.fromhex(one), bytes.fromhex(two)) for s, (one, two) in keys.items()}
        )
        self.leave_out(keys, public, "keys")
        wanted = SharesWanted(run=run, sum=own, public={slot: keys[slot] for slot in public})
        shared = self.step("shares", public, lambda slot: wanted)
        letters = self.collector.with_shares({s: plain(answer.shares) for s, answer in shared.items()})
        self.leave_out(shared, letters, "shares")
        ask = lambda slot: send(slot, Received(sum=own, shares=hexed(letters[slot])))
        self.ask(letters, ask, hear)
        arrived, lost = self.collector.with_vectors(self.vectors)
        answers = len(arrived) + len(self.rejected) + len(self.lost)
        if answers < self.needed:  # a sum that is not used is not opened: the next attempt's may differ by one silo
            raise Stopped(f"it has {answers} answers of {self.needed} that it needs: the sum is not opened")
        last = RevealWanted(run=run, sum=own, arrived=sorted(arrived), lost=sorted(lost))
        given = self.step("reveal", arrived, lambda slot: last)
        return self.collector.opened({s: Shares(plain(a.seeds), plain(a.keys)) for s, a in given.items()})

    def leave_out(self, came: Iterable[int], usable: Container[int], what: str) -> None:
        """Tells of silos that sent something which is of no use to the others."""
        for slot in came:
            if slot not in usable:
                self.gathering.tell(f"left out: the {what} of {self.record.names[slot]!r} are of no use")

    def step(self, kind: str, whom: Iterable[int], asked: Callable[[int], Facts]) -> dict[int, Any]:
        """The answers of some silos to one step."""
        found: dict[int, Any] = {}
        self.ask(whom, lambda slot: told(asked(slot), kind), functools.partial(self.hear, kind, found))
        return found

    def ask(self, whom: Iterable[int], send: Callable[[int], Letter], hear: Hear) -> None:
        """Asks, and counts what travels."""
        whom = sorted(whom)
        self.office.ask(whom, send, hear, seconds=self.seconds, needed=min(self.needed, len(whom)))
        self.down += self.office.down

    def hear(self, kind: str, found: dict[int, Any], slot: int, reply: Reply) -> bool:
        """Takes the answer of a silo to a step; one that is of no use leaves the silo out."""
        who = repr(self.record.names[slot])
        if isinstance(reply, Failed):
            self.gathering.tell(f"{who} failed: {reply}")
            return False
        self.up += reply.size
        if reply.kind == "lost":
            self.lost.append(slot)
            self.gathering.tell(f"{who} has lost its state: {reply.facts.get('reason')}")
            return True
        try:
            answer = read_facts(ANSWERS[kind], self.gathering.usable(slot, reply, kind, fatal=False), who)
            if answer.sum != self.sum:
                raise Refused(f"{who} answers for another sum")
        except Refused as refusal:
            self.gathering.tell(f"left out: {refusal}")
            return True
        found[slot] = answer
        return True


def exact_total(gathering: Gathering, size: int, send: Send, kind: str) -> list[Fraction]:
    """The exact sum of numbers of all silos, before training: all of them are needed."""
    everyone, wait = range(len(gathering.record.names)), gathering.study.flower.wait
    spec = gathering.study.secure
    assert spec is not None
    sum = SecretSum(gathering, spec.threshold, exact_sums.BITS, round=0, seconds=wait, needed=len(everyone))

    def hear(slot: int, reply: Reply) -> bool:
        letter = gathering.attempt(slot, reply, kind)
        if letter is not None:
            sum.vectors[slot] = exact_vector(letter, size, repr(gathering.record.names[slot]))
        return letter is not None

    try:
        total = sum.opened(everyone, send, hear)
    except Stopped as stopped:
        raise ValueError(f"before training, {stopped}. The silos' logs say more") from None
    missing = [name for slot, name in enumerate(gathering.record.names) if slot not in sum.vectors]
    if missing:
        raise ValueError(f"{missing[0]!r} gave nothing to a secure sum within {wait:g} s: look at its log")
    return exact_sums.numbers(total)


def exact_vector(letter: Letter, size: int, who: str) -> np.ndarray:
    """The masked numbers of an exact sum in a letter."""
    sizes = [len(raw.data) for raw in letter.arrays]
    if sizes != [size * exact_sums.BYTES]:
        raise Refused(f"{who} sends {sizes} bytes for a secure sum, expected {size * exact_sums.BYTES}")
    return exact_sums.from_bytes(letter.arrays[0].data)


def plain(shares: dict[int, str]) -> dict[int, bytes]:
    """Shares as they are."""
    return {slot: bytes.fromhex(share) for slot, share in shares.items()}
