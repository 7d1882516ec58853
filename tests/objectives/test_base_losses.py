"""Base losses: their formulas, gradients and curvature, and the constants of f' that follow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_problems

from compiling import quickly
from majorant.data.federated import FederatedData
from majorant.objectives import base_model, losses

CURVED = {**losses.LOSSES, "poisson": losses.poisson(largest=3.0)}
AT = np.linspace(-6, 3, 61)  # outputs; Poisson's go up to the largest that is declared


def labels(loss):
    return {"regression": [0.0, 0.7, 2.0], "two classes": [0, 1], "classes": [0, 1, 2]}[loss.task]


def points(loss):
    """Outputs of the width that the loss takes."""
    if loss.task != "classes":
        return AT[:, None]
    return np.concatenate([np.random.default_rng(0).normal(size=(60, 3)) * 3, np.zeros((1, 3)), [[20.0, 20.0, -20.0]]])


@pytest.mark.parametrize("loss", CURVED.values(), ids=CURVED)
def test_gradient_and_curvature(loss):
    """Gradients are those of the value; the Hessian in the outputs lies within the declared bounds and reaches them."""
    with jax.enable_x64(True):
        f = lambda z, y: loss.loss.per_sample(z[None], y[None])[0]
        value, gradient, hessian = (
            quickly(jax.vmap(function, in_axes=(0, None))) for function in (f, jax.grad(f), jax.hessian(f))
        )
        z, step = points(loss), 1e-6
        eigenvalues = []
        for y in jnp.asarray(labels(loss)):
            for axis, move in enumerate(step * np.eye(z.shape[1])):
                numeric = (value(z + move, y) - value(z - move, y)) / (2 * step)
                np.testing.assert_allclose(gradient(z, y)[:, axis], numeric, atol=1e-5)
            eigenvalues.append(np.linalg.eigvalsh(hessian(z, y)))
    most, least = np.max(eigenvalues), np.min(eigenvalues)
    assert most <= loss.curvature * (1 + 1e-12)
    assert most >= 0.99 * loss.curvature  # tight
    assert least >= loss.least_curvature - 1e-12


@pytest.mark.parametrize(
    ("name", "z", "y", "expected"),
    [
        ("logistic", [0.3], 1, np.log1p(np.exp(-0.3))),
        ("softmax", [1.0, 2.0], 0, np.log(np.exp(1) + np.exp(2)) - 1),
        ("least_squares", [3.0], 1.0, 2.0),
        ("squared_hinge", [0.5], 0, 2.25),
        ("squared_hinge", [1.5], 1, 0.0),
        ("huber", [1.5], 1.0, 0.125),
        ("huber", [-2.0], 1.0, 2.5),
        ("poisson", [0.5], 3.0, np.exp(0.5) - 1.5),
    ],
)
def test_values(name, z, y, expected):
    found = losses.LOSSES[name].loss.per_sample(jnp.asarray([z]), jnp.asarray([y]))
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


def test_predictions():
    assert losses.poisson().loss.predict(jnp.zeros((2, 1))).tolist() == [1.0, 1.0]
    assert losses.huber.loss.predict(jnp.full((2, 1), 3.0)).tolist() == [3.0, 3.0]
    assert losses.squared_hinge.loss.predict(jnp.zeros((2, 1))).shape == (2, 2)


@pytest.mark.parametrize(("task", "classes", "expected"), [
    ("regression", 2, "least_squares"), ("classification", 2, "logistic"), ("classification", 3, "softmax"),
])  # fmt: skip
def test_natural_loss(task, classes, expected):
    assert losses.base_loss(small_problems.problem(task, classes=classes)).name == expected


def test_wrong_losses():
    regression, two = small_problems.problem(), small_problems.problem("classification")
    three = small_problems.problem("classification", classes=3)
    with pytest.raises(ValueError, match="did you mean 'logistic'"):
        losses.base_loss(two, "logstic")
    with pytest.raises(ValueError, match="two classes, but the data's labels are 3 classes: use one of softmax"):
        losses.base_loss(three, "squared-hinge")
    with pytest.raises(ValueError, match="regression"):
        losses.base_loss(two, "huber")
    with pytest.raises(ValueError, match="at least 0"):
        losses.base_loss(regression, "poisson")


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("clients", [(7, 5, 9), (3, 2, 3)], ids=["tall", "wide"])
def test_curvature_of_least_squares_is_exact(l2, clients):
    """L', 𝓛' and μ' are eigenvalues of the Hessians of f'_m and of its terms, the bias included."""
    data = small_problems.problem(sizes=clients)
    base = base_model.base_model(data, l2=l2)
    found = base.curvature(data)
    moments, longest = [], 0.0
    for m in np.flatnonzero(~data.unseen):
        x = np.hstack([data.train.client(m)[0].astype(float), np.ones((clients[m], 1))])
        moments.append(np.linalg.eigvalsh(x.T @ x / len(x)))
        longest = max(longest, (x**2).sum(axis=1).max())
    np.testing.assert_allclose(found.smooth, max(e[-1] for e in moments) + l2)
    np.testing.assert_allclose(found.mu, min(e[0] for e in moments) + l2, atol=1e-12)
    np.testing.assert_allclose(found.sample_smooth, longest + l2)


def test_pixels_count_as_they_are_computed_with():
    x = np.random.default_rng(0).integers(0, 256, size=(12, 4, 4)).astype(np.uint8)
    y, owner = np.arange(12) % 2, np.arange(12) // 6
    bytes_, floats = (FederatedData.from_arrays(a, y, owner, split=(1, 0, 0)) for a in (x, x / 255))
    for data in (bytes_, floats):
        assert base_model.base_model(data).features == 16
    a, b = (base_model.base_model(data).curvature(data) for data in (bytes_, floats))
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_constants_that_do_not_exist():
    data = small_problems.problem("counts")
    with pytest.raises(ValueError, match="no bound: give step sizes"):
        base_model.base_model(data, loss="poisson").curvature(data)
    bounded = base_model.base_model(data, loss=losses.poisson(largest=1.0)).curvature(data)
    squares = base_model.base_model(data, loss="huber", l2=1e-4).curvature(data)
    np.testing.assert_allclose(bounded.smooth - 1e-4, np.e * (squares.smooth - 1e-4))
    base = base_model.base_model(data)
    with pytest.raises(ValueError, match="3 clients that train, but the data has 2"):
        base.curvature(data.take(np.array([0, 1, 2])))


def test_start():
    data = small_problems.problem()
    zeros, random = (base_model.base_model(data, start=s).init(jax.random.key(0)) for s in ("zeros", "model"))
    assert not any(leaf.any() for leaf in jax.tree.leaves(zeros))
    assert any(leaf.any() for leaf in jax.tree.leaves(random))
    with pytest.raises(ValueError, match="start"):
        base_model.base_model(data, start="one")
    with pytest.raises(ValueError, match="l2"):
        base_model.base_model(data, l2=-1.0)
