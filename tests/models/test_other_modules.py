"""nnx and equinox modules: their own outputs, policies, derived dropout, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from majorant.models import Draw, Spec, from_equinox, from_nnx

SPEC = Spec((4,), classes=3)
KEY = jax.random.key(0)
X = jnp.asarray(np.random.default_rng(0).normal(3.0, 2.0, size=(6, 4)), jnp.float32)


class Normalised(nnx.Module):
    def __init__(self, rngs, share=0.0):
        self.norm = nnx.BatchNorm(4, momentum=0.9, rngs=rngs)
        self.drop = nnx.Dropout(share, rngs=rngs) if share else None
        self.dense = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        x = self.norm(x)
        return self.dense(x if self.drop is None else self.drop(x))


def test_nnx_without_state_is_the_module_itself():
    make = lambda rngs: nnx.Linear(4, 3, rngs=rngs)
    model = from_nnx(make, SPEC)
    np.testing.assert_allclose(model.apply(model.init(KEY), X), make(nnx.Rngs(KEY))(X), rtol=1e-6)
    assert model.train_apply is None


def test_nnx_statistics_follow_the_policy():
    averaged = from_nnx(Normalised, SPEC, normalisation="averaged")
    params = averaged.init(KEY)
    dense = lambda x: x @ params["weights"]["dense.kernel"] + params["weights"]["dense.bias"]
    by_batch = dense((X - X.mean(0)) / jnp.sqrt(X.var(0) + 1e-5))
    outputs, refreshed = averaged.train_apply(params, X, Draw(KEY, jnp.ones(6)))
    np.testing.assert_allclose(outputs, by_batch, atol=1e-4)
    np.testing.assert_allclose(refreshed["statistics"]["norm.mean"], 0.1 * X.mean(0), rtol=1e-4)
    assert refreshed["weights"] is params["weights"]
    np.testing.assert_allclose(averaged.apply(params, X), dense(X / jnp.sqrt(1 + 1e-5)), atol=1e-4)
    slope = jax.grad(lambda p: averaged.train_apply(p, X, Draw(KEY, jnp.ones(6)))[0].sum())(params)
    assert not any(np.any(leaf) for leaf in slope["statistics"].values())
    assert averaged.normalises_by_batch
    batch, frozen = (from_nnx(Normalised, SPEC, normalisation=policy) for policy in ("batch", "frozen"))
    np.testing.assert_allclose(batch.apply(params["weights"], X), by_batch, atol=1e-4)
    np.testing.assert_allclose(frozen.apply(params["weights"], X), averaged.apply(params, X), atol=1e-6)


def test_dropout_draws_from_the_minibatch_key_alone():
    plain = lambda rngs: nnx.Sequential(nnx.Linear(4, 3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs))
    nets = {
        "nnx without normalisation": from_nnx(plain, SPEC),
        "nnx": from_nnx(lambda rngs: Normalised(rngs, 0.5), SPEC, normalisation="averaged"),
        "equinox": from_equinox(lambda key: Dropping(key), SPEC),
    }
    for name, model in nets.items():
        params = model.init(KEY)
        once, again, other = (
            model.train_apply(params, X, Draw(key, jnp.ones(6)))[0] for key in (KEY, KEY, jax.random.key(1))
        )
        np.testing.assert_array_equal(once, again, err_msg=name)
        assert not np.allclose(once, other), name
        np.testing.assert_array_equal(model.apply(params, X), model.apply(params, X))
    few = model.train_apply(params, X[:2], Draw(KEY, jnp.ones(2)))[0]
    np.testing.assert_allclose(few, once[:2], rtol=1e-6)  # a row's draw does not depend on the rows after it
    alike = model.train_apply(params, jnp.ones_like(X), Draw(KEY, jnp.ones(6)))[0]
    assert not np.allclose(alike, alike[0])  # each row has a draw of its own


class Dropping(eqx.Module):
    dense: eqx.nn.Linear
    drop: eqx.nn.Dropout

    def __init__(self, key):
        self.dense, self.drop = eqx.nn.Linear(4, 3, key=key), eqx.nn.Dropout(0.5)

    def __call__(self, x, *, key=None):
        return self.dense(self.drop(x, key=key))


def test_equinox_is_the_module_over_a_batch():
    make = lambda key: eqx.nn.MLP(4, 3, 5, 1, key=key)
    model = from_equinox(make, SPEC)
    params = model.init(KEY)
    assert set(params) == {f"layers.{i}.{part}" for i in (0, 1) for part in ("weight", "bias")}
    np.testing.assert_allclose(model.apply(params, X), jax.vmap(make(KEY))(X), rtol=1e-5)
    assert model.train_apply is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_nnx(Normalised, SPEC), "so say what happens to them by normalisation="),
        (lambda: from_nnx(Normalised, SPEC, normalisation="group"), "normalisation is one of"),
        (
            lambda: from_nnx(lambda rngs: nnx.Linear(4, 3, rngs=rngs), SPEC, normalisation="batch"),
            "leave normalisation",
        ),
        (lambda: from_nnx(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), SPEC), "takes a function that makes a module"),
        (lambda: from_nnx(lambda rngs: nnx.Linear(4, 2, rngs=rngs), SPEC), r"needs \(3, 3\)"),
        (lambda: from_nnx(lambda r: Normalised(r, 0.5), SPEC, normalisation="batch"), "drawn at evaluation"),
        (lambda: from_nnx(lambda r: Normalised(r, 0.5), SPEC, normalisation="frozen"), "needs training mode"),
        (lambda: from_equinox(eqx.nn.Linear(4, 3, key=KEY), SPEC), "takes a function that makes a module"),
        (lambda: from_equinox(lambda key: eqx.nn.BatchNorm(4, "batch", mode="ema"), SPEC), "with a state"),
        (lambda: from_equinox(lambda key: eqx.nn.Linear(4, 2, key=key), SPEC), r"needs \(3, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
