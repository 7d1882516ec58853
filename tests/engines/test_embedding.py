"""Features that a frozen network makes once are those that it would make in every pass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from majorant.data.lazy import from_clients
from majorant.engines import embedding
from majorant.engines.embedding import embedded, is_embedded, to_embed
from majorant.engines.predictions import predictions
from majorant.models import Spec, augmented, cnn, frozen_backbone, linear, mixed_precision

rng = np.random.default_rng(0)
IMAGES, LABELS = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3


def network(width: int = 4):
    """A small network, and its parameters."""
    model = cnn(Spec((8, 8), 3), channels=(2,), hidden=width)
    return model, model.init(jax.random.key(5))


@pytest.fixture(scope="module")
def head():
    return frozen_backbone(*network())


@pytest.fixture(scope="module")
def data():
    return mj.data.FederatedData.from_arrays(IMAGES, LABELS, clients=np.arange(60) % 4, seed=1)


def test_the_head_reads_features_as_it_reads_samples(head):
    own, x = head.init(jax.random.key(0)), jnp.asarray(IMAGES)
    features = head.embed(x)
    assert features.shape == (60, 4)
    np.testing.assert_array_equal(head.apply(own, features), head.apply(own, x))
    half = mixed_precision(head)
    np.testing.assert_allclose(half.apply(own, half.embed(x)), half.apply(own, x), atol=0.02)


def test_features_are_not_taken_for_samples_of_the_same_width():
    odd = frozen_backbone(*network(width=64))  # 8 × 8 pixels
    assert odd.embed is None
    own = odd.init(jax.random.key(0))
    flat = jnp.asarray(IMAGES[:2]).reshape(2, 64)
    np.testing.assert_array_equal(odd.apply(own, flat), odd.apply(own, jnp.asarray(IMAGES[:2])))


def test_images_that_are_drawn_anew_have_no_fixed_features(head, data):
    assert augmented(head, crop=1).embed is None
    assert not to_embed(data, augmented(head, crop=1))
    assert embedded(data, linear(data)) is data
    assert embedded(data, None) is data


def test_rounds_on_features_are_rounds_on_samples(head, data):
    """The same scores, models and newcomers as where every pass goes through the whole network."""
    local = mj.local_sgd(0.5, epochs=2, batch_size=4)
    runs = [
        mj.simulate(mj.fedavg_plus(model, local=local), data.with_unseen(0.25), rounds=2, seed=3)
        for model in (head, head._replace(embed=None))
    ]
    one, other = (run.summary() for run in runs)
    for part in ("train_accuracy", "test_accuracy", "unseen_accuracy"):
        assert one[part] == pytest.approx(other[part])
    x, y = IMAGES[:7], LABELS[:7]
    models = [(run.model("1"), run.personalize((x, y))) for run in runs]
    for mine, theirs in zip(*models, strict=True):
        np.testing.assert_allclose(mine.predict_proba(x), theirs.predict_proba(x), rtol=2e-5)
    assert runs[0].data.spec.features == (8, 8)  # what new samples must look like


def test_every_part_is_embedded_block_by_block(head, data, monkeypatch):
    monkeypatch.setattr(embedding, "ROWS", 7)  # 36 training samples: the last block is not full
    found = embedded(data, head)
    assert is_embedded(found, head)
    assert not is_embedded(data, head)
    assert embedded(found, head) is found
    for part in ("train", "validation", "test"):
        before, after = getattr(data, part), getattr(found, part)
        np.testing.assert_allclose(after.x, head.embed(jnp.asarray(before.x)), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(after.y, before.y)
        np.testing.assert_array_equal(after.offsets, before.offsets)


def test_features_are_made_once_for_all_methods_seeds_and_folds(head, data, monkeypatch):
    made = []

    def counted(program, x):
        made.append(len(x))
        return in_blocks(program, x)

    in_blocks = embedding.in_blocks
    monkeypatch.setattr(embedding, "in_blocks", counted)
    fresh = mj.data.FederatedData.from_arrays(IMAGES, LABELS, clients=np.arange(60) % 4, seed=2)
    mj.tune(mj.fedavg(head), fresh, rounds=1, grid={"lr": [0.1, 0.2]}, folds=2)
    run = mj.simulate(mj.local(head), fresh, rounds=1, seeds=2)
    said = predictions(run, ("test",))[0]["test"]
    assert sorted(made) == [12, 12, 36]  # each part once
    np.testing.assert_allclose(said[:3], run.model(0).predict_proba(fresh.test.client(0)[0]), rtol=1e-5)
    scores = run.evaluate_new(mj.data.FederatedData.from_arrays(IMAGES, LABELS, clients=np.arange(60) % 4, seed=3))
    assert sorted(made) == [12, 12, 12, 12, 36, 36]
    assert np.isfinite(scores.values["test_score"]).all()


def test_samples_that_are_read_when_asked_for_stay_unread(head):
    def read(client):
        asked.append(client)
        return IMAGES[client::4], LABELS[client::4]

    asked: list[int] = []
    lazy = from_clients(read, sizes=[15] * 4, features=(8, 8), classes=3, dtype=np.uint8)
    assert embedded(lazy, head) is lazy
    assert not asked
    run = mj.simulate(mj.local(head), lazy, rounds=1)
    assert np.isfinite(run.summary()["test_accuracy"]["mean"])
