"""Networks of inverted residuals: MobileNet-v2 and EfficientNet-Lite0.

A block widens its input by a 1×1 convolution, convolves each channel by itself, and narrows it again by a 1×1
convolution without an activation; where the shapes agree the input is added. Each convolution is followed by a
normalisation (`normalisation`), and all but the last by relu6. Convolutions are matrix products or shifted
multiply-adds, by how maps lie in memory (`maps`): nothing becomes a grouped convolution under ``vmap``.

References: Sandler et al., *MobileNetV2: inverted residuals and linear bottlenecks*, CVPR 2018, Table 2, as TorchVision
has it; Tan, Le, *EfficientNet: rethinking model scaling for convolutional neural networks*, ICML 2019, whose B0 without
squeeze-excitation and with relu6 is Lite0.
"""

from __future__ import annotations

import functools
import itertools
import math
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from majorant.core.compilation import jit
from majorant.math.checks import check_range, check_whole
from majorant.models.backbone import frozen_backbone
from majorant.models.base import HasSpec, Model, Spec, spec_of
from majorant.models.depthwise import Edges
from majorant.models.dropout import check_dropout
from majorant.models.image_network import Params, image_network
from majorant.models.layers import Layer
from majorant.models.losses import loss_for
from majorant.models.maps import Layout, layout
from majorant.models.normalisation import Normalisation, Norms, check_policy, norm_init
from majorant.models.packed import packed
from majorant.models.pixels import check_pixels, enlarged, image_shape, standardised
from majorant.models.pretrained import pretrained


