"""Data that is extreme but legal: what comes out is right, by a reference in double precision, or it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import majorant as mj
from majorant.data import FederatedData, from_table
from majorant.data.federated import Ragged
from majorant.data.tabular import TableNotice

RNG = np.random.default_rng(0)
CLIENTS, ROWS = 6, 40
X = RNG.normal(size=(CLIENTS * ROWS, 3))
OWNER = np.repeat([f"c{i}" for i in range(CLIENTS)], ROWS)
Y = (X @ [2.0, -1.0, 0.5] + RNG.logistic(size=len(X)) > 0).astype(int)


def table(path: Path, x: np.ndarray, y: np.ndarray = Y, owner: np.ndarray = OWNER) -> FederatedData:
    """The samples as a table with columns of these numbers, read as tables are."""
    lines = [f"{o},{','.join(repr(float(v)) for v in row)},{'ny'[k]}" for o, row, k in zip(owner, x, y, strict=True)]
    path.write_text("\n".join(["client," + ",".join(f"f{i}" for i in range(x.shape[1])) + ",label", *lines]))
    return from_table(path, client_column="client", label_column="label", split=(1.0, 0.0, 0.0))[0]


@pytest.mark.parametrize(
    ("factor", "offset"),
    [(1e-30, 0), (1e30, 0), (1e-300, 0), (1e300, 0), (1, 1e6), (1e-3, 1e6), (1e30, 1e30)],
)
def test_columns_of_any_scale_and_offset_are_the_same_features(tmp_path, factor, offset):
    plain = table(tmp_path / "plain.csv", X)
    extreme = table(tmp_path / "extreme.csv", factor * X + offset)
    atol = 2e-6 + 1e-15 * abs(offset) / factor  # what double precision itself loses
    np.testing.assert_allclose(extreme.train.x, plain.train.x, rtol=0, atol=atol)
    np.testing.assert_array_equal(extreme.train.y, plain.train.y)


def descended(data: FederatedData, rounds: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Gradient descent on the loss of all samples, as federated averaging with one step on all of a client's."""
    step = mj.local_sgd(0.5, steps=1, batch_size=None, momentum=0.0, weight_decay=0.0)
    start = []
    run = mj.simulate(
        mj.fedavg(mj.models.linear(data), local=step),
        data,
        rounds=rounds,
        evaluation=mj.Evaluation(every=rounds),
        resume=lambda fresh: start.append(fresh) or fresh,
    )
    flat = lambda value: np.append(np.asarray(value[0]["weight"])[..., 0], np.asarray(value[0]["bias"])).astype(float)
    first = [{name: array[0] for name, array in layer.items()} for layer in start[0].server.value]
    return run, flat(first), flat(run.server.value)


def test_a_step_weighs_one_large_and_50_000_tiny_clients_as_their_samples():
    """Sums over 150,000 samples and 50,001 clients, against the same gradient in double precision."""
    sizes = np.r_[100_000, np.ones(50_000, int)]
    x = RNG.normal(size=(sizes.sum(), 3)).astype(np.float32) + np.repeat([[1.0], [-1.0]], [100_000, 50_000], axis=0)
    y = (x.sum(axis=1) + RNG.logistic(size=len(x)) > 0).astype(np.int32)
    train = Ragged(x.astype(np.float32), y, np.append(0, np.cumsum(sizes)))
    none = Ragged(x[:0].astype(np.float32), y[:0], np.zeros(len(sizes) + 1, np.int64))
    data = FederatedData(train, none, none, np.zeros(len(sizes), bool), tuple(map(str, range(len(sizes)))), (0, 1))
    run, before, after = descended(data, 1)
    wide = np.c_[train.x, np.ones(len(x))].astype(np.float64)
    slope = wide.T @ (1 / (1 + np.exp(-wide @ before)) - y) / len(y)
    np.testing.assert_allclose(before - after, 0.5 * slope, rtol=2e-5, atol=1e-6)
    right = ((wide @ after > 0) == y).mean()
    assert run.summary()["train_accuracy"]["mean"] == pytest.approx(right, abs=1e-6)


def test_constant_columns_repeated_rows_and_noisy_labels_change_nothing(tmp_path):
    """The minimum, where labels are too noisy to be separated, is that of scikit-learn on the samples."""
    noisy = np.where(RNG.random(len(Y)) < 0.2, 1 - Y, Y)
    x = np.repeat(np.c_[X, np.full(len(X), 7e8)], 3, axis=0)
    with pytest.warns(TableNotice, match="480 of 720 rows are copies of others"):
        data = table(tmp_path / "noisy.csv", x, np.repeat(noisy, 3), np.repeat(OWNER, 3))
    _, _, found = descended(data, 300)
    wide = np.asarray(data.train.x, np.float64)
    assert (wide[:, 3] == 0).all()
    fit = LogisticRegression(C=np.inf, tol=1e-10).fit(wide[:, :3], data.train.y)
    np.testing.assert_allclose(np.r_[found[:3], found[4]], np.r_[fit.coef_[0], fit.intercept_], atol=2e-3)


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        (1e-30 * X, r"feature 0 is too small.*at client 'c\d'.*squares of such numbers are 0"),
        (1e30 * X, r"feature 0 is too large.*at client 'c\d'.*squares of such numbers are infinite"),
        (np.where(OWNER[:, None] == "c3", 3e38, X), r"feature 0 is too large: it is at most 3e\+38.*at client 'c3'"),
        (np.where(OWNER[:, None] == "c4", -1e25, X), r"feature 0 is too large: it is at most 1e\+25.*at client 'c4'"),
        (X + 1e6, r"feature 0 holds numbers around 1e\+06 that differ by about 1, and rounding"),
        ((1e9 * X).astype(np.int64) + 2**60, "feature 0 holds numbers around"),
    ],
)
def test_arrays_that_single_precision_cannot_compute_with_are_refused(values, refusal):
    with pytest.raises(ValueError, match=refusal):
        FederatedData.from_arrays(values, Y, OWNER)


@pytest.mark.parametrize("values", [1e-15 * X, 1e15 * X, X + 1e4, np.ones_like(X) * 1e12, np.zeros_like(X)])
def test_other_arrays_are_taken(values):
    FederatedData.from_arrays(values, Y, OWNER)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="class"):
        mj.models.linear(FederatedData.from_arrays(X, np.zeros(len(X), int), OWNER))
