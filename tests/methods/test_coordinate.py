"""ACD-PFL, ASVRCD-PFL and its simpler forms: rates, unbiasedness, and what they are in special cases."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import two_block_problem
from compiling import quickly
from majorant.core import SERVER_STREAM, ClientData, Terms, client_key, round_key, stream_key
from majorant.engines.settings import hyper_after_setup
from majorant.exchange import federation, gossip, participation, topology
from majorant.methods import _coordinate as coordinate
from majorant.methods import acd, ascd, asvrcd, scd, svrcd
from majorant.methods._coordinate_theory import momentum_numbers
from majorant.methods._two_blocks import (
    DRAWN,
    Blocks,
    Coins,
    combine,
    draw_coins,
    draw_samples,
    gradient,
    one_sample,
    repeat_with_samples,
)
from majorant.solvers import whole
from two_block_problem import Path, Problem, distance, gap, hyper_of, play

STOCHASTIC = {"asvrcd": asvrcd, "svrcd": svrcd, "ascd": ascd, "scd": scd}


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@functools.cache
def problem() -> Problem:
    return two_block_problem.make("logistic")


@functools.cache
def made(name: str, **options):
    p = problem()
    if name == "acd":
        return acd(p.objective, constants=p.constants, **options)
    return STOCHASTIC[name](p.objective, constants=p.constants, **options)


LONGEST = {"acd": 150, "asvrcd": 2500, "svrcd": 2500, "ascd": 4000, "scd": 40}  # rounds with everybody, as they come


def run(name: str, rounds: int, seed: int = 0, inclusion: float = 1.0, **options) -> Path:
    """The first rounds of a long run, where there is one: no step depends on how many follow."""
    long = max(rounds, LONGEST[name]) if inclusion == 1 and not options else rounds
    return jax.tree.map(lambda a: a[:rounds], whole_run(name, long, seed, inclusion, **options))


@functools.cache
def whole_run(name: str, rounds: int, seed: int, inclusion: float, **options) -> Path:
    path = play(made(name, **options), problem(), rounds, seed=seed, inclusion=inclusion)
    return jax.tree.map(np.asarray, path)


@pytest.mark.parametrize(("name", "rounds"), [("acd", 150), ("asvrcd", 2500), ("svrcd", 2500)])
def test_the_minimiser_is_scipys(name, rounds):
    assert distance(problem(), run(name, rounds))[-1] < 1e-8


@pytest.mark.parametrize(("name", "absent"), [("asvrcd", "rest"), ("asvrcd", "replay"), ("svrcd", "rest")])
def test_half_of_the_clients_at_a_time_reach_the_same_minimiser(name, absent):
    assert distance(problem(), run(name, 8000, inclusion=0.5, absent=absent))[-1] < 1e-8


def test_the_probability_of_taking_part_shortens_steps():
    """There is one source for it, the engine: with absent="replay" and full participation, steps are the usual ones."""
    full, half = (hyper_of(made("asvrcd"), problem(), q) for q in (1.0, 0.5))
    c = problem().constants
    p_w = c.sample_smooth_w / 0.5 / (c.sample_smooth_w / 0.5 + c.sample_smooth_beta)
    assert float(half["p_w"]) == pytest.approx(p_w)
    assert float(half["lr"]) == pytest.approx(p_w / (8 * c.sample_smooth_w / 0.5))
    replaying = made("asvrcd", absent="replay")
    assert float(hyper_of(replaying, problem(), 0.5)["lr"]) == pytest.approx(float(full["lr"]) / 2)
    jax.tree.map(np.testing.assert_array_equal, hyper_of(replaying, problem()), full)
    everybody, resting = (run("asvrcd", 40, absent=absent) for absent in ("replay", "rest"))
    np.testing.assert_allclose(everybody.w, resting.w, rtol=1e-9)


def test_momentum_is_that_of_theorem_8():
    """θ_1 = min{1/2, √(ημ max{1/2, θ_2/ρ})}, γ = 1/max{2μ, 4θ_1/η}, ν = 1 − γμ."""
    of = lambda **given: {k: float(v) for k, v in momentum_numbers(**given, theta_1=None, gamma=None, nu=None).items()}
    found = of(lr=0.01, mu=0.5, theta_2=0.5, rho=0.1)
    theta_1 = np.sqrt(0.01 * 0.5 * 5)
    gamma = 0.01 / (4 * theta_1)
    assert found == pytest.approx({"theta_1": theta_1, "gamma": gamma, "nu": 1 - gamma * 0.5})
    steep = of(lr=10.0, mu=0.5, theta_2=0.5, rho=1.0)
    assert steep == pytest.approx({"theta_1": 0.5, "gamma": 1.0, "nu": 0.5})


def test_a_warm_start_goes_from_ascd_to_asvrcd():
    p, path = problem(), run("asvrcd", 4000, warm_up=True)
    phase = np.asarray(path.server.state.phase)
    turn = int(np.flatnonzero(phase == coordinate.SWITCHING)[0])
    assert set(phase[: turn + 1]) == {coordinate.WARMING_UP, coordinate.SWITCHING}
    assert set(phase[turn + 1 :]) == {coordinate.REDUCED}
    plain = run("ascd", 4000)
    np.testing.assert_allclose(path.w[: turn - 1], plain.w[: turn - 1], rtol=1e-9)
    np.testing.assert_allclose(path.beta[: turn - 1], plain.beta[: turn - 1], rtol=1e-9)
    level = np.median(gap(p, plain)[2000:])
    assert gap(p, path)[turn] < 30 * level
    assert distance(p, path)[-1] < 1e-8
    counts = jax.tree.map(lambda a: a[turn - 1], path.server.state.counts)
    assert int(counts.sample_w + counts.sample_beta) == int(counts.iterations)
    assert int(counts.full_w) == 0


def test_a_warm_start_with_absences_reaches_the_minimiser():
    assert distance(problem(), run("asvrcd", 10_000, inclusion=0.5, warm_up=True))[-1] < 1e-8


def test_acd_contracts_as_fast_as_the_theorem_says():
    """Over iterations, log(F − F*) falls at least by θ each (on average over seeds)."""
    rates = []
    for seed in range(3):
        path = run("acd", 150, seed)
        far = gap(problem(), path)
        iterations = np.asarray(path.server.state.counts.iterations)
        last = np.flatnonzero(far > 1e-13)[-1]
        rates.append(np.log(far[0] / far[last]) / (iterations[last] - iterations[0]))
    theta = float(path.server.hyper["theta"][0])
    assert np.mean(rates) >= -np.log1p(-theta)


@pytest.mark.parametrize(("name", "rounds"), [("asvrcd", 2500), ("svrcd", 2500)])
def test_variance_reduction_converges_linearly(name, rounds):
    """The mean of log(F − F*) over seeds is nearly a falling line until rounding stops it."""
    far = np.stack([gap(problem(), run(name, rounds, seed)) for seed in range(2)])
    usable = min(int(np.flatnonzero((f < 1e-13) | (np.arange(rounds) == rounds - 1))[0]) for f in far)
    curve = np.log(far[:, :usable]).mean(axis=0)
    time = np.arange(usable)
    assert curve[-1] < curve[0] - 20
    assert np.corrcoef(time, curve)[0, 1] < -0.98


@pytest.mark.parametrize("name", ["scd", "ascd"])
def test_without_control_variates_a_noise_level_remains_that_shrinks_with_the_step(name):
    default = hyper_of(made(name), problem())
    slower = made(name, lr=float(default["lr"]) / 16)
    smaller = {key: float(value) for key, value in hyper_of(slower, problem()).items()}
    level = lambda hyper: gap(problem(), play(made(name), problem(), 6000, hyper=hyper))[3000:].mean()
    coarse, fine = level(default), level(smaller)
    assert coarse > 1e-4
    assert fine < coarse / 2


def test_acd_without_a_personal_block_is_nesterovs_method():
    p = two_block_problem.make("logistic", sizes=(8,), shared=3, personal=0)
    path = play(acd(p.objective, constants=p.constants), p, 20)
    smooth, mu = p.constants.smooth_w, p.constants.mu
    nu = mu / smooth
    theta = (np.sqrt(nu**2 + 4 * nu) - nu) / 2
    y = z = np.ones(3)
    slope = quickly(jax.grad(lambda w: two_block_problem.total(p, w, ())))
    for k in range(20):
        x = (1 - theta) * y + theta * z
        g = np.asarray(slope(x))
        y, z = x - g / smooth, (1 - theta) * z + theta * x - theta / mu * g
        np.testing.assert_allclose(path.w[k], y, rtol=1e-12)
    assert path.server.state.counts.iterations.tolist() == list(range(1, 21))


def coins_in_use(path: Path, k: int) -> Coins:
    """The coins of round k + 1, from the round's key for the server."""
    hyper = {name: value[0] for name, value in path.server.hyper.items()}
    return coins_of_round(k + 1, hyper["p_w"], hyper.get("rho", 0.0))


