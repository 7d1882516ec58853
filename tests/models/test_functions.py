"""Models from plain functions: the same numbers as the built-in ones, and shapes checked before any compute."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.models import Spec, cross_entropy, from_functions, linear, softmax_regression

key = jax.random.key(0)
SPEC = Spec((4,), 3)


def test_plain_functions_make_the_same_model():
    builtin = softmax_regression(SPEC)
    mine = from_functions(builtin.init, lambda p, x: x @ p[0]["weight"] + p[0]["bias"], SPEC, name="mine")
    x, y = jax.random.normal(key, (5, 4)), jnp.array([0, 1, 2, 1, 0])
    params = mine.init(key)
    np.testing.assert_allclose(mine.losses(params, x, y), builtin.losses(params, x, y), rtol=1e-6)
    assert (mine.name, mine.loss, mine.spec) == ("mine", cross_entropy, SPEC)


def test_a_data_set_or_its_spec():
    data = SimpleNamespace(spec=Spec((4,), 2))
    assert linear(data).spec == data.spec
    assert from_functions(lambda key: jnp.ones((4, 2)), lambda w, x: x @ w, data, "cross_entropy").spec == data.spec


def test_bytes_are_scaled():
    model = from_functions(lambda key: jnp.ones(()), lambda w, x: w * x, Spec((1,), 0))
    assert model.apply(model.init(key), jnp.array([[255]], jnp.uint8)) == 1


def test_samples_may_be_codes():
    embed = lambda table, x: table[x].mean(axis=1)
    model = from_functions(lambda key: jax.random.normal(key, (80, 3)), embed, SPEC)
    assert model.predict(model.init(key), jnp.zeros((2, 4), int)).shape == (2, 3)


def test_nothing_is_computed_at_construction():
    def init(key):
        assert isinstance(key, jax.core.Tracer)
        return jnp.ones((4, 3))

    from_functions(init, lambda w, x: x @ w, SPEC)


@pytest.mark.parametrize(
    ("init", "apply", "message"),
    [
        (lambda: 0, lambda w, x: x, "init of model fails on a random key"),
        (lambda key: jnp.ones((5, 3)), lambda w, x: x @ w, r"apply of model fails on samples \(3, 4\)"),
        (lambda key: 1.0, lambda w, x: x * w, r"gives \(3, 4\) for 3 samples; .* 3 classes needs \(3, 3\)"),
        (lambda key: 1.0, lambda w, x: x[:, 0], r"gives \(3,\) for 3 samples"),
        (lambda key: 1.0, lambda w, x: (x, x), "gives a tuple"),
        (lambda key: jnp.ones((4, 3), int), lambda w, x: x @ w, "parameters of type int32: they must be float"),
        (lambda key: 1.0, lambda w, x: x[:, :3] > w, "gives bool; outputs must be floating point"),
    ],
)
def test_errors(init, apply, message):
    with pytest.raises(ValueError, match=message):
        from_functions(init, apply, SPEC)
