"""FedProx, FedAvg+, Local, pFedMe and APFL: each is another method in a limit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.core import SERVER_STREAM, ClientData, View, as_hyper, client_key, round_key, stream_key
from majorant.solvers import Task
from records import over

DATA = zoo.training()
MODEL = mj.models.linear(DATA)
LOCAL = zoo.solver()
FULL = mj.local_sgd(0.2, epochs=2, batch_size=None)


def simulate(algorithm, **options):
    return mj.simulate(algorithm, DATA, **over({"rounds": 3, "evaluation": mj.Evaluation(every=3)}, options))


@pytest.fixture(scope="module")
def fedavg():
    return simulate(mj.fedavg(MODEL, local=LOCAL))


@pytest.fixture(scope="module")
def alone():
    return simulate(mj.local(MODEL, local=LOCAL))


def assert_close(tree, other, tolerance=1e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), tree, other)


def client(index=0):
    x, y = DATA.train.client(index)
    return ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(len(y)), jnp.int32(index))


def start_of(algorithm, **hyper):
    """Server value and view before round 1."""
    server = algorithm.server.init(jax.random.key(0))
    return server.value, View(server.value, server.hyper | as_hyper(hyper), 0, 1)


def slope(theta, data):
    return jax.grad(lambda theta: MODEL.losses(theta, data.x, data.y).mean())(theta)


# FedProx


def test_fedprox_without_a_penalty_is_fedavg(fedavg):
    run = simulate(mj.fedprox(MODEL, mu=0.0, local=LOCAL))
    assert_close(run.server.value, fedavg.server.value)
    assert_close(run.scores[0].values, fedavg.scores[0].values)


def test_fedprox_solves_the_proximal_problem():
    """∇f(θ) + μ (θ − θ_broadcast) = 0 after many steps."""
    algorithm = mj.fedprox(MODEL, mu=2.0, local=mj.local_sgd(0.2, steps=300, batch_size=None))
    origin, view = start_of(algorithm)
    upload, _ = algorithm.client.update(view, (), client(), jax.random.key(0))
    residual = jax.tree.map(lambda g, t, o: g + 2.0 * (t - o), slope(upload.value, client()), upload.value, origin)
    assert_close(residual, jax.tree.map(jnp.zeros_like, residual), 1e-5)


# FedAvg+


def test_fedavg_plus_trains_as_fedavg_and_then_tunes(fedavg):
    run = simulate(mj.fedavg_plus(MODEL, local=LOCAL))
    assert_close(run.server, fedavg.server)
    assert_close(run.snapshot.clients, fedavg.snapshot.clients)
    seen, new = ~DATA.unseen, DATA.unseen
    before, after = (r.scores[0].values["train_loss"] for r in (fedavg, run))
    assert (after[seen] < before[seen]).all()
    assert (after[new] < before[new]).all()


def test_fedavg_plus_passes_once_over_the_clients_own_samples(fedavg):
    """At the full learning rate, whatever the schedule has come to (a hundredth at the end), and with new moments."""
    algorithm = mj.fedavg_plus(MODEL, local=LOCAL._replace(plan=mj.local_sgd(epochs=3, batch_size=4).plan))
    view = algorithm.server.broadcast(jax.tree.map(jnp.asarray, fedavg.server), jax.random.key(0))
    key, data = jax.random.key(5), client(0)
    moments = jax.tree.map(lambda a: jnp.full_like(a, 7.0), LOCAL.moments(view.value))
    once = mj.local_sgd(0.1, epochs=1, batch_size=4, momentum=0.5)
    own = jax.random.fold_in(jax.random.fold_in(key, 1), 2)  # adapting's own randomness, and tuning's in it
    task = Task(view._replace(hyper=as_hyper(once.hyper)), data, own)
    expected, _, _ = once.solve(MODEL, task, view.value, once.init(view.value))
    assert_close(algorithm.deploy(view, moments, data, key), expected)


def test_a_model_that_is_tuned_when_it_is_asked_for_is_the_one_that_was_scored():
    """Of seen clients and new ones: minibatches are drawn in the same order for both."""
    run = simulate(mj.fedavg_plus(MODEL, local=LOCAL))
    for index in (0, zoo.UNSEEN):
        x, y = DATA.train.client(index)
        likely = run.model(index).predict_proba(x)[np.arange(len(y)), y]
        assert -np.log(likely).mean() == pytest.approx(run.scores[0].values["train_loss"][index], rel=1e-5)


def test_tuning_with_a_solver_of_its_own_has_hyperparameters_of_its_own(fedavg):
    algorithm = mj.fedavg_plus(MODEL, local=LOCAL, tuning=mj.local_sgd(0.5, epochs=2, batch_size=None))
    assert {"lr", "tuning_lr"} <= algorithm.server.init(jax.random.key(0)).hyper.keys()
    none = simulate(algorithm, hyper={"tuning_lr": 0.0})
    assert_close(none.server.value, fedavg.server.value)
    assert_close(none.scores[0].values, fedavg.scores[0].values)


# Local


def test_local_training_sends_nothing_and_is_one_solver_per_client(alone, fedavg):
    assert alone.communication[0] == {"rounds": 3, "bytes_up": 0, "bytes_down": 0}
    start = mj.fedavg(MODEL).server.init(stream_key(round_key(jax.random.key(0), 0), SERVER_STREAM)).value
    theta, moments, data = start, LOCAL.moments(start), client(0)
    for k in range(3):
        view = View((), as_hyper(LOCAL.hyper), k, 3)
        task = Task(view, data, client_key(round_key(jax.random.key(0), k + 1), 0))
        theta, moments, _ = LOCAL.solve(MODEL, task, theta, moments)
    assert_close(jax.tree.map(lambda a: a[0, 0], alone.snapshot.clients.theta), theta)


def test_a_newcomer_to_local_training_trains_for_as_many_rounds_as_the_others():
    """And at their rates: the first five rounds come before the rate falls, the sixth after it."""
    solver = mj.local_sgd(0.2, epochs=2, batch_size=None, schedule=mj.schedules.multi_step())
    algorithm = mj.local(MODEL, local=solver)
    view = algorithm.server.broadcast(algorithm.server.init(jax.random.key(0)), jax.random.key(0))
    data, key = client(zoo.UNSEEN), jax.random.key(4)
    theta, now = algorithm.client.init(view, data, key).theta, view._replace(round=6, rounds=10)
    for k in range(6):
        theta, _, _ = solver.solve(MODEL, Task(now._replace(round=k), data, key), theta, ())
    found = algorithm.join(now, data, key)
    assert_close(found.theta, theta)
    assert_close(algorithm.join(view, data, key).theta, algorithm.client.init(view, data, key).theta)


# pFedMe


def test_pfedme_without_an_envelope_is_local_training(alone):
    run = simulate(mj.pfedme(MODEL, mu=0.0, local=LOCAL))
    assert_close(run.snapshot.clients.theta, alone.snapshot.clients.theta)


def test_released_pfedme_keeps_local_models_and_averages_them():
    run = simulate(mj.pfedme(MODEL, mu=0.5, local=LOCAL))
    weights = DATA.train.sizes[~DATA.unseen] / DATA.train.sizes[~DATA.unseen].sum()
    mean = jax.tree.map(lambda a: np.tensordot(weights, a[0], axes=1), run.snapshot.clients.theta)
    assert_close(run.server.value, mean)
    spread = max(float(np.abs(a[0, 0] - a[0, 1]).max()) for a in jax.tree.leaves(run.snapshot.clients.theta))
    assert spread > 0.01


def test_a_strong_envelope_holds_clients_together():
    spread = lambda run: max(float(np.ptp(a[0], axis=0).max()) for a in jax.tree.leaves(run.snapshot.clients.theta))
    algorithm = mj.pfedme(MODEL, mu=0.1, local=FULL)
    loose, tight = (simulate(algorithm, hyper={"mu": mu}, rounds=20) for mu in (0.1, 4.0))
    assert spread(tight) < spread(loose) / 3


def test_pfedme_as_printed_descends_the_moreau_envelope():
    """θ solves the inner problem, and w moves by −η ∇F(w) = −η μ (w − θ)."""
    solver = mj.local_sgd(0.3, epochs=1, batch_size=None)
    algorithm = mj.pfedme(MODEL, mu=2.0, local=solver, variant="paper", inner_steps=200, outer_lr=0.05)
    w, view = start_of(algorithm)
    upload, state = algorithm.client.update(
        view, algorithm.client.init(view, client(), None), client(), jax.random.key(0)
    )
    residual = jax.tree.map(lambda g, t, w: g + 2.0 * (t - w), slope(state.theta, client()), state.theta, w)
    assert_close(residual, jax.tree.map(jnp.zeros_like, w), 1e-5)
    assert_close(upload.value, jax.tree.map(lambda w, t: w - 0.05 * 2.0 * (w - t), w, state.theta))
    envelope = lambda w: jnp.float32(
        MODEL.losses(state.theta, client().x, client().y).mean()
        + 1.0 * sum(((t - v) ** 2).sum() for t, v in zip(*map(jax.tree.leaves, (state.theta, w)), strict=True))
    )
    assert float(envelope(upload.value)) < float(envelope(w))


def test_the_second_step_of_pfedme_as_printed_starts_where_the_first_ended():
    """w₁ = w₀ − ημ (w₀ − θ₁), and θ₂ solves the problem around w₁, not around what the server sent."""
    solver = mj.local_sgd(0.3, steps=2, batch_size=None)
    algorithm = mj.pfedme(MODEL, mu=2.0, local=solver, variant="paper", inner_steps=200, outer_lr=0.25)
    _, view = start_of(algorithm)
    upload, state = algorithm.client.update(
        view, algorithm.client.init(view, client(), None), client(), jax.random.key(0)
    )
    first = jax.tree.map(lambda w, t: 2 * w - t, upload.value, state.theta)  # ημ = 1/2: w₂ = (w₁ + θ₂) / 2
    residual = jax.tree.map(lambda g, t, w: g + 2.0 * (t - w), slope(state.theta, client()), state.theta, first)
    assert_close(residual, jax.tree.map(jnp.zeros_like, first), 1e-5)


def test_the_server_of_pfedme_moves_by_beta():
    half, whole = (simulate(mj.pfedme(MODEL, local=FULL, variant="paper", beta=beta), rounds=1) for beta in (0.5, 1.0))
    start = mj.fedavg(MODEL).server.init(stream_key(round_key(jax.random.key(0), 0), SERVER_STREAM)).value
    assert_close(half.server.value, jax.tree.map(lambda a, b: (a + b) / 2, start, whole.server.value))


def test_the_mean_of_pfedme_as_printed_counts_every_client_once():
    """With η μ = 1 a client sends the model that it deploys."""
    run = simulate(mj.pfedme(MODEL, mu=2.0, local=FULL, variant="paper", outer_lr=0.5), rounds=1)
    assert_close(run.server.value, jax.tree.map(lambda theta: theta[0].mean(axis=0), run.snapshot.clients.theta))


# APFL


def test_apfl_with_no_share_of_its_own_deploys_fedavg(fedavg):
    run = simulate(mj.apfl(MODEL, alpha=0.0, local=LOCAL))
    assert_close(run.server.value, fedavg.server.value)
    for name in ("train_loss", "test_score"):
        seen = ~DATA.unseen
        np.testing.assert_allclose(run.scores[0].values[name][seen], fedavg.scores[0].values[name][seen], atol=1e-6)


def test_apfl_with_all_of_its_own_deploys_local_models(alone, fedavg):
    run = simulate(mj.apfl(MODEL, alpha=1.0, local=LOCAL))
    assert_close(run.server.value, fedavg.server.value)
    assert_close(run.snapshot.clients.v, alone.snapshot.clients.theta)
    np.testing.assert_allclose(
        run.scores[0].values["train_loss"][~DATA.unseen], alone.scores[0].values["train_loss"][~DATA.unseen], atol=1e-6
    )


def test_apfl_takes_all_three_gradients_at_the_same_point():
    algorithm = mj.apfl(
        MODEL, alpha=0.3, adaptive=True, alpha_lr=0.2, local=mj.local_sgd(0.5, steps=1, batch_size=None)
    )
    w, view = start_of(algorithm)
    v = jax.tree.map(lambda a: a + 0.5, w)
    state = algorithm.client.init(view, client(), None)._replace(v=v)
    mix = jax.tree.map(lambda v, w: 0.3 * v + 0.7 * w, v, w)
    at_mix = slope(mix, client())
    upload, state = algorithm.client.update(view, state, client(), jax.random.key(0))
    assert_close(upload.value, jax.tree.map(lambda w, g: w - 0.5 * g, w, slope(w, client())))
    assert_close(state.v, jax.tree.map(lambda v, g: v - 0.5 * 0.3 * g, v, at_mix))
    inner = sum(float((0.5 * g).sum()) for g in jax.tree.leaves(at_mix))  # ⟨v − w, ∇f(v̄)⟩
    np.testing.assert_allclose(state.alpha, np.clip(0.3 - 0.2 * inner, 0, 1), rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_running_statistics_of_apfl_are_those_of_the_model_that_is_deployed(alpha):
    """They do not mix as weights do: a mixture of two networks has other activations than either."""
    shifted = lambda params, x: MODEL.apply(params["weights"], x - params["statistics"])

    def train_apply(params, x, draw):
        seen = (draw.real[:, None] * x).sum(0) / draw.real.sum()
        return shifted(params | {"statistics": seen}, x), params | {"statistics": (params["statistics"] + seen) / 2}

    centred = MODEL._replace(
        init=lambda key: {"weights": MODEL.init(key), "statistics": jnp.zeros(DATA.spec.features)},
        apply=shifted,
        train_apply=train_apply,
        statistics="statistics",
        normalises_by_batch=True,
    )
    algorithm = mj.apfl(centred, alpha=alpha, local=mj.local_sgd(0.5, steps=1, batch_size=None))
    w, view = start_of(algorithm)
    state = algorithm.client.init(view, client(), None)
    view = view._replace(value=w | {"statistics": jnp.full(DATA.spec.features, 100.0)})
    _, state = algorithm.client.update(view, state, client(), jax.random.key(0))
    deployed = algorithm.deployment.personalize(view, state, client(), jax.random.key(0))
    own = client().x[: int(client().size)].mean(axis=0) / 2
    np.testing.assert_allclose(deployed["statistics"], own if alpha else 100.0, rtol=1e-5, atol=1e-6)
    mixed = jax.tree.map(lambda v, w: alpha * v + (1 - alpha) * w, state.v["weights"], w["weights"])
    assert_close(deployed["weights"], mixed)


def test_an_adaptive_share_stays_in_the_unit_interval():
    run = simulate(mj.apfl(MODEL, alpha=0.5, adaptive=True, alpha_lr=100.0, local=LOCAL), rounds=5)
    alpha = run.snapshot.clients.alpha
    assert ((alpha >= 0) & (alpha <= 1)).all()
    assert (alpha != 0.5).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mj.fedprox(MODEL, mu=-1.0), "mu must be a finite number at least 0, got -1.0"),
        (lambda: mj.pfedme(MODEL, variant="new"), "variant must be 'released' or 'paper', got 'new'"),
        (lambda: mj.pfedme(MODEL, inner_steps=0), "inner_steps must be a positive whole number, got 0"),
        (lambda: mj.apfl(MODEL, alpha=1.5), r"alpha must be in \[0, 1\], got 1.5"),
        (lambda: mj.apfl(MODEL, alpha_lr=0.0), "alpha_lr must be a finite number greater than 0"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