@quickly
def coins_of_round(number, p_w, rho) -> Coins:
    return draw_coins(stream_key(round_key(jax.random.key(0), number), SERVER_STREAM), p_w, rho)


@pytest.mark.parametrize("name", list(STOCHASTIC))
def test_rounds_are_the_iterations_of_the_paper(name):
    """The corrected Algorithm 4 in one place, with everybody's gradients, coins and samples at hand."""
    p, rounds = problem(), 40
    path = run(name, 40)
    hyper = {key: float(value[0]) for key, value in path.server.hyper.items()}
    controlled, m = name in ("asvrcd", "svrcd"), p.clients
    theta_1, theta_2 = hyper.get("theta_1", 0.0), hyper.get("theta_2", 0.0)
    gradient = quickly(jax.vmap(jax.grad(p.objective.value, argnums=(0, 1)), (None, 0, 0, 0)))
    whole = quickly(jax.vmap(two_block_problem.whole))(p.data)
    at = lambda u, batch: jax.tree.map(np.asarray, gradient(*u, batch, p.data.slot))

    @quickly
    def sample(number, i):
        keys = jax.vmap(client_key, (None, 0))(round_key(jax.random.key(0), number), jnp.arange(m))
        drawn = jax.vmap(draw_samples, (0, 0, None))(p.data, keys, i // DRAWN)
        return jax.vmap(one_sample, (0, None))(drawn, i % DRAWN)

    y = z = v = (np.ones(2), np.ones((m, 2)))
    kinds = set()
    for k in range(rounds):
        coins = coins_in_use(path, k)
        for i in range(int(coins.silent) + 1):
            last = i == int(coins.silent)
            w_step = last and (bool(coins.w_step) or not controlled)
            refresh = last and bool(coins.refresh) and controlled
            kinds.add((w_step, refresh))
            x = combine((theta_1, z), (theta_2, v), (1 - theta_1 - theta_2, y)) if theta_1 else y
            batch = sample(k + 1, i)
            d = combine((1.0, at(x, batch)), (-1.0 * controlled, at(v, batch)))
            full = at(v, whole)
            g_w = w_step / hyper["p_w"] * d[0].mean(axis=0) + controlled * full[0].mean(axis=0)
            g_beta = (not w_step) / (1 - hyper["p_w"]) / m * d[1] + controlled / m * full[1]
            old, g = y, (g_w, g_beta)
            y = combine((1.0, x), (-hyper["lr"], g))
            if theta_1:
                z = combine(
                    (hyper["nu"], z), (1 - hyper["nu"], x), (hyper["gamma"] / hyper["lr"], combine((1, y), (-1, x)))
                )
            v = old if refresh else v
        np.testing.assert_allclose(path.w[k], y[0], rtol=1e-9)
        np.testing.assert_allclose(path.beta[k], y[1], rtol=1e-9)
    assert len(kinds) == (4 if controlled else 2)


def test_the_gradient_estimator_is_unbiased(monkeypatch):
    """Its mean over both blocks and all samples, one round with given coins each, is ∇F."""
    p = two_block_problem.make("logistic", sizes=(3, 3))
    algorithm = svrcd(p.objective, constants=p.constants, rho=0.1, p_w=0.3, lr=0.2, sampling="shared")
    v = coordinate.Blocks(jnp.ones(2), jnp.zeros(2))
    beta = coordinate.Iterates(jnp.array([0.3, -0.2]), ())
    state = coordinate.Client(beta, v, None, None, jnp.asarray(True), jnp.asarray(0))
    slopes = jax.vmap(lambda data: coordinate.gradient(p.objective, v, coordinate.whole(data), data.slot))(p.data)
    server = algorithm.server.init(jax.random.key(0))._replace(terms=Terms())
    y = jnp.array([-0.5, 0.4])
    value = coordinate.Shared(coordinate.Iterates(y, ()), (), slopes.w.mean(axis=0))
    server = server._replace(value=value)
    first = jax.tree.map(lambda a: a[0], p.data)._replace(x=jnp.arange(3))
    sample = quickly(lambda seed: draw_samples(first, jax.random.key(seed), 0).x[0])
    keys = {int(sample(seed)): seed for seed in range(40)}
    assert len(keys) == 3

    @quickly
    def estimate(coins: Coins) -> tuple[jax.Array, jax.Array]:
        monkeypatch.setattr(coordinate, "draw_coins", lambda *_: coins)
        view = algorithm.server.broadcast(server, jax.random.key(0))
        update = lambda data, slope: algorithm.client.update(
            view, state._replace(gradient=slope, believed=slope.w), data, jax.random.key(0)
        )
        uploads, clients = jax.vmap(update)(p.data, slopes)
        total = mj.Uploads(jax.tree.map(lambda a: a.sum(axis=0), uploads.value), jnp.asarray(2.0))
        moved = algorithm.server.update(server, view, total).value.w.y
        return (y - moved) / server.hyper["lr"], (state.beta.y - clients.beta.y) / server.hyper["lr"]

    expected_w, expected_beta = np.zeros(2), np.zeros((2, 2))
    for w_step, probability in ((True, 0.3), (False, 0.7)):
        for seed in keys.values():
            key = np.asarray(jax.random.key_data(jax.random.key(seed)))
            w, beta = map(np.asarray, estimate(Coins(np.asarray(0), np.asarray(w_step), np.asarray(False), key)))
            expected_w, expected_beta = expected_w + probability / 3 * w, expected_beta + probability / 3 * beta
    both = np.stack([state.beta.y, state.beta.y])
    truth = quickly(jax.grad(lambda w, beta: two_block_problem.total(p, w, beta), argnums=(0, 1)))(y, both)
    np.testing.assert_allclose(expected_w, truth[0], rtol=1e-9)
    np.testing.assert_allclose(expected_beta, truth[1], rtol=1e-9)


def test_those_who_are_heard_make_up_for_the_others():
    """With probability q of being heard, g_w has 1/q times the clients' sum, and so has g_β where absences replay."""
    p = two_block_problem.make("logistic", sizes=(3, 3))
    algorithm = asvrcd(p.objective, constants=p.constants, rho=0.1, p_w=0.3, lr=0.2, gamma=0.1, theta_1=0.4,
                       nu=0.9, absent="replay")  # fmt: skip
    data = jax.tree.map(lambda a: a[0], p.data)
    server = algorithm.server.init(jax.random.key(0))
    view = algorithm.server.broadcast(server, jax.random.key(0))
    client = algorithm.client.init(view, data, jax.random.key(0))
    away = client._replace(v=jax.tree.map(lambda a: a + 1.0, client.v))  # so that ∇f(x) − ∇f(v) is not 0
    beta_step = Coins(jnp.asarray(0), jnp.asarray(False), jnp.asarray(False), view.shared.coins.sample)

    @quickly
    def moves(q):
        terms = Terms(inclusion=q)
        seen = view._replace(shared=view.shared._replace(coins=beta_step), terms=terms)
        beta = algorithm.client.update(seen, away, data, jax.random.key(1))[1].beta.y
        message = coordinate.Message(jnp.ones(2), jnp.zeros(2))
        heard = lambda size: mj.Uploads(jax.tree.map(lambda a: size * a, message), jnp.asarray(1.0))
        w = lambda size: algorithm.server.update(server._replace(terms=terms), seen, heard(size)).value.w.y
        return w(1.0) - w(0.0), beta

    (w_all, beta_all), (w_half, beta_half), (_, beta_many) = (moves(q) for q in (1.0, 0.5, 1e12))
    np.testing.assert_allclose(w_half, 2 * w_all, rtol=1e-9)
    np.testing.assert_allclose(beta_half - beta_many, 2 * (beta_all - beta_many), rtol=1e-6)
    assert float(jnp.abs(beta_all - beta_many).max()) > 1e-3


@pytest.mark.parametrize("missed", [1, 3])
def test_who_was_away_replays_each_step_it_missed(missed):
    """Without the stochastic part, as without samples, a step that is replayed is one that is made."""
    p = two_block_problem.make("logistic", sizes=(3, 3))
    algorithm = asvrcd(p.objective, constants=p.constants, rho=0.1, p_w=0.3, lr=0.2, gamma=0.1, theta_1=0.4,
                       nu=0.9, absent="replay")  # fmt: skip
    data = jax.tree.map(lambda a: a[0], p.data)
    view = algorithm.server.broadcast(algorithm.server.init(jax.random.key(0)), jax.random.key(0))
    start = algorithm.client.init(view, data, jax.random.key(0))
    beta_step = Coins(jnp.asarray(0), jnp.asarray(False), jnp.asarray(False), view.shared.coins.sample)

    @quickly
    def step(client, begun):
        call = view.shared._replace(coins=beta_step, begun=jnp.asarray(begun, view.shared.begun.dtype))
        seen = view._replace(shared=call, terms=Terms(inclusion=1e12))
        return algorithm.client.update(seen, client, data, jax.random.key(1))[1]

    present = functools.reduce(step, range(missed + 1), start)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), step(start, missed).beta, present.beta)
    assert int(present.done) == missed + 1
    assert float(jnp.abs(present.beta.y - step(start, 0).beta.y).max()) > 1e-6


