"""What happens to images between the device's memory and a network: bytes to numbers, by channel; crops and flips.

Samples stay bytes on the device. Scaling, normalisation by channel and augmentation are part of the compiled round.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.math.checks import check_whole
from majorant.models.base import Draw, HasSpec, Model, Spec, as_float

# Mean and standard deviation of each channel of pixels in [0, 1].
CHANNELS: dict[str, tuple[tuple[float, ...], tuple[float, ...]] | None] = {
    "unit": None,
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
SLACK = 1e-3  # by which rounding may leave [0, 1]
LARGE = 20.0  # beyond what pixels are after any usual normalisation


def image_shape(spec: Spec, name: str) -> tuple[int, int, int]:
    """Height, width and channels of a problem's images; an error for what is no image."""
    if len(spec.features) not in (2, 3):
        raise ValueError(
            f"{name} needs images, samples of shape (h, w) or (h, w, c), but this problem has samples of shape "
            f"{spec.features}: use mlp or linear, or reshape the data"
        )
    height, width, *rest = spec.features
    if rest and height in (1, 3) and width == rest[0] and width > 4:
        raise ValueError(
            f"{name} needs images of shape (h, w, c), and samples of shape {spec.features} have their channels first: "
            "give x.transpose(0, 2, 3, 1)"
        )
    return height, width, rest[0] if rest else 1


def check_pixels(pixels: str, channels: int, problem: HasSpec | Spec) -> None:
    """Refuses a normalisation by channel that is unknown, or is for other channels or other numbers than the data's.

    Bytes alone are scaled to [0, 1]; of numbers that must have been meant so a warning tells that they are not.
    """
    if pixels not in CHANNELS:
        raise ValueError(f"pixels is one of {', '.join(CHANNELS)}, not {pixels!r}")
    known = CHANNELS[pixels]
    if known is not None and len(known[0]) != channels:
        raise ValueError(f"pixels={pixels!r} is for {len(known[0])} channels, and these images have {channels}")
    x = getattr(getattr(problem, "train", None), "x", None)
    if not isinstance(x, np.ndarray) or x.size == 0 or x.dtype == np.uint8:
        return
    least, most = float(x.min()), float(x.max())
    span = f"the images are no bytes (uint8) and go from {least:g} to {most:g}"
    if known is not None and not -SLACK <= least <= most <= 1 + SLACK:
        raise ValueError(f"pixels={pixels!r} is for bytes, or numbers in [0, 1], but {span}")
    if max(-least, most) > LARGE:
        warnings.warn(
            f"{span}: they are used as they are, and not scaled to [0, 1]. Give pixels as bytes, or divide them by 255",
            stacklevel=3,
        )


def standardised(x: jax.Array, shape: tuple[int, int, int], pixels: str) -> jax.Array:
    """Images ``(n, h, w, c)`` as numbers: bytes scaled to [0, 1], then each channel less its mean, by its deviation.

    >>> float(standardised(jnp.full((1, 1, 1, 3), 255, jnp.uint8), (1, 1, 3), "imagenet")[0, 0, 0, 0].round(3))
    2.249...
    """
    x = as_float(x).reshape(-1, *shape)
    known = CHANNELS[pixels]
    if known is None:
        return x
    mean, deviation = (jnp.asarray(values, jnp.promote_types(x.dtype, jnp.float32)) for values in known)
    return ((x - mean) / deviation).astype(x.dtype)


def enlarged(x: jax.Array, factor: int) -> jax.Array:
    """Images ``(n, h, w, c)`` with sides so many times as long, interpolated between pixels.

    >>> enlarged(jnp.array([0.0, 4.0]).reshape(1, 1, 2, 1), 2)[0, 0, :, 0].tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    n, height, width, channels = x.shape
    return x if factor == 1 else jax.image.resize(x, (n, factor * height, factor * width, channels), "linear")


def augmented(model: Model, *, crop: int = 4, flip: bool = True) -> Model:
    """The model, trained on images that are shifted by up to ``crop`` pixels (zeros move in) and mirrored at random.

    Each pass draws anew, from the key of its minibatch; evaluation sees images as they are.

    >>> from majorant.models import cnn
    >>> augmented(cnn(Spec((32, 32, 3), classes=10))).name
    'cnn'
    """
    check_whole("crop", crop, least=0)
    height, width, channels = image_shape(model.spec, "augmentation")
    if crop >= min(height, width):
        raise ValueError(f"crop={crop} may shift all of an image of {height}×{width} out of it: use a smaller one")

    def train_apply(params: Any, x: jax.Array, draw: Draw) -> tuple[jax.Array, Any]:
        shift_key, flip_key, inner = jax.random.split(draw.key, 3)
        x = x.reshape(-1, height, width, channels)
        if crop:
            x = shifted(x, jax.random.randint(shift_key, (x.shape[0], 2), 0, 2 * crop + 1), crop)
        if flip:
            mirror = jax.random.bernoulli(flip_key, shape=(x.shape[0], 1, 1, 1))
            x = jnp.where(mirror, x[:, :, ::-1], x)
        x = x.reshape(-1, *model.spec.features)
        if model.train_apply is None:
            return model.apply(params, x), params
        return model.train_apply(params, x, draw._replace(key=inner))

    kept = "" if model.train_apply is None else model.statistics
    return model._replace(train_apply=train_apply, statistics=kept, embed=None)  # no features are fixed


def shifted(x: jax.Array, corner: jax.Array, crop: int) -> jax.Array:
    """Windows of the images' own size at ``corner (n, 2)`` of images with ``crop`` zeros around them."""
    wide = jnp.pad(x, ((0, 0), (crop, crop), (crop, crop), (0, 0)))
    cut = lambda image, at: jax.lax.dynamic_slice(image, (at[0], at[1], 0), x.shape[1:])
    return jax.vmap(cut)(wide, corner)
