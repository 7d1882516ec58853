"""The FedMM paper's experiments: bits along a path, the step in surrogate space, and Theorem 1's bound."""

import jax
import numpy as np
import pytest
from majorant_reproductions.fedmm import figures as f
from majorant_reproductions.fedmm import theory

import majorant as mj


@pytest.fixture(scope="module")
def setting():
    """A surrogate that is quick to compile takes the dictionary's place."""
    data = mj.data.synthetic_mixture(clients=4, dimension=3, seed=0)
    return f.Setting("small", data, mj.surrogates.proximal_gradient(mj.models.linear(data), rho=0.2), 10)


def made(factory, setting, **options):
    return factory(setting.surrogate, setting.data, step=mj.steps.square_root(), batch_size=10, **options)


def test_a_path_counts_the_bits_of_the_channel(setting):
    """Two of four clients in each of four rounds; beside a message of 4 numbers goes its weight of 32 bits."""
    path = f.follow(made(mj.fedmm, setting), setting, rounds=4, seeds=2, hyper={"beta": 0.05}, channel=f.CHANNEL)
    assert path.rounds.tolist() == [1, 2, 3, 4]
    assert path.objective.shape == path.surrogate_step.shape == (2, 4)
    assert f.CHANNEL.bits(4) == 4 * 8 + 32
    np.testing.assert_array_equal(path.bits, 2 * (f.CHANNEL.bits(4) + 32) * path.rounds)


def test_the_step_of_parameter_averaging_is_measured_in_surrogate_space(setting):
    """‖𝓣(θ_t) − 𝓣(θ_{t−1})‖²/γ_t² with γ_t = β/√(β + t): its own statistics are parameters."""
    algorithm, seen, beta = made(mj.methods.parameter_averaging, setting, alpha=f.ALPHA), [], 0.3
    path = f.follow(algorithm, setting, rounds=2, share=1.0, hyper={"beta": beta}, channel=f.CHANNEL)
    mj.simulate(
        algorithm,
        setting.data,
        rounds=2,
        evaluation=mj.Evaluation(
            every=1, diagnostics=True, report=lambda records, snapshot: seen.append(snapshot().server.value.params)
        ),
        hyper={"beta": beta},
        channel=f.CHANNEL,
    )
    pooled, first_run = f.pool(setting.data), lambda tree: jax.tree.map(lambda a: a[0], tree)
    first, second = (f.mean_statistic(setting.surrogate, first_run(at), pooled) for at in seen)
    moved = float(f.squared_norm(jax.tree.map(np.subtract, second, first)))
    assert path.surrogate_step[0, 1] == pytest.approx(moved * (beta + 2) / beta**2, rel=1e-3)
    assert path.parameter_step[0, 1] != pytest.approx(path.surrogate_step[0, 1], rel=1e-2)


def test_mean_fields_are_under_the_bound_of_theorem_1():
    row = theory.compare(theory.logistic_problem(), theory.Case("B", None, "local"), rounds=4, seeds=2)
    names = ["problem", "case", "samples", "V", "omega", "gamma", "left", "right", "ratio", "first", "last"]
    named = dict(zip(names, row, strict=True))
    assert float(named["omega"]) > 0
    assert 0 < float(named["left"]) <= float(named["right"])
