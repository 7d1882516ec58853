"""The core: a federated algorithm is a record of pure functions, and a round is the same few calls for all of them.

One round, for every algorithm and every engine::

    view            = broadcast(server, key)                   # all that clients are sent
    upload, client  = client_update(view, client, data, key)   # on every client that takes part
    client          = sent(client, upload)                     # after wrappers: the upload as it was delivered
    total           = Σ weight · value, Σ weight               # linear, unless the algorithm brings `aggregate`
    server          = server_update(server, total)

What is personal lives in ``client`` and never travels: clients receive a `View`, the server receives an `Upload`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Tree = Any  # a JAX pytree of arrays
Key = jax.Array


class ClientData(NamedTuple):
    """The training samples of one client, padded at the end to the length its program was compiled for."""

    x: jax.Array  # (n, ...)
    y: jax.Array  # (n,)
    size: jax.Array  # how many of the n rows are real
    id: jax.Array

    @property
    def mask(self) -> jax.Array:
        """True for the real rows, ``(n,)``."""
        return jnp.arange(self.y.shape[-1]) < self.size


class Server(NamedTuple):
    """What the server knows. Hyperparameters are arrays, so a new value never retraces and a grid is one more vmap."""

    value: Tree  # what it broadcasts: the shared point
    hyper: dict[str, jax.Array]
    state: Tree = ()  # what it keeps to itself: optimizer moments, cluster labels
    round: jax.Array | int = 0  # rounds finished
    rounds: jax.Array | int = 1  # rounds planned, for schedules


class View(NamedTuple):
    """All that a client is sent. Communication is counted on ``value``; the rest is a handful of scalars."""

    value: Tree
    hyper: dict[str, jax.Array]
    round: jax.Array | int
    rounds: jax.Array | int
    coins: Tree = ()  # randomness shared by all clients, drawn once a round

    @property
    def progress(self) -> jax.Array:
        """The finished share of the planned rounds, in [0, 1]: the time that schedules run on."""
        return jnp.asarray(self.round, jnp.float32) / jnp.maximum(jnp.asarray(self.rounds, jnp.float32), 1)


class Upload(NamedTuple):
    """What leaves a client: a value, its weight in the average, and scalars for the log that never feed the server."""

    value: Tree
    weight: jax.Array
    info: dict[str, jax.Array] = {}  # noqa: RUF012 - never mutated


class Total(NamedTuple):
    """Uploads added up: Σ weight · value and Σ weight over the clients that took part."""

    value: Tree
    weight: jax.Array
    inclusion: jax.Array | float = 1.0  # the probability that a client takes part in a round
    messages: jax.Array | None = None  # how many uploads travelled; None: one from each participant

    def mean(self) -> Tree:
        """The weighted mean of the uploaded values."""
        safe = jnp.where(self.weight > 0, self.weight, 1)
        return jax.tree.map(lambda v: v / safe.astype(v.dtype), self.value)


class Stack(NamedTuple):
    """The uploads of all clients side by side, for the few methods that must see each: absent clients have weight 0."""

    value: Tree  # (clients, ...)
    weight: jax.Array  # (clients,)


class Diagnosis(NamedTuple):
    """How a method measures its own convergence at an evaluation, beyond scores; only on request, as it costs a pass.

    ``measure`` runs on every training client and is averaged with ``weight``, by default the clients' sizes, and
    ``conclude`` makes named scalars of that average. ``probe`` is for what is too costly to measure everywhere: it runs
    on a few clients.
    """

    measure: Callable[[View, Tree, ClientData, Key], Tree]
    conclude: Callable[[Server, Tree], dict[str, jax.Array]]
    probe: Callable[[View, Tree, ClientData, Key], dict[str, jax.Array]] | None = None
    weight: Callable[[ClientData], jax.Array] = lambda data: data.size


class Traffic(NamedTuple):
    """What travels in a round, where not all of a message does: an upload and a view are made of equal ``parts``.

    ``travelling(server, absences)`` is how many of each the round of this server needs, where all clients take part in
    every round, or where some are absent from some.
    """

    parts: tuple[int, int]
    travelling: Callable[[Server, jax.Array | bool], tuple[jax.Array, jax.Array]]


def squared_norm(tree: Tree) -> jax.Array:
    """The sum of the squares of all numbers in a tree.

    >>> squared_norm({"w": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)})
    Array(14., dtype=float32)
    """
    square = lambda leaf: jnp.abs(leaf) ** 2 if jnp.iscomplexobj(leaf) else jnp.square(leaf)
    return jnp.asarray(sum(square(leaf).sum() for leaf in jax.tree.leaves(tree)))


def broadcast_value(server: Server, key: Key) -> View:
    """The default broadcast: the server's value and hyperparameters, to everybody."""
    del key
    return View(server.value, server.hyper, server.round, server.rounds)


