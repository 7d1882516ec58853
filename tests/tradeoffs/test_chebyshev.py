"""Chebyshev scalarization and its relatives: min-max points in closed form, and what one method is of another."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import brentq

import majorant as mj
import zoo
from majorant.core import Answer, ClientData, Uploads, View
from majorant.models.base import Loss, Model, Spec
from majorant.tradeoffs import criteria, duality_gap
from majorant.tradeoffs.chebyshev import Sent

ONE_STEP = mj.local_sgd(0.05, steps=1, batch_size=None)
MOMENTUM = mj.local_sgd(0.05, steps=1, batch_size=None, momentum=0.9)


def curves(curve):
    """A model whose loss on a sample (c, a) is a curve of a ‖θ − c‖², and two agents with a sample each."""
    apply = lambda theta, x: curve(x[:, 2] * ((theta - x[:, :2]) ** 2).sum(axis=1))[:, None]
    loss = Loss("curve", lambda outputs, y: outputs[:, 0], lambda outputs: outputs[:, 0], lambda classes: 1)
    start = lambda key: jnp.array([0.3, -0.4])
    return Model(start, apply, loss, Spec((3,), 0))


def agents(*samples):
    rows = [(np.array([sample], np.float32), np.zeros(1, np.float32)) for sample in samples]
    return zoo.federated(rows, classes=0)


QUADRATIC = curves(lambda square: square / 2)
TWO = agents((0.0, 0.0, 1.0), (1.0, 0.0, 4.0))  # ½ ‖θ‖² and 2 ‖θ − (1, 0)‖²


def test_the_worst_agents_loss_is_least_and_the_duality_gap_says_so():
    """t²/2 = 2 (1 − t)² at t = 2/3, where ρ = (2/3, 1/3)."""
    algorithm = mj.tradeoffs.afl(QUADRATIC, clients=2, local=ONE_STEP, mirror_rate=0.2, output="average")
    seen = []
    record = lambda records, snapshot: seen.append(snapshot().server.state)
    run = mj.simulate(
        algorithm, TWO, rounds=3000, evaluation=mj.Evaluation(every=1000, diagnostics=True, report=record)
    )
    both = lambda theta: jnp.stack([(theta**2).sum() / 2, 2 * ((theta - jnp.array([1.0, 0.0])) ** 2).sum()])
    gaps = [duality_gap(both, jnp.asarray(state.average[0]), state.rho[0]) for state in seen]
    assert 0 <= gaps[-1] < gaps[0]
    assert gaps[-1] < 0.01
    state = run.server.state
    np.testing.assert_allclose(state.average, [2 / 3, 0], atol=0.01)
    np.testing.assert_allclose(state.rho, [2 / 3, 1 / 3], atol=0.01)
    assert run.history[-1]["objective"] == pytest.approx(2 / 9, abs=0.01)
    assert run.history[-1]["worst_agent_loss"] == run.history[-1]["objective"]


def test_preferences_reference_and_a_criterion_move_the_point():
    """With the second agent out of play: 2 ((1 − t)²/2 − 0.1) = 2t² − 0.3 for the criterion 2 ‖θ‖²."""
    data = agents((1.0, 0.0, 1.0), (1.0, 0.0, 0.01))
    algorithm = mj.tradeoffs.chebyshev(
        QUADRATIC,
        criteria.squared_norm(4.0),
        clients=2,
        reference=[0.1, 0.0, 0.3],
        preferences=[2.0, 0.5, 1.0],
        local=ONE_STEP,
        mirror_rate=20.0,
        memory=0.5,
    )
    run = mj.simulate(algorithm, data, rounds=1000, evaluation=mj.Evaluation(every=1000))
    t = np.roots([1.0, 2.0, -1.1]).max()  # (1 − t)² − 0.2 = 2t² − 0.3
    np.testing.assert_allclose(run.server.value, [t, 0], atol=0.02)
    assert run.history[-1]["squared_norm"] == pytest.approx(2 * t**2, abs=0.05)


def test_a_point_of_a_front_that_is_not_convex_which_no_weighted_sum_reaches():
    """Fonseca and Fleming: at θ = 0 both losses are 1 − 1/e, and every weighted sum is smaller elsewhere."""
    model = curves(lambda square: 1 - jnp.exp(-square))
    c = 1 / np.sqrt(2)
    algorithm = mj.tradeoffs.chebyshev(model, clients=2, local=ONE_STEP, mirror_rate=30.0, memory=0.0)
    run = mj.simulate(algorithm, agents((c, c, 1.0), (-c, -c, 1.0)), rounds=400, evaluation=mj.Evaluation(every=400))
    np.testing.assert_allclose(run.server.value, [0, 0], atol=1e-3)
    line = np.linspace(-1.5, 1.5, 301)  # along the front
    losses = np.stack([1 - np.exp(-((line - 1) ** 2)), 1 - np.exp(-((line + 1) ** 2))])
    for share in np.linspace(0, 1, 21):
        assert (share * losses[0] + (1 - share) * losses[1]).min() < 1 - np.exp(-1) - 0.1


def stack_of(thetas, losses, weight):
    """Uploads side by side, by the agents' slots."""
    return Uploads(Sent(jnp.asarray(thetas), jnp.asarray(losses)), jnp.asarray(weight))


