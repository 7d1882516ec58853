"""The weighted sum of agents' losses and criteria: SciPy's minimisers, sparsity, ramps, and criteria on any method."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.optimize import minimize

import majorant as mj
import zoo
from compiling import quickly
from majorant.core import ClientData, Uploads, View
from majorant.tradeoffs import criteria
from majorant.tradeoffs.weighted_sum import weight_of_round

DATA = zoo.training()
MODEL = mj.models.linear(DATA)
ONE_STEP = mj.local_sgd(1.0, steps=1, batch_size=None)
HALVED = mj.schedules.multi_step(milestones=(0.75,), factor=0.5)
REFERENCE = jax.tree.map(lambda a: jnp.full_like(a, 0.5), MODEL.init(jax.random.key(0)))
QUADRATICS = mj.tradeoffs.weighted_sum(
    MODEL, [criteria.squared_norm(), criteria.distance(REFERENCE)], weights=[0.75, 0.25], weight=0.9, local=ONE_STEP
)
TRAINING = np.flatnonzero(~DATA.unseen)


def agents_loss(theta, votes=None):
    """The agents' mean logistic loss and its gradient, in NumPy; the bias comes last."""
    total, slope = 0.0, np.zeros_like(theta)
    votes = np.ones(len(TRAINING)) if votes is None else votes
    for vote, agent in zip(votes / votes.sum(), TRAINING, strict=True):
        x, y = DATA.train.client(agent)
        x = np.column_stack([x, np.ones(len(y))]).astype(float)
        sign = 2.0 * y - 1
        margin = sign * (x @ theta)
        total += vote * np.logaddexp(0, -margin).mean()
        slope -= vote * (sign / (1 + np.exp(margin))) @ x / len(y)
    return total, slope


def flat(params):
    (layer,) = params
    return np.append(np.asarray(layer["weight"]).ravel(), np.asarray(layer["bias"])).astype(float)


def tree(theta):
    return [{"weight": jnp.asarray(theta[:-1, None], jnp.float32), "bias": jnp.asarray(theta[-1:], jnp.float32)}]


def client(index=0):
    x, y = DATA.train.client(index)
    return ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(len(y)), jnp.int32(index))


def view_of(algorithm, round=0):
    server = algorithm.server.init(jax.random.key(0))
    return View(server.value, server.hyper, round, 10)


def after_round(algorithm, server, mean):
    """The server after a round whose uploads have this mean."""
    view = algorithm.server.broadcast(server, jax.random.key(0))
    return algorithm.server.update(server, view, Uploads(mean, jnp.ones(())))


def smooth_minimiser(lam, share=0.75):
    def objective(theta):
        loss, slope = agents_loss(theta)
        value = share * 0.5 * theta @ theta + (1 - share) * 0.5 * ((theta - 0.5) ** 2).sum()
        return (1 - lam) * loss + lam * value, (1 - lam) * slope + lam * (theta - (1 - share) * 0.5)

    return minimize(objective, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-9})


def sparse_minimiser(lam, votes=None):
    """θ = u − v with u, v ≥ 0: then the L1 norm is linear."""

    def objective(uv):
        u, v = np.split(uv, 2)
        loss, slope = agents_loss(u - v, votes)
        return (1 - lam) * loss + lam * uv.sum(), np.concatenate([(1 - lam) * slope + lam, -(1 - lam) * slope + lam])

    found = minimize(objective, np.zeros(8), jac=True, bounds=[(0, None)] * 8, method="L-BFGS-B", tol=1e-14)
    return found.x[:4] - found.x[4:]