def replace_by_mean(server: Server, total: Total) -> Server:
    """The default server step: the new value is the weighted mean of the uploads."""
    return server._replace(value=total.mean())


def tree_bytes(tree: Tree) -> int:
    """The bytes that a tree's arrays take on the wire.

    >>> tree_bytes({"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)})
    32
    """
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


class Algorithm(NamedTuple):
    """A federated method; a simple one writes ``init``, ``client_update``, ``personalize`` and ``predict``.

    All functions are pure and see one client at a time; engines vectorise them. ``predict(model, x)`` gives what a
    deployed model says: class probabilities ``(n, classes)``, or values ``(n,)`` for regression.
    """

    name: str
    init: Callable[[Key], Server]
    client_update: Callable[[View, Tree, ClientData, Key], tuple[Upload, Tree]]
    personalize: Callable[[View, Tree], Tree]
    predict: Callable[[Tree, jax.Array], jax.Array]
    init_client: Callable[[View, ClientData, Key], Tree] = lambda view, data, key: ()
    broadcast: Callable[[Server, Key], View] = broadcast_value
    address: Callable[[View, jax.Array], View] = lambda view, id: view  # the part of the view that client `id` is sent
    sent: Callable[[Tree, Upload], Tree] = lambda client, upload: client
    origin: Callable[[View], Tree] = lambda view: view.value  # the point an upload departs from
    aggregate: Callable[[Server, Stack], Total] | None = None  # None: linear
    server_update: Callable[[Server, Total], Server] = replace_by_mean
    idle: Callable[[Server], Server] | None = None  # the server's step when nobody took part; None: it waits
    onboard: Callable[[View, ClientData, Key], Tree] | None = None  # a client never seen at training; None: init_client
    adapt: Callable[[View, Tree, ClientData, Key], Tree] | None = None  # a last local step before a model is deployed
    setup_client: Callable[[View, Tree, ClientData, Key], Upload] | None = None  # uploaded once, before round 1 …
    setup_server: Callable[[Server, Total], Server] | None = None  # … what the server makes of the sum, same shapes
    losses: Callable[[Tree, jax.Array, jax.Array], jax.Array] | None = None  # (model, x, y) -> (n,): without labels, …
    # … a client's score is the mean of these in place of its predictions' accuracy
    wire: Callable[[Tree], int] = tree_bytes  # bytes of an uploaded value, for compressors to overrule
    for_compressor: Callable[[Any, bool | None], Algorithm] | None = (
        None  # (compressor, error feedback): the method for it
    )
    traffic: Traffic | None = None  # None: every message travels whole
    mixture: Callable[[Tree], jax.Array] | None = None  # the mixture weights in a deployed model, where it has some
    needs_everyone: bool = False  # refuses partial participation
    check_hyper: Callable[[dict[str, float]], None] = lambda hyper: None  # refuses hyperparameter values before a run
    sends_points: bool = True  # uploads are points near the origin, not gradients: what gossip needs
    uneven_rounds: bool = False  # how long a round takes is drawn at random, for each run on its own
    diagnosis: Diagnosis | None = None
    log: Callable[[Server], dict[str, jax.Array]] | None = None  # scalars about the server's state, at each evaluation
    network: Callable[[], Any] | None = None  # whom nodes talk to, where there is no server (`communication.gossip`)

    def join(self, view: View, data: ClientData, key: Key) -> Tree:
        """The private state of a client that was not there at training."""
        return (self.onboard or self.init_client)(view, data, jax.random.fold_in(key, 0))

    def deploy(self, view: View, client: Tree, data: ClientData, key: Key) -> Tree:
        """The model that a client uses: its state, adapted to its own data where the method does so."""
        if self.adapt is not None:
            client = self.adapt(view, client, data, jax.random.fold_in(key, 1))
        return self.personalize(view, client)


