"""Flax modules: what each normalisation policy changes, what it leaves, and what is refused."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from compiling import quickly
from majorant.models import Draw, Spec, from_flax, softmax_regression

key = jax.random.key(0)
SPEC = Spec((4,), 3)
x = 2 + 3 * jax.random.normal(jax.random.key(1), (16, 4))


class Normed(nn.Module):
    """Normalisation switched by ``train``."""

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        return nn.Dense(3)(x)


class NormedByFlaxsName(nn.Module):
    """Normalisation switched by ``use_running_average``."""

    @nn.compact
    def __call__(self, x, use_running_average: bool):
        return nn.Dense(3)(nn.BatchNorm(momentum=0.9)(x, use_running_average=use_running_average))


class WithoutSwitch(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=False)(x))


class WithDropout(nn.Module):
    norm: bool

    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.BatchNorm(use_running_average=not train)(x) if self.norm else x
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))


class Counting(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.variable("counts", "calls", lambda: jnp.zeros(()))
        return nn.Dense(3)(x)


def dense_part(params, x):
    return x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"]


def test_a_module_without_statistics():
    model, builtin = from_flax(nn.Dense(3), SPEC), softmax_regression(SPEC)
    params = model.init(key)
    same = [{"weight": params["kernel"], "bias": params["bias"]}]
    np.testing.assert_allclose(model.apply(params, x), builtin.apply(same, x), rtol=1e-5, atol=1e-5)
    assert model.train_apply is None
    assert model.name == "Dense"
    assert from_flax(nn.Dense(2), Spec((4,), 2), loss="cross_entropy", name="mine").name == "mine"


@pytest.mark.parametrize("module", [Normed(), NormedByFlaxsName()])
def test_batch_uses_the_statistics_of_its_own_batch(module):
    model = from_flax(module, SPEC, normalisation="batch")
    params = model.init(key)
    assert "batch_stats" not in params
    assert model.train_apply is None
    normalised = (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5)
    np.testing.assert_allclose(model.apply(params, x), dense_part(params, normalised), atol=1e-4)
    # The outputs of a sample depend on the rest of its batch, and not on shift and scale.
    assert not jnp.allclose(model.apply(params, x)[:8], model.apply(params, x[:8]), atol=1e-2)
    np.testing.assert_allclose(model.apply(params, 5 * x + 1), model.apply(params, x), atol=1e-4)


@pytest.mark.parametrize("module", [Normed(), NormedByFlaxsName()])
def test_frozen_uses_the_initial_statistics_for_ever(module):
    model = from_flax(module, SPEC, normalisation="frozen")
    params = model.init(key)
    assert "batch_stats" not in params
    assert model.train_apply is None
    np.testing.assert_allclose(model.apply(params, x), dense_part(params, x / jnp.sqrt(1 + 1e-5)), atol=1e-4)
    np.testing.assert_allclose(model.apply(params, x)[:8], model.apply(params, x[:8]), atol=1e-4)


@pytest.mark.parametrize("module", [Normed(), NormedByFlaxsName()])
def test_averaged_keeps_running_statistics_in_the_parameters(module):
    model = from_flax(module, SPEC, normalisation="averaged")
    params = model.init(key)
    outputs, refreshed = model.train_apply(params, x)
    # Training normalises by the batch, refreshes the statistics and leaves every weight.
    batch = from_flax(module, SPEC, normalisation="batch")
    np.testing.assert_allclose(outputs, batch.apply(params["params"], x), rtol=1e-6)
    assert jax.tree.structure(refreshed) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, refreshed["params"], params["params"])
    statistics = refreshed["batch_stats"]["BatchNorm_0"]
    np.testing.assert_allclose(statistics["mean"], 0.1 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(statistics["var"], 0.9 + 0.1 * x.var(0), rtol=1e-5)
    # Prediction uses them, sample by sample.
    normalised = (x - statistics["mean"]) / jnp.sqrt(statistics["var"] + 1e-5)
    np.testing.assert_allclose(model.apply(refreshed, x), dense_part(params["params"], normalised), atol=1e-4)
    np.testing.assert_allclose(model.apply(refreshed, x)[:8], model.apply(refreshed, x[:8]), atol=1e-4)


def test_averaged_statistics_get_no_gradient():
    model = from_flax(Normed(), SPEC, normalisation="averaged")
    params, y = model.init(key), np.zeros(16, int)
    for loss in (lambda p: model.losses(p, x, y).mean(), lambda p: model.train_apply(p, x)[0].sum()):
        gradient = jax.tree.map(np.asarray, quickly(jax.grad(loss))(params))
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient["batch_stats"]))
        assert any((leaf != 0).any() for leaf in jax.tree.leaves(gradient["params"]))


@pytest.mark.parametrize("normalisation", ["batch", "frozen", "averaged"])
def test_policies_compile_and_vectorise_over_clients(normalisation):
    model = from_flax(Normed(), SPEC, normalisation=normalisation)
    params = jax.vmap(model.init)(jax.random.split(key, 2))
    outputs = jax.jit(jax.vmap(model.apply))(params, x.reshape(2, 8, 4))
    one = jax.tree.map(lambda leaf: leaf[1], params)
    np.testing.assert_allclose(outputs[1], model.apply(one, x[8:]), rtol=1e-4, atol=1e-5)


def test_flaxs_own_batch_norm_as_the_whole_module():
    model = from_flax(nn.BatchNorm(), Spec((3,), 3), normalisation="batch")
    np.testing.assert_allclose(model.apply(model.init(key), x[:, :3]).mean(0), 0, atol=1e-5)


def test_dropout_is_for_training_and_draws_from_the_minibatchs_key_alone():
    model = from_flax(WithDropout(norm=False), SPEC)
    params, same = model.init(key), Draw(key, jnp.ones(16))
    np.testing.assert_allclose(model.apply(params, x), dense_part(params, x), atol=1e-5)
    once, kept = model.train_apply(params, x, same)
    assert kept is params
    np.testing.assert_array_equal(once, model.train_apply(params, x, same)[0])
    assert not np.allclose(once, model.train_apply(params, x, Draw(jax.random.key(1), jnp.ones(16)))[0])
    np.testing.assert_allclose(once[:5], model.train_apply(params, x[:5], same)[0], rtol=1e-6)
    outputs = jax.vmap(lambda key: model.train_apply(params, x, Draw(key, jnp.ones(16)))[0])
    many = outputs(jax.random.split(key, 2000)).mean(0)  # half of the units, twice as large: the same on average
    np.testing.assert_allclose(many, dense_part(params, x), atol=0.12 * float(jnp.abs(many).max()))

    both = from_flax(WithDropout(norm=True), SPEC, normalisation="averaged")
    params = both.init(key)
    outputs, refreshed = both.train_apply(params, x, same)
    np.testing.assert_allclose(refreshed["batch_stats"]["BatchNorm_0"]["mean"], 0.01 * x.mean(0), rtol=1e-5)
    assert not np.allclose(outputs, both.train_apply(params, x, Draw(jax.random.key(1), jnp.ones(16)))[0])
    np.testing.assert_array_equal(both.apply(params, x), both.apply(params, x))


def test_codes_and_bytes():
    text = from_flax(nn.Sequential([nn.Embed(80, 3), lambda e: e.mean(axis=-2)]), SPEC)
    assert text.apply(text.init(key), jnp.zeros((2, 4), int)).shape == (2, 3)
    model = from_flax(nn.Dense(3), SPEC)
    params, pixels = model.init(key), jnp.full((2, 4), 255, jnp.uint8)
    np.testing.assert_array_equal(model.apply(params, pixels), model.apply(params, jnp.ones((2, 4))))


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (Normed(), {}, "Normed keeps batch statistics, so say .*batch.*frozen.*averaged"),
        (Normed(), {"normalisation": "running"}, "one of batch, frozen, averaged, not 'running'"),
        (nn.Dense(3), {"normalisation": "batch"}, "Dense keeps no batch statistics"),
        (WithoutSwitch(), {"normalisation": "batch"}, "takes neither train nor use_running_average"),
        (WithDropout(norm=True), {"normalisation": "batch"}, "WithDropout has dropout, .*use .averaged"),
        (WithDropout(norm=True), {"normalisation": "frozen"}, "WithDropout has dropout, .*use .averaged"),
        (Counting(), {}, r"keeps \['counts'\]; only params and batch_stats"),
        (nn.Dense(4), {}, r"apply of Dense gives \(3, 4\) for 3 samples"),
        (nn.Dense(3), {"loss": "logistic"}, "logistic loss does not fit"),
        (nn.Sequential([nn.Dense(3), lambda x: x @ x]), {}, "init of Sequential fails on samples"),
    ],
)
def test_errors(module, options, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        from_flax(module, SPEC, **options)


def test_the_class_is_not_a_module():
    with pytest.raises(TypeError, match="takes an instance"):
        from_flax(nn.Dense, SPEC)


def test_without_flax_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "flax", None)
    with pytest.raises(ImportError, match=r"pip install .majorant\[flax\]"):
        from_flax(nn.Dense(3), SPEC)


def test_importing_the_models_does_not_import_flax():
    program = "import sys, majorant.models; assert 'flax' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