def test_iterations_of_a_long_round_draw_other_samples():
    """Of 1000 samples 256 draws with replacement are 226 different ones on average, whatever is drawn at once."""
    rows = jnp.arange(1000.0)
    data = ClientData(rows[:, None], rows, jnp.int32(1000), jnp.int32(0))
    step = lambda batch, seen: seen.at[batch.y[0].astype(int)].set(1.0)
    seen, last = repeat_with_samples(jnp.int32(256), data, jax.random.key(0), step, jnp.zeros(1000))
    assert 200 < float(seen.sum()) < 250
    assert last.y.shape == (1,)


def test_a_client_that_joins_steps_as_far_as_its_own_smoothness_allows(monkeypatch):
    """The constants are those of F = (1/M) Σ f_m, and the client steps down its own f_m."""
    monkeypatch.setattr("majorant.methods._two_blocks.JOINING_STEPS", 1)
    p = problem()
    algorithm = made("acd")
    server = algorithm.server.init(jax.random.key(0))
    view = algorithm.release(server._replace(hyper=hyper_of(algorithm, p)), jax.random.key(0))
    data = jax.tree.map(lambda a: a[1], p.data)

    @quickly
    def joined(key):
        start = p.objective.init_personal(key)
        slope = gradient(p.objective, Blocks(view.value.y, start), whole(data), data.slot).beta
        return algorithm.join(view, data, key).y, combine((1, start), (-1 / (3 * p.constants.smooth_beta), slope))

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), *joined(jax.random.key(1)))