def after_round(algorithm, server, uploads):
    """The server after a round in which these uploads arrived."""
    return algorithm.server.update(server, algorithm.server.broadcast(server, jax.random.key(0)), uploads)


def test_agnostic_is_a_special_case_and_an_absent_agent_counts_with_its_last_loss():
    afl = mj.tradeoffs.afl(QUADRATIC, clients=3, local=ONE_STEP, mirror_rate=0.5)
    general = mj.tradeoffs.chebyshev(
        QUADRATIC, clients=3, local=ONE_STEP, mirror_rate=0.5, reference=0.0, preferences=[1.0] * 3
    )
    stack = stack_of([[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]], [1.0, 3.0, 7.0], [1.0, 1.0, 0.0])
    old = jnp.array([0.3, -0.4])
    for algorithm in (afl, general):
        server = algorithm.server.init(jax.random.key(0))
        server = algorithm.setup.start(server, Answer(jnp.array([1.0, 1.0, 2.0]), jnp.ones(3)))
        after = after_round(algorithm, server, stack)
        rho = np.exp(0.5 * np.array([1.0, 3.0, 2.0]))
        rho /= rho.sum()
        present = 3 / 2 * rho[:2]
        assert present.sum() > 1
        present /= present.sum()  # no longer than the step of all
        np.testing.assert_allclose(after.value, old + present @ (np.eye(2) - old), rtol=1e-5)
        np.testing.assert_allclose(after.state.rho, rho, rtol=1e-5)
        np.testing.assert_allclose(after.state.losses, [1.0, 3.0, 2.0])
    server = server._replace(state=server.state._replace(losses=jnp.array([1.0, 1.0, 9.0])))
    rho = np.exp(0.5 * np.array([1.0, 3.0, 9.0]))
    present = 3 / 2 * (rho / rho.sum())[:2]  # the worst agent is not there: a short step
    np.testing.assert_allclose(
        after_round(afl, server, stack).value, old + present @ np.eye(2) - present.sum() * old, rtol=1e-5
    )


def test_the_worst_loss_is_nearly_least_with_one_of_two_agents_in_a_round():
    """The least worst loss is 2/9, at (2/3, 0); if the present agent took the whole step, it would be 13 % larger."""
    local = mj.local_sgd(0.02, steps=1, batch_size=None)
    algorithm = mj.tradeoffs.afl(QUADRATIC, clients=2, local=local, mirror_rate=0.05, output="average")
    one = mj.participation.uniform(0.5)
    run = mj.simulate(
        algorithm, TWO, rounds=20_000, evaluation=mj.Evaluation(every=20_000, diagnostics=True), participation=one
    )
    assert 2 / 9 <= run.history[-1]["worst_agent_loss"] < 1.05 * 2 / 9


def test_a_step_has_the_preferences_in_it():
    algorithm = mj.tradeoffs.chebyshev(
        QUADRATIC, clients=2, mirror_rate=0.5, reference=[0.5, 1.0], preferences=[0.2, 0.6]
    )
    server = algorithm.server.init(jax.random.key(0))
    stack = stack_of([[1.0, 0.0], [0.0, 1.0]], [1.0, 3.0], [1.0, 1.0])
    after = after_round(algorithm, server, stack)
    rho = np.exp(0.5 * np.array([0.2 * 0.5, 0.6 * 2.0]))
    force = np.array([0.2, 0.6]) * rho / rho.sum()
    old = np.array([0.3, -0.4])
    np.testing.assert_allclose(after.value, old + force @ (np.eye(2) - old), rtol=1e-5)


