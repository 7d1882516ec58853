"""What every solver of two blocks says about input that it cannot use, before anything is computed."""

from __future__ import annotations

import warnings

import pytest

import flat_objectives
import majorant as mj
from majorant.methods import acd, ascd, asvrcd, l2sgd_plus, lsgd, scd, svrcd
from majorant.objectives import Constants, fully_personal, maml, mixture

DATA = flat_objectives.samples()
CONSTANTS = Constants(0.1, 1.0, 1.0, 2.0, 2.0)
SAMPLED = {"asvrcd": asvrcd, "svrcd": svrcd, "ascd": ascd, "scd": scd, "l2sgd+": l2sgd_plus}
COIN = {"acd": acd} | SAMPLED
outside = pytest.mark.parametrize("wrong", [-0.1, 0.0, 1.0, 1.5, float("nan")])


@outside
@pytest.mark.parametrize("method", COIN.values(), ids=COIN)
def test_the_probability_of_a_block_lies_between_0_and_1(method, wrong):
    with pytest.raises(ValueError, match="p_w must be"):
        method(mixture(DATA), constants=CONSTANTS, p_w=wrong)


@outside
@pytest.mark.parametrize("name", ["asvrcd", "svrcd", "ascd"])
def test_the_probability_of_a_refresh_lies_between_0_and_1(name, wrong):
    with pytest.raises(ValueError, match="rho must be"):
        COIN[name](mixture(DATA), constants=CONSTANTS, rho=wrong)


@pytest.mark.parametrize("method", COIN.values(), ids=COIN)
def test_networks_are_for_lsgd(method):
    """The others warn that no theory covers them, and say what does; LSGD-PFL says nothing."""
    network = mixture(DATA, model=mj.models.mlp(DATA, hidden=(4,)))
    with pytest.warns(UserWarning, match="may diverge on mixture, which is not; LSGD-PFL still applies"):
        method(network, constants=CONSTANTS)
    with pytest.raises(ValueError, match="give step sizes"):
        network.constants(DATA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lsgd(network, lr=0.1)


def test_maml_is_for_lsgd():
    with pytest.warns(UserWarning, match="LSGD-PFL still applies"):
        acd(maml(DATA), constants=CONSTANTS)
    with pytest.raises(ValueError, match="give step sizes"):
        maml(DATA).constants(DATA)


@pytest.mark.parametrize("name", ["acd", "asvrcd", "svrcd", "ascd", "scd"])
def test_nothing_shared_is_nothing_to_solve_together(name):
    with pytest.raises(ValueError, match="shares nothing between clients: use local training"):
        COIN[name](fully_personal(DATA), constants=CONSTANTS)


@pytest.mark.parametrize("method", COIN.values(), ids=COIN)
@pytest.mark.parametrize("wrong", [{"smooth_beta": float("inf")}, {"sample_smooth_w": -1.0}, {"mu": float("nan")}])
def test_constants_are_numbers(method, wrong):
    with pytest.raises(ValueError, match="needs finite constants"):
        method(mixture(DATA), constants=CONSTANTS._replace(**wrong))


@pytest.mark.parametrize("method", COIN.values(), ids=COIN)
def test_steps_need_constants(method):
    """A network has none, and clients cannot find them either."""
    network = mixture(DATA, model=mj.models.mlp(DATA, hidden=(4,)))._replace(convex=True)
    with pytest.raises(ValueError, match="takes its steps from constants, which mixture has not"):
        method(network)
