"""Splitting, taking and checking federated data."""

from dataclasses import replace

import numpy as np
import pytest

from majorant.data.federated import FederatedData, Ragged, aligned, warn_thin_clients
from majorant.data.labels import TargetScale
from majorant.data.splitting import draw_unseen, split_counts, split_rows


def example(n=60, clients=4, **options):
    rng = np.random.default_rng(0)
    return FederatedData.from_arrays(rng.normal(size=(n, 3)), np.arange(n) % 2, np.arange(n) % clients, **options)


def test_the_line_about_data_says_what_is_learned():
    """Labels that are all 0 stand for none, as in tables without a label column."""
    assert ": 4 clients (0 unseen), 3 features, 2 classes, " in example().describe()
    x = np.zeros((9, 3), np.float32)
    for y, words in ((np.arange(9) / 2, "regression"), (np.zeros(9, np.float32), "no labels")):
        data = FederatedData.from_arrays(x, y, np.zeros(9, int), task="regression")
        assert f": 1 client (0 unseen), 3 features, {words}, " in data.describe()


def test_split_uses_every_sample_of_every_client_once():
    owner = np.random.default_rng(0).integers(5, size=200)
    parts = split_rows(owner, np.arange(5), (0.5, 0.25, 0.25), seed=3)
    assert np.sort(np.concatenate([rows for rows, _ in parts])).tolist() == list(range(200))
    for rows, offsets in parts:
        for client in range(5):
            assert set(owner[rows[offsets[client] : offsets[client + 1]]]) == {client}


@pytest.mark.parametrize("split", [(0.6, 0.2, 0.2), (0.98, 0.01, 0.01), (0.5, 0, 0.5), (0.34, 0.33, 0.33), (1, 0, 0)])
def test_split_counts_leave_no_positive_share_empty(split):
    sizes = np.arange(3, 120)
    counts = split_counts(sizes, split, sizes)
    assert (counts.sum(axis=1) == sizes).all()
    assert ((counts > 0) == (np.array(split) > 0)).all()
    assert (np.abs(counts - sizes[:, None] * np.array(split)) < 3).all()


def test_too_few_samples_names_the_client():
    with pytest.raises(ValueError, match=r"client 'b' has 2 samples, too few for non-empty train and validation and"):
        FederatedData.from_arrays(np.ones((6, 1)), np.ones(6, int), np.array(["a"] * 4 + ["b"] * 2))


def test_take_keeps_shared_truth_whole_even_when_there_are_as_many_components_as_clients():
    data = example(clients=3)
    truth = {"theta": np.eye(3), "pi": np.arange(9).reshape(3, 3)}
    away = np.array([False, False, True])
    data = FederatedData(data.train, data.validation, data.test, away, data.names, data.classes, "x", truth)
    taken = data.take(np.array([2, 0]))
    assert taken.unseen.tolist() == [True, False]
    assert taken.truth["theta"].shape == (3, 3)
    assert taken.truth["pi"].tolist() == [[6, 7, 8], [0, 1, 2]]
    assert (taken.train.client(0)[0] == data.train.client(2)[0]).all()
    assert taken.names == ("2", "0")


def test_unseen_fraction():
    assert draw_unseen(50, 0.2).sum() == 10
    assert draw_unseen(3, 0.01).sum() == 1
    assert draw_unseen(3, 0.0).sum() == 0
    assert example().with_unseen(0.25).unseen.sum() == 1
    for wrong in (1.0, -0.1, float("nan"), "a", None, [0.2], 1j, True):
        with pytest.raises(ValueError, match=r"must be a number in \[0, 1\), got"):
            example().with_unseen(wrong)
    with pytest.raises(ValueError, match="every client is marked unseen"):
        example(clients=1).with_unseen(0.5)


