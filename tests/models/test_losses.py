"""Losses agree with scikit-learn, with finite differences, and stay finite far from zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from sklearn.metrics import log_loss, mean_squared_error

from compiling import quickly
from majorant.models import Loss, Spec, class_weighted, cross_entropy, logistic, loss_for, squared

rng = np.random.default_rng(0)


@pytest.mark.parametrize(("loss", "width", "classes"), [(cross_entropy, 5, 5), (cross_entropy, 2, 2), (logistic, 1, 2)])
def test_classification_losses_are_scikit_learns(loss, width, classes):
    with jax.enable_x64(True):
        outputs, y = jnp.asarray(3 * rng.normal(size=(50, width))), jnp.asarray(rng.integers(0, classes, 50))
        probabilities, losses = map(np.asarray, quickly(lambda z: (loss.predict(z), loss.per_sample(z, y)))(outputs))
        assert probabilities.shape == (50, classes)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
        expected = log_loss(y, probabilities, labels=range(classes))
        assert losses.mean() == pytest.approx(expected, rel=1e-10)
        assert losses.shape == (50,)
        likelihood = probabilities[np.arange(50), np.asarray(y)]
        np.testing.assert_allclose(np.exp(-losses), likelihood, rtol=1e-10)


@pytest.mark.parametrize(("loss", "width", "classes"), [(cross_entropy, 5, 5), (logistic, 1, 2)])
def test_losses_weighted_by_class_are_scikit_learns_with_the_weights_of_samples(loss, width, classes):
    weights = rng.uniform(0.1, 3.0, classes)
    weighted = class_weighted(loss, weights)
    with jax.enable_x64(True):
        outputs, y = jnp.asarray(rng.normal(size=(50, width))), jnp.asarray(rng.integers(0, classes, 50))
        own, predictions = weights[np.asarray(y)], np.asarray(loss.predict(outputs))
        expected = log_loss(y, predictions, labels=range(classes), sample_weight=own)
        assert weighted.per_sample(outputs, y).sum() == pytest.approx(own.sum() * expected, rel=1e-10)
        np.testing.assert_array_equal(weighted.predict(outputs), predictions)
    assert weighted.outputs(classes) == width
    with pytest.raises(ValueError, match=f"for {classes} classes, but the problem has {classes + 1}"):
        weighted.outputs(classes + 1)


@pytest.mark.parametrize("weights", [[1.0], 2.0, [1.0, 0.0], [1.0, -1.0], [1.0, np.nan], [[1.0, 2.0]]])
def test_weights_of_classes_that_cannot_be_are_refused(weights):
    with pytest.raises(ValueError, match="positive number for each"):
        class_weighted(cross_entropy, weights)
    with pytest.raises(ValueError, match="no classes"):
        class_weighted(squared, weights)


def test_squared_is_half_the_squared_error():
    outputs, y = jnp.asarray(rng.normal(size=(50, 1))), jnp.asarray(rng.normal(size=50))
    assert squared.per_sample(outputs, y).mean() == pytest.approx(mean_squared_error(y, outputs[:, 0]) / 2, rel=1e-5)
    np.testing.assert_array_equal(squared.predict(outputs), outputs[:, 0])


@pytest.mark.parametrize(("loss", "width", "classes"), [(cross_entropy, 4, 4), (logistic, 1, 2), (squared, 1, 2)])
def test_gradients_by_finite_differences(loss, width, classes):
    with jax.enable_x64(True):
        outputs, y = jnp.asarray(rng.normal(size=(6, width))), jnp.asarray(rng.integers(0, classes, 6))
        check_grads(jax.jit(lambda z: loss.per_sample(z, y)), (outputs,), order=2)


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_logistic_is_stable(size):
    outputs = jnp.array([[size]])
    wrong, right = jnp.array([int(size < 0)]), jnp.array([int(size > 0)])
    assert logistic.per_sample(outputs, wrong)[0] == 1e4
    assert logistic.per_sample(outputs, right)[0] == 0
    assert jax.grad(lambda z: logistic.per_sample(z, wrong).sum())(outputs)[0, 0] == np.sign(size)
    assert jax.grad(lambda z: logistic.per_sample(z, right).sum())(outputs)[0, 0] == 0
    np.testing.assert_array_equal(logistic.predict(outputs), [[size < 0, size > 0]])


def test_cross_entropy_is_stable():
    outputs = jnp.array([[1e4, -1e4, 0.0], [1e4, 1e4 - 1, -1e4]])
    gradient = quickly(lambda y: jax.grad(lambda z: cross_entropy.per_sample(z, y).sum())(outputs))
    losses = quickly(lambda y: cross_entropy.per_sample(outputs, y))
    np.testing.assert_array_equal(losses(jnp.array([1, 2]))[0], 2e4)
    # Precise although the outputs are large: log(1 + e⁻¹).
    np.testing.assert_allclose(losses(jnp.array([0, 0])), [0, np.log1p(np.exp(-1))], rtol=1e-6)
    np.testing.assert_allclose(gradient(jnp.array([0, 2]))[0], [0, 0, 0], atol=1e-7)
    np.testing.assert_allclose(gradient(jnp.array([1, 2]))[0], [1, -1, 0], atol=1e-7)
    np.testing.assert_allclose(cross_entropy.predict(outputs)[0], [1, 0, 0])


@pytest.mark.parametrize(
    ("classes", "expected"), [(0, squared), (2, logistic), (3, cross_entropy), (62, cross_entropy)]
)
def test_the_natural_loss(classes, expected):
    assert loss_for(Spec((3,), classes)) is expected


def test_losses_by_name_and_by_value():
    assert loss_for(Spec((3,), 2), "cross_entropy") is cross_entropy
    mine = Loss("mine", lambda outputs, y: outputs[:, 0], lambda outputs: outputs, lambda classes: 7)
    assert loss_for(Spec((3,), 5), mine) is mine


def test_weights_of_classes_are_for_as_many_as_the_model_has():
    """A model's loss is put in place of another, which nothing else would check."""
    for loss, outputs in ((cross_entropy, 3), (logistic, 1)):
        classes = max(outputs, 2)
        of = lambda count, loss=loss, outputs=outputs: class_weighted(loss, np.ones(count)).per_sample(
            jnp.zeros((1, outputs)), jnp.array([1])
        )
        assert of(classes) == loss.per_sample(jnp.zeros((1, outputs)), jnp.array([1]))
    with pytest.raises(ValueError, match="weights for 4 classes, but the model gives 3 outputs"):
        class_weighted(cross_entropy, np.ones(4)).per_sample(jnp.zeros((1, 3)), jnp.array([1]))


@pytest.mark.parametrize(
    ("classes", "name", "message"),
    [
        (5, "logistic", "logistic loss does not fit a problem with 5 classes: use cross_entropy"),
        (0, "cross_entropy", "does not fit a regression problem: use squared"),
        (2, "squared", "does not fit a problem with 2 classes: use logistic or cross_entropy"),
        (2, "hinge", "unknown loss 'hinge': choose one of cross_entropy, logistic, squared"),
        (1, None, "0 classes .* or at least 2, not 1"),
    ],
)
def test_combinations_that_make_no_sense(classes, name, message):
    with pytest.raises(ValueError, match=message):
        loss_for(Spec((3,), classes), name)
