"""What models may be given: samples as training saw them, and nothing that would be read as something else."""

import numpy as np
import pytest

import majorant as mj
from majorant.data import partitioned

RNG = np.random.default_rng(0)
Y, OWNER = np.arange(40) % 3, np.arange(40) % 2


@pytest.fixture(scope="module")
def pixels():
    """A run on images of bytes."""
    data = partitioned(RNG.integers(0, 256, (40, 2, 2)).astype(np.uint8), Y, OWNER)
    return mj.simulate(mj.fedavg(mj.models.mlp(data, hidden=(4,))), data, rounds=1)


def test_pixels_are_read_alike_whatever_type_they_have(pixels, tmp_path):
    model, x = pixels.model(0), pixels.data.test.x[:6]
    expected = model.predict_proba(x)
    model.save(tmp_path / "own")
    again = mj.load_model(tmp_path / "own", pixels.federation.algorithm)
    for one in (model, again, pixels.personalize((x, Y[:6]))):
        expected = one.predict_proba(x)
        for same in (x.astype(int), x.tolist(), x / 255):
            np.testing.assert_allclose(one.predict_proba(same), expected, rtol=1e-5)
        for other in (x.astype(float), x.astype(int) - 1, x.astype(int) * 257):
            with pytest.raises(ValueError, match=r"training saw bytes, .* give bytes"):
                one.predict(other)
    with pytest.raises(ValueError, match="training saw bytes"):
        pixels.personalize((x.astype(np.float32), Y[:6]))


def test_codes_that_training_did_not_know_are_refused():
    data = partitioned(RNG.integers(0, 3, (40, 4)), Y, OWNER)
    model = mj.models.lstm(data, embedding=2, hidden=3)
    run = mj.simulate(mj.fedem(model, components=2), data, rounds=1)
    for codes, words in ((7, "codes from 7 to 7, .* vocabulary of 3: training knew no others"), (0.5, "whole numbers")):
        x = np.full((2, 4), codes)
        for asked in (lambda x=x: run.model(0).predict(x), lambda x=x: run.personalize((x, Y[:2]))):
            with pytest.raises(ValueError, match=words):
                asked()


@pytest.mark.parametrize("method", [mj.fedavg, mj.fedem, mj.local, mj.ditto, mj.apfl, mj.pfedme, mj.methods.scaffold])
def test_a_model_for_another_problem_is_refused_before_training(method):
    data = partitioned(RNG.normal(size=(40, 4)), Y, OWNER)
    others = {
        "is for 2 classes, and the data has 3 classes": mj.models.Spec((4,), 2),
        "is for regression, and the data has 3 classes": mj.models.Spec((4,), 0),
        r"is for samples of shape \(5,\), and the data's have \(4,\)": mj.models.Spec((5,), 3),
    }
    for words, spec in others.items():
        with pytest.raises(ValueError, match=words):
            mj.simulate(method(mj.models.linear(spec)), data, rounds=1)
    codes = partitioned(RNG.integers(0, 3, (40, 4)), Y, OWNER)
    with pytest.raises(ValueError, match="do not fit a vocabulary of 2: give vocabulary=3"):
        mj.simulate(method(mj.models.lstm(mj.models.Spec((4,), 3), vocabulary=2)), codes, rounds=1)
