"""Different solvers on different clients: each client gets exactly what its own solver gives."""

import functools

import jax
import numpy as np
import pytest

import majorant as mj
import zoo

MODEL = mj.models.linear(zoo.problem())


def halve(params, x, y, weights):
    return jax.tree.map(lambda p: p / 2, params)


def solvers():
    return [
        mj.local_sgd(0.1, batch_size=4, momentum=0.5),
        mj.local_sgd(0.4, batch_size=None, momentum=0.9),
        mj.solvers.local_newton(3, l2=0.1),
        mj.solvers.local_function(halve),
    ]


def trained(local, **options):
    return mj.simulate(mj.local(MODEL, local=local), zoo.problem(), rounds=3, **options).snapshot.clients


@functools.cache
def alone():
    """What every solver makes of every client."""
    return [trained(solver) for solver in solvers()]


@pytest.mark.parametrize("clients", ["vmap", "map"])
def test_each_client_has_its_solvers_result(clients):
    assignment = np.array([0, 3, 0, 2, 1, 3])  # client 2 is unseen
    several = mj.solvers.local_by_client(solvers(), assignment)
    mixed = trained(several, resources=mj.Resources(clients=clients))
    for place, mine in enumerate(np.delete(assignment, zoo.UNSEEN)):
        same = lambda a, b, at=place: np.testing.assert_allclose(a[:, at], b[:, at], rtol=1e-5, atol=1e-6)
        jax.tree.map(same, mixed.theta, alone()[mine].theta)
        jax.tree.map(same, mixed.moments[mine], alone()[mine].moments)
        for other in {0, 1} - {mine}:  # those of the solvers that have some
            assert all((a[:, place] == 0).all() for a in jax.tree.leaves(mixed.moments[other]))


def test_a_function_is_called_for_its_own_clients_alone():
    calls = []

    def counted(params, x, y, weights):
        calls.append(len(y))
        return params

    several = mj.solvers.local_by_client([mj.local_sgd(0.1), mj.solvers.local_function(counted)], {4: 1})
    trained(several)
    assert calls == [len(zoo.problem().train.client(4)[1])] * 3  # once in each of three rounds


def test_hyperparameters_have_names_of_their_own():
    mixed = mj.solvers.local_by_client(solvers(), {4: 1})
    expected = {"lr": 0.1, "momentum": 0.5, "lr_1": 0.4, "momentum_1": 0.9, "l2_2": 0.1}
    assert mixed.hyper == expected
    nested = mj.solvers.local_by_client([mixed, mj.local_sgd(0.7)], {})
    assert nested.hyper == expected | {"lr_1_1": 0.7}
    two = mj.solvers.local_by_client(solvers()[:2], {4: 1})
    run = lambda **hyper: mj.simulate(mj.local(MODEL, local=two), zoo.problem(), rounds=1, hyper=hyper)
    plain, changed = run(lr_1=0.4).snapshot.clients.theta, run(lr_1=0.2).snapshot.clients.theta
    moved = [
        bool((a != b).any())
        for a, b in zip(*(np.moveaxis(t[0]["weight"], 1, 0) for t in (plain, changed)), strict=True)
    ]
    assert moved == [False, False, False, True, False]  # client 4 is the fourth that trains


@pytest.mark.parametrize(
    ("given", "assignment", "message"),
    [
        ([], {}, "at least one solver"),
        ([mj.local_sgd()], [0, 1], "the solver of client 1 must be a whole number from 0 to 0, got"),
        ([mj.local_sgd()], {2: -1}, "the solver of client 2 .* got -1"),
        ([mj.local_sgd()], {2: 0.5}, "the solver of client 2 .* got 0.5"),
        ([mj.local_sgd()], {-3: 0}, "a client's id in the assignment must be a whole number, at least 0, got -3"),
    ],
)
def test_impossible_assignments_are_refused(given, assignment, message):
    with pytest.raises(ValueError, match=message):
        mj.solvers.local_by_client(given, assignment)
