"""The character LSTM against its recurrence step by step, and what it promises of codes, positions and starts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiling import quickly
from majorant.data.federated import FederatedData
from majorant.models import Spec, lstm, mixed_precision
from majorant.models.lstm import everywhere, recurrence

rng = np.random.default_rng(0)


def test_codes_stay_codes_in_mixed_precision():
    model = lstm(Spec((7,), classes=6), hidden=5, embedding=3)
    both = lambda model: quickly(lambda params, x: (model.apply(params, x), mixed_precision(model).apply(params, x)))
    params = quickly(model.init)(jax.random.key(0))
    x = np.random.default_rng(0).integers(0, 6, (4, 7)).astype(np.uint8)
    exact, mixed = both(model)(params, x)
    assert np.ptp(exact, axis=0).max() > 0.02  # sequences differ
    np.testing.assert_allclose(mixed, exact, atol=5e-3)
    many = lstm(Spec((2,), classes=4), vocabulary=600, hidden=5, embedding=3)
    params = jax.tree.map(lambda leaf: 3 * np.asarray(leaf), quickly(many.init)(jax.random.key(0)))
    close = np.array([[512, 513], [513, 514]], np.float32)  # bfloat16 would round them to one number
    exact, mixed = both(many)(params, close)
    np.testing.assert_allclose(mixed, exact, atol=0.05 * float(np.ptp(exact)))


def test_lstm_is_the_recurrence():
    model = lstm(Spec((7,), classes=6), hidden=5, embedding=3)
    params = jax.tree.map(np.asarray, quickly(model.init)(jax.random.key(0)))
    codes = rng.integers(0, 6, (4, 7))
    sequence = params["embedding"][codes]
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    for layer in params["layers"]:
        h, c, out = np.zeros((4, 5)), np.zeros((4, 5)), []
        for t in range(7):
            i, f, g, o = np.split(sequence[:, t] @ layer["input"] + h @ layer["state"] + layer["bias"], 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            out.append(h)
        sequence = np.stack(out, axis=1)
    expected = sequence[:, -1] @ params["dense"]["weight"] + params["dense"]["bias"]
    np.testing.assert_allclose(quickly(model.apply)(params, codes.astype(np.uint8)), expected, atol=1e-5)


def test_layers_of_an_lstm_start_apart_and_within_the_bound_of_their_width():
    layers = quickly(lstm(Spec((3,), classes=4), hidden=30, layers=2).init)(jax.random.key(0))["layers"]
    drawn = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(layers)]
    assert all(0.9 * 30**-0.5 < np.abs(values).max() <= 30**-0.5 for values in drawn)
    assert len(np.unique(np.concatenate(drawn))) > 0.99 * sum(map(len, drawn))  # nothing is drawn from one key twice


def test_gradient_of_the_recurrence_is_the_one_of_its_steps():
    def steps(given, weights):
        h = c = jnp.zeros(given.shape[1:-1] + weights.shape[:1])
        found = []
        for now in given:
            i, f, g, o = jnp.split(now + h @ weights, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            found.append(h)
        return jnp.stack(found)

    given, weights, of_h = (rng.normal(size=size) for size in ((6, 3, 20), (5, 20), (6, 3, 5)))
    both = lambda function: quickly(lambda *at: (function(*at), jax.vjp(function, *at)[1](jnp.float32(of_h))))
    found, expected = (both(f)(np.float32(given), np.float32(weights)) for f in (recurrence, steps))
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_loss_at_every_position_is_the_mean_of_those_of_all_beginnings():
    model, every = (lstm(Spec((5,), classes=6), hidden=5, embedding=3, every_position=e) for e in (False, True))
    params = quickly(model.init)(jax.random.key(0))
    codes, following = rng.integers(0, 6, (4, 5)).astype(np.uint8), rng.integers(0, 6, 4)
    text = np.column_stack([codes, following])
    losses = lambda of: quickly(of.losses)(params, codes, following)
    of_each = quickly(lambda p: [model.losses(p, codes[:, :n], text[:, n]) for n in range(1, 6)])(params)
    np.testing.assert_allclose(losses(every), np.mean(of_each, axis=0), rtol=1e-5)
    predictions = [quickly(of.predict)(params, codes) for of in (every, model)]
    np.testing.assert_allclose(*predictions, rtol=1e-5)
    np.testing.assert_allclose(losses(mixed_precision(every)), losses(every), rtol=1e-2)
    weights = np.arange(1.0, 7.0)
    weighted = lstm(Spec((5,), classes=6), hidden=5, embedding=3, every_position=True, class_weights=weights)
    np.testing.assert_allclose(losses(weighted), np.mean(weights[text[:, 1:]].T * of_each, axis=0), rtol=1e-5)
    np.testing.assert_array_equal(quickly(weighted.predict)(params, codes), predictions[0])
    at_each = quickly(lambda p: [model.predict(p, codes[:, :n]) for n in range(1, 6)])(params)
    np.testing.assert_allclose(quickly(everywhere(weighted).predict)(params, codes), np.stack(at_each, 1), rtol=1e-5)
    with pytest.raises(ValueError, match="9 codes, 6 classes"):
        lstm(Spec((5,), classes=6), vocabulary=9, every_position=True)
    with pytest.raises(ValueError, match="weights for 2 classes, but the problem has 6"):
        lstm(Spec((5,), classes=6), class_weights=[1.0, 2.0])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (7, "the {} samples have codes from 7 to 7, which do not fit a vocabulary of 4: give vocabulary=8 or more"),
        (-1, "the {} samples have codes from -1 to -1.*codes begin at 0"),
        (0.5, "some of the {} samples are no whole numbers"),
    ],
)
@pytest.mark.parametrize("part", ["train", "test"])
def test_codes_outside_the_vocabulary_are_refused(part, code, message):
    zeros, labels = np.zeros((6, 3)), np.arange(6) % 4
    data = FederatedData.from_arrays(zeros, labels, np.arange(6) % 2, split=(0.5, 0.0, 0.5), name="text")
    samples = getattr(data, part)
    with pytest.raises(ValueError, match=message.format(part)):
        lstm(dataclasses.replace(data, **{part: samples._replace(x=samples.x + code)}))
