"""The synthetic mixtures follow the laws they are documented to follow."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from majorant.data.synthetic import independent_components, overwritten_components, synthetic_mixture


def probability_of_one(data, part, noise):
    """P(y = 1 | x) = Σ_m π_tm E_ε sigmoid(⟨x, θ_m⟩ + ε), the expectation by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    logits = part.x @ data.truth["theta"].T  # (N, M)
    each = expit(logits[..., None] + noise * nodes) @ (weights / weights.sum())
    return (np.repeat(data.truth["pi"], part.sizes, axis=0) * each).sum(axis=1)


@pytest.mark.parametrize(("one_hot", "noise"), [(False, None), (True, None), (True, 0.0), (False, 3.0)])
def test_paper_labels_are_bernoulli_with_the_stated_probability(one_hot, noise):
    data = synthetic_mixture(clients=100, dimension=10, one_hot=one_hot, noise=noise, seed=4)
    for part in (data.train, data.test):
        p = probability_of_one(data, part, 1.0 if noise is None else noise)
        for chosen in np.array_split(np.argsort(p), 5):  # calibrated at every level of probability
            error = (part.y[chosen] - p[chosen]).sum() / np.sqrt((p * (1 - p))[chosen].sum())
            assert abs(error) < 4


def test_paper_splits_sizes_60_20_20():
    data = synthetic_mixture(clients=80, dimension=2)
    sizes = data.train.sizes + data.validation.sizes + data.test.sizes
    assert sizes.min() >= 50
    assert sizes.max() <= 1000
    assert (np.abs(data.train.sizes - 0.6 * sizes) < 2).all()
    assert (np.abs(data.test.sizes - 0.2 * sizes) <= 1).all()


def test_sizes_are_truncated_lognormal():
    sizes = synthetic_mixture(clients=4000, dimension=1, variant="released", test_samples=1).train.sizes
    for bound in (60, 100, 300, 999):
        expected = norm.cdf((np.log(bound + 1 - 50) - 4) / 2)
        assert abs((sizes <= bound).mean() - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000)
    assert (sizes == 1000).any()


def test_features_fill_the_box_and_parameters_too():
    data = synthetic_mixture(clients=20, dimension=30)
    assert data.train.x.dtype == np.float32
    for values in (data.train.x, data.truth["theta"]):
        assert np.abs(values).max() <= 1
        assert abs(values.mean()) < 4 / np.sqrt(3 * values.size)
        assert abs((values**2).mean() - 1 / 3) < 4 * np.sqrt(4 / 45 / values.size)
    assert data.truth["theta"].shape == (3, 30)
    assert np.allclose(data.truth["pi"].sum(axis=1), 1)


def test_mixtures_are_dirichlets_with_the_alpha_that_is_asked_for():
    """E π² = (α + 1) / (M (M α + 1))."""
    pi = synthetic_mixture(clients=1500, dimension=1, alpha=0.7, variant="released", test_samples=1).truth["pi"]
    assert (pi**2).mean() == pytest.approx((0.7 + 1) / (3 * (3 * 0.7 + 1)), rel=0.03)


def test_independent_components_have_the_clients_weights():
    pi = np.array([[0.7, 0.2, 0.1], [0.0, 0.0, 1.0]])
    z = independent_components(np.random.default_rng(0), np.array([20000, 50]), pi)
    assert np.abs(np.bincount(z[:20000], minlength=3) / 20000 - pi[0]).max() < 4 * 0.5 / np.sqrt(20000)
    assert set(z[20000:]) == {2}


def test_overwritten_components_equal_the_faulty_loop():
    sizes = np.array([7, 50, 200])
    pi = np.random.default_rng(1).dirichlet(np.full(4, 0.4), 3)
    z = overwritten_components(np.random.default_rng(5), sizes, pi)
    counts = np.random.default_rng(5).multinomial(sizes, pi)  # the first thing that is drawn
    start = 0
    for size, count in zip(sizes, counts, strict=True):
        survivor = np.full(size, -1)
        for component in range(4):  # the write index is never advanced
            survivor[0 : count[component]] = component
        assert sorted(z[start : start + size]) == sorted(survivor)
        assert (survivor == -1).sum() == size - count.max()
        start += size


