"""Federated data that is built by hand is right or refused, with words that say what is wrong."""

import numpy as np
import pytest

from majorant.data import FederatedData, Ragged, heterogeneous_logistic, partitioned, sparse_codes, synthetic_mixture
from majorant.data.checks import check_seed, check_split
from majorant.data.federated import aligned
from majorant.data.labels import TargetScale, label_codes

X, Y, OFFSETS = np.ones((4, 2), np.float32), np.array([0, 1, 0, 1], np.int32), np.array([0, 2, 4])


def built(x=X, y=Y, offsets=OFFSETS, unseen=(False, False), names=("a", "b"), classes=("no", "yes"), **options):
    part = Ragged(x, y, offsets)
    return FederatedData(part, part, part, np.asarray(unseen), names, classes, **options)


def test_what_is_right_is_taken():
    assert built().clients == 2
    assert built(y=Y.astype(np.float32), classes=(), target_scale=TargetScale(1.0, 2.0)).classes == ()
    assert built(x=X.astype(np.uint8), offsets=np.array([0, 0, 4])).train.sizes.tolist() == [0, 4]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"y": np.array([0, 1, 2, 1])}, "has the label 2, but the codes of 2 classes are 0 to 1"),
        ({"y": np.array([0, -1, 0, 1])}, "has the label -1"),
        ({"y": np.array([0.0, 1.0, 0.0, 1.0])}, "must be the codes of 2 classes, whole numbers, got type float64"),
        ({"y": np.array([0.0, np.nan, 0.0, 1.0]), "classes": ()}, "labels that are not finite numbers"),
        ({"y": Y[:, None]}, r"one number per sample, got train labels of shape \(4, 1\)"),
        ({"offsets": np.array([0, 5, 4])}, "must begin with 0 and never decrease"),
        ({"offsets": np.array([1, 2, 4])}, "must begin with 0 and never decrease"),
        ({"offsets": np.array([0, 2, 9])}, "does not match its offsets: 4 rows, 4 labels, and 3 offsets up to 9"),
        ({"offsets": np.array([0.0, 2.0, 4.0])}, "must be a list of whole numbers"),
        ({"unseen": [0, 1]}, "unseen must hold True or False for each client, got numbers of type int64"),
        ({"unseen": [True]}, "one entry per client"),
        ({"unseen": [True, True]}, "every client is marked unseen"),
        ({"names": ("a", 2)}, "names of clients must be texts, got 2"),
        ({"names": ("a", "a")}, "two clients are called 'a'"),
        ({"names": None}, "names of clients must be a tuple, got None"),
        ({"names": "ab"}, "names of clients must be a tuple, got 'ab'"),
        ({"classes": ("no", "no")}, "two classes are 'no'"),
        ({"x": np.float32(3)}, "the samples of the train part must be an array with one entry per sample"),
        ({"y": np.int32(3)}, "the labels of the train part must be an array with one entry per sample"),
        ({"x": np.ma.masked_array(X, X > 2)}, "the train part is a masked array"),
        ({"y": np.ma.masked_array(Y, Y > 2)}, "the labels of the train part is a masked array"),
        ({"x": X.astype(str)}, "train samples must be numbers"),
        ({"x": np.zeros(4, [("a", "f4"), ("b", "i4")])}, "train samples must be numbers"),
        ({"target_scale": TargetScale(0.0, 1.0)}, "target_scale is for regression"),
        ({"y": Y * 1.0, "classes": (), "target_scale": TargetScale(0.0, 0.0)}, "a positive scale"),
    ],
)
def test_what_is_wrong_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        built(**wrong)


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        (np.array([0.0, np.nan, 1.0, 0.0, 1.0, 0.0]), "1 of 6 samples have no client"),
        (np.array(["a", None, "b", "", "a", "b"], object), "2 of 6 samples have no client"),
        (np.ma.masked_array([0, 0, 0, 1, 1, 1], [1, 0, 0, 0, 0, 0]), "clients is a masked array: fill its 1 gaps"),
        (np.zeros((6, 1)), "one number or name per sample"),
    ],
)
def test_every_sample_needs_a_client(owner, message):
    x, y = np.ones((6, 2)), np.arange(6) % 2
    with pytest.raises(ValueError, match=message):
        FederatedData.from_arrays(x, y, owner)
    with pytest.raises(ValueError, match=message):
        partitioned(x, y, owner)


