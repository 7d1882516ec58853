"""Packed parameters: the same model, in a few vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from compiling import quickly
from majorant.models import Draw, Model, Spec, frozen_backbone, packed
from majorant.models import inverted_residuals as inverted

SPEC = Spec((8, 8, 3), 3)
rng = np.random.default_rng(0)
X = jnp.asarray(rng.integers(0, 256, (6, 8, 8, 3)), jnp.uint8)
Y = jnp.asarray(rng.integers(0, 3, 6))
DRAW = Draw(jax.random.key(3), jnp.ones(6))


def small_network(normalisation: str = "averaged") -> Model:
    plan = inverted.MOBILENET_V2._replace(stages=inverted.MOBILENET_V2.stages[:1])
    return inverted.network(plan, SPEC, normalisation, 0.2, "unit", 0.25, 2)


def trained(model: Model, params):
    """Gradient of a training pass, refreshed parameters, and outputs of an evaluation."""

    def loss(params):
        outputs, refreshed = model.train_apply(params, X, DRAW)
        return model.loss.per_sample(outputs, Y).mean(), refreshed

    return quickly(lambda p: (*jax.grad(loss, has_aux=True)(p), model.apply(p, X)))(params)


@pytest.mark.parametrize("normalisation", ["averaged", "batch"])
@pytest.mark.parametrize("precision", ["single", "mixed"])
def test_packed_networks_train_as_they_did(normalisation, precision):
    model = small_network(normalisation)
    vectors = packed(model)
    if precision == "mixed":
        model, vectors = mj.models.mixed_precision(model), mj.models.mixed_precision(vectors)
    params, flat = quickly(lambda key: (model.init(key), vectors.init(key)))(jax.random.key(1))
    assert set(flat) == {"head", "norms", "rest"} | ({"statistics"} if normalisation == "averaged" else set())
    gradient, refreshed, outputs = trained(model, params)
    flat_gradient, flat_refreshed, flat_outputs = trained(vectors, flat)
    same = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    jax.tree.map(same, vectors.layers(flat_gradient), gradient)
    jax.tree.map(same, vectors.layers(flat_refreshed), refreshed)
    same(flat_outputs, outputs)
    assert float(jnp.abs(flat_gradient["rest"]).max()) > 0


def test_norms_are_all_scales_and_shifts_and_statistics_are_apart():
    model = small_network()
    layers, flat = model.init(jax.random.key(1)), packed(model).init(jax.random.key(1))
    numbers = lambda *ends: sum(leaf.size for path, leaf in jax.tree.leaves_with_path(layers) if path[-1].key in ends)
    assert flat["norms"].size == numbers("scale", "shift") == flat["statistics"].size == numbers("mean", "variance")
    assert flat["rest"].size == numbers("kernel")
    assert jax.tree.map(jnp.shape, flat["head"]) == jax.tree.map(jnp.shape, layers["weights"]["dense"])


def test_layers_and_pack_are_inverse():
    model = small_network()
    vectors, params = packed(model), model.init(jax.random.key(1))
    again = vectors.layers(vectors.pack(params))
    assert jax.tree.structure(again) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, again, params)
    twice = packed(vectors)
    jax.tree.map(np.testing.assert_array_equal, twice.layers(twice.pack(params)), params)
    for name, part in vectors.init(jax.random.key(1)).items():
        jax.tree.map(np.testing.assert_array_equal, part, vectors.pack(params)[name])


def test_a_head_over_packed_layers_that_are_fixed():
    vectors = packed(small_network())
    params = vectors.init(jax.random.key(1))
    head = frozen_backbone(vectors, params)
    own = head.init(jax.random.key(1))
    assert set(own) == {"weight", "bias"}
    np.testing.assert_allclose(quickly(head.apply)(own, X), quickly(vectors.apply)(params, X), rtol=1e-5)
    assert head.layers(own) is head.pack(own) is own


def test_models_of_one_layer_or_more_are_packed():
    data = mj.data.synthetic_mixture(clients=4, dimension=3, seed=0)
    for model, parts in ((mj.models.linear(data), {"head"}), (mj.models.mlp(data, hidden=(4,)), {"head", "rest"})):
        vectors = packed(model)
        params = vectors.init(jax.random.key(0))
        assert set(params) == parts
        x = jnp.asarray(data.train.x[:5])
        np.testing.assert_allclose(vectors.apply(params, x), model.apply(model.init(jax.random.key(0)), x), rtol=1e-6)


def test_what_cannot_be_packed_is_refused():
    model = small_network()
    with pytest.raises(ValueError, match="does not say which of its parameters are statistics"):
        packed(model._replace(statistics=None))
    init = lambda key: {"a": jnp.zeros(2, jnp.float32), "b": jnp.zeros(2, jnp.bfloat16)}
    with pytest.raises(ValueError, match="several types, bfloat16, float32"):
        packed(mj.models.linear(SPEC._replace(features=(2,)))._replace(init=init))
