"""ResNet-18 and ResNet-34: stages of basic blocks, two 3×3 convolutions with a shortcut around them.

Reference: He, Zhang, Ren, Sun, *Deep residual learning for image recognition*, CVPR 2016, Table 1, as TorchVision has
it. The FedEM paper compares with them in App. J.5.
"""

from __future__ import annotations

import functools
import itertools
from typing import Literal

import jax
import jax.numpy as jnp

from majorant.core.compilation import jit
from majorant.math.checks import check_range
from majorant.models.base import HasSpec, Model, Spec, spec_of
from majorant.models.convolution import conv2d
from majorant.models.depthwise import padded
from majorant.models.image_network import Params, image_network
from majorant.models.inverted_residuals import conv_norm_init
from majorant.models.layers import Layer, dense_init, first_max, relu
from majorant.models.losses import loss_for
from majorant.models.normalisation import Normalisation, Norms, check_policy
from majorant.models.packed import packed
from majorant.models.pixels import check_pixels, image_shape, standardised

Stem = Literal["large", "small"]
CHANNELS = (64, 128, 256, 512)
EPSILON = 1e-5


def resnet18(
    problem: HasSpec | Spec,
    *,
    normalisation: Normalisation = "averaged",
    pixels: str = "unit",
    stem: Stem = "large",
    width: float = 1.0,
    by_layers: bool = False,
) -> Model:
    """ResNet-18 for images, with an output for each class.

    ``stem`` "large" begins with a 7×7 convolution of stride 2 and 3×3 max pooling, as published, and "small" with a 3×3
    convolution, for small images. ``normalisation``, ``pixels``, ``width`` and ``by_layers``: see `mobilenet_v2`.

    >>> model = resnet18(Spec((224, 224, 3), classes=1000), by_layers=True)
    >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))["weights"]))
    11689512
    """
    model = network("resnet18", (2, 2, 2, 2), problem, normalisation, pixels, stem, width)
    return model if by_layers else packed(model)


def resnet34(
    problem: HasSpec | Spec,
    *,
    normalisation: Normalisation = "averaged",
    pixels: str = "unit",
    stem: Stem = "large",
    width: float = 1.0,
    by_layers: bool = False,
) -> Model:
    """ResNet-34; the options are those of `resnet18`.

    >>> model = resnet34(Spec((224, 224, 3), classes=1000), by_layers=True)
    >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))["weights"]))
    21797672
    """
    model = network("resnet34", (3, 4, 6, 3), problem, normalisation, pixels, stem, width)
    return model if by_layers else packed(model)


def network(
    name: str,
    repeats: tuple[int, ...],
    problem: HasSpec | Spec,
    normalisation: str,
    pixels: str,
    stem: str,
    width: float,
) -> Model:
    """A residual network with so many blocks in each stage."""
    spec = spec_of(problem)
    check_policy(normalisation)
    check_range("width", width, above=0)
    if stem not in ("large", "small"):
        raise ValueError(f'stem is "large" or "small", not {stem!r}')
    shape = image_shape(spec, name)
    check_pixels(pixels, shape[2], problem)
    least = 32 if stem == "large" else 8
    if min(shape[:2]) < least:
        raise ValueError(
            f"images of {shape[0]}×{shape[1]} are too small for {name} with a {stem} stem, which takes at least "
            f"{least}×{least}" + (': use stem="small"' if stem == "large" else ": use cnn")
        )
    depths = [max(8, int(c * width)) for c in CHANNELS]
    blocks = [  # (channels in, channels out, stride)
        (depths[max(s - 1, 0)] if i == 0 else depths[s], depths[s], 2 if s > 0 and i == 0 else 1)
        for s, count in enumerate(repeats)
        for i in range(count)
    ]
    size = 7 if stem == "large" else 3
    counts = [depths[0]]
    for c_in, c_out, stride in blocks:
        counts += [c_out] * (3 if shortcut_changes(c_in, c_out, stride) else 2)

    def init(key: jax.Array) -> Params:
        keys = jax.random.split(key, len(blocks) + 2)
        return {
            "stem": conv_norm_init(keys[0], (size, size, shape[2], depths[0])),
            "blocks": [block_init(k, *block) for k, block in zip(keys[2:], blocks, strict=True)],
            "dense": dense_init(keys[1], depths[-1], loss_for(spec).outputs(spec.classes)),
        }

    def features(
        weights: Params, statistics: list[Layer], real: jax.Array | None, x: jax.Array
    ) -> tuple[jax.Array, list[Layer]]:
        rest = iter(statistics)
        norms = Norms(normalisation, list(itertools.islice(rest, 1)), real, EPSILON)
        x = standardised(x, shape, pixels)
        stride = 2 if stem == "large" else 1
        x = padded(x, size, stride, size // 2)
        x = relu(norms(weights["stem"], conv2d(x, weights["stem"]["kernel"], stride=stride)))
        if stem == "large":
            x = max_pool_3x3(x)
        refreshed = norms.refreshed
        for layer, (_, _, stride) in zip(weights["blocks"], blocks, strict=True):
            x, new = block_apply(layer, list(itertools.islice(rest, len(layer))), real, x, stride, normalisation)
            refreshed += new
        return x, refreshed

    return image_network(name, spec, normalisation, init, features, counts)


def shortcut_changes(channels_in: int, channels_out: int, stride: int) -> bool:
    """Whether the shortcut around a block needs a 1×1 convolution."""
    return stride != 1 or channels_in != channels_out


def block_init(key: jax.Array, channels_in: int, channels_out: int, stride: int) -> Params:
    """The parameters of a basic block."""
    keys = jax.random.split(key, 3)
    params = {
        "first": conv_norm_init(keys[0], (3, 3, channels_in, channels_out)),
        "second": conv_norm_init(keys[1], (3, 3, channels_out, channels_out)),
    }
    if shortcut_changes(channels_in, channels_out, stride):
        params["shortcut"] = conv_norm_init(keys[2], (1, 1, channels_in, channels_out))
    return params


@functools.partial(jit, static_argnums=(4, 5))  # blocks of the same shape are traced once
def block_apply(
    params: Params, statistics: list[Layer], real: jax.Array | None, x: jax.Array, stride: int, normalisation: str
) -> tuple[jax.Array, list[Layer]]:
    """Two convolutions, added to the shortcut; and the refreshed statistics."""
    norms = Norms(normalisation, statistics, real, EPSILON)
    y = conv2d(padded(x, 3, stride, 1), params["first"]["kernel"], stride=stride)
    y = relu(norms(params["first"], y))
    y = norms(params["second"], conv2d(padded(y, 3, 1, 1), params["second"]["kernel"]))
    if "shortcut" in params:
        x = norms(params["shortcut"], conv2d(x, params["shortcut"]["kernel"], stride=stride))
    return relu(x + y), norms.refreshed


def max_pool_3x3(x: jax.Array) -> jax.Array:
    """The maximum over 3×3 windows at every second position of an image with a border, by selections (`max_pool`)."""
    lowest = -jnp.inf
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=lowest)
    rows, columns = (x.shape[1] - 3) // 2 + 1, (x.shape[2] - 3) // 2 + 1
    windows = (x[:, i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2] for i in range(3) for j in range(3))
    return functools.reduce(first_max, windows)