def test_released_leaves_27_percent_of_labels_unwritten():
    pi = np.random.default_rng(0).dirichlet(np.full(3, 0.4), 2000)
    z = overwritten_components(np.random.default_rng(1), np.full(2000, 500), pi).reshape(2000, 500)
    unwritten = (z == -1).mean(axis=1)
    assert (np.abs(unwritten - (1 - pi.max(axis=1))) < 6 * np.sqrt(0.25 / 500)).all()  # 1 − max_m count_m / n
    assert abs(unwritten.mean() - 0.27) < 0.02


def test_released_label_frequency_is_half_of_what_is_written():
    data = synthetic_mixture(clients=200, dimension=20, variant="released", test_samples=400, seed=2)
    written = data.truth["pi"].max(axis=1)
    ones = data.test.y.reshape(200, 400).mean(axis=1)
    assert abs((ones - written / 2).mean()) < 4 * 0.5 / np.sqrt(200 * 400) + 0.005  # counts' maximum exceeds its mean
    assert data.validation.sizes.sum() == 0
    assert (data.test.sizes == 400).all()


def test_released_labels_are_signs_and_samples_are_shuffled():
    data = synthetic_mixture(clients=30, dimension=5, variant="released", test_samples=300, noise=0.0)
    positive = data.test.x @ data.truth["theta"].T > 0
    assert positive.any(axis=1)[data.test.y == 1].all()
    halves = data.test.y.reshape(30, 2, 150).mean(axis=(0, 2))  # unshuffled, the zeros would gather at the end
    assert abs(halves[0] - halves[1]) < 4 * np.sqrt(2 * 0.25 / (30 * 150))


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_one_hot_clients_have_one_component(variant):
    data = synthetic_mixture(clients=60, components=2, dimension=5, variant=variant, one_hot=True, test_samples=20)
    assert set(data.truth["pi"].ravel()) == {0.0, 1.0}
    assert (data.truth["pi"].sum(axis=1) == 1).all()
    assert (data.truth["pi"].sum(axis=0) > 15).all()
    if variant == "released":  # nothing is overwritten then: labels are the sign of the noisy logit
        logits = data.train.x @ data.truth["theta"].T
        own = (logits * np.repeat(data.truth["pi"], data.train.sizes, axis=0)).sum(axis=1)
        clear = np.abs(own) > 0.6  # six standard deviations of the noise
        assert (data.train.y == (own > 0))[clear].all()


def test_seed_decides_everything():
    one, same, other = (synthetic_mixture(clients=4, dimension=3, seed=s, unseen=0.25) for s in (7, 7, 8))
    assert (one.train.x == same.train.x).all()
    assert (one.test.y == same.test.y).all()
    assert (one.unseen == same.unseen).all()
    assert one.unseen.sum() == 1
    assert not np.array_equal(one.truth["theta"], other.truth["theta"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 0}, "clients must be a positive whole number, got 0"),
        ({"components": 0}, "components must be a positive whole number"),
        ({"dimension": -1}, "dimension must be a positive whole number"),
        ({"alpha": 0.0}, "alpha, .* must be positive, got 0"),
        ({"alpha": float("nan")}, "alpha, .* must be positive"),
        ({"variant": "papr"}, "variant must be one of 'paper', 'released', got 'papr'"),
        ({"variant": "released", "test_samples": 0}, "test_samples must be a positive whole number"),
        ({"noise": -1.0}, "noise is a standard deviation"),
        ({"unseen": 1.0, "clients": 2, "dimension": 1}, "fraction of unseen clients"),
    ],
)
def test_refuses_impossible_requests(options, message):
    with pytest.raises(ValueError, match=message):
        synthetic_mixture(**options)
