"""What is said of a newcomer's model."""

from types import SimpleNamespace

import numpy as np
import pytest

from majorant.app.personalize import fit_in_words
from majorant.cli.keep import worth_in_words


@pytest.mark.parametrize(
    ("classes", "predicted", "y", "said"),
    [
        ((), [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 3.0, 5.0], "RMSE 3 on these samples"),
        (("a", "b"), ["a", "b", "b", "b"], ["a", "a", "b", "b"], "accuracy 0.750 on these samples"),
    ],
)
def test_the_fit_is_told_in_units_of_the_target(classes, predicted, y, said):
    algorithm = SimpleNamespace(deployment=SimpleNamespace(losses=None))
    model = SimpleNamespace(algorithm=algorithm, classes=classes, predict=lambda x: np.array(predicted))
    assert fit_in_words(model, np.zeros((4, 1)), np.array(y)) == said


@pytest.mark.parametrize(("samples", "gain", "doubted"), [(2, 1.0, True), (6, 1.0, False), (30, 0.0, False)])
def test_two_rows_that_agree_prove_no_gain(samples, gain, doubted):
    scores = dict.fromkeys(("personal", "alone", "shared", "trivial"), 0.5)
    found = {"metric": "accuracy", "folds": 2, "samples": samples, "gain": gain, "standard_error": 0.0}
    assert ("may be chance" in worth_in_words(found | scores)[-1]) == doubted
