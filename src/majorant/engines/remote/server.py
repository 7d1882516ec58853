"""The server's side of the rounds: who takes part, what each is sent, and the server's step on what arrives.

The keys, the order of clients and the server's functions are those of the simulator: the same seed gives the same
numbers, to rounding. `Round.take` is the place where uploads are summed: nothing of a single upload is kept where the
method reads their sum. Under a secure sum there is nothing of a single upload to be seen, and `Round.take_sum` is given
what was opened.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import (
    EVALUATION_STREAM,
    SERVER_STREAM,
    Answer,
    Key,
    Server,
    Tree,
    Upload,
    Uploads,
    View,
    all_finite,
    client_key,
    magnitude,
    round_key,
    stream_key,
)
from majorant.core.compilation import jit
from majorant.engines.client_part import Sent, empty_sent
from majorant.engines.extremes import largest_allowed
from majorant.engines.remote.shapes import Messages
from majorant.engines.rounds import begin_round, end_round, sent_view
from majorant.engines.set_up import finish_start, start_server
from majorant.engines.tally import Sums, Tally, add_up, empty_tally, merged
from majorant.engines.turns import who_takes_part
from majorant.exchange._stage import decoded
from majorant.exchange.federation import Federation
from majorant.exchange.secure_sum import Masked


class Sending(NamedTuple):
    """What one client is sent: its part of the view, and its own key (as numbers)."""

    view: View
    key: np.ndarray


class Center:
    """A federation's server, among clients in the slots 0, 1, …, which are their ids, too."""

    def __init__(self, federation: Federation, messages: Messages, clients: int, key: Key) -> None:
        self.federation, self.messages, self.clients, self.key = federation, messages, clients, key
        self.programs = programs(federation, clients)

    def start(self, hyper: Mapping[str, float], rounds: int) -> Server:
        """The server before the set-up question."""
        own = jax.eval_shape(self.federation.algorithm.server.init, self.key).hyper
        values = {name: jnp.asarray(value, own[name].dtype) for name, value in hyper.items()}
        return self.programs.start(self.key, values, jnp.int32(rounds))

    def welcome(self, server: Server, slot: int) -> Sending:
        """What a client is sent for its first state and the set-up question, before round 1 or later."""
        view, key = self.programs.welcome(self.key, server)
        return self.addressed(view, key, slot)

    def released(self, server: Server, slot: int) -> Sending:
        """What a client is sent to make its model; slot −1 is a client that did not take part in training."""
        view, key = self.programs.release(self.key, server)
        if slot < 0:
            return Sending(jax.tree.map(np.asarray, view), key_data(client_key(key, self.clients)))
        return self.addressed(view, key, slot)

    def addressed(self, view: View, key: Key, slot: int) -> Sending:
        """A client's part of a view, with its own key."""
        seen, own = self.programs.address(view, key, jnp.int32(slot))
        return Sending(jax.tree.map(np.asarray, seen), np.asarray(own))

    def answered(self, server: Server, answers: Mapping[int, Answer]) -> Server:
        """The server with the answers of all clients, by slot; those that are not finite are left out."""
        if self.messages.answer is None or not answers:
            return server
        usable = {slot: a for slot, a in answers.items() if bool(all_finite(a))}
        if not usable:
            return server
        together = [added_answer(usable[slot], self.federation.algorithm.traits.reads) for slot in sorted(usable)]
        slots = [jnp.asarray([slot]) for slot in sorted(usable)]
        return finish_start(self.federation, server, together, slots, self.clients)

    def refuse_in_secret(self) -> None:
        """Refuses a method that must know something of each client which no sum tells."""
        algorithm, answer = self.federation.algorithm, self.messages.answer
        if not self.messages.secret:
            raise ValueError(f"{algorithm.name} sends no numbers that a secure sum could hide: leave it out")
        if algorithm.traits.equal_sizes:
            raise ValueError(f"{algorithm.name} needs clients of equal sizes, which nobody knows under a secure sum")
        if jax.tree.leaves(answer.largest[0]):
            raise ValueError(
                f"{algorithm.name} asks for the largest of something before round 1, and a secure sum tells sums "
                "alone: give its constants beforehand, or leave the secure sum out"
            )

    def answered_together(self, server: Server, answer: Answer) -> Server:
        """The server with the sum of all clients' weighted answers."""
        return finish_start(self.federation, server, [answer], [jnp.asarray([0])], self.clients)

    def forgives(self) -> bool:
        """Whether a client that has lost its state may begin anew.

        It may where it has none, and where uploads are points: elsewhere the server holds sums of what clients hold.
        """
        algorithm = self.federation.algorithm
        points = algorithm.setup is None and algorithm.traits.points
        return points or not jax.tree.leaves(self.messages.held)

    def round(self, server: Server) -> Round:
        """The next round."""
        view, key, active = self.programs.begin(self.key, server)
        return Round(self, server, view, key, [int(slot) for slot in np.flatnonzero(active)])

    def tally(self) -> Tally:
        """A count of nothing."""
        return empty_tally((self.messages.upload, self.messages.view, ()))


