"""Images that training draws anew, by name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from majorant.app.build import build, check_names
from majorant.app.config import make_config, to_toml
from majorant.models import Draw, augmented

rng = np.random.default_rng(0)


@pytest.fixture(scope="module")
def images():
    x = rng.integers(0, 256, (24, 12, 12, 1), dtype=np.uint8)
    return mj.data.FederatedData.from_arrays(x, np.arange(24) % 2, clients=np.arange(24) % 3)


def test_names_are_what_python_does(images):
    """The first one meets the samples first."""
    config = make_config({"algorithm": "fedavg", "model": "cnn:channels=2,hidden=4", "augment": ["crop:2", "flip"]})
    model = build(config, images).model
    plain = mj.models.cnn(images, channels=(2,), hidden=4)
    expected = augmented(augmented(plain, crop=0, flip=True), crop=2, flip=False)
    params, draw = plain.init(jax.random.key(0)), Draw(jax.random.key(1), jnp.ones(24))
    x = jnp.asarray(np.concatenate([part.x for part in (images.train, images.validation, images.test)]))
    outputs, _ = jax.jit(model.train_apply)(params, x, draw)
    np.testing.assert_array_equal(outputs, jax.jit(expected.train_apply)(params, x, draw)[0])
    np.testing.assert_array_equal(model.apply(params, x), plain.apply(params, x))  # evaluation sees them as they are
    assert make_config({"algorithm": "fedavg", "augment": "flip"}).augment == ("flip",)
    assert 'augment = [\n    "crop:2",\n    "flip",\n]' in to_toml(config)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"algorithm": "mocha"}, "mocha reads samples as they are, and would ignore augment"),
        ({"algorithm": "lsgd", "objective": "mixture"}, "lsgd reads samples as they are"),
        ({"algorithm": "fedavg", "local": {"optimizer": "lbfgs"}}, "the solver lbfgs reads samples as they are"),
        ({"algorithm": "fedavg", "augment": ["rotate"]}, "rotate"),
    ],
)
def test_what_would_ignore_augmentation_refuses_it(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        check_names(make_config({"augment": ["flip"]} | settings))


def test_only_images_are_augmented(images):
    with pytest.raises(ValueError, match="augmentation needs images"):
        build(make_config({"algorithm": "fedavg", "augment": ["flip"]}), mj.data.synthetic_mixture(clients=3))
    for words in ("crop:0", "crop:12"):
        with pytest.raises(ValueError, match=r"pixels must be a positive|may shift all of an image"):
            build(make_config({"algorithm": "fedavg", "model": "linear", "augment": [words]}), images)
