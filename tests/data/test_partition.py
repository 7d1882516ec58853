"""Every partition gives each sample to one client, with the statistics it promises."""

import warnings

import numpy as np
import pytest

from majorant.data.allocation import allocate, filled_up
from majorant.data.images import load_digits, rotated
from majorant.data.partition import (
    balanced_kmeans,
    by_column,
    classes_per_client,
    dirichlet,
    iid,
    pachinko,
    partitioned,
)

LABELS = np.random.default_rng(0).integers(6, size=300)
HIERARCHY = [0, 0, 1, 1, 1, 2]
FEATURES = np.random.default_rng(1).normal(size=(300, 4)) + LABELS[:, None]
PARTITIONS = {
    "iid": lambda seed: iid(300, 7, seed),
    "dirichlet": lambda seed: dirichlet(LABELS, 7, 0.1, seed),
    "classes": lambda seed: classes_per_client(LABELS, 7, 2, seed),
    "pachinko": lambda seed: pachinko(LABELS, HIERARCHY, 7, seed=seed),
    "kmeans": lambda seed: balanced_kmeans(FEATURES, 7, seed),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_each_sample_has_one_client_and_each_client_has_samples(name):
    owner = PARTITIONS[name](0)
    assert owner.shape == (300,)
    assert np.issubdtype(owner.dtype, np.integer)
    assert set(owner) == set(range(7))
    assert (owner == PARTITIONS[name](0)).all()
    if name != "kmeans":
        assert (owner != PARTITIONS[name](1)).any()


@pytest.mark.parametrize("name", ["iid", "pachinko", "kmeans"])
def test_equal_sizes(name):
    assert np.ptp(np.bincount(PARTITIONS[name](0))) == 1  # 300 = 7 · 42 + 6


@pytest.mark.parametrize("name", PARTITIONS)
def test_partitioned_keeps_every_sample_once(name):
    options = {"classes": {"k": 2}, "pachinko": {"coarse_of_fine": HIERARCHY}, "dirichlet": {"alpha": 5.0}}
    x = np.arange(300.0)[:, None] + np.zeros(2)
    data = partitioned(x, LABELS, name, clients=4, unseen=0.5, **options.get(name, {}))
    rows = np.concatenate([part.x[:, 0] for part in (data.train, data.validation, data.test)])
    labels = np.concatenate([part.y for part in (data.train, data.validation, data.test)])
    assert sorted(rows) == list(range(300))
    assert (labels == LABELS[rows.astype(int)]).all()
    assert data.unseen.sum() == 2


def test_dirichlet_shares_have_the_variance_of_the_law():
    clients, alpha = 5, 0.4
    labels = np.repeat(np.arange(400), 200)
    owner = dirichlet(labels, clients, alpha, min_samples=1)
    shares = np.stack([np.bincount(owner[labels == c], minlength=clients) for c in range(400)]) / 200
    theory = (1 / clients) * (1 - 1 / clients) / (alpha * clients + 1)
    assert abs(((shares - 1 / clients) ** 2).mean() / theory - 1) < 0.1


def test_dirichlet_fills_up_small_clients():
    for least in (1, 10, 25):
        assert np.bincount(dirichlet(LABELS, 12, 0.05, min_samples=least)).min() >= least


def test_filling_up_moves_no_more_than_is_missing_and_takes_from_the_largest():
    before = np.repeat([0, 1, 2, 3], [50, 40, 3, 7])
    after = filled_up(np.random.default_rng(0), before.copy(), 5, 8)
    assert (before != after).sum() == 5 + 1 + 8
    assert np.bincount(after).tolist() == [38, 38, 8, 8, 8]


@pytest.mark.parametrize(("clients", "k"), [(3, 2), (7, 2), (10, 3), (50, 1), (20, 6), (6, 1)])
def test_classes_per_client_are_exactly_k(clients, k):
    labels = np.repeat(np.arange(6), [100, 90, 80, 60, 50, 40])
    owner = classes_per_client(labels, clients, k)
    pairs = np.unique(np.stack([owner, labels]), axis=1)
    assert np.bincount(pairs[0]).tolist() == [k] * clients


def test_pachinko_concentration_follows_alpha_and_beta():
    labels = np.repeat(np.arange(100), 60)
    parents = np.arange(100) // 5

    def families_and_fines(alpha, beta):
        owners = [pachinko(labels, parents, 60, alpha, beta, seed=seed) for seed in range(4)]
        held = [labels[owner == c] for owner in owners for c in range(60)]
        return np.mean([(len(set(h // 5)), len(set(h))) for h in held], axis=0)

    narrow, wide, single = (
        families_and_fines(0.05, 10.0),
        families_and_fines(100.0, 10.0),
        families_and_fines(0.05, 0.05),
    )
    assert narrow[0] < 6 < 18 < wide[0]
    assert narrow[1] > 3.3 * narrow[0]  # β = 10 uses most of the five fine labels of a coarse one
    assert single[1] < 0.75 * narrow[1]


def test_allocation_has_the_law_of_drawing_one_by_one():
    weights, available, runs = np.array([0.7, 0.2, 0.1]), np.array([2, 3, 5]), 4000
    rng = np.random.default_rng(0)
    fast = np.array([allocate(rng, 5, weights, available) for _ in range(runs)])
    slow = np.zeros((runs, 3), int)
    for run in range(runs):
        for _ in range(5):
            open_weights = weights * (slow[run] < available)
            slow[run, rng.choice(3, p=open_weights / open_weights.sum())] += 1
    assert (fast.sum(axis=1) == 5).all()
    assert (fast <= available).all()
    spread = np.sqrt((fast.var(axis=0) + slow.var(axis=0)) / runs)
    assert (np.abs(fast.mean(axis=0) - slow.mean(axis=0)) < 4 * spread).all()
    assert (np.abs(np.cov(fast.T) - np.cov(slow.T)) < 0.1).all()


def test_allocation_survives_weights_that_vanish():
    taken = allocate(np.random.default_rng(0), 4, np.array([1.0, 0.0, 0.0]), np.array([1, 2, 3]))
    assert taken[0] == 1
    assert taken.sum() == 4


def test_by_column():
    assert by_column(np.array([30, 10, 30])).tolist() == [1, 0, 1]
    for gaps in (["a", "", "b", None], np.array([1.0, np.nan, np.nan])):
        with pytest.raises(ValueError, match=r"2 of \d samples have no client"):
            by_column(gaps)
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        by_column(np.ones((2, 2)))


@pytest.mark.parametrize("width", [2, 60])
def test_balanced_kmeans_finds_separated_groups(width):
    rng = np.random.default_rng(0)
    group = rng.permutation(np.arange(90) % 3)
    x = rng.normal(size=(90, width)) + 30 * rng.normal(size=(3, width))[group]
    owner = balanced_kmeans(x, 3)
    assert len(np.unique(np.stack([owner, group]), axis=1).T) == 3


def test_rotated_digits_become_federated_data_with_known_clusters():
    turned = rotated(*load_digits(), clients=8)
    data = partitioned(turned.x, turned.y, turned.owner, name="rotated-digits", truth={"cluster": turned.cluster})
    assert data.spec == ((8, 8, 1), 10)
    assert data.take(np.array([5, 2])).truth["cluster"].tolist() == [1, 2]


def test_options_of_partitioned_data_are_used():
    made = lambda seed: partitioned(FEATURES, LABELS, np.arange(300) % 6, unseen=0.3, seed=seed, task="regression")
    several = [made(seed) for seed in range(6)]
    assert all(data.classes == () for data in several)
    assert np.any([data.unseen for data in several], axis=0).sum() > 3
    assert len({data.train.y.tobytes() for data in several}) == 6


def test_thin_clients_are_warned_about():
    with pytest.warns(UserWarning, match="of 3 clients, 3 have a single class"):
        partitioned(np.ones((60, 1)), np.arange(60) // 20, "classes", clients=3, k=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iid(3, 4), "3 samples are too few for 4 clients: use at most 3 clients"),
        (lambda: iid(3, 0), "clients must be a positive whole number, got 0"),
        (
            lambda: dirichlet(LABELS, 31),
            "300 samples are too few for 31 clients with at least 10 .* at most 30 clients",
        ),
        (lambda: dirichlet(LABELS, 3, min_samples=0), "min_samples must be a positive whole number"),
        (lambda: dirichlet(LABELS, 3, alpha=0), "alpha, the parameter of a Dirichlet distribution, must be positive"),
        (lambda: classes_per_client(LABELS, 5, 7), "k=7 labels, but there are 6: choose k from 1"),
        (lambda: classes_per_client(LABELS, 5, 0), "k=0 labels, but there are 6"),
        (lambda: classes_per_client(LABELS, 2, 2), "at most 4 of the 6 labels, .* use more clients or a larger k"),
        (
            lambda: classes_per_client([0] * 9 + [1], 5, 2),
            "need 10 shards, .* only 6: use fewer clients or a smaller k",
        ),
        (lambda: pachinko(LABELS, [0, 0, 1], 3), "labels must be whole numbers from 0 to 2"),
        (lambda: pachinko(LABELS, HIERARCHY, 3, beta=-1), "beta, the parameter"),
        (lambda: balanced_kmeans(FEATURES, 301), "300 samples are too few for 301 clients"),
        (lambda: partitioned(FEATURES, LABELS, "dirichlt", clients=2), "unknown partition 'dirichlt': choose from iid"),
        (lambda: partitioned(FEATURES, LABELS, "iid"), "needs the number of clients"),
        (lambda: partitioned(FEATURES, LABELS, LABELS, clients=6), "clients only go with the name of a partition"),
        (lambda: partitioned(FEATURES, LABELS, "iid", clients=150), "client '0' has 2 samples, too few"),
    ],
)
def test_impossible_requests_say_what_to_change(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_without_the_package_the_extra_is_named(monkeypatch):
    def missing(module):
        raise ModuleNotFoundError(module)

    monkeypatch.setattr("majorant._extras.import_module", missing)
    with pytest.raises(ImportError, match=r"balanced_kmeans needs .* pip install 'majorant\[partition\]'"):
        balanced_kmeans(FEATURES, 3)


@pytest.mark.parametrize("name", ["iid", "dirichlet", "classes", "pachinko"])
def test_a_clients_test_samples_are_like_its_training_samples(name):
    """Of every (client, label) cell the training part is a random 60 %: no more unlike it than chance allows."""
    y = np.random.default_rng(5).integers(0, 8, 8000)
    options = {"dirichlet": {"alpha": 0.4}, "classes": {"k": 3}}.get(name, {})
    if name == "pachinko":
        options = {"coarse_of_fine": np.arange(8) // 2, "alpha": 0.4, "beta": 10.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = partitioned(np.zeros((8000, 1)), y, name, clients=20, seed=0, **options)
    cells = lambda part: np.bincount(np.repeat(np.arange(20), part.sizes) * 8 + part.y, minlength=160)
    train, total = cells(data.train), cells(data.train) + cells(data.validation) + cells(data.test)
    share = np.repeat(data.train.sizes / (data.train.sizes + data.validation.sizes + data.test.sizes), 8)
    size = np.repeat(data.train.sizes + data.validation.sizes + data.test.sizes, 8)
    spread = total * share * (1 - share) * (size - total) / np.maximum(size - 1, 1)  # hypergeometric variance
    fair = spread > 1
    z2 = (train - total * share)[fair] ** 2 / spread[fair]
    assert fair.sum() > 20
    assert abs(z2.mean() - 1) < 0.6
