"""How silos' models do on their own samples, asked for by letters: each for itself, or all together.

Only counts and sums travel. ``like`` are the shapes of what silos measure of the method's convergence beside that.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax
import numpy as np

from majorant.app.flower.desk import Desk
from majorant.app.flower.letters import Evaluation, Letter, Received, Task, read_facts
from majorant.app.flower.office import Failed, Reply
from majorant.app.flower.secret_sums import SecretSum, exact_vector
from majorant.app.flower.totals import scores_of, totals_of
from majorant.core import ClientData, Server
from majorant.data.federated import FederatedData
from majorant.engines.remote.client import programs as client_programs
from majorant.engines.remote.sums import evaluation_size, summed_evaluation
from majorant.engines.remote.wire import Refused, decode, leaves_of
from majorant.exchange.exact_sums import BITS, numbers
from majorant.exchange.secagg import Stopped


def heard(desk: Desk, server: Server, like: Any, data: FederatedData, metric: str) -> tuple[Any, Any]:
    """The scores of all silos' models on their own samples, and the sum of what the silos measure of the method."""
    secret = desk.study.secure is not None and not desk.flower.per_client_scores
    return (heard_in_secret if secret else heard_openly)(desk, server, like, data, metric)


def heard_openly(desk: Desk, server: Server, like: Any, data: FederatedData, metric: str) -> tuple[Any, Any]:
    """Every silo's sums; what is kept of them are totals, or each silo's scores where the study says so."""
    record, each = desk.record, desk.flower.per_client_scores
    found: dict[int, Evaluation] = {}
    parts: list[Any] = []

    def send(slot: int) -> Letter:
        return desk.letter("evaluate", task_of(desk, slot, like), desk.center.released(server, slot))

    def hear(slot: int, reply: Reply) -> bool:
        try:
            letter = desk.gathering.usable(slot, reply, "evaluation", fatal=False)
            facts = read_facts(Evaluation, letter, desk.name(slot))
            if (facts.run, facts.round) != (record.run, record.round):
                raise Refused(f"{desk.name(slot)} evaluates round {facts.round}, asked was {record.round}")
            if len(facts.weights or ()) not in (0, desk.center.messages.mixture):
                raise Refused(f"{desk.name(slot)} tells {len(facts.weights or ())} weights of its model's mixture")
            arrays = decode(letter.arrays, leaves_of(like), f"what {desk.name(slot)} measures")
        except Refused as refusal:
            desk.tell(f"left out: {refusal}")
            return not isinstance(reply, Failed)
        found[slot] = facts
        parts.append(jax.tree.unflatten(jax.tree.structure(like), arrays))
        return True

    desk.office.ask(range(len(record.names)), send, hear, seconds=desk.flower.timeout, needed=0)
    sums = jax.tree.map(lambda *each: np.sum(each, axis=0), *parts) if parts else None
    return scores_of(found, data, metric, each=each), sums


def heard_in_secret(desk: Desk, server: Server, like: Any, data: FederatedData, metric: str) -> tuple[Any, Any]:
    """The sums over silos alone; with too few of them there are no scores."""
    record, spec = desk.record, desk.center.federation.way.secure[0]
    everyone = range(len(record.names))
    terms: dict[str, Any] = {"round": record.round, "seconds": desk.flower.timeout, "needed": spec.threshold}
    sum = SecretSum(desk.gathering, spec.threshold, BITS, **terms)
    size = evaluation_size(like)

    def send(slot: int, secret: Received) -> Letter:
        return desk.letter("evaluate", task_of(desk, slot, like), desk.center.released(server, slot), secret)

    def hear(slot: int, reply: Reply) -> bool:
        try:
            letter = desk.gathering.usable(slot, reply, "evaluation", fatal=False)
            sum.vectors[slot] = exact_vector(letter, size, desk.name(slot))
        except Refused as refusal:
            desk.tell(f"left out: {refusal}")
            return not isinstance(reply, Failed)
        return True

    try:
        total = numbers(sum.opened(everyone, send, hear))
    except Stopped as stopped:
        desk.tell(f"no scores after round {record.round}: {stopped}")
        total = [Fraction(0)] * size
    sums, lost, measured = summed_evaluation(total, like)
    return totals_of(sums, 2 * lost > len(sum.vectors) > 0, data, metric), measured if sum.vectors else None


def task_of(desk: Desk, slot: int, like: Any) -> Task:
    """What a silo is told beside what its model is made from."""
    record = desk.record
    about: dict[str, Any] = {"diagnostics": bool(jax.tree.leaves(like)), "each": desk.flower.per_client_scores}
    return Task(run=record.run, round=record.round, delivered=record.heard[slot], **about)


def measured_like(desk: Desk, one: ClientData) -> Any:
    """The shapes of what a silo measures of the method's convergence."""
    center = desk.center
    measure = client_programs(center.federation, len(desk.record.classes)).measure
    return jax.eval_shape(measure, center.messages.released, jax.random.key(0), center.messages.held.state, one)
