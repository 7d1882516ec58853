"""The unified framework's experiments: what is recorded along runs, constants that steps are made of, and tables."""

import jax
import numpy as np
import pytest
from majorant_reproductions.unified import figures, theory
from majorant_reproductions.unified.paper_ascd import paper_ascd
from majorant_reproductions.unified.replicas import (
    Path,
    curvature_at_minimum,
    curvature_at_truth,
    errors,
    first_below,
    follow,
    log_curve,
    make_problem,
    minimum,
    prepared,
    start,
)

import majorant as mj
from majorant.app import reproduce
from majorant.engines.settings import hyper_after_setup
from majorant.methods import ascd, asvrcd
from majorant.objectives import Constants, mixture
from majorant.objectives.reference import global_value


def logistic(seed, shared=0):
    return mj.data.heterogeneous_logistic(
        clients=3, samples=25, dimension=3, shared=shared, sigma=1.0, seed=seed, test_samples=1
    )


@pytest.fixture(scope="module")
def problem():
    with jax.enable_x64(True):
        make = lambda data: mixture(data, lambda_=0.3, l2=0.05, bias=False)
        yield make_problem(make, [logistic(0), logistic(1)], curvature_at_truth)


def test_a_path_has_gaps_and_errors_of_every_data_set(problem):
    """From the start, with F from the library's own evaluation and errors written out."""
    method = figures.GENERAL["ASVRCD-PFL"][0]
    path = follow(problem, method, 4, 2)
    algorithm, hyper = prepared(problem, method)
    runs = mj.simulate(algorithm, problem.data, rounds=4, hyper=hyper, evaluation=mj.Evaluation(every=2))
    assert path.rounds.tolist() == [0, 2, 4]
    assert (np.diff(path.iterations, axis=1) > 0).all()
    for i, (data, best) in enumerate(zip(problem.data, problem.minima, strict=True)):
        assert path.gap[i, 0] == pytest.approx(np.log(2) - best.value, rel=1e-9)
        assert path.error[i, 0] == pytest.approx((data.truth["w"] ** 2).sum() + (data.truth["beta"] ** 2).sum())
        end = jax.tree.map(lambda a, i=i: a[i], runs.snapshot[:2])
        w, beta = end[0].value.w.y, end[1].beta.y
        assert path.gap[i, -1] == pytest.approx(global_value(problem.objective, data, w, beta) - best.value, rel=1e-6)
        far = ((w["weight"][:, 0] / 3**0.5 - data.truth["w"]) ** 2).sum()
        far += sum(((beta["weight"][m, :, 0] - data.truth["beta"][m]) ** 2).sum() for m in range(3))
        assert path.error[i, -1] == pytest.approx(far, rel=1e-6)


def test_errors_at_the_start_and_at_the_minimum(problem):
    assert errors(problem, *minimum(problem)).shape == (2,)
    at_zero = jax.tree.map(np.asarray, start(problem))
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(at_zero))


@pytest.mark.parametrize("shared", [0, 2])
def test_curvature_at_the_truth(shared):
    """Against the second derivative of the mean loss, by JAX; all clients' coefficients move together."""
    data = logistic(0, shared)
    w, beta = data.truth["w"], data.truth["beta"]
    true = beta if shared == 0 else np.concatenate([np.tile(w, (3, 1)), beta], axis=1)
    with jax.enable_x64(True):
        x, y = (np.asarray(a, float) for a in (data.train.x, data.train.y))
        rows = np.repeat(true, 25, axis=0)
        loss = lambda move: jax.numpy.mean(jax.nn.softplus(-(2 * y - 1) * ((rows + move) * x).sum(axis=1)))
        least = np.linalg.eigvalsh(jax.hessian(loss)(np.zeros(3)))[0]
    assert curvature_at_truth(data) == pytest.approx(least, rel=1e-9)


def test_curvature_at_the_minimum(problem):
    """Against the second derivative of F in all of its variables."""
    best, data = problem.minima[1], problem.data[1]

    def value(point):
        w, beta = {"weight": point[:3, None]}, point[3:].reshape(3, 3)
        total = 0.0
        for m in range(3):
            x, y = data.train.client(m)
            z = x.astype(float) @ beta[m]
            total += jax.nn.softplus(-(2 * y - 1) * z).mean() + 0.025 * (beta[m] ** 2).sum()
            total += 0.15 * ((w["weight"][:, 0] / 3**0.5 - beta[m]) ** 2).sum()
        return total / 3

    at = np.concatenate([best.w["weight"].ravel(), best.beta["weight"].ravel()])
    least = np.linalg.eigvalsh(jax.jit(jax.hessian(value))(at))[0]
    assert curvature_at_minimum(problem, 1) == pytest.approx(least, rel=1e-8)


