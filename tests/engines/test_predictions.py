"""What clients' models predict for their samples: the scores of a run follow from it."""

import dataclasses

import numpy as np
import pytest

import majorant as mj
from majorant.data.labels import TargetScale
from majorant.engines import population
from majorant.engines import predictions as engine
from majorant.engines.predictions import predictions


def ragged():
    """Clients of very different sizes, one of them unseen."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(6), [6, 8, 9, 60, 70, 10])
    x = rng.normal(size=(len(owner), 3))
    y = (x[:, 0] * np.where(owner % 2, 1, -1) + 0.3 * rng.normal(size=len(owner)) > 0).astype(int)
    return mj.FederatedData.from_arrays(x, y, owner).with_unseen(0.2)


@pytest.mark.parametrize("kind", ["fedem", "gossip"])
def test_scores_follow_from_predictions(kind, monkeypatch):
    monkeypatch.setattr(population, "LEAST_SAVED", 0)  # several buckets
    data = ragged()
    model = mj.models.linear(data)
    algorithm = mj.fedem(model, components=2) if kind == "fedem" else mj.fedavg(model)
    exchange = {"exchange": mj.gossip(mj.topology.ring())} if kind == "gossip" else {}
    run = mj.simulate(algorithm, [data, data.redrawn(1)], rounds=3, **exchange)
    for one, found, scores in zip(run.data_sets, predictions(run), run.scores, strict=True):
        for part in ("validation", "test"):
            samples, p = getattr(one, part), found[part]
            right = np.where(np.isnan(p).any(axis=1), np.nan, p.argmax(axis=1) == samples.y)
            each = [
                right[begin:end].mean() for begin, end in zip(samples.offsets[:-1], samples.offsets[1:], strict=True)
            ]
            assert np.isnan(each).tolist() == one.unseen.tolist()
            np.testing.assert_allclose(np.array(each)[~one.unseen], scores.values[f"{part}_score"][~one.unseen])


@pytest.mark.parametrize(("method", "parts"), [("fedavg", 2), ("fedavg_plus", 3)])
def test_training_samples_are_read_where_models_are_made_of_them_only(method, parts, monkeypatch):
    """FedAvg+ tunes the shared model on a client's own samples; FedAvg deploys it as it is."""
    data = ragged()
    algorithm = getattr(mj, method)(mj.models.linear(data), local=mj.local_sgd(batch_size=4))
    run = mj.simulate(algorithm, data, rounds=1, seeds=2)
    stacked = []
    real = engine.stack
    monkeypatch.setattr(engine, "stack", lambda *args: stacked.append(args) or real(*args))
    each = predictions(run)
    assert len(stacked) == 2 * parts
    there = np.flatnonzero(np.repeat(~data.unseen, data.test.sizes))
    for found, one in zip(each, run, strict=True):  # with the draws of its own seed
        chances = found["test"][there, data.test.y[there]]
        assert -np.log(chances).mean() == pytest.approx(one.summary()["test_loss"], rel=1e-5)


def test_samples_that_no_model_is_made_of_take_no_memory():
    data = ragged()
    ids = np.array([1, 3])
    whole, nothing = population.stack(data.train, ids, 40), engine.unread(data.train, ids, 40)
    for one, other in zip(whole, nothing, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert not any(nothing.x.strides)
    assert not nothing.x.any()


def test_predicted_numbers_are_in_original_units():
    data = mj.FederatedData.from_arrays(np.eye(12), np.linspace(0.5, 2.0, 12), np.arange(12) % 2)
    data = dataclasses.replace(data, target_scale=TargetScale(100.0, 20.0))
    algorithm = mj.local(mj.models.linear(data, start="zeros"), local=mj.local_sgd(0.1, batch_size=None))
    run = mj.simulate(algorithm, data, rounds=1)
    found = predictions(run)[0]["test"]
    for client in range(2):
        own = slice(*data.test.offsets[client : client + 2])
        np.testing.assert_allclose(found[own], run.model(client).predict(data.test.x[own]), rtol=1e-5)
    assert np.abs(found - 100).max() < 20