def test_coins_are_those_of_single_iterations():
    """Rounds drawn at once have the frequencies of iterations drawn one by one."""
    p_w, rho, rounds = 0.3, 0.1, 20_000
    draw = lambda key: draw_coins(key, jnp.asarray(p_w), jnp.asarray(rho))
    coins = jax.tree.map(np.asarray, quickly(jax.vmap(draw))(jax.random.split(jax.random.key(0), rounds)))
    iterations = float((coins.silent + 1).sum())
    tolerance = 4 / rounds**0.5
    assert float(coins.w_step.sum()) / iterations == pytest.approx(p_w, abs=tolerance)
    assert float(coins.refresh.sum()) / iterations == pytest.approx(rho, abs=tolerance)
    assert float((coins.w_step & coins.refresh).sum()) / iterations == pytest.approx(p_w * rho, abs=tolerance)
    assert bool((coins.w_step | coins.refresh).all())


def test_gradients_are_counted():
    p, path = problem(), run("acd", 150)
    algorithm, end = made("acd"), jax.tree.map(lambda a: a[-1], path.server)
    told = algorithm.diagnostics.log(end)
    assert float(told["gradients_w"]) == 150 * p.sizes.mean()
    assert float(told["gradients_beta"]) == (float(told["iterations"]) - 150) * p.sizes.mean()
    path = run("asvrcd", 2500)
    told = made("asvrcd").diagnostics.log(jax.tree.map(lambda a: a[-1], path.server))
    counts = jax.tree.map(lambda a: int(a[-1]), path.server.state.counts)
    assert counts.sample_w + counts.sample_beta == 2 * counts.iterations
    assert counts.full_w == counts.full_beta > 1  # the first one is that of the set-up round
    assert float(told["gradients_w"]) == counts.sample_w + counts.full_w * p.sizes.mean()


