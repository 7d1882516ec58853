"""Scores of a task against scikit-learn's, and contributions of rows against what scores do when rows change."""

import numpy as np
import pytest
from sklearn import metrics

from majorant.metrics.classification import CLASSIFICATION
from majorant.metrics.headline import all_scores, choose_headline, parts_of
from majorant.metrics.regression import REGRESSION

RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=200)
P = RNG.dirichlet(np.ones(3), 200) * 0.6 + 0.4 * np.eye(3)[Y] * RNG.random((200, 1))
P /= P.sum(axis=1, keepdims=True)
TWO, OWNER = (Y > 0).astype(int), RNG.integers(7, size=200)
P2 = np.round(np.stack([P[:, 0], 1 - P[:, 0]], axis=1), 2)  # with ties
T, F = RNG.normal(size=200), RNG.normal(size=200)


def test_class_scores_are_those_of_scikit_learn():
    guess = P.argmax(axis=1)
    expected = {
        "accuracy": metrics.accuracy_score(Y, guess),
        "balanced_accuracy": metrics.balanced_accuracy_score(Y, guess),
        "macro_f1": metrics.f1_score(Y, guess, average="macro"),
        "auc": metrics.roc_auc_score(Y, P, multi_class="ovr"),
        "log_loss": metrics.log_loss(Y, P),
    }
    assert {k: CLASSIFICATION[k](Y, P) for k in expected} == pytest.approx(expected)
    assert CLASSIFICATION["auc"](TWO, P2) == pytest.approx(metrics.roc_auc_score(TWO, P2[:, 1]))
    assert CLASSIFICATION["macro_f1"](Y[:9], P[:9]) == pytest.approx(
        metrics.f1_score(Y[:9], guess[:9], average="macro")
    )


def test_the_calibration_error_is_that_of_the_bins_by_hand():
    p = np.array([[0.1, 0.9], [0.08, 0.92], [0.3, 0.7], [0.0, 1.0]])
    y = np.array([1, 0, 1, 1])  # bins 0.9–1: mean 0.94, two thirds right; 0.7–0.8: 0.7, right
    assert CLASSIFICATION["calibration_error"](y, p) == pytest.approx((3 * abs(0.94 - 2 / 3) + 0.3) / 4)
    assert CLASSIFICATION["calibration_error"](np.array([1, 1]), np.array([[0, 1.0], [0, 1.0]])) == 0


def test_regression_scores_are_those_of_scikit_learn():
    expected = {
        "rmse": metrics.root_mean_squared_error(T, F),
        "mae": metrics.mean_absolute_error(T, F),
        "r2": metrics.r2_score(T, F),
    }
    assert {k: score(T, F) for k, score in REGRESSION.items()} == pytest.approx(expected)


def test_the_auc_of_all_clients_is_that_of_pairs_within_clients():
    found = all_scores(TWO, P2, OWNER, 2)["auc"]
    each, pairs = [], []
    for client in range(7):
        y, p = TWO[client == OWNER], P2[client == OWNER, 1]
        each.append(metrics.roc_auc_score(y, p))
        pairs.append(y.sum() * (1 - y).sum())
    assert found == pytest.approx(np.average(each, weights=pairs))
    assert parts_of("auc", TWO, P2, OWNER, 7).clients == pytest.approx(each)
    one_class = parts_of("auc", np.zeros(3, int), P2[:3], np.zeros(3, int), 1)
    assert np.isnan(one_class.value)
    assert not one_class.own.any()


def test_the_auc_of_several_classes_compares_samples_of_a_client_alone():
    """Each class against the rest, weighted by a client's pairs; models that favour one class are not punished."""
    each = []
    for label in range(3):
        aucs, pairs = [], []
        for client in range(7):
            y, p = Y[client == OWNER] == label, P[client == OWNER, label]
            aucs.append(metrics.roc_auc_score(y, p))
            pairs.append(y.sum() * (~y).sum())
        each.append(np.average(aucs, weights=pairs))
    assert all_scores(Y, P, OWNER, 3)["auc"] == pytest.approx(np.mean(each))
    two = Y < 2  # a class that nobody has counts as none
    assert all_scores(Y[two], P[two], OWNER[two], 3)["auc"] == pytest.approx(
        np.mean([parts_of("auc", (Y[two] == k).astype(int), P[two][:, [2, k]], OWNER[two], 7).value for k in range(2)])
    )
    assert np.isnan(all_scores(np.zeros(4, int), P[:4], OWNER[:4], 3)["auc"])


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "auc", "rmse"])
def test_contributions_are_the_derivative_by_the_weight_of_a_row(name):
    """A row that stands there once more moves the score by its contribution, to first order."""
    y, p = (T, F) if name == "rmse" else (Y, P) if name == "balanced_accuracy" else (TWO, P2)
    copies = 40
    many = lambda rows: (
        np.concatenate([np.tile(y, copies), y[rows]]),
        np.concatenate([np.tile(p, (copies, 1)[: p.ndim]), p[rows]]),
    )
    start = parts_of(name, y, p, np.zeros(200, int), 1)
    centred = start.whole if name in ("balanced_accuracy", "auc") else start.whole - start.whole.mean()
    for row in (0, 17, 63):
        more = many([row])
        moved = parts_of(name, *more, np.zeros(len(more[0]), int), 1).value - start.value
        assert copies * moved == pytest.approx(centred[row], abs=0.03 / 200, rel=0.05)


def test_the_headline_suits_the_task():
    assert choose_headline(T, 0).name == "rmse"
    assert choose_headline(np.repeat([0, 1], [80, 20]), 2).name == "accuracy"
    assert choose_headline(np.repeat([0, 1], [81, 19]), 2).name == "auc"
    assert choose_headline(np.repeat([0, 1, 2], [90, 5, 5]), 3).name == "balanced_accuracy"
    assert not choose_headline(T, 0).higher_is_better
