"""The star: one server combines what clients send, and broadcasts to all of them.

An exchange says who combines. It is bound to an algorithm's clients by an engine, and answers five questions then: what
is there before round 1, what is sent, what a client sees of that, what becomes of the uploads, and what a newcomer is
given. `gossip` is the other one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Algorithm, Answer, ClientData, Diagnostics, Key, Server, Tree, Uploads, View


class Combine(NamedTuple):
    """How a server makes one value of all uploads.

    ``each(values, weights)`` is the combination of values (slots, ...), of which those with weight 0 are absent; None:
    the weighted mean, which needs no uploads side by side.
    """

    name: str
    each: Callable[[Tree, jax.Array], Tree] | None = None


@functools.cache
def weighted_mean() -> Combine:
    """Σ weight · value / Σ weight."""
    return Combine("weighted mean")


class Star(NamedTuple):
    """One server for all clients."""

    combine: Combine = weighted_mean()
    network: None = None  # there are no links between clients

    @property
    def name(self) -> str:
        """For messages."""
        return "star" if self.combine.each is None else f"star ({self.combine.name})"

    def title(self, algorithm: str) -> str:
        """What the algorithm is called with this exchange."""
        return algorithm if self.combine.each is None else f"{algorithm}, {self.combine.name}"

    def bind(self, algorithm: Algorithm, training: np.ndarray) -> Star:
        """The exchange among the clients in these slots; refuses an algorithm that it cannot serve."""
        if self.combine.each is not None and algorithm.traits.reads != "sum":
            raise ValueError(
                f"{algorithm.name} reads each upload by itself, and cannot be given their {self.combine.name}"
            )
        return self

    def stacks(self, algorithm: Algorithm) -> bool:
        """Whether uploads are needed side by side, or else their sum."""
        return algorithm.traits.reads == "each" or self.combine.each is not None

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
        if self.combine.each is not None:
            mean = self.combine.each(uploads.value, uploads.weight)
            uploads = Uploads(jax.tree.map(lambda m: m * weight.astype(m.dtype), mean), weight)
        moves = weight > 0
        if algorithm.traits.moves_alone:
            moves |= ~barren
        moved = algorithm.server.update(server, view, uploads)
        return jax.tree.map(lambda new, old: jnp.where(moves, new, old), moved, server), None

    def diagnostics(self, algorithm: Algorithm) -> Diagnostics:
        """What is measured at evaluations."""
        return algorithm.diagnostics


@functools.cache
def star(combine: Combine | None = None) -> Star:
    """One server; ``combine`` is how it makes one value of all uploads, by default their weighted mean."""
    return Star(weighted_mean() if combine is None else combine)
