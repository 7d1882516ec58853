"""Messages that no noise covers: a method whose clients send such is refused before it runs.

Noise falls on the sum of the uploads' values. Beside them a method may ask a question before round 1, and give its
uploads weights. With noise all weights are 1; a method that makes them, or its answers, from samples would send
something uncovered, or be another method. Which outputs of a program depend on which inputs, its trace tells.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from majorant.core import ClientData
from majorant.data.federated import FederatedData
from majorant.engines.messages import shapes_of, tiny_client
from majorant.engines.rounds import sent_view
from majorant.engines.set_up import start_client, start_server
from majorant.exchange.federation import Federation


def refuse_unprotected(federation: Federation, data: FederatedData) -> None:
    """Raises a ``ValueError`` where clients would send what the noise does not cover."""
    if federation.guarantee is not None:
        refuse_uncovered(federation, tiny_client(data))


def refuse_uncovered(federation: Federation, one: ClientData) -> None:
    """`refuse_unprotected`, for clients like this one."""
    answers, weights = uncovered(federation, shapes_of(one), jnp.result_type(float))
    name = federation.algorithm.name
    if answers:
        raise ValueError(
            f"{name} asks its clients a question before round 1 whose answer depends on their samples, and no noise "
            "covers it: give beforehand what it asks for (start=… and alpha=0 of fedmm, the constants of solvers)"
        )
    if weights and federation.hides:
        raise ValueError(
            f"{name} weighs its clients by what their samples say, and with noise all must count the same: no bound on "
            "what one of them changes is known. Use a method whose weights are sizes, such as fedavg"
        )


@functools.lru_cache(maxsize=64)
def uncovered(federation: Federation, one: ClientData, precision: Any) -> tuple[bool, bool]:
    """Whether answers before round 1, and weights of uploads, depend on a client's samples or on how many it has."""

    def messages(x: Any, y: Any, size: Any, key: jax.Array) -> Any:
        data = ClientData(x, y, size, jnp.int32(0), jnp.int32(0))
        server = start_server(federation, 1, key, {}, jnp.int32(1))
        view = sent_view(federation, server, key)
        held, answers = start_client(federation, view, key, data)
        upload, _ = federation.algorithm.client.update(view, held.state, data, key)
        return () if answers is None else (answers.value, answers.largest), upload.weight

    given = (one.x, one.y, one.size, jax.random.key(0))
    asked = depends(lambda *given: messages(*given)[0], given, 3)
    return asked, depends(lambda *given: messages(*given)[1], given, 2)


def depends(function: Any, given: tuple[Any, ...], first: int) -> bool:
    """Whether what a function gives depends on the first few of its arguments."""
    traced = jax.make_jaxpr(function)(*given).jaxpr
    _, used = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))
    return any(used[: len(jax.tree.leaves(given[:first]))])
