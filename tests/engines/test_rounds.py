"""Who takes part in which round, what is billed and logged, and which samples a deployed model knows."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.core import weighted_sum

DATA = zoo.problem()
MODEL = mj.models.linear(DATA)
FULL = mj.local_sgd(0.2, steps=1, batch_size=None)
TRAINING = np.flatnonzero(~DATA.unseen)


def who_moved(participation, rounds):
    """The clients, as places among those that train, whose own model another round has changed."""
    seen = []
    options = {
        "rounds": rounds,
        "evaluation": mj.Evaluation(every=1, report=lambda _, snapshot: seen.append(snapshot())),
    }
    start = lambda fresh: seen.append(fresh) or fresh
    mj.simulate(mj.local(MODEL, local=FULL), DATA, participation=participation, resume=start, **options)
    weights = [snapshot.clients.theta[0]["weight"][0] for snapshot in seen]
    return [set(np.flatnonzero((a != b).any(axis=(1, 2))).tolist()) for a, b in itertools.pairwise(weights)]


def test_groups_that_take_turns_begin_with_the_first():
    assert who_moved(mj.participation.cyclic(0.4), 4) == [{0, 1}, {2, 3}, {4}, {0, 1}]


def test_other_clients_are_drawn_in_other_rounds():
    moved = who_moved(mj.participation.uniform(0.4), 12)
    assert {len(clients) for clients in moved} == {2}
    assert len({frozenset(clients) for clients in moved}) > 4
    assert set.union(*moved) == set(range(len(TRAINING)))


def test_a_function_has_another_seed_for_every_client_in_every_round():
    seeds = []

    def record(params, x, y, weights, seed):
        seeds.append(seed)
        return params

    mj.simulate(mj.fedavg(MODEL, local=mj.solvers.local_function(record)), DATA, rounds=3)
    assert len(seeds) == len(set(seeds)) == 3 * len(TRAINING)


def test_the_messages_of_a_rejected_client_have_travelled():
    rows = np.repeat(np.arange(DATA.clients) == 1, DATA.train.sizes)[:, None]
    x = np.where(rows, np.float32(3e38) * np.sign(DATA.train.x), DATA.train.x)
    absurd = dataclasses.replace(DATA, train=DATA.train._replace(x=x))
    run, plain = (mj.simulate(zoo.algorithm("fedavg"), data, rounds=2) for data in (absurd, DATA))
    assert run.summary()["rejected"] == 2
    assert run.communication == plain.communication


@pytest.mark.parametrize("name", ["fedavg_plus", "fedem", "pfedme", "surrogate:bohning", "lsgd"])
def test_a_deployed_model_knows_training_samples_alone(name):
    """With other test samples, all clients, those that join included, have the same models."""
    flipped = DATA.test._replace(x=-DATA.test.x[::-1], y=1 - DATA.test.y)
    algorithm = zoo.algorithm(name)
    run, other = (mj.simulate(algorithm, data, rounds=2) for data in (DATA, dataclasses.replace(DATA, test=flipped)))
    mine, theirs = run.scores[0].values, other.scores[0].values
    np.testing.assert_array_equal(mine["train_loss"], theirs["train_loss"])
    assert (mine["test_loss"] != theirs["test_loss"]).all()


def test_the_logged_loss_is_the_mean_over_all_samples_of_those_who_took_part():
    start = []
    run = mj.simulate(mj.fedavg(MODEL, local=FULL), DATA, rounds=1, resume=lambda fresh: start.append(fresh) or fresh)
    theta = jax.tree.map(lambda a: jnp.asarray(a[0]), start[0].server.value)
    kept = np.repeat(~DATA.unseen, DATA.train.sizes)
    mean = MODEL.losses(theta, DATA.train.x[kept], DATA.train.y[kept]).mean()
    assert run.history[-1]["loss"] == pytest.approx(float(mean), rel=1e-5)


@pytest.mark.parametrize("resources", [mj.Resources(), mj.Resources(memory_budget=1 << 12)])
def test_samples_may_be_judged_by_more_than_their_prediction(resources):
    algorithm = mj.fedavg(MODEL, local=FULL)
    deployment = algorithm.deployment._replace(scores=lambda model, x, y: jnp.stack([x[:, 0], 2 * y], axis=1))
    run = mj.simulate(algorithm._replace(deployment=deployment), DATA, rounds=1, resources=resources)
    for part in ("train", "test"):
        samples = getattr(DATA, part)
        ranges = [slice(*samples.offsets[client : client + 2]) for client in range(DATA.clients)]
        found = [run.scores[0].values[f"{part}_{what}"] for what in ("loss", "score")]
        expected = [[samples.x[own, 0].mean() for own in ranges], [2 * samples.y[own].mean() for own in ranges]]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_sums_over_clients_are_the_same_on_every_backend(monkeypatch, backend):
    rng = np.random.default_rng(0)
    weight, values = rng.uniform(size=7).astype(np.float32), rng.normal(size=(7, 3, 2)).astype(np.float32)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    found = [weighted_sum(jnp.asarray(weight), jnp.asarray(v)) for v in (values, values[:, 0, 0])]
    np.testing.assert_allclose(found[0], np.einsum("c,cij->ij", weight, values), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], weight @ values[:, 0, 0], rtol=1e-5)