def test_what_cannot_work_is_refused():
    p = problem()
    flat = p.constants._replace(mu=0.0)
    for method in (acd, asvrcd, ascd):
        with pytest.raises(ValueError, match="needs μ > 0"):
            method(p.objective, constants=flat)
    for wrong in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="p_w must be"):
            made("acd", p_w=wrong)
        with pytest.raises(ValueError, match="rho must be"):
            made("svrcd", rho=wrong)
    with pytest.raises(ValueError, match="lr must be"):
        made("scd", lr=0.0)
    with pytest.raises(ValueError, match="takes its steps from constants, which weight sharing has not"):
        asvrcd(p.objective)
    with pytest.raises(ValueError, match="sampling must be"):
        made("asvrcd", sampling="both")
    with pytest.raises(ValueError, match="finite constants"):
        scd(p.objective, constants=p.constants._replace(sample_smooth_w=float("inf")))
    with pytest.raises(ValueError, match="do not send points"):
        federation(made("acd"), training=np.arange(3), exchange=gossip(topology.ring()))
    with pytest.warns(UserWarning, match="LSGD-PFL still applies"):
        svrcd(p.objective._replace(convex=False), constants=flat)


def test_without_control_variates_numbers_are_the_same_and_theta_may_be_given():
    """The paper's own θ is tested with its experiments."""
    made_by = (made("ascd", theta=0.3), made("ascd"), made("asvrcd"))
    given, theorem, reduced = (hyper_of(algorithm, problem()) for algorithm in made_by)
    assert float(given["theta_1"]) == pytest.approx(0.3)
    assert float(theorem["theta_1"]) == float(reduced["theta_1"])
    assert float(given["gamma"]) == float(theorem["gamma"]) == float(reduced["gamma"])


