"""The built-in models: linear, softmax regression, a perceptron with hidden layers, a small convolutional network.

They take the problem (a data set, or a ``Spec``) and read from it the shape of a sample and the number of outputs.
Inputs may be any shape the problem has; pixels stored as bytes are scaled to [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from majorant.math.checks import check_whole
from majorant.models.base import Draw, HasSpec, Loss, Model, Spec, as_float, spec_of
from majorant.models.convolution import Padding, conv2d
from majorant.models.dropout import check_dropout
from majorant.models.dropout import dropout as drop
from majorant.models.layers import (
    Layer,
    conv_init,
    dense,
    dense_init,
    layer_norm,
    layer_norm_init,
    max_pool,
    relu,
)
from majorant.models.losses import cross_entropy, loss_for
from majorant.models.pixels import check_pixels, image_shape, standardised

# Images that go through the network at once on a CPU. Measured for batches of 128: 16 and 32 are about equal, 64 take
# 1.15 times as long, all at once 1.3 times.
CACHED_IMAGES = 32


def linear(problem: HasSpec | Spec, *, start: str = "random") -> Model:
    """A linear map with bias: linear regression, logistic regression (two classes) or softmax regression (more).

    Two classes and regression take one output, K > 2 classes take K. ``start`` "zeros" begins at zero, as the
    objectives' own linear models do.

    >>> model = linear(Spec((4,), classes=2))
    >>> model.apply(model.init(jax.random.key(0)), jax.numpy.zeros((5, 4))).shape
    (5, 1)
    """
    if start not in ("random", "zeros"):
        raise ValueError(f'start must be "random" or "zeros", got {start!r}')
    spec = spec_of(problem)
    model = _perceptron(spec, (), loss_for(spec), "linear")
    return (
        model if start == "random" else model._replace(init=lambda key: jax.tree.map(jnp.zeros_like, model.init(key)))
    )


def softmax_regression(problem: HasSpec | Spec) -> Model:
    """A linear map with bias to one output per class, also for two classes.

    >>> model = softmax_regression(Spec((4,), classes=2))
    >>> model.predict(model.init(jax.random.key(0)), jax.numpy.zeros((5, 4))).shape
    (5, 2)
    """
    spec = spec_of(problem)
    return _perceptron(spec, (), loss_for(spec, cross_entropy.name), "softmax_regression")


def mlp(problem: HasSpec | Spec, *, hidden: Sequence[int] = (128,), norm: str = "none") -> Model:
    """A multilayer perceptron: dense layers of the given widths with relu, then a dense output layer.

    ``norm`` "layer" normalises what goes into every relu, each sample's units by their own mean and variance (Ba,
    Kiros, Hinton, *Layer normalization*, 2016), with learned scales and shifts.

    >>> model = mlp(Spec((28, 28), classes=10), hidden=(64, 32))
    >>> [layer["weight"].shape for layer in model.init(jax.random.key(0))]
    [(784, 64), (64, 32), (32, 10)]
    """
    spec = spec_of(problem)
    if norm not in ("none", "layer"):
        raise ValueError(f'norm must be "none" or "layer", got {norm!r}')
    return _perceptron(spec, _widths("hidden", hidden), loss_for(spec), "mlp", norm == "layer")


def cnn(
    problem: HasSpec | Spec,
    *,
    channels: Sequence[int] = (32, 64),
    hidden: int = 128,
    padding: Padding = "same",
    kernel: int = 3,
    dropout: float = 0.0,
    pixels: str = "unit",
) -> Model:
    """A convolutional network for images ``(h, w)`` or ``(h, w, c)``.

    For every entry of ``channels``: a convolution (3×3, or of another ``kernel``), relu, 2×2 max pooling; then a dense
    layer of ``hidden`` units with relu, and the output layer. The default is the network of the papers' image
    experiments. ``dropout`` is the share of the hidden units that training drops, and half of that the share of the
    last pooled features: 0.5 is the FedEM paper's. ``pixels``: see `mobilenet_v2`.

    >>> model = cnn(Spec((28, 28), classes=10))
    >>> model.apply(model.init(jax.random.key(0)), jax.numpy.zeros((2, 28, 28), jax.numpy.uint8)).shape
    (2, 10)
    """
    spec, loss = spec_of(problem), loss_for(problem)
    channels, (hidden,) = _widths("channels", channels), _widths("hidden", (hidden,))
    (kernel,) = _widths("kernel", (kernel,))
    check_dropout(dropout)
    height, width, depth = shape = image_shape(spec, "cnn")
    check_pixels(pixels, depth, problem)
    flat = math.prod(_after_pooling(size, padding, len(channels), kernel) for size in (height, width))
    if flat == 0:
        raise ValueError(
            f"images of {height}×{width} are too small for {len(channels)} {kernel}×{kernel} convolutions with "
            f"2×2 pooling and {padding} padding: give fewer channels"
            + (' or padding="same"' if padding == "valid" else "")
        )
    depths = (depth, *channels)

    def init(key: jax.Array) -> dict[str, list[Layer]]:
        keys = jax.random.split(key, len(channels) + 2)
        convolutions = zip(keys[2:], depths[:-1], depths[1:], strict=True)
        return {
            "convolutions": [conv_init(k, kernel, c_in, c_out) for k, c_in, c_out in convolutions],
            "dense": [
                dense_init(keys[0], flat * depths[-1], hidden),
                dense_init(keys[1], hidden, loss.outputs(spec.classes)),
            ],
        }

    def features(params: dict[str, list[Layer]], x: jax.Array, draw: Draw | None = None) -> jax.Array:
        x = standardised(x, shape, pixels)
        for layer in params["convolutions"]:
            x = max_pool(conv2d(x, layer["weight"], padding=padding))
            x = relu(x + layer["bias"])  # these commute with max pooling; after it they are a quarter of the work
        x = drop(x.reshape(x.shape[0], flat * depths[-1]), dropout / 2, draw)
        return drop(relu(dense(params["dense"][0], x)), dropout, draw, layer=1)

    apply = lambda params, x: dense(params["dense"][1], features(params, x))
    train_apply = lambda params, x, draw: (dense(params["dense"][1], features(params, x, draw)), params)
    drawn: dict[str, Any] = {"train_apply": train_apply if dropout else None, "block": CACHED_IMAGES}
    return Model(init, apply, loss, spec, "cnn", **drawn, statistics="", head="dense.1", features=features)


def _perceptron(spec: Spec, hidden: tuple[int, ...], loss: Loss, name: str, norm: bool = False) -> Model:
    """Dense layers with relu between them; without hidden layers, a linear map."""
    widths = (math.prod(spec.features), *hidden, loss.outputs(spec.classes))

    def init(key: jax.Array) -> list[Layer]:
        keys = jax.random.split(key, len(widths) - 1)
        layers = [dense_init(k, a, b) for k, a, b in zip(keys, widths[:-1], widths[1:], strict=True)]
        named = [layer | layer_norm_init(width) for layer, width in zip(layers, hidden, strict=False)]
        return [*named, layers[-1]] if norm else layers

    def features(params: list[Layer], x: jax.Array) -> jax.Array:
        x = as_float(x).reshape(-1, widths[0])
        for layer in params[:-1]:
            x = dense(layer, x)
            x = relu(layer_norm(layer, x) if norm else x)
        return x

    apply = lambda params, x: dense(params[-1], features(params, x))
    if not hidden:
        return Model(init, apply, loss, spec, name, convex=True)  # each of our losses is convex in the outputs
    return Model(init, apply, loss, spec, name, head=str(len(hidden)), features=features)


def _widths(name: str, values: Sequence[int]) -> tuple[int, ...]:
    for value in values:
        check_whole(name, value)
    return tuple(int(value) for value in values)


def _after_pooling(size: int, padding: str, blocks: int, kernel: int) -> int:
    if padding not in ("valid", "same"):
        raise ValueError(f'padding is "valid" or "same", not {padding!r}')
    for _ in range(blocks):
        size = max(size if padding == "same" else size - kernel + 1, 0) // 2
    return size
