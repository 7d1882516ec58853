"""Small instances of the linearly parameterized surrogates, with samples that are split over clients unevenly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import majorant as mj
from majorant.data.federated import FederatedData
from majorant.surrogates import LinearSurrogate, regularizers

SIZES = (3, 8, 13)


class Case(NamedTuple):
    """A surrogate and data for it."""

    surrogate: LinearSurrogate
    data: FederatedData


def positive_numbers() -> FederatedData:
    """Clients whose numbers are of different sizes."""
    rng = np.random.default_rng(0)
    return unlabelled(np.repeat([5.0, 1.0, 2.0], SIZES)[:, None] * rng.gamma(2.0, 1.0, (sum(SIZES), 1)))


def unlabelled(x: np.ndarray) -> FederatedData:
    """Samples of three clients."""
    return FederatedData.unlabelled(x, np.repeat(np.arange(len(SIZES)), SIZES))


def sparse_regression() -> Case:
    """Logistic regression with an L1 penalty."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(sum(SIZES), 3))
    y = (x[:, 0] + 0.5 * rng.normal(size=len(x)) > 0).astype(int)
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    data = FederatedData.from_arrays(x, y, owner, split=(1, 0, 0))
    model = mj.models.linear(data)
    return Case(mj.surrogates.proximal_gradient(model, rho=0.3, regularizer=regularizers.l1(0.05)), data)
