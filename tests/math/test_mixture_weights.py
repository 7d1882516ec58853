"""EM for mixture weights: it maximises the likelihood, and a client is a group like any other."""

import jax.numpy as jnp
import numpy as np

from majorant.core import ClientData
from majorant.math.mixture_weights import fit_groups, fit_weights

LOSSES = np.random.default_rng(0).exponential(size=(50, 3)) * [1, 2, 2]
SIZES = np.array([30, 20])
EQUAL = np.full(3, 1 / 3)


def client(losses, padding=0):
    padded = jnp.asarray(np.pad(losses, ((0, padding), (0, 0)), constant_values=np.nan), jnp.float32)
    return padded, ClientData(padded, padded[:, 0], jnp.asarray(len(losses)), jnp.asarray(0))


def likelihood(losses, pi):
    return np.log(np.exp(-losses) @ pi).sum()


def test_weights_maximise_the_likelihood():
    """At the maximum over the simplex, mean_i p_im / Σ_k π_k p_ik is 1 where π_m > 0, and at most 1 elsewhere."""
    (pi,) = fit_groups(LOSSES, np.array([50]), EQUAL, steps=10_000, tolerance=1e-9)
    slope = (np.exp(-LOSSES) / (np.exp(-LOSSES) @ pi)[:, None]).mean(axis=0)
    np.testing.assert_allclose(slope[pi > 1e-3], 1, atol=1e-4)
    assert (slope <= 1 + 1e-4).all()
    assert abs(pi.sum() - 1) < 1e-12


def test_the_likelihood_never_decreases():
    values = [likelihood(LOSSES, fit_groups(LOSSES, np.array([50]), EQUAL, steps=n)[0]) for n in range(10)]
    assert (np.diff(values) > 0).all()


def test_groups_are_each_as_if_alone_and_clients_with_padding_are_groups():
    together = fit_groups(LOSSES, SIZES, EQUAL)
    for pi, losses in zip(together, np.split(LOSSES, [30]), strict=True):
        np.testing.assert_allclose(pi, fit_groups(losses, np.array([len(losses)]), EQUAL)[0], atol=1e-4)
        np.testing.assert_allclose(pi, fit_weights(*client(losses, padding=4)), atol=1e-4)
        seven = fit_groups(losses, np.array([len(losses)]), EQUAL, steps=7, tolerance=0.0)[0]
        np.testing.assert_allclose(fit_weights(*client(losses, padding=4), steps=7), seven, rtol=1e-5)


def test_without_samples_or_steps_weights_are_equal():
    losses, data = client(LOSSES)
    np.testing.assert_allclose(fit_weights(losses, data._replace(size=jnp.asarray(0))), EQUAL, rtol=1e-6)
    np.testing.assert_allclose(fit_weights(losses, data, steps=0), EQUAL, rtol=1e-6)


def test_a_weight_of_zero_stays():
    (pi,) = fit_groups(LOSSES, np.array([50]), np.array([0.0, 0.5, 0.5]))
    assert pi[0] == 0
    assert np.isfinite(pi).all()