class Stage(NamedTuple):
    """Some blocks that give the same number of channels; the first has the stride."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


class Plan(NamedTuple):
    """A network: its stem's and last convolution's channels, its stages, how it pads, and ε of its normalisation."""

    name: str
    stem: int
    stages: tuple[Stage, ...]
    last: int
    padding: Edges | None  # "same", or None: (kernel − 1) / 2 zeros on every side, as PyTorch's networks have it
    epsilon: float


MOBILENET_V2 = Plan(
    "mobilenet_v2",
    32,
    (
        Stage(1, 3, 1, 1, 16),
        Stage(2, 3, 2, 6, 24),
        Stage(3, 3, 2, 6, 32),
        Stage(4, 3, 2, 6, 64),
        Stage(3, 3, 1, 6, 96),
        Stage(3, 3, 2, 6, 160),
        Stage(1, 3, 1, 6, 320),
    ),
    1280,
    None,
    1e-5,
)
EFFICIENTNET_LITE0 = Plan(
    "efficientnet_lite0",
    32,
    (
        Stage(1, 3, 1, 1, 16),
        Stage(2, 3, 2, 6, 24),
        Stage(2, 5, 2, 6, 40),
        Stage(3, 3, 2, 6, 80),
        Stage(3, 5, 1, 6, 112),
        Stage(4, 5, 2, 6, 192),
        Stage(1, 3, 1, 6, 320),
    ),
    1280,
    "same",
    1e-3,
)


def mobilenet_v2(
    problem: HasSpec | Spec,
    *,
    normalisation: Normalisation = "averaged",
    dropout: float = 0.2,
    pixels: str = "unit",
    width: float = 1.0,
    stem_stride: int = 2,
    enlarge: int = 1,
    by_layers: bool = False,
) -> Model:
    """MobileNet-v2 for images of 32×32 and larger, with an output for each class.

    ``normalisation`` says what happens to batch statistics (see `models.normalisation`), ``dropout`` is the share of
    the last features dropped in training, ``pixels`` the normalisation by channel ("unit": bytes to [0, 1]; "cifar10",
    "cifar100", "imagenet"). ``width`` multiplies all numbers of channels. ``stem_stride`` 1 keeps small images at their
    size for one layer more; 2 is the published network, which the FedEM paper applies to 32×32 images as it is.
    ``enlarge`` makes images so many times as high and wide before they enter.
    Parameters are a few vectors (see `models.packed`), which compiles much sooner, unless ``by_layers`` keeps every
    layer's arrays apart.

    >>> model = mobilenet_v2(Spec((32, 32, 3), classes=10))
    >>> {name: leaf.shape for name, leaf in jax.eval_shape(model.init, jax.random.key(0)).items() if name != "head"}
    {'norms': (34112,), 'rest': (2189760,), 'statistics': (34112,)}
    """
    model = network(MOBILENET_V2, problem, normalisation, dropout, pixels, width, stem_stride, enlarge)
    return model if by_layers else packed(model)


def efficientnet_lite0(
    problem: HasSpec | Spec,
    *,
    normalisation: Normalisation = "averaged",
    dropout: float | None = None,
    pixels: str = "imagenet",
    width: float = 1.0,
    stem_stride: int = 2,
    enlarge: int = 1,
    weights: str | Path | None = None,
    trained: Literal["all", "head"] = "all",
    by_layers: bool = False,
) -> Model:
    """EfficientNet-Lite0, a near relative of MobileNet-v2 whose ImageNet weights are free.

    ``weights`` is a safetensors file to start from (see `models.pretrained`), with which ``trained`` "head" fixes all
    layers but the last (see `models.frozen_backbone`): then there is no dropout, which is 0.2 otherwise, and
    normalisation is by the file's statistics, for "averaged" and "frozen" alike. The weights were trained on images of
    224×224: they still help at 32×32, and more with ``enlarge``. The other options are those of `mobilenet_v2`.

    >>> model = efficientnet_lite0(Spec((224, 224, 3), classes=1000), by_layers=True)
    >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))["weights"]))
    4652008
    """
    if trained not in ("all", "head"):
        raise ValueError(f'trained is "all" or "head", not {trained!r}')
    if trained == "head":
        if weights is None:
            raise ValueError('trained="head" fixes the other layers at pretrained weights: give weights=, a file')
        if dropout:
            raise ValueError('trained="head" evaluates the other layers, without dropout: leave dropout out')
        if normalisation in ("batch", "group"):
            raise ValueError(
                f'trained="head" normalises by the statistics in the file, which normalisation={normalisation!r} has '
                'no use for: "frozen" or "averaged" has'
            )
    share = 0.2 if dropout is None else dropout
    model = network(EFFICIENTNET_LITE0, problem, normalisation, share, pixels, width, stem_stride, enlarge)
    if weights is None:
        return model if by_layers else packed(model)
    model = pretrained(model, weights)
    if trained == "head":
        return frozen_backbone(model, model.init(jax.random.key(0)))
    return model if by_layers else packed(model)


def network(
    plan: Plan,
    problem: HasSpec | Spec,
    normalisation: str,
    share: float,
    pixels: str,
    width: float,
    stem_stride: int,
    enlarge: int = 1,
) -> Model:
    """The model that a plan describes."""
    spec = spec_of(problem)
    check_policy(normalisation)
    check_dropout(share)
    check_range("width", width, above=0)
    check_whole("stem_stride", stem_stride)
    check_whole("enlarge", enlarge)
    shape = image_shape(spec, plan.name)
    check_pixels(pixels, shape[2], problem)
    least = stem_stride * math.prod(stage.stride for stage in plan.stages)
    if enlarge * min(shape[:2]) < least:
        raise ValueError(
            f"images of {shape[0]}×{shape[1]} are too small for {plan.name}, which halves them to nothing: it takes "
            f"at least {least}×{least}; give enlarge={-(-least // min(shape[:2]))}, or use cnn"
        )
    blocks = blocks_of(plan, width)
    first, last = wide(plan.stem, width), wide(plan.last, max(width, 1.0))
    counts = [first, *(c for block in blocks for c in block.norms), last]
    outputs = loss_for(spec).outputs(spec.classes)

    def init(key: jax.Array) -> Params:
        keys = jax.random.split(key, len(blocks) + 3)
        return {
            "stem": conv_norm_init(keys[0], (3, 3, shape[2], first)),
            "blocks": [block_init(k, block) for k, block in zip(keys[3:], blocks, strict=True)],
            "last": conv_norm_init(keys[1], (1, 1, blocks[-1].out, last)),
            "dense": {
                "weight": 0.01 * jax.random.normal(keys[2], (last, outputs)),
                "bias": jnp.zeros(outputs),
            },
        }

    def features(
        weights: Params, statistics: list[Layer], real: jax.Array | None, x: jax.Array
    ) -> tuple[jax.Array, list[Layer]]:
        rest, maps = iter(statistics), layout()
        policy, refreshed = Policy(normalisation, plan.epsilon, maps), []
        edges = 1 if plan.padding is None else plan.padding
        x = enlarged(standardised(x, shape, pixels), enlarge)
        x = maps.first(x, weights["stem"]["kernel"], stem_stride, edges)
        x, new = norm_relu6(weights["stem"], list(itertools.islice(rest, 1)), real, x, policy)
        refreshed += new
        for layer, block in zip(weights["blocks"], blocks, strict=True):
            own = list(itertools.islice(rest, len(block.norms)))
            x, new = block_apply(layer, own, real, x, block, plan.padding, policy)
            refreshed += new
        x = maps.pointwise(x, weights["last"]["kernel"])
        x, new = norm_relu6(weights["last"], list(rest), real, x, policy)
        return maps.as_images(x), refreshed + new

    return image_network(plan.name, spec, normalisation, init, features, counts, share)


class Policy(NamedTuple):
    """What is normalised how, and how maps lie in memory."""

    normalisation: str
    epsilon: float
    maps: Layout

    def norms(self, statistics: list[Layer], real: jax.Array | None) -> Norms:
        """The normalisations of a part of the network."""
        return Norms(self.normalisation, statistics, real, self.epsilon, self.maps)


class Block(NamedTuple):
    """The shapes of one inverted residual."""

    channels: int
    hidden: int
    out: int
    kernel: int
    stride: int

    @property
    def expands(self) -> bool:
        """Whether a 1×1 convolution widens the input first."""
        return self.hidden != self.channels

    @property
    def norms(self) -> tuple[int, ...]:
        """The channels of its normalisations, in the order of the pass."""
        return (*((self.hidden,) if self.expands else ()), self.hidden, self.out)


def blocks_of(plan: Plan, width: float) -> list[Block]:
    """The blocks of all stages."""
    found, channels = [], wide(plan.stem, width)
    for stage in plan.stages:
        out = wide(stage.channels, width)
        for i in range(stage.repeats):
            found.append(Block(channels, channels * stage.expansion, out, stage.kernel, stage.stride if i == 0 else 1))
            channels = out
    return found


def wide(channels: int, width: float) -> int:
    """Channels times the width, rounded to multiples of 8 without losing more than a tenth, as the papers do.

    >>> wide(32, 1.0), wide(24, 0.5), wide(16, 0.35)
    (32, 16, 8)
    """
    rounded = max(8, int(channels * width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels * width else rounded


def block_init(key: jax.Array, block: Block) -> Params:
    """The parameters of a block."""
    keys = jax.random.split(key, 3)
    params = {
        "depthwise": conv_norm_init(keys[1], (block.kernel, block.kernel, block.hidden)),
        "project": conv_norm_init(keys[2], (1, 1, block.hidden, block.out)),
    }
    if block.expands:
        params["expand"] = conv_norm_init(keys[0], (1, 1, block.channels, block.hidden))
    return params


@functools.partial(jit, static_argnums=4)
def norm_relu6(
    params: Layer, statistics: list[Layer], real: jax.Array | None, x: jax.Array, policy: Policy
) -> tuple[jax.Array, list[Layer]]:
    """Maps normalised, through relu6, and the refreshed statistics."""
    norms = policy.norms(statistics, real)
    return relu6(norms(params, x)), norms.refreshed


# A function of its own to JAX: blocks of the same shape are traced, differentiated and batched once.
@functools.partial(jit, static_argnums=(4, 5, 6))
def block_apply(
    params: Params,
    statistics: list[Layer],
    real: jax.Array | None,
    x: jax.Array,
    block: Block,
    padding: Edges | None,
    policy: Policy,
) -> tuple[jax.Array, list[Layer]]:
    """One inverted residual, and its refreshed statistics."""
    norms, maps = policy.norms(statistics, real), policy.maps
    given = x
    if block.expands:
        x = relu6(norms(params["expand"], maps.pointwise(x, params["expand"]["kernel"])))
    edges = (block.kernel - 1) // 2 if padding is None else padding
    x = relu6(norms(params["depthwise"], maps.depthwise(x, params["depthwise"]["kernel"], block.stride, edges)))
    x = norms(params["project"], maps.pointwise(x, params["project"]["kernel"]))
    return (x + given if block.stride == 1 and block.channels == block.out else x), norms.refreshed


def conv_norm_init(key: jax.Array, shape: tuple[int, ...]) -> Layer:
    """A kernel ``(k, k, in, out)``, or ``(k, k, channels)``, normal with variance 2 / fan-out, and its normalisation.

    As He et al. (2015) start it, by the number of outputs that an input reaches.
    """
    kernel = math.sqrt(2 / (shape[0] * shape[1] * (shape[3] if len(shape) == 4 else 1)))
    return {"kernel": kernel * jax.random.normal(key, shape)} | norm_init(shape[-1])


def relu6(x: jax.Array) -> jax.Array:
    """``min(max(x, 0), 6)``."""
    return jnp.clip(x, 0, 6)