def test_curves_and_levels():
    values = np.array([[1.0, 1e-2, 1e-20], [3.0, 3e-2, 1e-20]])
    (x, y), (low, high) = log_curve(np.array([0, 1, 2]), values)
    assert x == [0, 1, 2]
    np.testing.assert_allclose(y, np.log10([2, 2e-2, 1e-16]))
    np.testing.assert_allclose(low[:2], np.log10([1, 1e-2]))
    np.testing.assert_allclose(high[:2], np.log10([3, 3e-2]))
    assert first_below(np.array([0, 1000, 2000]), values, 0.1) == "1,000"
    assert first_below(np.array([0, 1000, 2000]), values, 0.0) == "–"
    path = Path(np.array([0, 1]), np.ones((2, 2)), np.array([[1.0, 2.0], [1.0, 4.0]]), np.ones((2, 2)), 0.0)
    assert path.end(path.gap) == "3 ± 1"


def test_slopes_and_rounds_until():
    iterations = np.arange(0.0, 1000.0, 10)
    share = np.exp(-0.05 * iterations)
    assert theory.slope(iterations, share) == pytest.approx(0.05)
    assert theory.slope(iterations, np.maximum(share, 1e-14)) == pytest.approx(0.05)  # rounding is left out
    rounds = np.array([5, 10, 15])
    found = theory.rounds_until(np.array([[0.5, 0.1, 0.01], [0.5, 0.4, 0.3]]), rounds, 0.1)
    assert found[0] == 10
    assert np.isnan(found[1])


def test_the_rate_of_asvrcd_is_at_least_the_theorems():
    """min{ρ, √(ρμ/(2𝓛))}/4 for Theorem 8's numbers, whatever the constants."""
    data = logistic(0)
    objective = mixture(data, lambda_=0.3, l2=0.05)
    constants = objective.constants(data)
    for mu in (1e-8, 1e-5, 1e-3, constants.mu):
        for rho in (1e-4, 1e-2, 0.5):
            here = constants._replace(mu=mu)
            hyper = hyper_after_setup(asvrcd(objective, constants=here, rho=rho), data)
            stated = min(rho, np.sqrt(rho * mu * 4 * hyper["lr"] / 2)) / 4  # η = 1/(4𝓛)
            assert theory.contraction_asvrcd(hyper, here) >= stated * (1 - 1e-5)


def test_a_quick_figure_has_its_tables_and_pictures(tmp_path):
    results = figures.figure1(reproduce.Context(True, 1, lambda text: None))
    reproduce.draw(results, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure1.png", "figure2.png", "figure3.png"]
    gaps, reached, error, times = results
    assert all(len(row) == len(result.columns) for result in results for row in result.rows)
    assert [row[1] for row in gaps.rows][2:] == ["ASVRCD-PFL", "L2SGD+", "pFedMe"]
    assert "(chosen)" in gaps.rows[1][1]
    assert gaps.curves.keys() == gaps.bands.keys() == reached.curves.keys() == error.curves.keys()
    assert "Table 4" in times.title
    assert "μ'/(3M)" in gaps.notes[-1]


def test_the_rule_of_the_papers_experiments():
    """θ = min{0.8, 1/η}, on either side of 0.8, and all else by Theorem 8; p_w may be given."""
    data = logistic(0)
    objective = mixture(data, lambda_=0.3, l2=0.05)
    for steep, p_w in ((1.0, None), (1.0, 0.2), (0.01, None)):
        constants = Constants(*(steep * number for number in objective.constants(data)))
        hyper = lambda make, given={"constants": constants, "p_w": p_w}: hyper_after_setup(
            make(objective, **given), data
        )
        paper, plain, reduced = hyper(paper_ascd), hyper(ascd), hyper(asvrcd)
        assert paper["theta_1"] == pytest.approx(min(0.8, 1 / paper["lr"]))
        assert (paper["theta_1"] < 0.79) == (steep < 1)
        assert plain["theta_1"] == reduced["theta_1"] != paper["theta_1"]
        for name in ("gamma", "nu", "lr", "p_w"):
            assert paper[name] == plain[name] == reduced[name]
