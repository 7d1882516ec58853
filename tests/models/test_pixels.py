"""Images as networks are given them: bytes, numbers in [0, 1], what cannot be either; enlarged, shifted, mirrored."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.data import partitioned
from majorant.models import Draw, Spec, augmented, cnn, mobilenet_v2, resnet18
from majorant.models.pixels import enlarged, shifted

rng = np.random.default_rng(0)
IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3))


def images(x):
    """Two clients with these images."""
    return partitioned(x, np.arange(40) % 3, np.arange(40) % 2)


@pytest.mark.parametrize("pixels", ["cifar10", "imagenet"])
def test_a_normalisation_by_channel_is_for_bytes_or_numbers_in_the_unit_interval(pixels):
    for x in (IMAGES.astype(np.uint8), IMAGES / 255):
        cnn(images(x), pixels=pixels)
    for x, span in ((IMAGES, "0 to 255"), (IMAGES / 127.5 - 1, "-1 to 1")):
        with pytest.raises(ValueError, match=rf"pixels='{pixels}' is for bytes.* and go from {span}"):
            cnn(images(x), pixels=pixels)


def test_numbers_that_must_be_pixels_are_not_scaled_without_a_word():
    for x in (IMAGES, IMAGES - 128, IMAGES.astype(np.uint16) * 257):
        with pytest.warns(UserWarning, match="no bytes .* not scaled to .* Give pixels as bytes"):
            cnn(images(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in (IMAGES.astype(np.uint8), IMAGES / 255, (IMAGES / 255 - 0.5) / 0.2):
            cnn(images(x))


@pytest.mark.parametrize("make", [cnn, mobilenet_v2, resnet18])
def test_channels_come_last(make):
    for shape in ((3, 64, 64), (1, 28, 28)):
        with pytest.raises(ValueError, match=r"have their channels first: give x.transpose\(0, 2, 3, 1\)"):
            make(Spec(shape, 10))


def test_an_image_is_not_shifted_out_of_itself():
    with pytest.raises(ValueError, match="crop=8 may shift all of an image of 8×8 out of it"):
        augmented(cnn(Spec((8, 8), 3)), crop=8)


def test_enlarged_images_are_interpolated_between_the_centres_of_pixels():
    """Along each side as np.interp does, with pixels' centres at 1/2, 3/2, …; beyond the outer ones nothing changes."""
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 3)).astype(np.float32)
    expected = x
    for axis, length in ((1, 4), (2, 5)):
        at = (np.arange(3 * length) + 0.5) / 3 - 0.5
        along = lambda values, at=at, length=length: np.interp(at, np.arange(length), values)
        expected = np.apply_along_axis(along, axis, expected)
    np.testing.assert_allclose(enlarged(jnp.asarray(x), 3), expected, atol=1e-6)
    assert enlarged(x, 1) is x


def test_images_are_shifted_and_mirrored_in_training_alone():
    images = jnp.asarray(rng.integers(0, 256, (6, 5, 5, 1)), jnp.uint8)
    corner = np.array([[0, 0], [1, 1], [2, 0], [0, 2], [2, 2], [1, 0]])
    wide = np.pad(np.asarray(images), ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = np.stack([w[i : i + 5, j : j + 5] for w, (i, j) in zip(wide, corner, strict=True)])
    np.testing.assert_array_equal(shifted(images, jnp.asarray(corner), 1), expected)
    seen = []
    model = cnn(Spec((8, 8, 1), 3), channels=(2,), hidden=4)
    spy = model._replace(apply=lambda params, x: seen.append(x) or x[:, 0, 0].astype(jnp.float32))
    x = jnp.asarray(rng.integers(0, 256, (6, 8, 8, 1)), jnp.uint8)
    changed = augmented(spy, crop=0)
    changed.train_apply((), x, Draw(jax.random.key(0), jnp.ones(6)))
    mirrored = [bool((a == b[:, ::-1]).all()) for a, b in zip(seen[0], x, strict=True)]
    same = [bool((a == b).all()) for a, b in zip(seen[0], x, strict=True)]
    assert all(m != s for m, s in zip(mirrored, same, strict=True))
    assert any(mirrored)
    assert any(same)
    changed.apply((), x)
    assert seen[1] is x
    whole = np.broadcast_to(np.arange(64, dtype=np.uint8).reshape(8, 8, 1), (200, 8, 8, 1))
    augmented(spy, crop=1, flip=False).train_apply((), whole, Draw(jax.random.key(0), jnp.ones(200)))
    centres = set(np.asarray(seen[2][:, 4, 4, 0]).tolist())
    assert centres == {8 * row + column for row in (3, 4, 5) for column in (3, 4, 5)}  # all places, and no others


def test_an_augmented_network_is_trained_with_its_own_dropout_and_statistics():
    seen, model = [], cnn(Spec((8, 8, 1), 3), channels=(2,), hidden=4)
    own = lambda params, x, draw: (seen.append(draw) or x, params + 1)
    changed = augmented(model._replace(train_apply=own, statistics="seen"))
    draw = Draw(jax.random.key(0), jnp.ones(2))
    assert changed.train_apply(1, jnp.zeros((2, 8, 8, 1)), draw)[1] == 2
    assert seen[0].real is draw.real
    assert seen[0].key != draw.key
    assert changed.statistics == "seen"
