"""Grids of hyperparameters: the runs of one seed share what is drawn, and everything else is their own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from majorant.core import Server
from majorant.engines.memory import runs_in_turn
from majorant.engines.programs import RUNS, SEEDS, Layout, over_runs
from majorant.engines.settings import run_settings
from majorant.engines.simulation import Simulation
from majorant.exchange.federation import federation
from majorant.models.base import Spec

POINTS, DRAWN = [0.1, 0.2, 0.4], (5,)


def random_numbers(jaxpr) -> list[int]:
    """How many random words each drawing of a program makes."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "random_bits":
            found.append(equation.outvars[0].aval.size)
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += random_numbers(inner)
    return found


def drawn_in(program, *args) -> list[int]:
    return random_numbers(jax.make_jaxpr(program)(*args).jaxpr)


def noisy(server: Server, key) -> jax.Array:
    """A function of everything that a run has: its key, its round, a hyperparameter."""
    return server.hyper["lr"] * jax.random.normal(jax.random.fold_in(key, server.round), DRAWN) + server.rounds


@pytest.mark.parametrize("seeds", [[7], [7, 8]])
@pytest.mark.parametrize("in_turn", [False, True])
def test_runs_are_points_of_a_grid_times_seeds(seeds, in_turn):
    runs = [(rate, seed) for rate in POINTS for seed in seeds]
    keys = jnp.stack([jax.random.key(seed) for _, seed in runs])
    count, rates = len(runs), jnp.asarray([rate for rate, _ in runs])
    servers = Server((), {"lr": rates}, (), jnp.full(count, 3), jnp.full(count, 9), ())
    layout = Layout((), (), (), 0, 0, 0, True, seeds=len(seeds), in_turn=in_turn)
    program = over_runs(noisy, layout, RUNS, SEEDS)
    expected = [noisy(Server((), {"lr": jnp.float32(rate)}, (), 3, 9, ()), jax.random.key(seed)) for rate, seed in runs]
    np.testing.assert_allclose(program(servers, keys), expected, rtol=1e-6)
    if not in_turn:
        assert drawn_in(program, servers, keys) == [len(seeds) * DRAWN[0]]


def simulation(points: list[float], **options) -> Simulation:
    """FedAvg on minibatches, with some of the clients in each round."""
    data = mj.data.synthetic_mixture(clients=6, dimension=3, seed=0)
    algorithm = mj.fedavg(mj.models.linear(data), local=mj.local_sgd(epochs=2, batch_size=8))
    settings = run_settings(algorithm, 0, 2, None, {"lr": points})
    some = federation(algorithm, training=np.arange(6), participation=mj.participation.bernoulli(0.5))
    return Simulation(some, data, settings, 5, **options)


def drawn_in_a_round(points: list[float], tmp_path=None) -> list[int]:
    """By the programs of the resident engine or, with a folder, of the streamed one; nothing is compiled."""
    simulated = simulation(points, resources=mj.Resources(state_folder=tmp_path))
    engine, runs = simulated.engine, len(simulated.settings)
    made, rates = engine.programs, {"lr": jnp.ones(runs)}
    if tmp_path is None:
        state = made.start.shapes(engine.keys, rates, jnp.int32(5), engine.data)
        return drawn_in(made.block.function, state, engine.keys, jnp.int32(5), engine.data)
    server = made.start_server.shapes(engine.keys, rates, jnp.int32(5))
    view, key, _ = made.begin.shapes(server, engine.keys)
    bucket = simulated.buckets[0]
    chunk = engine.chunk(bucket, np.arange(bucket.chunk))
    clients, *_ = made.start_clients.shapes(server, engine.keys, chunk)
    taking_part = jax.ShapeDtypeStruct((runs, bucket.chunk), bool)
    drawn = drawn_in(made.clients.function, view, key, clients, chunk.train, taking_part)
    return drawn + drawn_in(made.begin.function, server, engine.keys)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_larger_grid_draws_nothing_more(streamed, tmp_path):
    folder = tmp_path if streamed else None
    few, many = drawn_in_a_round(POINTS[:1], folder), drawn_in_a_round(POINTS, folder)
    assert len(few) >= 2  # who takes part, and in which order samples come
    assert many == few


def test_large_models_go_in_turn_on_a_cpu():
    images = Spec((28, 28), classes=10)
    small, large = (mj.fedavg(mj.models.mlp(images, hidden=(width,))) for width in (8, 64))
    assert not runs_in_turn(small)
    assert runs_in_turn(large)


def test_seeds_and_sizes_that_are_no_whole_numbers_are_refused():
    data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    algorithm = mj.local(mj.models.linear(data))
    for wrong in ({"seed": 1.5}, {"seed": "1"}, {"seed": True}, {"seed": -1}, {"seeds": ["a"]}, {"seeds": [0, 2**32]}):
        with pytest.raises(ValueError, match="seed must be a whole number from 0"):
            mj.simulate(algorithm, data, rounds=1, **wrong)
    for seeds in (1.5, 0, -2, True, "3"):
        with pytest.raises(ValueError, match="seeds must be None or a positive whole number"):
            mj.simulate(algorithm, data, rounds=1, seeds=seeds)
    for size in (0, -1, 1.5, "1 GB"):
        with pytest.raises(ValueError, match="memory_budget must be None or a positive whole number"):
            mj.simulate(algorithm, data, rounds=1, resources=mj.Resources(memory_budget=size))
    for nothing in (None, 3):
        with pytest.raises(ValueError, match="data must be FederatedData"):
            mj.simulate(algorithm, nothing, rounds=1)
    assert [s["seed"] for s in run_settings(algorithm, 4, np.int64(2), None, None)] == [4, 5]