def round_key(run_key: Key, round: jax.Array | int) -> Key:
    """The key of a round (round 0 is the initialisation)."""
    return jax.random.fold_in(run_key, round)


def client_key(key_of_round: Key, id: jax.Array | int) -> Key:
    """The key of one client in one round, whatever the order, batching or sharding of the clients."""
    return jax.random.fold_in(key_of_round, id)


SERVER_STREAM = 0xFFFF_FFFF  # ids are counted from 0 and never get this far
PARTICIPATION_STREAM = 0xFFFF_FFFE
EVALUATION_STREAM = 0xFFFF_FFFD


def stream_key(key_of_round: Key, stream: int) -> Key:
    """A key for something other than a client: the server's coins, who takes part, evaluation."""
    return jax.random.fold_in(key_of_round, jnp.uint32(stream))


def all_finite(tree: Tree) -> jax.Array:
    """Whether every number in a tree is finite."""
    leaves = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.stack(leaves).all() if leaves else jnp.asarray(True)


def select(condition: jax.Array, yes: Tree, no: Tree) -> Tree:
    """``yes`` where the scalar condition holds, else ``no``, for whole trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


BLOCK_VALUES = 1 << 18  # input values that go through a model at once: bounds the memory of its intermediate results


def blockwise(function: Callable[..., jax.Array], x: jax.Array, *others: jax.Array, at_once: int | None = None) -> Tree:
    """``function(x, ...)`` over samples, block by block where there are many: for passes over all of a client's.

    >>> x = jnp.arange(6.0).reshape(3, 2)
    >>> blockwise(lambda x: x.sum(axis=1), x)
    Array([1., 5., 9.], dtype=float32)
    """
    n = x.shape[0]
    rows = at_once or max(64, BLOCK_VALUES // max(1, math.prod(x.shape[1:])))
    if n <= rows:
        return function(x, *others)
    out = jax.lax.map(lambda block: function(*block), blocks((x, *others), rows))
    return out.reshape(-1, *out.shape[2:])[:n]


def blocks(arrays: Tree, at_once: int, padding: str = "edge") -> Tree:
    """Arrays ``(n, ...)`` cut into equal blocks of at most ``at_once`` rows; repeats of the last row fill up.

    >>> blocks(jnp.arange(5), 3)
    Array([[0, 1, 2],
           [3, 4, 4]], dtype=int32)
    """

    def cut(a: jax.Array) -> jax.Array:
        count = -(-a.shape[0] // at_once)
        rows = -(-a.shape[0] // count)
        padded = jnp.pad(a, [(0, count * rows - a.shape[0])] + [(0, 0)] * (a.ndim - 1), mode=padding)
        return padded.reshape(count, rows, *a.shape[1:])

    return jax.tree.map(cut, arrays)


def masked_mean(values: jax.Array, data: ClientData) -> jax.Array:
    """The mean over a client's real samples of ``(n, ...)`` values; 0 for a client without samples."""
    mask = data.mask.reshape((-1,) + (1,) * (values.ndim - 1))
    return jnp.where(mask, values, 0).sum(axis=0) / jnp.maximum(data.size, 1)


def as_hyper(values: dict[str, float]) -> dict[str, jax.Array]:
    """Hyperparameters as array leaves of the server's state."""
    return {name: jnp.asarray(value, jnp.result_type(float)) for name, value in values.items()}