def test_lambda_and_shares_are_preferences():
    """λ = 0.2 and shares (0.1, 0.9) of two criteria: 1.6 for agents, 0.4 · 2 · 0.1 and 0.4 · 2 · 0.9 for criteria."""
    wanted, own = [criteria.squared_norm(), criteria.l1()], [0.5, 2.0, 3.0, 0.7]
    options = {"clients": 2, "mirror_rate": 0.5, "criteria_lr": 0.1}
    make = lambda preferences, **how: mj.tradeoffs.chebyshev(
        QUADRATIC, wanted, preferences=preferences, **options, **how
    )
    stack = stack_of([[1.0, 0.0], [0.0, 1.0]], [1.0, 3.0], [1.0, 1.0])

    def after(algorithm, **hyper):
        algorithm.traits.check_hyper(hyper)
        server = algorithm.server.init(jax.random.key(0))
        server = server._replace(hyper=server.hyper | {name: jnp.asarray(value) for name, value in hyper.items()})
        return after_round(algorithm, server, stack)

    spelt_out = after(make([0.5 * 1.6, 2.0 * 1.6, 3.0 * 0.08, 0.7 * 0.72]))
    given = after(make(own, weight=0.2, weights=[0.1, 0.9]))
    as_hyper = after(make(own), **{"lambda": 0.2, "share_squared_norm": 0.1, "share_l1": 0.9})
    rho = np.exp(0.5 * np.array([0.5 * 1.6 * 1, 2.0 * 1.6 * 3, 3.0 * 0.08 * 0.125, 0.7 * 0.72 * 0.7]))
    np.testing.assert_allclose(spelt_out.state.rho, rho / rho.sum(), rtol=1e-5)
    for each in (given, as_hyper):
        np.testing.assert_allclose(each.value, spelt_out.value, rtol=1e-6)
        np.testing.assert_allclose(each.state.rho, spelt_out.state.rho, rtol=1e-6)
    alone = after(make(own), **{"lambda": 0.0})
    rho = np.exp(0.5 * np.array([2 * 0.5 * 1.0, 2 * 2.0 * 3.0]))
    np.testing.assert_allclose(alone.state.rho, [*(rho / rho.sum()), 0, 0], rtol=1e-5)
    np.testing.assert_allclose(alone.state.pull[2:], 0)
    rising = make(own, weight=0.4, weights=[0.1, 0.9], ramp=0.5)
    server = rising.server.init(jax.random.key(0))._replace(
        round=jnp.asarray(2), rounds=jnp.asarray(8)
    )  # λ_2 = 0.4 · ¼ / ½
    np.testing.assert_allclose(after_round(rising, server, stack).value, given.value)
    with pytest.raises(ValueError, match="sum to 1"):
        after(make(own), share_l1=0.9)
    with pytest.raises(ValueError, match="less than 1"):
        after(make(own), **{"lambda": 1.0})


def test_the_mean_of_the_iterates_is_of_those_after_the_ramp():
    """Rounds on smaller λ are a fixed share of all: they would stay in the mean however long a run is."""
    made = mj.tradeoffs.chebyshev(
        QUADRATIC, criteria.squared_norm(), clients=2, local=ONE_STEP, ramp=0.5, output="average"
    )
    stack = stack_of([[1.0, 0.0], [0.0, 1.0]], [1.0, 3.0], [1.0, 1.0])
    fresh, old, here = made.server.init(jax.random.key(0)), np.array([7.0, 7.0]), np.array([0.3, -0.4])
    fresh = fresh._replace(state=fresh.state._replace(average=jnp.asarray(old)))
    for done, share in {0: 1, 3: 1, 4: 1, 5: 1 / 2, 7: 1 / 4}.items():  # rounds 4 to 7 of 8 are on λ itself
        server = fresh._replace(round=jnp.asarray(done), rounds=jnp.asarray(8))
        after = after_round(made, server, stack).state
        np.testing.assert_allclose(after.average, old + share * (here - old), rtol=1e-5)
        np.testing.assert_allclose(after.rho.sum(), share, rtol=1e-5)
        if done >= 4:  # with λ = ½ all preferences are 1
            np.testing.assert_allclose(after.pull, after.rho, rtol=1e-5)


