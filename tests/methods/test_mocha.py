"""MOCHA: independent support vector machines when clients are unrelated, and a duality gap that closes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.svm import LinearSVC

import majorant as mj
import zoo
from majorant.methods.mocha import RIDGE, relations

LAMBDA = 0.3


def related_clients(sizes, classes=2, d=4):
    """Clients with similar tasks, noisy enough not to be separable."""
    rng, made = np.random.default_rng(2), []
    base = rng.normal(size=(d, classes))
    for n in sizes:
        x = rng.normal(size=(n, d)).astype(np.float32)
        scores = x @ (base + 0.3 * rng.normal(size=base.shape)) + rng.normal(size=(n, classes))
        made.append((x, scores.argmax(axis=1).astype(np.int32)))
    return zoo.federated(made, classes=classes)


def client_samples(data, t, column=0):
    """Samples with the constant feature, and signs for one of the problems."""
    x, y = data.train.client(t)
    positive = 1 if len(data.classes) == 2 else column
    return np.c_[x, np.ones(len(y))].astype(np.float64), np.where(y == positive, 1.0, -1.0)


def objectives(data, server, duals):
    """P(W) and D(a) from their definitions, in double precision, with W and V recomputed from the duals."""
    w, v, omega = (np.asarray(a, np.float64) for a in (server.value.w, server.state.v, server.state.omega))
    primal = dual = 0.0
    for t in range(data.clients):
        for k in range(w.shape[2]):
            x, y = client_samples(data, t, k)
            a = np.asarray(duals[t, : len(y), k], np.float64)
            assert ((a >= 0) & (a <= 1)).all()
            np.testing.assert_allclose(v[t, :, k], x.T @ (a * y) / len(y), atol=1e-5)
            primal += np.maximum(0, 1 - y * (x @ w[t, :, k])).mean()
            dual += a.mean()
    flat, flat_v = (np.moveaxis(b, 0, -1).reshape(-1, data.clients) for b in (w, v))
    np.testing.assert_allclose(flat, flat_v @ omega / LAMBDA, atol=1e-4)
    primal += LAMBDA / 2 * np.trace(flat @ np.linalg.solve(omega, flat.T))
    return primal, dual - np.trace(flat_v @ omega @ flat_v.T) / (2 * LAMBDA)


@pytest.mark.parametrize("classes", [2, 3])
def test_unrelated_clients_are_independent_support_vector_machines(classes):
    """With Ω = I/m the objective splits into Σ_t mean hinge + (λ m / 2) ‖w_t‖²."""
    data = related_clients((25, 30, 35), classes)
    algorithm = mj.mocha(data, clients=3, lambda_=LAMBDA, epochs=5, omega_every=None)
    run = mj.simulate(algorithm, data, rounds=60)
    for t in range(3):
        for k in range(1 if classes == 2 else classes):
            x, y = client_samples(data, t, k)
            value = lambda w, x=x, y=y: np.maximum(0, 1 - y * (x @ w)).mean() + LAMBDA * 3 / 2 * (w @ w)
            svm = LinearSVC(
                loss="hinge", C=1 / (LAMBDA * 3 * len(y)), dual=True, fit_intercept=False, tol=1e-6, max_iter=200_000
            )
            best = value(svm.fit(x, y).coef_[0])
            found = value(np.asarray(run.server.value.w[t, :, k], np.float64))
            assert abs(found - best) < 1e-3 * best


def test_the_duality_gap_is_positive_and_closes_and_the_dual_never_decreases():
    """For a fixed Ω that ties clients together: the separable minorant keeps parallel steps safe."""
    data = related_clients((20, 30, 40, 25))
    algorithm = mj.mocha(data, clients=4, lambda_=LAMBDA, epochs=2, omega_every=None)
    rng = np.random.default_rng(0)
    omega = relations(jnp.asarray(rng.normal(size=(4, 1)) + 0.3 * rng.normal(size=(4, 3)), jnp.float32))
    assert float(jnp.abs(omega - jnp.diag(jnp.diag(omega))).max()) > 0.05

    def tied(fresh):
        server = fresh.server
        state, value = server.state._replace(omega=np.asarray(omega)[None]), server.value
        value = value._replace(rho=np.abs(omega).sum(axis=1)[None])
        return fresh._replace(server=server._replace(state=state, value=value))

    found = []
    record = lambda lines, snapshot: found.append(snapshot())
    mj.simulate(algorithm, data, rounds=80, evaluation=mj.Evaluation(every=4, report=record), resume=tied)
    values = [objectives(data, jax.tree.map(lambda a: a[0], s.server), s.clients[0]) for s in found]
    primal, dual = map(np.array, zip(*values, strict=True))
    assert (primal - dual > -1e-5).all()
    assert (np.diff(dual) > -1e-5).all()
    assert primal[-1] - dual[-1] < 1e-3 * primal[-1]


def test_relations_are_the_normalised_root_of_the_gram_matrix():
    """The minimiser of tr(W Ω⁻¹ Wᵀ) at trace 1 has the value (tr (WᵀW)^½)², by Cauchy–Schwarz, up to the ridge."""
    w = np.random.default_rng(0).normal(size=(5, 7))
    omega = np.asarray(relations(jnp.asarray(w, jnp.float32)), np.float64)
    np.testing.assert_allclose(np.trace(omega), 1, rtol=1e-5)
    np.testing.assert_allclose(omega, omega.T, atol=1e-6)
    root = (omega - RIDGE * np.eye(5) / 5) / (1 - RIDGE)
    nuclear = np.linalg.svd(w, compute_uv=False).sum()
    np.testing.assert_allclose(root @ root * nuclear**2, w @ w.T, atol=1e-4)
    np.testing.assert_allclose(np.trace(w.T @ np.linalg.solve(omega, w)), nuclear**2, rtol=0.02)
    np.testing.assert_allclose(relations(jnp.zeros((4, 6))), np.eye(4) / 4, atol=1e-6)


def test_learned_relations_find_the_two_groups():
    """Two groups of clients with opposite tasks: related within a group, opposed across."""
    rng, direction = np.random.default_rng(0), np.array([1.0, -1.0, 0.5, 0.0])
    side = np.array([1, 1, -1, -1, 1])
    data = zoo.federated([zoo.sample(rng, 30, direction * s) for s in side])
    seen = {}
    keep = lambda lines, snapshot: seen.update({lines[0]["round"]: np.asarray(snapshot().server.state.omega[0])})
    algorithm = mj.mocha(data, clients=5, lambda_=LAMBDA, omega_every=5)
    run = mj.simulate(algorithm, data, rounds=30, evaluation=mj.Evaluation(every=1, report=keep))
    np.testing.assert_array_equal(seen[4], np.eye(5, dtype=np.float32) / 5)  # the fifth round is the first that learns
    assert np.abs(seen[5] - seen[4]).max() > 0.01
    np.testing.assert_array_equal(seen[9], seen[5])
    omega = run.server.state.omega
    off_diagonal = ~np.eye(5, dtype=bool)
    assert (np.sign(omega) == np.outer(side, side))[off_diagonal].all()
    np.testing.assert_allclose(np.trace(omega), 1, rtol=1e-5)
    assert run.history[-1]["train_accuracy"]["mean"] > 0.85


def test_dual_variables_survive_a_snapshot_across_buckets_of_different_sizes(monkeypatch):
    monkeypatch.setattr("majorant.engines.population.LEAST_SAVED", 0)
    data = related_clients((5, 6, 40, 45))
    algorithm, seen = mj.mocha(data, clients=4, lambda_=LAMBDA, omega_every=2), []
    record = lambda lines, snapshot: seen.append(snapshot())
    run = mj.simulate(algorithm, data, rounds=4, evaluation=mj.Evaluation(every=2, report=record))
    assert seen[0].clients.shape == (1, 4, 45, 1)
    assert (seen[0].clients[0, 0, 5:] == 0).all()
    resumed = mj.simulate(algorithm, data, rounds=4, evaluation=mj.Evaluation(every=2), resume=seen[0])
    jax.tree.map(np.testing.assert_array_equal, resumed.snapshot.clients, run.snapshot.clients)
    jax.tree.map(np.testing.assert_array_equal, resumed.snapshot.server, run.snapshot.server)
    objectives(data, run.server, run.snapshot.clients[0])


def test_a_newcomer_deploys_the_mean_of_the_trained_models():
    data = related_clients((20, 20, 20))
    run = mj.simulate(mj.mocha(data, clients=3, lambda_=LAMBDA), data, rounds=3)
    x, y = data.train.client(0)
    scores = client_samples(data, 0)[0] @ run.server.value.w.mean(axis=0)[:, 0]
    np.testing.assert_allclose(run.personalize((x, y)).predict_proba(x)[:, 1], 1 / (1 + np.exp(-scores)), atol=1e-5)


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        (mj.models.Spec((3,), 0), {}, "this problem is a regression"),
        (mj.models.Spec((3,), 2), {"lambda_": 0.0}, "lambda_ must be a finite number greater than 0"),
        (mj.models.Spec((3,), 2), {"omega_every": 0}, "omega_every must be None"),
        (mj.models.Spec((3,), 2), {"epochs": 0}, "epochs must be None or a positive whole number"),
    ],
)
def test_impossible_settings_are_refused(problem, options, message):
    with pytest.raises(ValueError, match=message):
        mj.mocha(problem, clients=3, **options)
