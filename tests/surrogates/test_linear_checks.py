"""The check of linearly parameterized surrogates names what is wrong with them; projections and proximal operators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from majorant_reproductions.fedmm.equivalence import remark_1
from scipy.optimize import minimize

import majorant as mj
from compiling import quickly
from majorant.core import ClientData
from majorant.math.projections import in_metric, positive_semidefinite, simplex
from majorant.math.symmetric import pack, unpack
from majorant.solvers import whole
from majorant.surrogates import regularizers
from majorant.surrogates.linear.record import statistic_and_loss
from small_surrogates import sparse_regression

NUMBERS = np.random.default_rng(0).gamma(2.0, 1.0, (12, 1))

WRONG = {
    "minimiser": {"minimize": lambda s: 1.1 / jnp.sqrt(s)},
    "majorization": {"psi": lambda params: 0.5 / params},
    "tangency of the gradient": {"phi": lambda params: -1.5 * params},
    "means of statistics": {"statistic": lambda params, batch: batch.weight @ batch.x[:, 0]},
    "padding is left out": {"statistic": lambda params, batch: batch.x[:, 0].mean()},
    "descent": {"minimize": lambda s: 3 / jnp.sqrt(s), "psi": None, "phi": None},
    "projection: T is finite": {"project": lambda s: s},
    "projection: closest point": {"project": lambda s: jnp.where(s > 1e-6, s, 5.0)},
    "statistics are in 𝒮": {"project": lambda s: jnp.maximum(s, 50.0)},
}


@pytest.mark.parametrize("condition", WRONG)
def test_a_planted_mistake_is_named(condition):
    report = mj.surrogates.check_surrogate(remark_1()._replace(**WRONG[condition]), NUMBERS, points=2)
    assert condition in {c.name for c in report.failed}
    with pytest.raises(ValueError, match="violates"):
        report.raise_if_wrong()


def test_a_right_one_passes_and_shapes_are_looked_at_first():
    assert mj.surrogates.check_surrogate(remark_1(), NUMBERS, points=2).ok
    with pytest.raises(ValueError, match="psi and phi"):
        mj.surrogates.check_surrogate(remark_1()._replace(psi=None), NUMBERS)
    with pytest.raises(ValueError, match="minimize of the surrogate gives"):
        mj.surrogates.check_surrogate(remark_1()._replace(minimize=lambda s: jnp.stack([s, s])), NUMBERS)


@pytest.mark.parametrize("size", [301, 280], ids=["full", "padded"])
def test_a_mean_over_blocks_is_the_one_over_all_samples(size, monkeypatch):
    """Two blocks of 151 rows, of which the last one repeats the 301st."""
    monkeypatch.setattr("majorant.surrogates.linear.record.BLOCK_VALUES", 1)
    surrogate, rng = sparse_regression().surrogate, np.random.default_rng(3)
    x, y = rng.normal(size=(301, 3)), rng.integers(0, 2, 301)
    data = ClientData(jnp.asarray(x, jnp.float32), jnp.asarray(y), jnp.asarray(size), jnp.asarray(0))
    params = surrogate.init(jax.random.key(0))
    by_blocks, loss = quickly(lambda p, d: statistic_and_loss(surrogate, p, d))(params, data)
    at_once, all_losses = quickly(lambda p, d: (surrogate.statistic(p, whole(d)), surrogate.losses(p, d.x, d.y)))(
        params, data
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), by_blocks, at_once)
    assert float(loss) == pytest.approx(float(all_losses[:size].mean()), rel=1e-5)


POINT = np.array([[1.5, -0.3, 0.05], [0.2, 0.1, -2.0]])
PROXIMAL = {
    "nothing": (regularizers.nothing(), lambda a: 0.0),
    "l1": (regularizers.l1(0.4), lambda a: 0.4 * np.abs(a).sum()),
    "l2": (regularizers.l2(0.4), lambda a: 0.2 * (a**2).sum()),
    "elastic net": (regularizers.elastic_net(0.3, 0.4), lambda a: 0.3 * np.abs(a).sum() + 0.2 * (a**2).sum()),
    "group lasso": (regularizers.group_lasso(0.6), lambda a: 0.6 * np.linalg.norm(a, axis=1).sum()),
}


@pytest.mark.parametrize("name", PROXIMAL)
def test_proximal_operators_minimise_what_they_should(name):
    regularizer, g = PROXIMAL[name]
    rho = 0.7
    height = lambda a: rho * g(a.reshape(2, 3)) + 0.5 * ((a - POINT.ravel()) ** 2).sum()
    with jax.enable_x64(True):
        found = np.asarray(regularizer.prox(jnp.asarray(POINT), rho))
        assert float(regularizer.value(jnp.asarray(POINT))) == pytest.approx(g(POINT))
    best = min(
        minimize(height, start, method="Powell", options={"xtol": 1e-8}).fun for start in (POINT.ravel(), found.ravel())
    )
    assert height(found.ravel()) <= best + 1e-9


def test_projections_onto_sets():
    with jax.enable_x64(True):
        point = jnp.asarray(POINT)
        np.testing.assert_allclose(regularizers.box(-0.5, 0.5).prox(point, 1.0), POINT.clip(-0.5, 0.5))
        assert regularizers.box(-0.5, 0.5).value(point) == np.inf
        on = np.asarray(simplex(point))
        assert (on >= 0).all()
        np.testing.assert_allclose(on.sum(axis=1), 1)
        away = POINT - on  # the closest point: the angle to every corner is obtuse
        for corner in np.eye(3):
            assert (((corner - on) * away).sum(axis=1) <= 1e-12).all()
        a = np.array([[2.0, 1.0], [1.0, -1.0]])
        values, vectors = np.linalg.eigh(a)
        np.testing.assert_allclose(
            unpack(positive_semidefinite(pack(jnp.asarray(a)))), (vectors * values.clip(0)) @ vectors.T, atol=1e-12
        )


def test_projection_in_the_geometry_of_a_matrix():
    """Against a constrained solver, onto a box."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(4, 4))
    metric = root @ root.T + 0.1 * np.eye(4)
    point = 2 * rng.normal(size=4)
    theirs = minimize(
        lambda s: (s - point) @ metric @ (s - point),
        point.clip(-1, 1),
        jac=lambda s: 2 * metric @ (s - point),
        bounds=[(-1, 1)] * 4,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-12},
    )
    with jax.enable_x64(True):
        clip = lambda s: jnp.clip(s, -1, 1)
        ours = in_metric(clip, lambda d: jnp.asarray(metric) @ d, jnp.asarray(point))
        np.testing.assert_allclose(ours, theirs.x, atol=1e-6)
        inside = jnp.asarray(point.clip(-0.9, 0.9))
        np.testing.assert_array_equal(in_metric(clip, lambda d: jnp.asarray(metric) @ d, inside), inside)


def test_products_of_packed_matrices_are_those_of_the_matrices():
    rng = np.random.default_rng(0)
    a, b = (m + m.T for m in rng.normal(size=(2, 3, 3)))
    assert float(pack(jnp.asarray(a)) @ pack(jnp.asarray(b))) == pytest.approx((a * b).sum(), rel=1e-5)