def test_the_centralized_minimiser_is_reached_and_a_grid_is_its_single_runs():
    """Two λ with the criteria's own weights, and one with others, in one program."""
    options = {"rounds": 150, "evaluation": mj.Evaluation(every=150, diagnostics=True)}
    shares = {"share_squared_norm": [0.75, 0.75, 0.2], "share_distance": [0.25, 0.25, 0.8]}
    run = mj.simulate(QUADRATICS, DATA, seeds=[0] * 3, hyper={"lambda": [0.2, 0.6, 0.6]} | shares, **options)
    for each, (lam, share) in enumerate([(0.2, 0.75), (0.6, 0.75), (0.6, 0.2)]):
        best = smooth_minimiser(lam, share)
        np.testing.assert_allclose(flat(run[each].server.value), best.x, atol=2e-5)
        line = run.histories[each][-1]
        assert line["objective"] == pytest.approx(best.fun, abs=1e-6)
        assert line["agents_loss"] == pytest.approx(agents_loss(best.x)[0], abs=1e-5)
        assert line["squared_norm"] == pytest.approx(best.x @ best.x / 2, abs=1e-5)
        assert line["gradient_squared"] < 1e-9
    single = mj.simulate(QUADRATICS, DATA, hyper={"lambda": 0.6}, **options)
    np.testing.assert_allclose(flat(run[1].server.value), flat(single.server.value), atol=1e-6)


def test_the_implicit_step_is_exact_for_l1():
    """Different agents and one step a round: SciPy's minimiser, with the same exact zeros."""
    lam = 0.08
    algorithm = mj.tradeoffs.weighted_sum(MODEL, criteria.l1(), weight=lam, local=ONE_STEP, step="implicit")
    run = mj.simulate(algorithm, DATA, rounds=300, evaluation=mj.Evaluation(every=300, diagnostics=True))
    theta, best = flat(run.server.value), sparse_minimiser(lam)
    np.testing.assert_allclose(theta, best, atol=5e-5)
    assert ((theta == 0) == (np.abs(best) < 1e-7)).all()
    assert 0 < (theta == 0).sum() < 4
    assert run.history[-1]["gradient_squared"] < 1e-9


def test_lambda_rises_along_the_ramp_in_every_run_of_a_grid():
    """Proximal gradient descent by hand on (1 − λ_t) C + λ_t (0.3 ‖θ‖²/2 + 0.7 ‖θ‖₁), with half the rate at the end."""
    both, local = [criteria.squared_norm(), criteria.l1()], ONE_STEP._replace(schedule=HALVED)
    made = mj.tradeoffs.weighted_sum(MODEL, both, local=local, step="implicit", ramp=0.5)
    lambdas, ramps, start = [0.03, 0.15, 0.15], [0.5, 0.9, 0.0], []
    run = mj.simulate(
        made,
        DATA,
        rounds=8,
        evaluation=mj.Evaluation(every=8),
        seeds=[0] * 3,
        hyper={"lambda": lambdas, "ramp": ramps, "share_squared_norm": 0.3, "share_l1": 0.7},
        resume=lambda fresh: start.append(fresh.server.value) or fresh,
    )
    for each, (lam, ramp) in enumerate(zip(lambdas, ramps, strict=True)):
        theta = flat(jax.tree.map(lambda a: a[0], start[0]))
        for t in range(8):
            now = lam * min(1, t / 8 / min(ramp, 7 / 8)) if ramp else lam  # the last round is on λ, whatever the ramp
            rate = 1.0 if t < 6 else 0.5
            z = (theta - rate * (1 - now) * agents_loss(theta)[1]) / (1 + rate * 0.3 * now)
            theta = np.sign(z) * np.maximum(np.abs(z) - rate * 0.7 * now / (1 + rate * 0.3 * now), 0)
        np.testing.assert_allclose(flat(run[each].server.value), theta, atol=1e-6)
    with_ramp, without = flat(run[1].server.value), flat(run[2].server.value)
    assert np.abs(with_ramp - without).max() > 0.01
    for rounds in (1, 2, 10):  # the last of them is on λ
        assert weight_of_round(View((), made.server.init(jax.random.key(0)).hyper, rounds - 1, rounds)) == 0.5
    explicit = mj.tradeoffs.weighted_sum(MODEL, criteria.squared_norm(), weight=0.8, local=ONE_STEP, ramp=0.5)
    view, data = view_of(explicit, round=1), client()
    found = quickly(lambda view, key: explicit.client.update(view, (), data, key)[0])(view, jax.random.key(0))
    loss, slope = quickly(jax.value_and_grad(lambda p: MODEL.losses(p, data.x, data.y).mean()))(view.value)
    at = flat(view.value)
    np.testing.assert_allclose(flat(found.value), at - 0.84 * flat(slope) - 0.16 * at, atol=1e-6)  # λ_1 = 0.8 · 0.1/0.5
    assert found.info["loss"] == pytest.approx(float(loss), rel=1e-5)


