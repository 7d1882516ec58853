"""Compressed uploads, for any algorithm: what a client sends is its displacement, in fewer bits.

A client's upload departs from a point that the server knows, ``origin(view)``: the broadcast model, or zero for
gradients. With a compressor Q, the displacement travels and the server receives::

    origin + Q(value − origin)

Compressing the point itself would leave an error even at the optimum, where displacements vanish. Parts of the method
that must know what arrived (control variates) are told by ``sent``. Set-up uploads, sent once, are not compressed, and
neither is what comes down.

*Error feedback*, for biased compressors: a client remembers what was left out, e, sends Q(value − origin + e) and keeps
the rest for the next round, e ← value − origin + e − Q(·).

Reference for error feedback: Karimireddy, Rebjock, Stich, Jaggi, *Error feedback fixes SignSGD and other gradient
compression schemes*, ICML 2019.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from majorant.core import Algorithm, ClientData, Diagnosis, Key, Tree, Upload, View
from majorant.exchange.compressors import Compressor

COMPRESSION_STREAM = 0xC0DE


class Remembering(NamedTuple):
    """A client's own state, and what compression has left out of its uploads so far."""

    client: Tree
    error: jax.Array


def compressed(algorithm: Algorithm, compressor: Compressor, *, error_feedback: bool | None = None) -> Algorithm:
    """The algorithm with compressed uploads; ``error_feedback`` is on for biased compressors, unless it is given.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=4, seed=0)
    >>> plain = mj.fedavg(mj.models.linear(data))
    >>> run = mj.simulate(compressed(plain, mj.compressors.quantized(8)), data, rounds=2)
    >>> run.algorithm.name, run.communication[0]["bytes_up"]
    ('fedavg, quantized:8', 90)
    """
    if algorithm.for_compressor is not None:
        algorithm = algorithm.for_compressor(compressor, error_feedback)
    remembers = not compressor.unbiased if error_feedback is None else error_feedback
    if not compressor.unbiased and not remembers:
        raise ValueError(f"{compressor.name} is biased: without error feedback it need not converge")
    if remembers and compressor.unbiased and not compressor.omega(numbers_sent(algorithm)) < 1:
        raise ValueError(
            f"{compressor.name} adds more noise than there is signal (ω ≥ 1, or unknown): with error feedback it "
            "diverges, and without it there is no bias to feed back"
        )

    def client_update(view: View, client: Tree, data: ClientData, key: Key) -> tuple[Upload, Tree]:
        upload, inner = algorithm.client_update(view, own(client), data, key)
        displacement, unravel = ravel_pytree(
            jax.tree.map(lambda value, origin: value - origin, upload.value, algorithm.origin(view))
        )
        if remembers:
            displacement = displacement + client.error
        arrived = compressor.compress(jax.random.fold_in(key, COMPRESSION_STREAM), displacement)
        add = lambda origin, moved: (origin + moved).astype(origin.dtype)
        value = jax.tree.map(add, algorithm.origin(view), unravel(arrived))
        upload = upload._replace(value=value)
        return upload, Remembering(inner, displacement - arrived) if remembers else inner

    def own(client: Tree) -> Tree:
        return client.client if remembers else client

    def wire(value: Tree) -> int:
        return math.ceil(compressor.bits(sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(value))) / 8)

    changed: dict[str, Any] = {
        "name": f"{algorithm.name}, {compressor.name}",
        "client_update": client_update,
        "wire": wire,
        "for_compressor": twice if algorithm.for_compressor is not None else None,
    }
    return algorithm._replace(**changed, **(remembering(algorithm) if remembers else {}))


def numbers_sent(algorithm: Algorithm) -> int:
    """How many numbers an upload has."""
    origin = lambda key: algorithm.origin(
        algorithm.address(algorithm.broadcast(algorithm.init(key), key), jnp.asarray(0))
    )
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(jax.eval_shape(origin, jax.random.key(0))))


def twice(compressor: Compressor, error_feedback: bool | None) -> Algorithm:
    """What a method that sets its steps by its compressor says to a second one."""
    raise ValueError(f"the uploads are compressed already: {compressor.name} cannot be put on top")


def remembering(algorithm: Algorithm) -> dict[str, Any]:
    """The fields of an algorithm that see a client's state, for clients that remember an error."""

    def begin(view: View, client: Tree) -> Remembering:
        flat = ravel_pytree(algorithm.origin(view))[0]
        return Remembering(client, jnp.zeros_like(flat))

    def measured(diagnosis: Diagnosis) -> Diagnosis:
        measure, probe = diagnosis.measure, diagnosis.probe
        return diagnosis._replace(
            measure=lambda view, client, data, key: measure(view, client.client, data, key),
            probe=None if probe is None else lambda view, client, data, key: probe(view, client.client, data, key),
        )

    fields: dict[str, Any] = {
        "init_client": lambda view, data, key: begin(view, algorithm.init_client(view, data, key)),
        "personalize": lambda view, client: algorithm.personalize(view, client.client),
        "sent": lambda client, upload: client._replace(client=algorithm.sent(client.client, upload)),
    }
    if algorithm.onboard is not None:
        onboard = algorithm.onboard
        fields["onboard"] = lambda view, data, key: begin(view, onboard(view, data, key))
    if algorithm.adapt is not None:
        adapt = algorithm.adapt
        fields["adapt"] = lambda view, client, data, key: client._replace(client=adapt(view, client.client, data, key))
    if algorithm.setup_client is not None:
        setup = algorithm.setup_client
        fields["setup_client"] = lambda view, client, data, key: setup(view, client.client, data, key)
    if algorithm.diagnosis is not None:
        fields["diagnosis"] = measured(algorithm.diagnosis)
    return fields
