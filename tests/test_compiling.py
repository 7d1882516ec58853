"""What tests share: federations that are equal in all that they are made of, and no others."""

import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from compiling import likeness
from majorant.core import masked_mean
from majorant.engines import simulator

MODEL = mj.models.linear(zoo.problem())


def federation(make, **options):
    return simulator.federation(make(MODEL), training=np.arange(5), **options)


def fedavg(lr=0.1, **options):
    return lambda model: mj.fedavg(model, local=mj.local_sgd(lr, **options))


@pytest.mark.parametrize("name", ["fedem", "fedper", "clustered", "lsgd", "chebyshev", "fedmm", "mocha"])
def test_the_same_options_make_the_same_federation(name):
    make = lambda model: zoo.ZOO[name].make(mj.models.linear(zoo.problem()), zoo.solver())
    assert federation(make) is federation(make)


@pytest.mark.parametrize(
    "other",
    [
        fedavg(0.2),
        fedavg(momentum=0.5),
        fedavg(batch_size=None),
        lambda model: mj.fedprox(model, mu=0.5, local=mj.local_sgd(0.1)),
        lambda model: mj.fedavg(mj.models.mlp(zoo.problem(), hidden=(2,)), local=mj.local_sgd(0.1)),
        lambda model: mj.fedavg(model, local=mj.local_sgd(0.1))._replace(name="another"),
    ],
)
def test_others_are_others(other):
    assert federation(other) is not federation(fedavg())


def test_the_way_of_messages_counts():
    few = mj.participation.uniform(0.5)
    assert federation(fedavg(), participation=few) is not federation(fedavg())
    assert federation(fedavg(), channel=mj.channel.quantized(8)) is not federation(fedavg())


def test_functions_of_tests_are_like_themselves_alone():
    """They may count what is done with them."""
    make = lambda: lambda x: x
    one = make()
    assert likeness(one) == likeness(one)
    assert likeness(one) != likeness(make())
    assert likeness(masked_mean) == likeness(masked_mean)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (0.0, -0.0),
        (1, 1.0),
        (1, True),
        (np.zeros(2), np.zeros(2, np.float32)),
        (np.zeros(2), np.array([0.0, -0.0])),
        (jnp.zeros(2), np.zeros(2, np.float32)),
        ((1, 2), [1, 2]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_values_that_programs_tell_apart_are_not_alike(one, two):
    assert likeness(one) == likeness(one)
    assert likeness(one) != likeness(two)


def test_a_change_to_the_library_is_not_hidden(monkeypatch):
    before = federation(fedavg())
    with monkeypatch.context() as patch:
        patch.setattr(simulator, "__doc__", "changed")
        assert federation(fedavg()) is not before
    assert federation(fedavg()) is before


def test_arrays_are_put_on_the_device_as_they_are_now_and_compile_nothing(monkeypatch):
    compiled = []
    monkeypatch.setattr("jax._src.compiler.compile_or_get_cached", lambda *program: compiled.append(program))
    given = np.arange(11 * 13, dtype=np.int32).reshape(11, 13)
    put = jnp.asarray(given)
    assert not compiled
    given[0, 0] = 7
    assert np.asarray(put)[0, 0] == 0
    assert (put.dtype, put.weak_type) == (np.int32, False)