def test_an_agents_own_proximal_steps_have_the_rounds_lambda_and_the_runs_shares():
    """Two steps: z₂ starts from the proximal point of z₁, with λ_1 = 0.8 · 0.1/0.5 and shares that were not its own.

    The rate is 2, halved by the schedule.
    """
    local = mj.local_sgd(2.0, steps=2, batch_size=None, schedule=lambda progress: 0.5 * jnp.ones_like(progress))
    both = [criteria.squared_norm(), criteria.l1()]
    implicit = mj.tradeoffs.weighted_sum(MODEL, both, weight=0.8, local=local, step="implicit", ramp=0.5)
    view, data = view_of(implicit, round=1), client()
    shares = {"share_squared_norm": jnp.asarray(0.3), "share_l1": jnp.asarray(0.7)}
    found = implicit.client.update(view._replace(hyper=view.hyper | shares), (), data, jax.random.key(0))[0]
    slope = jax.grad(lambda p: MODEL.losses(p, data.x, data.y).mean())
    z = flat(view.value) - 0.84 * flat(slope(view.value))
    shrunk = z / (1 + 0.3 * 0.16)
    point = np.sign(shrunk) * np.maximum(np.abs(shrunk) - 0.7 * 0.16 / (1 + 0.3 * 0.16), 0)
    np.testing.assert_allclose(flat(found.value), point - 0.84 * flat(slope(tree(point))), atol=1e-6)


def test_a_method_with_criteria_makes_a_proximal_gradient_step_on_the_servers_parameters():
    lam = 0.08
    plain = mj.fedavg(MODEL, local=ONE_STEP)
    wrapped = mj.tradeoffs.with_criteria(plain, criteria.l1(), weight=lam)
    server, mean = wrapped.server.init(jax.random.key(0)), MODEL.init(jax.random.key(1))
    server = server._replace(value=tree(sparse_minimiser(lam, DATA.train.sizes[TRAINING])))
    theta = flat(server.value)
    step = theta - agents_loss(theta, DATA.train.sizes[TRAINING])[1]
    after = after_round(wrapped, server, tree(step))
    np.testing.assert_allclose(flat(after.value), theta, atol=1e-4)  # a minimiser stays where it is
    forward = mj.tradeoffs.with_criteria(
        plain, criteria.criterion(lambda p: criteria.squared_norm().value(p)), weight=0.5
    )
    moved = after_round(forward, forward.server.init(jax.random.key(0)), mean)
    np.testing.assert_allclose(flat(moved.value), np.zeros(4), atol=1e-6)  # θ − 1 · ∇½‖θ‖²
    assert forward.diagnostics.log(moved)["own"] < 1e-10


def test_the_proximal_step_of_a_method_with_criteria_is_as_long_as_its_round():
    """The server's rate and the schedule shorten both; (1 + ρ) θ is the mean for the criterion ½ ‖θ‖² and λ = ½."""
    mean = MODEL.init(jax.random.key(1))
    halved = {"local": ONE_STEP._replace(schedule=HALVED), "server_lr": 0.5}
    for options, done, rho in [({}, 7, 1.0), (halved, 0, 0.5), (halved, 7, 0.25)]:
        schedule = {"schedule": HALVED} if options else {}
        made = mj.tradeoffs.with_criteria(
            mj.fedavg(MODEL, **{"local": ONE_STEP} | options), criteria.squared_norm(), **schedule
        )
        server = made.server.init(jax.random.key(0))._replace(
            value=mean, round=jnp.asarray(done), rounds=jnp.asarray(8)
        )
        after = after_round(made, server, mean)
        np.testing.assert_allclose(flat(after.value), flat(mean) / (1 + rho), rtol=1e-5)
    for plain in (mj.fedavg(MODEL, local=mj.local_sgd(0.1, momentum=0.9)), mj.fedavg(MODEL, server="adam")):
        with pytest.raises(ValueError, match="give rate"):
            mj.tradeoffs.with_criteria(plain, criteria.l1())
        assert mj.tradeoffs.with_criteria(plain, criteria.l1(), rate=0.1).name == f"{plain.name}, criteria"


