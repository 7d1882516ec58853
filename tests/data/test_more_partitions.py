"""Shards, skewed sizes, grouped ids, clients along a property, and groups of labels."""

import numpy as np
import pytest

from majorant.data import continuous, dirichlet, grouped, load_cifar100, shards, size_skew
from majorant.data import images as image_sets
from majorant.data.images import CIFAR100_COARSE

LABELS = np.repeat(np.arange(6), 50)


def test_shards_hold_few_labels_and_all_samples():
    owner = shards(LABELS, clients=10, per_client=2, seed=1)
    assert np.bincount(owner).tolist() == [30] * 10
    assert max(len(np.unique(LABELS[owner == c])) for c in range(10)) <= 4  # a shard spans at most two labels
    assert len(np.unique(LABELS[owner == 0])) < 6
    assert not np.array_equal(owner, shards(LABELS, clients=10, per_client=2, seed=2))


@pytest.mark.parametrize("skew", ["linear", "square", "exponential"])
def test_sizes_grow_and_nobody_is_empty(skew):
    sizes = np.bincount(size_skew(1000, 6, skew))
    assert sizes.sum() == 1000
    assert (np.diff(sizes) >= 0).all()
    assert sizes[0] >= 1
    number = np.arange(1.0, 7.0)
    law = {"linear": number, "square": number**2, "exponential": np.exp(number)}[skew]
    np.testing.assert_allclose(sizes, 1 + 994 * law / law.sum(), atol=1)
    with pytest.raises(ValueError, match="skew is one of linear, square, exponential, not 'cubic'"):
        size_skew(10, 2, "cubic")
    enough = np.bincount(size_skew(1000, 6, skew, min_samples=50))  # 49 more for each, and as many fewer to share out
    np.testing.assert_array_equal(enough, np.bincount(size_skew(1000 - 6 * 49, 6, skew)) + 49)
    with pytest.raises(ValueError, match="1000 samples are too few for 6 clients with at least 200 samples each"):
        size_skew(1000, 6, min_samples=200)


@pytest.mark.parametrize(
    "made",
    [
        lambda seed: size_skew(60, 4, seed=seed),
        lambda seed: grouped(np.arange(60) // 5, 4, seed=seed),
        lambda seed: continuous(np.arange(60.0), 4, 0.5, seed=seed),
    ],
)
def test_another_seed_is_another_partition(made):
    np.testing.assert_array_equal(made(0), made(0))
    assert (made(0) != made(1)).any()


def test_samples_of_an_id_stay_together():
    ids = np.repeat(np.arange(11), np.arange(1, 12))
    owner = grouped(ids, clients=4, seed=3)
    assert all(len(np.unique(owner[ids == i])) == 1 for i in range(11))
    held = [len(np.unique(ids[owner == c])) for c in range(4)]
    assert max(held) - min(held) <= 1
    with pytest.raises(ValueError, match="11 different ids are too few for 12 clients"):
        grouped(ids, clients=12)


def test_strictness_goes_from_intervals_to_clients_that_are_alike():
    values = np.random.default_rng(0).permutation(400).astype(float)
    spread = lambda s: np.mean([values[continuous(values, 4, s) == c].std() for c in range(4)])
    assert [values[continuous(values, 4) == c].max() for c in range(4)] == [99, 199, 299, 399]
    assert spread(1.0) < spread(0.7) < spread(0.0)
    assert spread(0.0) > 0.9 * values.std()


def test_labels_of_a_group_are_spread_alike():
    owner = dirichlet(LABELS, clients=5, alpha=0.3, groups=2, min_samples=1, seed=0)
    shares = np.array([np.bincount(owner[label == LABELS], minlength=5) / 50 for label in range(6)])
    distance = np.abs(shares[:, None] - shares).sum(-1)
    nearest = np.sort(distance, axis=1)[:, 1:3].max()  # the two others of a label's group of three
    across = np.sort(distance, axis=1)[:, 3:].min()
    assert nearest < across
    with pytest.raises(ValueError, match="groups must be from 1 to the number of labels, 6; got 7"):
        dirichlet(LABELS, clients=5, groups=7)


def test_superclasses_are_twenty_of_five():
    assert np.bincount(CIFAR100_COARSE).tolist() == [5] * 20


def test_cifar100_gives_fine_labels(tmp_path, monkeypatch):
    monkeypatch.setenv("MAJORANT_DATA", str(tmp_path))
    monkeypatch.setattr(image_sets, "CIFAR100", {"train.bin": None, "test.bin": None})
    folder = tmp_path / "cifar100" / "cifar-100-binary"
    folder.mkdir(parents=True)
    record = lambda fine, pixel: bytes([CIFAR100_COARSE[fine], fine]) + bytes([pixel]) * 3072
    (folder / "train.bin").write_bytes(record(7, 1) + record(99, 2))
    (folder / "test.bin").write_bytes(record(3, 5))
    x, y = load_cifar100()
    assert y.tolist() == [7, 99, 3]
    assert x[:, 0, 0, 0].tolist() == [1, 2, 5]
    assert x.shape == (3, 32, 32, 3)