class Round:
    """A round from the server's side: what is sent to whom, what has arrived, and the server's step."""

    def __init__(self, center: Center, server: Server, view: View, key: Key, asked: list[int]) -> None:
        self.center, self.server, self.view, self.key, self.asked = center, server, view, key, asked
        self.number = int(server.round) + 1
        self.stacks = center.federation.stacks
        nobody = empty_sent(center.messages.upload, 1, center.federation)
        self.sums = add_up(nobody, jnp.zeros(1, bool), not self.stacks)
        self.each: dict[int, Sent] = {}
        self.heard: list[int] = []
        self.missed: list[int] = []  # whose messages were of no use

    def sending(self, slot: int) -> Sending:
        """What a participant is sent."""
        return self.center.addressed(self.view, self.key, slot)

    def take(self, slot: int, value: Sequence[np.ndarray], rest: Sequence[np.ndarray], travels: Sequence[int]) -> bool:
        """Adds what arrived from a client up; False where it is infinite or too large, or its weight is negative."""
        messages, programs = self.center.messages, self.center.programs
        weight, info = jax.tree.unflatten(jax.tree.structure((messages.upload.weight, messages.upload.info)), rest)
        if jax.tree.leaves(messages.message):
            message = jax.tree.unflatten(jax.tree.structure(messages.message), value)
            point = message.payload  # which is added up as it is, where the channel has a part at the server
            if not self.center.federation.adds_payloads:
                point = programs.decode(message, self.view, jnp.int32(slot))
        else:
            point = jax.tree.unflatten(jax.tree.structure(messages.upload.value), value)
        sent = programs.sent(Upload(point, weight, info), jnp.asarray(travels, jnp.int32), jnp.int32(slot))
        counts = bool(sent.heard[0])
        self.sums = programs.add(self.sums, sent)
        if counts:
            self.heard.append(slot)
            if self.stacks:
                self.each[slot] = sent
        else:
            self.missed.append(slot)
        return counts

    def take_sum(self, slots: Sequence[int], residues: np.ndarray) -> None:
        """The sum of what arrived from some clients, as a secure sum opens it; that of their weights is the last."""
        messages = self.center.messages
        nobody = empty_sent(messages.upload, 1, self.center.federation)
        for slot in slots:
            sent = nobody._replace(heard=jnp.ones(1, bool), travelled=jnp.ones_like(nobody.travelled))
            self.sums = self.center.programs.add(self.sums, sent._replace(slot=jnp.full(1, slot, jnp.int32)))
        numbers, weight = messages.message
        total = Masked(jnp.asarray(residues[:-1].astype(numbers.dtype)), jnp.asarray(residues[-1].astype(weight.dtype)))
        self.sums, self.heard = self.sums._replace(value=total), list(slots)

    def miss(self, slot: int, *, rejected: bool) -> None:
        """A participant from whom nothing usable came; a message that was rejected was sent, and is counted."""
        if rejected:
            self.missed.append(slot)
        nobody = empty_sent(self.center.messages.upload, 1, self.center.federation)
        travelled = jnp.full_like(nobody.travelled, int(rejected))
        sent = nobody._replace(rejected=jnp.full(1, rejected), slot=jnp.full(1, slot, jnp.int32), travelled=travelled)
        self.sums = self.center.programs.add(self.sums, sent)

    def end(self, tally: Tally) -> tuple[Server, Tally]:
        """The server after the round."""
        return self.center.programs.end(self.server, self.view, self.key, self.sums, self.stack(), tally)

    def stack(self) -> Any:
        """What arrived side by side by slot, where the method needs it."""
        if not self.stacks:
            return None
        count = self.center.clients
        nobody = empty_sent(self.center.messages.upload, 1, self.center.federation)
        of = lambda sent: (Uploads(sent.upload.value, sent.upload.weight), sent.heard)
        rows = [of(self.each.get(slot, nobody)) for slot in range(count)]
        return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *rows)


