"""The star: one server combines what clients send, and broadcasts to all of them.

An exchange says who combines. It is bound to an algorithm's clients by an engine, and answers five questions then: what
is there before round 1, what is sent, what a client sees of that, what becomes of the uploads, and what a newcomer is
given. `gossip` is the other one.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Algorithm, Answer, ClientData, Diagnostics, Key, Server, Tree, Uploads, View, collectives
from majorant.core.collectives import Axis
from majorant.core.trees import stack_rows
from majorant.exchange._combine import Combine, weighted_mean


class Star(NamedTuple):
    """One server for all clients."""

    combine: Combine = weighted_mean()
    network: None = None  # there are no links between clients

    @property
    def name(self) -> str:
        """For messages."""
        return f"star ({self.combine.name})" if self.combine.stacks else "star"

    def title(self, algorithm: str) -> str:
        """What the algorithm is called with this exchange."""
        return f"{algorithm}, {self.combine.name}" if self.combine.stacks else algorithm

    def bind(self, algorithm: Algorithm, training: np.ndarray) -> Star:
        """The exchange among the clients in these slots; refuses an algorithm that it cannot serve."""
        if self.combine.peers:
            raise ValueError(f"{self.combine.name} is for peers on a network, and here is a server: give a topology")
        if self.combine.stacks and algorithm.traits.reads != "sum":
            raise ValueError(
                f"{algorithm.name} reads each upload by itself, and cannot be given their {self.combine.name}"
            )
        self.combine.check(len(training))
        return self

    def stacks(self, algorithm: Algorithm) -> bool:
        """Whether uploads are needed side by side, or else their sum."""
        return algorithm.traits.reads == "each" or self.combine.stacks

    def stacked(self, parts: Any, slots: Any, clients: int, axis: Axis) -> Any:
        """What clients sent, side by side by slot (fillers, with slot −1, are dropped), on every device."""
        return collectives.total(stack_rows(parts, slots, clients), axis)

    @property
    def whole(self) -> Star:
        """The exchange on one device."""
        return self

    def everywhere(self, flag: jax.Array) -> jax.Array:
        """Whether something holds on all devices: the server is the same on each."""
        return flag

    def everybody(self, view: View) -> View:
        """What a client that has no slot could be sent."""
        return view

    def start(self, algorithm: Algorithm, key: Key) -> Server:
        """The server before round 1."""
        return algorithm.server.init(key)

    def ask(self, algorithm: Algorithm, view: View, state: Tree, data: ClientData, key: Key) -> Answer | None:
        """A client's answer before round 1, where there is a question."""
        return None if algorithm.setup is None else algorithm.setup.ask(view, state, data, key)

    def answered(self, algorithm: Algorithm, server: Server, answers: Answer | None) -> Server:
        """The server with all answers."""
        return server if algorithm.setup is None or answers is None else algorithm.setup.start(server, answers)

    def broadcast(self, algorithm: Algorithm, server: Server, key: Key) -> View:
        """What is sent in a round."""
        return algorithm.server.broadcast(server, key)

    def release(self, algorithm: Algorithm, server: Server, key: Key) -> View:
        """What is sent for deployment."""
        return algorithm.release(server, key)

    def seen(self, algorithm: Algorithm, view: View, slot: Any) -> View:
        """What the client in a slot is sent of it."""
        return algorithm.server.address(view, slot)

    def newcomer(self, algorithm: Algorithm, view: View, key: Key) -> View:
        """What a client that has no slot is sent of it."""
        return view

    def finish(
        self,
        algorithm: Algorithm,
        server: Server,
        view: View,
        uploads: Uploads,
        heard: jax.Array | None,
        barren: jax.Array,
        key: Key,
    ) -> tuple[Server, jax.Array | None]:
        """The server after a round; and how many messages there were, where not one from each participant.

        ``heard`` says, where uploads are side by side, whose arrived; ``barren`` whether all were rejected. Most
        servers wait in a round without uploads.
        """
        weight = uploads.weight.sum()
        if self.combine.stacks:
            mean = self.combined(algorithm, view, uploads, key)
            uploads = Uploads(jax.tree.map(lambda m: m * weight.astype(m.dtype), mean), weight)
        moves = weight > 0
        if algorithm.traits.moves_alone:
            moves |= ~barren
        moved = algorithm.server.update(server, view, uploads)
        return jax.tree.map(lambda new, old: jnp.where(moves, new, old), moved, server), None

    def combined(self, algorithm: Algorithm, view: View, uploads: Uploads, key: Key) -> Tree:
        """One value of uploads that lie side by side."""
        if self.combine.each is not None:
            return self.combine.each(uploads.value, uploads.weight)
        if not jax.tree.leaves(uploads.value):  # nothing is sent
            return uploads.value
        assert self.combine.rule is not None
        origin = algorithm.client.origin(self.seen(algorithm, view, jnp.int32(0)))  # the same for all
        moved = self.combine.rule(jax.tree.map(lambda v, o: v - o, uploads.value, origin), uploads.weight > 0, key)
        return jax.tree.map(lambda o, m: (o + m).astype(o.dtype), origin, moved)

    def diagnostics(self, algorithm: Algorithm) -> Diagnostics:
        """What is measured at evaluations."""
        return algorithm.diagnostics


@functools.cache
def star(combine: Combine | None = None) -> Star:
    """One server; ``combine`` is how it combines all uploads into one value, by default their weighted mean.

    >>> from majorant.exchange.robust import median
    >>> star(combine=median()).name
    'star (median)'
    """
    return Star(weighted_mean() if combine is None else combine)
