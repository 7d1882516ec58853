"""The uploads of a round, asked for by letters: each for itself, or their sum alone."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from majorant.app.flower.desk import Desk
from majorant.app.flower.letters import Contribution, Letter, Received, Task, read_facts
from majorant.app.flower.office import Failed, Reply
from majorant.app.flower.secret_sums import SecretSum
from majorant.engines.remote.server import Round
from majorant.engines.remote.wire import Refused, decode
from majorant.exchange.secagg import Stopped


def ask_openly(desk: Desk, this: Round, needed: int) -> tuple[list[int], int, int]:
    """Every participant's upload; who has lost its state, and the bytes of letters up and down."""
    lost: list[int] = []
    up = [0]

    def send(slot: int) -> Letter:
        return desk.letter("round", task_of(desk, this, slot), this.sending(slot))

    def hear(slot: int, reply: Reply) -> bool:
        if isinstance(reply, Letter):
            up[0] += reply.size
        return is_lost(desk, slot, reply, lost) or contribution(desk, this, slot, reply) is not None

    absent = desk.office.ask(this.asked, send, hear, seconds=desk.flower.timeout, needed=needed)
    for slot in {*absent, *lost}:
        this.miss(slot, rejected=False)
    return lost, up[0], desk.office.down


def ask_in_secret(desk: Desk, this: Round, needed: int) -> tuple[list[int], int, int]:
    """The sum of the participants' uploads, and no single one; otherwise as `ask_openly`."""
    spec, modulus = desk.center.federation.way.secure[0], desk.center.messages.moduli
    terms: dict[str, Any] = {"round": this.number, "seconds": desk.flower.timeout, "needed": needed}
    sum = SecretSum(desk.gathering, spec.threshold, modulus, **terms)
    if not this.asked:  # chance has drawn nobody
        return [], 0, 0

    def send(slot: int, secret: Received) -> Letter:
        return desk.letter("round", task_of(desk, this, slot), this.sending(slot), secret)

    def hear(slot: int, reply: Reply) -> bool:
        if isinstance(reply, Letter):
            sum.up += reply.size
        if is_lost(desk, slot, reply, sum.lost):
            return True
        arrays = contribution(desk, this, slot, reply)
        if arrays:
            sum.vectors[slot] = np.append(*(a.astype(np.uint64) for a in arrays))
        elif arrays is not None:
            sum.rejected.append(slot)
        return arrays is not None

    try:
        total = sum.opened(this.asked, send, hear)
    except Stopped as stopped:
        raise ValueError(f"round {this.number} stops: {stopped}. Resume when more silos are there") from None
    this.take_sum(sorted(sum.vectors), total)
    for slot in this.asked:
        if slot not in sum.vectors and slot not in this.missed:
            this.miss(slot, rejected=False)
    return sum.lost, sum.up, sum.down


def task_of(desk: Desk, this: Round, slot: int) -> Task:
    """What a participant is told beside its view."""
    return Task(run=desk.record.run, round=this.number, delivered=desk.record.heard[slot])


def is_lost(desk: Desk, slot: int, reply: Reply, lost: list[int]) -> bool:
    """Whether a silo says that it has lost its state."""
    if not (isinstance(reply, Letter) and reply.kind == "lost"):
        return False
    lost.append(slot)
    desk.tell(f"{desk.name(slot)} has lost its state: {reply.facts.get('reason')}")
    return True


def contribution(desk: Desk, this: Round, slot: int, reply: Reply) -> list[np.ndarray] | None:
    """The arrays of an upload, taken where they are no part of a secure sum; [] where it was rejected, None where
    there was nothing of use and the silo may be asked once more."""
    messages, who = desk.center.messages, desk.name(slot)
    try:
        letter = desk.gathering.usable(slot, reply, "upload", fatal=False)
        facts = read_facts(Contribution, letter, who)
        if (facts.run, facts.round) != (desk.record.run, this.number):
            raise Refused(f"{who} answers for round {facts.round}, asked was round {this.number}")
        if not facts.sound:
            desk.tell(f"the update of {who} is not finite, or too large: it is left out")
            this.miss(slot, rejected=True)
            return []
        leaves = [*messages.value, *messages.rest]
        if len(facts.travels) != len(jax.tree.leaves(messages.upload.value)):
            raise Refused(f"{who} does not say what of its upload travels")
        arrays = decode(letter.arrays, leaves, f"the upload of {who}", finite=True)
    except Refused as refusal:
        desk.tell(f"left out: {refusal}")
        if isinstance(reply, Failed):
            return None
        this.miss(slot, rejected=True)
        return []
    count = len(messages.value)
    if not messages.secret and not this.take(slot, arrays[:count], arrays[count:], facts.travels):
        desk.tell(f"the upload of {who} is too large, or its weight is negative: it is left out")
    return arrays