def test_labels_decide_the_task():
    x, clients = np.ones((6, 1)), np.zeros(6, int)
    assert FederatedData.from_arrays(x, np.array([1.5, 2, 3, 4, 5, 6]), clients).classes == ()
    assert FederatedData.from_arrays(x, np.array([1.0, 2, 2, 1, 1, 2]), clients).classes == (1.0, 2.0)
    assert FederatedData.from_arrays(x, np.array(list("abcabc")), clients).spec.classes == 3
    with pytest.raises(ValueError, match="regression needs numbers"):
        FederatedData.from_arrays(x, np.array(list("abcabc")), clients, task="regression")
    with pytest.raises(ValueError, match="1 labels are NaN"):
        FederatedData.from_arrays(x, np.array([1, 2, 3, 4, 5, np.nan]), clients)


def test_refuses_unusable_data():
    with pytest.raises(ValueError, match="one entry per sample; got 3, 3, 2"):
        FederatedData.from_arrays(np.ones((3, 1)), np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match="no samples"):
        FederatedData.from_arrays(np.ones((0, 1)), np.ones(0), np.ones(0))
    x = np.ones((6, 2))
    x[4, 1] = np.inf
    with pytest.raises(ValueError, match="NaN or infinite features, the first at client 'b'"):
        FederatedData.from_arrays(x, np.arange(6), np.array(list("aaabbb")))
    with pytest.raises(ValueError, match="sum to 1"):
        example(split=(0.5, 0.1, 0.1))
    empty = Ragged(np.ones((0, 1)), np.ones(0), np.array([0]))
    with pytest.raises(ValueError, match="zero clients"):
        FederatedData(empty, empty, empty, np.zeros(0, bool), (), ())


def test_thin_clients_are_counted():
    data = FederatedData.from_arrays(np.ones((40, 1)), np.arange(40) // 20, np.repeat([0, 1, 2, 3], [4, 16, 16, 4]))
    with pytest.warns(
        UserWarning, match="of 4 clients, 2 have fewer than 5 training samples and 4 have a single class"
    ):
        warn_thin_clients(data)


def test_folds_validate_on_every_sample_and_train_on_the_others():
    """Of equal sizes in all folds, also for clients of few samples; test parts are left alone."""
    owner = np.repeat(np.arange(4), [3, 9, 14, 25])
    data = FederatedData.from_arrays(np.eye(51), np.arange(51) % 2, clients=owner, seed=1)
    folds = data.folds(5, seed=3)
    ours = [set(part.rows) for part in (data.train, data.validation)]
    for fold in folds:
        assert fold.test is data.test
        assert not set(fold.train.rows) & set(fold.validation.rows)
        assert set(fold.train.rows) | set(fold.validation.rows) == ours[0] | ours[1]
        np.testing.assert_array_equal(fold.validation.sizes, [1, 2, 3, 4])  # of 2, 7, 11 and 20
        np.testing.assert_array_equal(owner[fold.train.rows], np.repeat(np.arange(4), fold.train.sizes))
        np.testing.assert_array_equal(np.argmax(fold.train.x, axis=1), fold.train.rows)
    assert set.union(*(set(fold.validation.rows) for fold in folds)) == ours[0] | ours[1]
    single = FederatedData.from_arrays(np.eye(2), np.arange(2), clients=np.arange(2), split=(1, 0, 0))
    assert single.folds(5)[0].train.sizes.tolist() == [1, 1]


def test_targets_of_new_clients_come_into_the_units_of_training():
    like = replace(one_number([0.5, 1.5]), target_scale=TargetScale(100.0, 20.0))
    found = aligned(one_number([120.5, 90.5]), like)
    np.testing.assert_allclose(np.sort(found.train.y), [-0.475, 1.025])
    assert found.target_scale == like.target_scale
    np.testing.assert_allclose(np.sort(found.label_values(found.train.y)), [90.5, 120.5], rtol=1e-6)


def one_number(targets):
    """A client with these targets, all for training."""
    return FederatedData.from_arrays(np.ones((len(targets), 1)), np.array(targets), np.zeros(2), split=(1, 0, 0))
