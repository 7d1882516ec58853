"""Images as networks are given them: bytes, numbers in [0, 1], and what cannot be either."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from majorant.data import partitioned
from majorant.models import Spec, augmented, cnn, mobilenet_v2, resnet18
from majorant.models.pixels import enlarged

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