def test_samples_and_labels_without_gaps():
    x, y, owner = np.ones((6, 2)), np.arange(6) % 2, np.arange(6) % 2
    for bad in ({"x": np.ma.masked_array(x, x > 2)}, {"y": np.ma.masked_array(y, y > 0)}):
        with pytest.raises(ValueError, match="is a masked array"):
            FederatedData.from_arrays(**{"x": x, "y": y, "clients": owner} | bad)
    with pytest.raises(ValueError, match="one of them is a number"):
        FederatedData.from_arrays(np.array(3.0), y, owner)
    with pytest.raises(ValueError, match="features must be numbers, got values of type <U"):
        FederatedData.from_arrays(x.astype(str), y, owner)
    with pytest.raises(ValueError, match="1 labels are missing"):
        FederatedData.from_arrays(x, np.array(["a", None, "b", "a", "b", "a"], object), owner)
    with pytest.raises(ValueError, match="NaN or infinite features"):
        FederatedData.from_arrays(x * np.inf, y, owner)
    with pytest.raises(ValueError, match=r"feature 0 is too large: it is at most 1e\+300"):
        FederatedData.from_arrays(x * 1e300, y, owner)  # beyond the numbers of training


def test_splits_and_seeds():
    assert check_seed(7) == 7
    for seed in (1.5, -1, "1", True, None, np.float64(1)):
        with pytest.raises(ValueError, match="seed must be a whole number from 0 on"):
            check_seed(seed)
    for split in ((0.5, 0.5), (0.5, np.nan, 0.5), (0.5, -0.1, 0.6), ("a", "b", "c"), 0.5):
        with pytest.raises(ValueError, match="three shares"):
            check_split(split)
    with pytest.raises(ValueError, match="give train a positive share"):
        check_split((0, 0.5, 0.5))


def test_seeds_are_checked_wherever_one_is_given():
    x, y, owner = np.ones((60, 2)), np.arange(60) % 2, np.arange(60) % 3
    for call in (
        lambda: FederatedData.from_arrays(x, y, owner, seed=1.5),
        lambda: partitioned(x, y, owner, seed=1.5),
        lambda: partitioned(x, y, "iid", clients=3, seed=1.5),
        lambda: partitioned(x, y, owner).with_unseen(0.4, seed=1.5),
        lambda: synthetic_mixture(clients=5, seed=1.5),
        lambda: heterogeneous_logistic(seed=1.5),
        lambda: sparse_codes(seed=1.5),
    ):
        with pytest.raises(ValueError, match=r"seed must be a whole number from 0 on, got 1\.5"):
            call()
    with pytest.raises(ValueError, match="give train a positive share"):
        FederatedData.from_arrays(x, y, owner, split=(0, 0.5, 0.5))


def pets(*labels, x=None):
    labels = np.array(labels * 3)
    return FederatedData.from_arrays(np.ones((len(labels), 1)) if x is None else x, labels, np.zeros(len(labels)))


def test_alignment_gives_new_clients_the_codes_of_training():
    known = pets("cat", "dog")
    same = pets("dog", "cat")
    assert aligned(same, known) is same
    dogs = aligned(pets("dog"), known)
    assert dogs.classes == ("cat", "dog")
    assert all(set(getattr(dogs, part).y.tolist()) == {1} for part in ("train", "validation", "test"))
    with pytest.raises(ValueError, match=r"have classes \['fox'\], which training did not know: \('cat', 'dog'\)"):
        aligned(pets("dog", "fox"), known)  # as many classes as in training, but others
    with pytest.raises(ValueError, match="labels are numbers, those of training are classes"):
        aligned(pets(0.5, 1.5), known)
    with pytest.raises(ValueError, match=r"samples have shape \(2,\), those of training \(1,\)"):
        aligned(pets("cat", "dog", x=np.ones((6, 2))), known)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_targets_of_new_clients_are_finite(value):
    for scale in (None, TargetScale(10.0, 2.0)):
        with pytest.raises(ValueError, match="labels must be finite numbers, as in training"):
            label_codes(np.array([1.0, value]), (), scale)


def test_alignment_brings_targets_to_the_scale_of_training():
    known = built(y=Y * 1.0, classes=(), target_scale=TargetScale(10.0, 2.0))
    new = built(y=np.array([14.0, 10, 8, 12]), classes=())
    assert aligned(new, known).train.y.tolist() == [2, 0, -1, 1]
    assert aligned(aligned(new, known), new).train.y.tolist() == [14, 10, 8, 12]
    other = built(y=np.array([2.0, 0, -1, 1]), classes=(), target_scale=TargetScale(0.0, 5.0))
    assert aligned(other, known).train.y.tolist() == [0, -5, -7.5, -2.5]


def test_samples_of_unequal_shapes_are_named():
    with pytest.raises(ValueError, match=r"entry 0 has \(3,\) and entry 2 has \(2,\): cut or pad sequences"):
        FederatedData.from_arrays([[1, 2, 3], [4, 5, 6], [7, 8]], [0, 1, 0], [0, 0, 0])
