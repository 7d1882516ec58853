"""One-shot k-means: centres of clients count as much as the rows that they stand for."""

import numpy as np

from majorant.data.federated import Ragged
from majorant.estimators.starts import one_shot_centers


def test_a_client_counts_by_its_rows():
    rows = np.concatenate([np.zeros((30, 1)), np.full((3, 1), 11.0)])
    samples = Ragged(rows, rows[:, 0], np.array([0, 30, 33]))
    found = one_shot_centers(samples, 1, np.random.RandomState(0))
    np.testing.assert_allclose(found, [[1.0]])
