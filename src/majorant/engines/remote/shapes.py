"""What the messages of a federation look like, known to both sides before any is sent."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import ClientData, Tree, Upload, View
from majorant.core.lanes import for_shapes
from majorant.engines.client_part import Held, client_part
from majorant.engines.messages import shapes_of
from majorant.engines.remote.wire import Leaf, leaves_of
from majorant.engines.rounds import sent_view
from majorant.engines.set_up import first_held, start_server
from majorant.exchange._stage import numbers_of
from majorant.exchange.federation import Federation
from majorant.exchange.secure_sum import Masked
from majorant.models.base import Spec


class Messages(NamedTuple):
    """Trees of shapes."""

    view: View  # what one client is sent in a round
    released: View  # what it is sent for its model
    whole: View  # what one without a slot is sent for its model
    upload: Upload  # as it arrives
    message: Tree  # what travels of its value through the channel; () without one
    held: Held
    answer: Any  # to the set-up question, or None
    widths: tuple[int | None, ...]  # the bits that the channel gives to the entries of a message's arrays
    mixture: int  # how many weights the mixture of a client's model has; 0: it is none

    @property
    def secret(self) -> bool:
        """Whether uploads travel in a secure sum: residues, of numbers and of a weight, and nothing beside them."""
        return isinstance(self.message, Masked)

    @property
    def moduli(self) -> np.ndarray:
        """The bits of the residues of a secure sum, that of the weight last."""
        width = self.widths[0] or 8 * self.message.numbers.dtype.itemsize
        return np.array([*[width] * self.message.numbers.size, 32])

    @property
    def value(self) -> list[Leaf]:
        """The arrays of an upload's value as they travel."""
        arrays = jax.tree.leaves(self.message)
        if self.secret:
            return [
                Leaf(np.dtype(a.dtype), tuple(a.shape), w) for a, w in zip(arrays, (self.widths[0], 32), strict=True)
            ]
        if not arrays:
            return leaves_of(self.upload.value, may_be_zero=True)
        widths = (*self.widths, *(None,) * len(arrays))
        return [
            Leaf(np.dtype(a.dtype), tuple(a.shape), width, signed=place == 0)
            for place, (a, width) in enumerate(zip(arrays, widths, strict=False))
        ]

    @property
    def rest(self) -> list[Leaf]:
        """Weight and scalars for the log."""
        if self.secret:
            return []
        return leaves_of((self.upload.weight, self.upload.info))

    @property
    def answers(self) -> list[Leaf]:
        """The arrays of an answer to the set-up question."""
        return leaves_of(self.answer)


def client_of(spec: Spec, precision: Any) -> ClientData:
    """A client with one sample of zeros."""
    number = jnp.int32(0)
    kind = jnp.int32 if spec.classes else precision
    return ClientData(jnp.zeros((1, *spec.features), precision), jnp.zeros(1, kind), number + 1, number, number)


def messages_of(federation: Federation, one: ClientData) -> Messages:
    """The shapes of all messages; a client with other samples sends the same, as states of samples do not travel."""
    return traced(federation, shapes_of(one), jnp.result_type(float))


@functools.lru_cache(maxsize=16)
def traced(federation: Federation, one: ClientData, precision: Any) -> Messages:
    """`messages_of` clients of a shape."""
    algorithm = federation.algorithm

    def everything(data: ClientData, key: jax.Array) -> Any:
        server = start_server(federation, 1, key, {}, jnp.int32(1))
        view = sent_view(federation, server, key)
        seen = federation.exchange.seen(algorithm, view, data.slot)
        whole = federation.exchange.release(algorithm, server, key)
        released = federation.exchange.seen(algorithm, whole, data.slot)
        held, answer = first_held(federation, seen, key, data)
        leaving = client_part(federation, seen, key, held, data)
        mixture = algorithm.deployment.mixture
        weights = () if mixture is None else mixture(algorithm.deploy(released, held.state, data, key))
        return (seen, released, whole), (leaving.upload, leaving.message, held, answer), weights

    with for_shapes():
        views, (upload, message, held, answer), weights = jax.eval_shape(everything, one, jax.random.key(0))
    numbers = numbers_of(upload.value)
    widths = federation.channel.widths(numbers) if federation.channel is not None and numbers else ()
    seen, released, whole = views
    mixture = weights.size if weights else 0
    return Messages(seen, released, whole, upload._replace(travels=()), message, held, answer, widths, mixture)