@pytest.mark.parametrize("given", [None, 0.6])
def test_the_coordinator_steps_as_far_as_the_agents_do(given):
    """Its step follows the rate of a run and the schedule; only then ρ is what weighs it against the agents'."""
    local = mj.local_sgd(0.05, steps=3, batch_size=None, schedule=mj.schedules.multi_step(milestones=(0.5,)))
    wanted = criteria.squared_norm(4.0)
    made = mj.tradeoffs.chebyshev(QUADRATIC, wanted, clients=1, local=local, criteria_lr=given)
    server = made.server.init(jax.random.key(0))._replace(rounds=jnp.asarray(8))
    server = server._replace(hyper=server.hyper | {"lr": jnp.asarray(0.2)})
    stack = stack_of([[0.3, -0.4]], [1.0], [1.0])  # the agent stays where it is
    for done, scale in {0: 1, 4: 0.1}.items():
        after = after_round(made, server._replace(round=jnp.asarray(done)), stack)
        length = (0.2 * 3 if given is None else given) * scale
        pull = 4 * float(after.state.pull[1])
        np.testing.assert_allclose(after.value, np.array([0.3, -0.4]) / (1 + length * pull), rtol=1e-5)


def test_diagnostics_leave_out_an_agent_whose_first_loss_was_not_finite():
    """Three agents are measured and two are members: their losses are not scaled, and the third's is no number."""
    made = mj.tradeoffs.afl(QUADRATIC, clients=3, local=ONE_STEP)
    first = Answer(jnp.array([1.0, 2.0, 0.0]), jnp.array([1.0, 1.0, 0.0]))
    server = made.setup.start(made.server.init(jax.random.key(0)), first)
    view = made.release(server, jax.random.key(0))
    samples = [(0.0, 0.0, 1.0), (1.0, 0.0, 4.0), (0.0, 0.0, np.inf)]
    one_sample = lambda s, i: ClientData(jnp.array([s]), jnp.zeros(1), jnp.int32(1), jnp.int32(7), jnp.int32(i))
    data = [one_sample(s, i) for i, s in enumerate(samples)]  # places are the agents' slots, whatever their ids
    each = [made.diagnostics.measure(view, (), one, jax.random.key(0)) for one in data]
    found = made.diagnostics.conclude(server, jax.tree.map(lambda *parts: sum(parts) / 3, *each))
    losses = [0.25 / 2, 0.65 * 2]
    assert found["objective"] == found["worst_agent_loss"] == pytest.approx(max(losses), rel=1e-5)
    assert found["agents_loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_an_agent_that_never_trains_has_no_say():
    algorithm = mj.tradeoffs.afl(QUADRATIC, clients=2, mirror_rate=0.5)
    server = algorithm.server.init(jax.random.key(0))
    server = algorithm.setup.start(server, Answer(jnp.array([1.0, 0.0]), jnp.array([1.0, 0.0])))
    after = after_round(algorithm, server, stack_of([[1.0, 0.0], [5.0, 5.0]], [1.0, 0.0], [1.0, 0.0]))
    np.testing.assert_allclose(after.value, [1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(after.state.rho, [1.0, 0.0])


def test_those_who_are_there_count_for_absent_members_and_not_for_an_agent_that_never_trains():
    """One of two members is there, with ρ = 1/5: it counts twice, and not three times."""
    algorithm = mj.tradeoffs.afl(QUADRATIC, clients=3, mirror_rate=1.0)
    server = algorithm.server.init(jax.random.key(0))
    answers = Answer(jnp.array([0.0, np.log(4.0), 0.0]), jnp.array([1.0, 1.0, 0.0]))
    server = algorithm.setup.start(server._replace(value=jnp.zeros(2)), answers)
    after = after_round(algorithm, server, stack_of([[1.0, 0.0]] * 3, [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]))
    np.testing.assert_allclose(after.value, [2 / 5, 0.0], rtol=1e-5)


def client(index):
    x, y = zoo.training().train.client(index)
    pad = 12 - len(y)
    x, y = np.pad(x, ((0, pad), (0, 0))), np.pad(y, (0, pad))
    return ClientData(jnp.asarray(x), jnp.asarray(y), jnp.int32(12 - pad), jnp.int32(index))


def test_q_ffl_with_q_zero_is_fed_avg_and_q_one_minimises_the_sum_of_squares():
    local = mj.local_sgd(0.1, epochs=2, batch_size=4)
    model = mj.models.linear(zoo.training())
    fair, plain = mj.methods.q_ffl(model, q=0.0, local=local), mj.fedavg(model, local=local)

    @jax.jit
    def round_of_three(key):
        found = []
        for algorithm in (fair, plain):
            server = algorithm.server.init(key)
            view = algorithm.server.broadcast(server, key)
            uploads = [algorithm.client.update(view, (), client(i), jax.random.fold_in(key, i))[0] for i in (0, 1, 3)]
            value = jax.tree.map(
                lambda *leaves: sum(leaves), *[jax.tree.map(lambda v, u=u: u.weight * v, u.value) for u in uploads]
            )
            found.append(algorithm.server.update(server, view, Uploads(value, sum(u.weight for u in uploads))).value)
        return found

    one, other = round_of_three(jax.random.key(0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other)
    run = mj.simulate(
        mj.methods.q_ffl(QUADRATIC, q=1.0, local=ONE_STEP), TWO, rounds=800, evaluation=mj.Evaluation(every=800)
    )
    t = 16 ** (1 / 3) / (1 + 16 ** (1 / 3))  # F_1 F_1' + F_2 F_2' = t³/2 − 8 (1 − t)³ = 0
    np.testing.assert_allclose(run.server.value, [t, 0], atol=2e-3)


def test_the_upload_of_q_ffl():
    """One step from θ with gradient a (θ − c): L (θ − θ') is that gradient."""
    algorithm = mj.methods.q_ffl(QUADRATIC, q=2.0, local=ONE_STEP)
    server = algorithm.server.init(jax.random.key(0))
    data = ClientData(jnp.array([[1.0, 0.0, 4.0]]), jnp.zeros(1), jnp.int32(1), jnp.int32(0))
    gradient = 4 * (np.array([0.3, -0.4]) - np.array([1.0, 0.0]))
    loss = gradient @ gradient / 8
    for unit in (1.0, 0.25):
        view = View(server.value, server.hyper, 0, 1, jnp.asarray(unit))
        upload = algorithm.client.update(view, (), data, jax.random.key(0))[0]
        np.testing.assert_allclose(upload.value.delta, (loss / unit) ** 2 * gradient, rtol=1e-4)
        h = (2 * loss * gradient @ gradient + 20 * loss**2) / unit**2
        np.testing.assert_allclose(upload.value.h, h, rtol=1e-4)
        np.testing.assert_allclose(upload.value.loss, loss, rtol=1e-5)
    three = Uploads(jax.tree.map(lambda a: 3 * a, upload.value), jnp.asarray(3.0))  # clients of one sample each
    moved = algorithm.server.update(server._replace(state=jnp.asarray(unit)), view, three)
    np.testing.assert_allclose(moved.state, loss, rtol=1e-5)  # the unit of the next round is the mean loss
    found = algorithm.diagnostics.conclude(server, algorithm.diagnostics.measure(view, (), data, jax.random.key(0)))
    assert found["objective"] == pytest.approx(loss**3 / 3, rel=1e-5)
    assert found["gradient_squared"] == pytest.approx(loss**4 * gradient @ gradient, rel=1e-4)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_q_ffl_with_losses_in_any_unit(unit):
    """The model for q = 10 is the same, and nobody is rejected: losses are scaled, and with them the local rate."""
    scaled = agents((0.0, 0.0, unit), (1.0, 0.0, 4.0 * unit))
    local = mj.local_sgd(0.05 / unit, steps=1, batch_size=None)
    run = mj.simulate(
        mj.methods.q_ffl(QUADRATIC, q=10.0, local=local), scaled, rounds=1500, evaluation=mj.Evaluation(every=1500)
    )
    assert sum(line["rejected"] for line in run.history) == 0
    slope = lambda t: (t**2 / 2) ** 10 * t + (2 * (t - 1) ** 2) ** 10 * 4 * (t - 1)
    np.testing.assert_allclose(run.server.value, [brentq(slope, 0, 1), 0.0], atol=1e-4)


def test_the_direction_of_fed_mgda_goes_down_for_everyone_who_took_part():
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(5, 4)) * np.array([1, 2, 5, 0.1, 1])[:, None] + 0.3
    updates[4] = -100 * updates[0]  # absent
    weight = jnp.array([1.0, 1.0, 1.0, 1.0, 0.0])
    model = mj.models.linear(zoo.training())
    for normalize in (True, False):
        algorithm = mj.methods.fedmgda_plus(model, server_lr=1.0, normalize=normalize)
        server = algorithm.server.init(jax.random.key(0))
        flat, unravel = ravel_pytree(server.value)
        stack = Uploads(jax.vmap(unravel)(flat - jnp.asarray(updates, jnp.float32)), weight)
        step = jax.jit(lambda server, algorithm=algorithm, stack=stack: after_round(algorithm, server, stack))
        direction = flat - ravel_pytree(step(server).value)[0]
        used = updates / np.linalg.norm(updates, axis=1, keepdims=True) if normalize else updates
        products = used[:4] @ np.asarray(direction)
        assert products.min() > 0.99 * float(direction @ direction) > 1e-4
        assert algorithm.diagnostics.log(step(server))["common_direction"] == pytest.approx(
            np.linalg.norm(direction), rel=1e-3
        )
        average = step(server._replace(hyper=server.hyper | {"epsilon": jnp.zeros(())}))
        np.testing.assert_allclose(flat - ravel_pytree(average.value)[0], used[:4].mean(axis=0), rtol=1e-4, atol=1e-5)
        near = step(
            server._replace(hyper=server.hyper | {"epsilon": jnp.asarray(0.05)})
        )  # as many weights as parameters
        weights = np.linalg.solve(used[:4].T, np.asarray(flat - ravel_pytree(near.value)[0], float))
        np.testing.assert_allclose([weights.min(), weights.max(), weights.sum()], [0.2, 0.3, 1.0], atol=1e-3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mj.tradeoffs.chebyshev(QUADRATIC, clients=2, preferences=[1.0, 0.0]), "greater than 0"),
        (lambda: mj.tradeoffs.chebyshev(QUADRATIC, clients=2, preferences=[1.0]), "2 numbers"),
        (lambda: mj.tradeoffs.chebyshev(QUADRATIC, clients=2, reference=[0.0, np.inf]), "finite"),
        (lambda: mj.tradeoffs.chebyshev(QUADRATIC, clients=0), "positive whole"),
        (lambda: mj.tradeoffs.chebyshev(QUADRATIC, clients=2, weight=0.4), "there are none"),
        (lambda: mj.tradeoffs.chebyshev(QUADRATIC, clients=2, memory=1.5), "at most 1"),
        (lambda: mj.tradeoffs.chebyshev(QUADRATIC, clients=2, output="mean"), "'last' or 'average'"),
        (
            lambda: mj.tradeoffs.chebyshev(QUADRATIC, criteria.l1(), clients=2, local=mj.local_sgd(0.1)),
            "give criteria_lr",
        ),
        (lambda: mj.tradeoffs.chebyshev(QUADRATIC, criteria.l1(), clients=2, local=MOMENTUM), "without momentum"),
        (lambda: mj.tradeoffs.afl(QUADRATIC, clients=2, mirror_rate=0.0), "mirror_rate"),
        (lambda: mj.simulate(mj.tradeoffs.afl(QUADRATIC, clients=3), TWO, rounds=1), "give clients=2"),
        (lambda: mj.methods.q_ffl(QUADRATIC, q=-1.0), "at least 0"),
        (lambda: mj.methods.q_ffl(QUADRATIC, local=mj.local_optax(optax.adam(0.1))), "give lipschitz"),
        (lambda: mj.methods.fedmgda_plus(QUADRATIC, epsilon=2.0), "at most 1"),
        (lambda: mj.simulate(mj.methods.fedmgda_plus(QUADRATIC), TWO, rounds=1, hyper={"epsilon": 2.0}), "at most 1"),
        (
            lambda: mj.simulate(mj.methods.q_ffl(QUADRATIC, lipschitz=1.0), TWO, rounds=1, hyper={"lipschitz": 0.0}),
            "lipschitz",
        ),
        (lambda: duality_gap(lambda t: t, jnp.zeros(2), [0.5, 0.6]), "sum to 1"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words):
        make()
