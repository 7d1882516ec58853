"""Linear models without a bias."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_problems
from small_problems import Flat

from majorant import models
from majorant.objectives import traditional, weight_sharing

L2 = 0.05
IDS = np.array([0, 2, 3])  # of the clients that train


def test_linear_models_without_a_bias():
    """F, predictions and constants against NumPy."""
    data = small_problems.problem("classification")
    plain = weight_sharing(data, shared=[0, 2], l2=L2, bias=False)
    assert {name: leaf.shape for name, leaf in plain.init(jax.random.key(0)).items()} == {"weight": (2, 1)}
    with jax.enable_x64(True):
        flat = Flat(plain, data)
        point = np.arange(flat.size) / flat.size
        shared, own = point[:2] / len(IDS) ** 0.5, point[2:]
        value, expected = float(flat.total(point)), []
        for id, beta in zip(IDS, own, strict=True):
            x, y = data.train.client(id)
            theta = np.array([shared[0], beta, shared[1]])
            margins = np.where(y > 0, 1, -1) * (x.astype(float) @ theta)
            expected.append(np.log1p(np.exp(-margins)).mean() + L2 / 2 * theta @ theta)
    assert value == pytest.approx(np.mean(expected), rel=1e-12)
    x = data.train.client(0)[0]
    model = {"weight": jnp.arange(3.0)[:, None]}
    np.testing.assert_allclose(plain.predict(model, x)[:, 1], 1 / (1 + np.exp(-x @ np.arange(3.0))), rtol=1e-5)
    moments = [(rows := data.train.client(id)[0].astype(float)).T @ rows / len(rows) for id in IDS]
    steepest = max(np.linalg.eigvalsh(moment)[-1] for moment in moments) / 4 + L2
    assert plain.constants(data).smooth_w == pytest.approx(steepest / len(IDS))
    with pytest.raises(ValueError, match="bias=False is for the linear model"):
        traditional(data, model=models.mlp(data), bias=False)
    with pytest.raises(ValueError, match="unknown parameter 'bias'"):
        weight_sharing(data, personal=["bias"], bias=False)
