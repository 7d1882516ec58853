"""Both layouts of feature maps compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiling import quickly
from majorant.models import Draw, Spec, maps
from majorant.models import inverted_residuals as inverted
from majorant.models.cost import forward_flops
from majorant.models.depthwise import depthwise_conv2d
from majorant.models.maps import ChannelsFirst, ChannelsLast, laid_out, layout

rng = np.random.default_rng(0)
SHORT = inverted.EFFICIENTNET_LITE0._replace(stages=inverted.EFFICIENTNET_LITE0.stages[:3], last=16)


def network(normalisation):
    """EfficientNet-Lite0's first blocks, narrow: maps of 8×8, 4×4 and 2×2."""
    return inverted.network(SHORT, Spec((16, 16, 3), 3), normalisation, 0.0, "imagenet", 0.25, 2)


@pytest.mark.parametrize(
    ("size", "shape", "stride", "padding"),
    [(3, (4, 5), 1, "same"), (5, (8, 7), 2, "same"), (3, (2, 2), 1, 1), (5, (1, 3), 1, 2), (3, (7, 8), 2, 1)],
)
def test_depthwise_as_matrix_products_is_that_of_shifted_images(size, shape, stride, padding):
    x = rng.normal(size=(2, *shape, 3)).astype(np.float32)
    kernel = rng.normal(size=(size, size, 3)).astype(np.float32)

    def by_products(x, kernel):
        first = ChannelsFirst.depthwise(ChannelsFirst.of_images(x), kernel, stride, padding)
        return ChannelsFirst.as_images(first)

    def by_shifts(x, kernel):
        return depthwise_conv2d(x, kernel, stride=stride, padding=padding)

    @quickly
    def both(x, kernel):
        gradients = lambda way: jax.grad(lambda *given: (way(*given) ** 2).sum(), (0, 1))(x, kernel)
        return [(way(x, kernel), gradients(way)) for way in (by_products, by_shifts)]

    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4), *both(x, kernel))


def test_maps_too_large_for_matrices_are_shifted(monkeypatch):
    x, kernel = jnp.asarray(rng.normal(size=(3, 2, 4, 4))), jnp.asarray(rng.normal(size=(3, 3, 3)))
    products = str(jax.make_jaxpr(lambda x: ChannelsFirst.depthwise(x, kernel, 2, "same"))(x))
    by_products = ChannelsFirst.depthwise(x, kernel, 2, "same")
    monkeypatch.setattr(maps, "LARGEST", 4 * 4 * 2 * 2 - 1)
    shifts = str(jax.make_jaxpr(lambda x: ChannelsFirst.depthwise(x, kernel, 2, "same"))(x))
    assert "dot_general" in products
    assert "dot_general" not in shifts
    np.testing.assert_allclose(ChannelsFirst.depthwise(x, kernel, 2, "same"), by_products, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("normalisation", ["averaged", "group"])
def test_a_network_is_the_same_in_both(normalisation):
    """Outputs in training, refreshed statistics, predictions and the gradient, with a row that fills the batch."""
    model = network(normalisation)
    params = quickly(model.init)(jax.random.key(0))
    x = rng.integers(0, 256, (5, 16, 16, 3)).astype(np.uint8)
    draw = Draw(jax.random.key(1), jnp.array([1.0, 1.0, 1.0, 1.0, 0.0]))

    def passes(params):
        train = model.train_apply or (lambda params, x, draw: (model.apply(params, x), params))
        outputs, refreshed = train(params, x, draw)
        return (outputs[:4] ** 2).sum(), (outputs[:4], refreshed, model.apply(params, x))

    found = []
    for wanted in (ChannelsFirst, ChannelsLast):
        with laid_out(wanted):
            found.append(quickly(lambda params: jax.value_and_grad(passes, has_aux=True)(params))(params))
    near = lambda a, b: np.testing.assert_allclose(
        a, b, atol=1e-5 + 1e-3 * np.abs(b).max()
    )  # some are 0 but for rounding
    jax.tree.map(near, *found)


def test_the_backend_chooses_unless_told(monkeypatch):
    assert layout() is ChannelsLast
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert layout() is ChannelsFirst
    with laid_out(ChannelsLast):
        assert layout() is ChannelsLast
    assert layout() is ChannelsFirst


def test_products_with_zeros_are_not_arithmetic_of_the_network():
    model = network("frozen")
    usual = forward_flops(model)
    with laid_out(ChannelsFirst):
        assert forward_flops(model) == usual