def test_only_what_a_round_needs_is_billed():
    """A w-step sends one vector, a refresh another; w_y and w_z come down, and ∇_w F(v) where it is new."""
    data = mj.data.heterogeneous_logistic(clients=4, samples=20, dimension=3)
    objective = mj.objectives.mixture(data, lambda_=1.0, l2=0.1)
    algorithm = asvrcd(objective, rho=0.3)
    vector = 4 * 4 * 8  # clients, numbers, bytes
    told = 7 * 8 + 4 * 8 + 2 * 4  # hyperparameters, terms, the number of the round and of all rounds
    coins = 4 + 1 + 1 + 8 + 4 + 4  # silent, which, whether, the key of shared samples, iterations before, phase
    path = mj.simulate(algorithm, data, rounds=25)
    counts = jax.tree.map(lambda a: int(a[0]), path.snapshot.server.state.counts)
    w_steps, refreshes = counts.sample_w // 2, counts.full_w - 1
    assert 0 < refreshes < 25 < w_steps + refreshes
    last = bool(path.snapshot.server.state.fresh[0])
    assert path.communication[0]["bytes_up"] == vector * (w_steps + refreshes) + 4 * 25 * 8  # and a weight
    rest = 4 * 25 * (told + coins)
    assert path.communication[0]["bytes_down"] == vector * (2 * 25 + 1 + refreshes - last) + rest
    half = mj.simulate(algorithm, data, rounds=25, participation=participation.uniform(0.5))
    assert half.communication[0]["bytes_down"] == vector // 2 * 4 * 25 + rest // 2


def test_shared_samples_need_clients_of_equal_sizes():
    data = mj.data.synthetic_mixture(clients=4, dimension=3, seed=0)
    objective = mj.objectives.mixture(data, lambda_=1.0, l2=0.1)
    with jax.enable_x64(False), pytest.raises(ValueError, match="equal sizes, but they go from"):
        mj.simulate(asvrcd(objective, sampling="shared"), data, rounds=1)


@pytest.mark.parametrize("method", [asvrcd, acd, scd])
def test_constants_are_found_by_the_clients(method):
    """The largest over clients of their own constants: those of all data in one place, which nobody has."""
    data = mj.data.heterogeneous_logistic(clients=4, samples=20, dimension=3)
    for family in (mj.objectives.mixture, mj.objectives.multi_task, mj.objectives.residual):
        objective = family(data, l2=0.1)
        given = hyper_after_setup(method(objective, constants=objective.constants(data)), data)
        found = hyper_after_setup(method(objective), data)
        for name, value in given.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)  # samples are float32


def test_an_accelerated_method_without_strong_convexity_is_refused():
    data = mj.data.heterogeneous_logistic(clients=4, samples=20, dimension=3)
    with pytest.raises(ValueError, match="needs μ > 0"):
        mj.simulate(acd(mj.objectives.mixture(data, l2=0.0)), data, rounds=1)
