"""What messages look like before any is sent, and what they cost.

A method is traced on a client with one sample of zeros: nothing is computed, and its complaints come out before a run.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import ClientData, Upload, View, tree_bytes
from majorant.core.lanes import for_shapes
from majorant.data.federated import FederatedData
from majorant.engines.client_part import as_sent
from majorant.engines.rounds import sent_view
from majorant.engines.set_up import start_client, start_server
from majorant.exchange.federation import Federation


def shapes_of(client: ClientData) -> ClientData:
    """Shapes and types in place of arrays: what tracing needs, and a key to remember its results by."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), client)


def tiny_client(data: FederatedData) -> ClientData:
    """A client with one sample of zeros."""
    as_computed = jax.dtypes.canonicalize_dtype  # 32 bits, unless JAX is told to compute with 64
    x: Any = np.zeros((1, *data.spec.features), as_computed(data.train.x.dtype))  # JAX would compile to make zeros
    y: Any = np.zeros(1, as_computed(data.train.y.dtype))
    place: Any = np.int32(np.flatnonzero(~data.unseen)[0])
    one: Any = np.int32(1)
    return ClientData(x, y, one, place, place)


def message_shapes(federation: Federation, one: ClientData) -> tuple[Upload, View, Any]:
    """The shapes of what a client uploads, is sent and keeps. Tracing brings out a method's complaints, too."""
    return traced_message(federation, shapes_of(one), jnp.result_type(float))


@functools.lru_cache(maxsize=64)
def traced_message(federation: Federation, one: ClientData, precision: Any) -> tuple[Upload, View, Any]:
    """`message_shapes` for a client of this shape, in this precision."""
    federation = federation._replace(exchange=federation.exchange.whole)
    algorithm = federation.algorithm

    def message(data: ClientData, key: jax.Array) -> Any:
        server = start_server(federation, 1, key, {}, jnp.int32(1))
        view = sent_view(federation, server, key)
        seen = federation.exchange.seen(algorithm, view, data.slot)
        held, _ = start_client(federation, view, key, data)
        return as_sent(federation, algorithm.client.update(seen, held.state, data, key)[0]), seen, held

    with for_shapes():
        return jax.eval_shape(message, one, jax.random.key(0))


class Bill(NamedTuple):
    """The bytes of messages: of each leaf of a value where it travels, and of the rest of a message."""

    up: np.ndarray  # (leaves of an upload's value,)
    up_rest: int
    down: np.ndarray  # (leaves of a view's value,)
    down_rest: int
    state: int  # bytes of what a client keeps

    def sent(self, counts: Any, messages: Any) -> int:
        """Bytes that went up, from how often each leaf travelled."""
        return round(float(np.dot(np.asarray(counts, np.float64), self.up))) + int(messages) * self.up_rest

    def received(self, counts: Any, messages: Any) -> int:
        """Bytes that went down."""
        return round(float(np.dot(np.asarray(counts, np.float64), self.down))) + int(messages) * self.down_rest


def bill_of(federation: Federation, one: ClientData) -> Bill:
    """What messages of a client like this one cost.

    All of a view is counted; of an upload what the channel makes of its value, and the rest. Peers send points
    (and what they agree on beside them), and what one sends is what another receives.
    """
    upload, view, held = message_shapes(federation, one)
    leaves = jax.tree.leaves(upload.value)
    up = np.array([leaf.size * leaf.dtype.itemsize for leaf in leaves], np.float64)
    numbers = sum(leaf.size for leaf in leaves)
    if federation.channel is not None and numbers:
        bits = federation.channel.bits(numbers, jnp.result_type(*leaves))
        up = np.array([math.ceil(bits / 8) * leaf.size / numbers for leaf in leaves])
    if federation.exchange.network is not None:
        lens = federation.algorithm.server.consensus
        init = federation.algorithm.server.init
        beside = () if lens is None else jax.eval_shape(lambda key: lens.get(init(key)), jax.random.key(0))
        per_leaf = np.zeros(len(jax.tree.leaves(view.value)))
        return Bill(up, tree_bytes(beside), per_leaf, int(up.sum()) + tree_bytes(beside), tree_bytes(held))
    down = np.array([leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(view.value)], np.float64)
    told = view._replace(value=(), travels=())
    return Bill(
        up,
        tree_bytes((upload.weight, upload.info)) if leaves else 0,  # a client that sends nothing sends no weight
        down,
        tree_bytes(told) if len(down) else 0,
        tree_bytes(held),
    )