class Programs(NamedTuple):
    """What a server computes."""

    start: Any
    welcome: Any
    release: Any
    address: Any
    begin: Any
    decode: Any
    sent: Any
    add: Any
    end: Any


@functools.lru_cache(maxsize=8)
def programs(federation: Federation, clients: int) -> Programs:
    """The programs of a federation's server."""
    algorithm, exchange = federation.algorithm, federation.exchange

    def start(key: Key, hyper: dict, planned: jax.Array) -> Server:
        return start_server(federation, clients, key, hyper, planned)

    def welcome(run_key: Key, server: Server) -> tuple[View, Key]:
        key = round_key(run_key, server.round)
        return sent_view(federation, server, stream_key(key, SERVER_STREAM)), key

    def release(run_key: Key, server: Server) -> tuple[View, Key]:
        key = round_key(run_key, server.round)
        view = exchange.release(algorithm, server, stream_key(key, SERVER_STREAM))
        return view, stream_key(key, EVALUATION_STREAM)

    def address(view: View, key: Key, slot: jax.Array) -> tuple[View, jax.Array]:
        return exchange.seen(algorithm, view, slot), jax.random.key_data(client_key(key, slot))

    def begin(run_key: Key, server: Server) -> tuple[View, Key, jax.Array]:
        view, key = begin_round(federation, server, run_key)
        return view, key, who_takes_part(federation, server, run_key, clients)

    def decode(message: Tree, view: View, slot: jax.Array) -> Tree:
        assert federation.channel is not None
        return decoded(federation.channel, message, algorithm.client.origin(exchange.seen(algorithm, view, slot)))

    def sent(upload: Upload, travels: jax.Array, slot: jax.Array) -> Sent:
        size, most = magnitude(upload.value), largest_allowed()
        sound = (size <= most) & (upload.weight >= 0) & (upload.weight <= most) & all_finite(upload.info)
        counted = jax.tree.map(lambda v: jnp.where(sound, v, 0), Upload(upload.value, upload.weight, upload.info, ()))
        one = Sent(counted, sound, ~sound, travels, jnp.where(sound, size, 0), slot)
        return jax.tree.map(lambda v: jnp.asarray(v)[None], one._replace(upload=counted))

    def add(sums: Sums, sent: Sent) -> Sums:
        active = jnp.ones(1, bool)
        return merged(sums, add_up(sent, active, not federation.stacks))

    def end(server: Server, view: View, key: Key, sums: Sums, stack: Any, tally: Tally) -> tuple[Server, Tally]:
        return end_round(federation, server, view, key, sums, stack, tally)

    functions: tuple[Any, ...] = (start, welcome, release, address, begin, decode, sent, add, end)
    return Programs(*[jit(function) for function in functions])


def added_answer(answer: Answer, reads: str) -> Answer:
    """One client's answer as it is added to the others': weighted, or by its slot where the method reads each."""
    if reads == "each":
        row = lambda v: jnp.asarray(v)[None]
        return Answer(jax.tree.map(row, answer.value), row(answer.weight), answer.largest)
    weight = jnp.asarray(answer.weight)
    return answer._replace(value=jax.tree.map(lambda v: weight.astype(v.dtype) * v, answer.value))


def key_data(key: Key) -> np.ndarray:
    """A key as numbers."""
    return np.asarray(jax.random.key_data(key))
