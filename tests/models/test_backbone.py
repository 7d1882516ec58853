"""Networks whose last layer alone is trained, and what that layer reads."""

import equinox as eqx
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from compiling import quickly
from majorant.models import Spec, cnn, from_functions, frozen_backbone, linear, mlp, packed

rng = np.random.default_rng(0)


def test_a_head_is_trained_over_a_cnn_whose_layers_are_lists():
    model = cnn(Spec((8, 8), 3), channels=(2,), hidden=4)
    params, x = quickly(model.init)(jax.random.key(0)), jnp.asarray(rng.normal(size=(5, 8, 8)), jnp.float32)
    head = frozen_backbone(model, params)
    own = head.init(jax.random.key(0))
    assert jax.tree.map(jnp.shape, own) == {"weight": (4, 3), "bias": (3,)}
    np.testing.assert_allclose(quickly(head.apply)(own, x), quickly(model.apply)(params, x), rtol=1e-6)


def test_what_a_head_reads_is_what_its_layer_is_applied_to():
    for model in (cnn(Spec((8, 8), 3), channels=(2,), hidden=4, dropout=0.5), mlp(Spec((8,), 3), hidden=(4,))):
        for form in (model, packed(model)):
            params = form.init(jax.random.key(0))
            x = jnp.asarray(rng.normal(size=(5, *model.spec.features)), jnp.float32)
            last = jax.tree.leaves(form.layers(params))[-2:]  # bias and weight
            read = quickly(form.features)(params, x)
            np.testing.assert_allclose(read @ last[1] + last[0], quickly(form.apply)(params, x), rtol=1e-5, atol=1e-6)


def test_a_head_whose_place_nothing_tells_is_asked_for():
    two = Spec((3,), 3)
    apply = lambda params, x: x @ params["a"]["kernel"] @ params["b"]["kernel"]
    init = lambda key: {"a": {"kernel": jnp.eye(3)}, "b": {"kernel": 2 * jnp.eye(3)}}
    model = from_functions(init, apply, two)
    params = model.init(jax.random.key(0))
    with pytest.raises(ValueError, match=r'Name it, model._replace\(head="…"\): there are a, b'):
        frozen_backbone(model, params)
    head = frozen_backbone(
        model._replace(head="a"), {"a": {"kernel": jnp.zeros((3, 3))}, "b": {"kernel": 5 * jnp.eye(3)}}
    )
    assert jax.tree.map(jnp.shape, head.init(jax.random.key(0))) == {"kernel": (3, 3)}
    np.testing.assert_array_equal(head.apply({"kernel": jnp.eye(3)}, jnp.ones((1, 3))), [[5, 5, 5]])
    assert head.embed is None
    with pytest.raises(ValueError, match="to be trained alone"):
        frozen_backbone(linear(two), linear(two).init(jax.random.key(0)))


class Equinox(eqx.Module):
    hidden: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key):
        self.hidden, self.out = eqx.nn.Linear(5, 4, key=key), eqx.nn.Linear(4, 3, key=key)

    def __call__(self, x):
        return self.out(jax.nn.relu(self.hidden(x)))


class Flax(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(5, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.hidden(x)))


@pytest.mark.parametrize(
    "adapted", [lambda s: mj.models.from_equinox(Equinox, s), lambda s: mj.models.from_nnx(Flax, s)]
)
def test_modules_of_others_have_their_last_layer_trained_alone(adapted):
    model = adapted(Spec((5,), 3))
    params, x = model.init(jax.random.key(0)), jnp.asarray(rng.normal(size=(6, 5)), jnp.float32)
    head = frozen_backbone(model, params)
    own = {name.removeprefix("out."): leaf for name, leaf in params.items() if name.startswith("out.")}
    np.testing.assert_allclose(quickly(head.apply)(own, x), quickly(model.apply)(params, x), rtol=1e-6)
    assert jax.tree.map(jnp.shape, head.init(jax.random.key(1))) == jax.tree.map(jnp.shape, own)
    assert not head.convex  # nothing says what the module does with its last layer's outputs