def test_lambda_zero_with_votes_by_samples_is_fed_avg():
    local = mj.local_sgd(0.1, epochs=2, batch_size=4, momentum=0.5)
    algorithm = mj.tradeoffs.weighted_sum(MODEL, criteria.squared_norm(), weight=0.0, local=local, agents="samples")
    averaged = mj.fedavg(MODEL, local=local)
    view, data, key = view_of(algorithm), client(), jax.random.key(3)
    moments = algorithm.client.init(view, data, key)
    mine = algorithm.client.update(view, moments, data, key)[0]
    theirs = averaged.client.update(view, moments, data, key)[0]
    np.testing.assert_allclose(flat(mine.value), flat(theirs.value), rtol=1e-6)
    assert mine.weight == theirs.weight
    assert mine.info["loss"] == pytest.approx(float(theirs.info["loss"]), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weight": 1.0}, "less than 1"),
        ({"weight": 1 - 1e-9}, "less than 1"),  # 1 in single precision
        ({"weight": -0.1}, "at least 0"),
        ({"ramp": 1.0}, "ramp .* less than 1"),
        ({"criteria": []}, "no criteria"),
        ({"weights": [0.5]}, "sum to 1"),
        ({"weights": [0.5, 0.5]}, "1 criteria but 2 weights"),
        ({"criteria": criteria.l1()}, "explicit step is not valid"),
        ({"step": "backward"}, "'explicit' or 'implicit'"),
        ({"step": "implicit", "local": mj.local_sgd(0.1, momentum=0.9)}, "without momentum"),
        ({"step": "implicit", "local": mj.local_optax(optax.adam(0.1))}, "without momentum"),
        ({"agents": "all"}, "'equal' or 'samples'"),
        ({"criteria": None}, "criteria must be made by"),
    ],
)
def test_bad_input(options, words):
    arguments = {"criteria": criteria.squared_norm()} | options
    with pytest.raises(ValueError, match=words):
        mj.tradeoffs.weighted_sum(MODEL, **arguments)


@pytest.mark.parametrize("value", [1.0, 1.5])
def test_a_grid_refuses_weights_that_leave_agents_no_say(value):
    for algorithm in (QUADRATICS, mj.tradeoffs.with_criteria(mj.fedavg(MODEL), criteria.l1())):
        with pytest.raises(ValueError, match="less than 1"):
            mj.simulate(algorithm, DATA, rounds=1, grid={"lambda": [0.5, value]})


def test_weights_of_criteria_are_refused_unless_they_sum_to_one():
    """Those that are not given stay as they are."""
    for hyper in ({"share_distance": 0.5}, {"share_distance": 0.5, "share_squared_norm": 0.4}):
        with pytest.raises(ValueError, match=r"sum to 1, got share_squared_norm = 0\.(75|4), share_distance = 0\.5"):
            mj.simulate(QUADRATICS, DATA, rounds=1, hyper=hyper)
    with pytest.raises(ValueError, match="at least 0"):
        QUADRATICS.traits.check_hyper({"share_distance": -0.5, "share_squared_norm": 1.5})
    alone = mj.tradeoffs.weighted_sum(MODEL, criteria.squared_norm())
    assert set(jax.eval_shape(alone.server.init, jax.random.key(0)).hyper) == {"lambda", "lr"}


def test_methods_that_criteria_cannot_be_added_to():
    with pytest.raises(ValueError, match="more than parameters"):
        mj.tradeoffs.with_criteria(mj.clustered(MODEL, clients=6), criteria.l1())
    with pytest.raises(ValueError, match="give rate"):
        mj.tradeoffs.with_criteria(mj.fedavg(MODEL, local=mj.local_optax(optax.adam(0.1))), criteria.l1())
    with pytest.raises(ValueError, match="less than 1"):
        mj.tradeoffs.with_criteria(mj.fedavg(MODEL), criteria.l1(), weight=1.0)
    with pytest.raises(ValueError, match="do not fit the parameters that the server of fedem holds"):
        mj.tradeoffs.with_criteria(mj.fedem(MODEL, components=2), criteria.public_loss(MODEL, DATA.test.x, DATA.test.y))
    with pytest.raises(ValueError, match="of its own"):
        mj.tradeoffs.with_criteria(mj.tradeoffs.weighted_sum(MODEL, criteria.l1(), step="implicit"), criteria.l1())
