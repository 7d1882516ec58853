"""Random numbers are derived, and no two parties, rounds or purposes share any."""

import jax
import numpy as np

from majorant.core import (
    EVALUATION_STREAM,
    LINKS_STREAM,
    PARTICIPATION_STREAM,
    SERVER_STREAM,
    Algorithm,
    ClientSide,
    Deployment,
    ServerSide,
    client_key,
    round_key,
    stream_key,
)

STREAMS = (SERVER_STREAM, PARTICIPATION_STREAM, EVALUATION_STREAM, LINKS_STREAM)


def test_every_party_has_a_key_of_its_own_in_every_round():
    run, ids = jax.random.key(0), np.arange(100)
    rounds = [round_key(run, number) for number in range(4)]
    clients = [jax.vmap(client_key, (None, 0))(key, ids) for key in rounds]
    others = [stream_key(key, stream) for key in rounds for stream in STREAMS]
    found = [run, *rounds, *others, *(key for several in clients for key in several)]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in found}) == len(found)


def test_joining_and_deploying_have_keys_of_their_own():
    keeps_key = Algorithm(
        "probe",
        ServerSide(lambda key: None),
        ClientSide(lambda view, state, data, key: None, init=lambda view, data, key: key),
        Deployment(lambda view, state, data, key: key, lambda model, x: x),
    )
    key = jax.random.key(0)
    found = [key, keeps_key.join(None, None, key), keeps_key.deploy(None, None, None, key)]
    assert len({tuple(jax.random.key_data(each).tolist()) for each in found}) == 3
