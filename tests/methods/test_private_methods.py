"""Private methods: whatever one client's data and state are, the sum of a round moves by no more than the bound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.core import ClientData
from majorant.core.compilation import jit
from majorant.engines import rounds, set_up
from majorant.exchange import adaptive_clip, chain, federation, gaussian

CLIENTS, ROWS, RADIUS = 4, 6, 0.005
DATA = mj.data.synthetic_mixture(clients=CLIENTS, dimension=3, seed=0)
MODEL = mj.models.linear(DATA)
SURROGATE = mj.surrogates.proximal_gradient(MODEL, rho=0.2)
METHODS = {
    "fedavg": lambda: mj.fedavg(MODEL),
    "fedem": lambda: mj.fedem(MODEL, components=2),
    "fedem:prune": lambda: mj.fedem(MODEL, components=2, prune=0.1),  # mixture weights are a part of the message
    "pfedme": lambda: mj.pfedme(MODEL),
    "pfedme:paper": lambda: mj.pfedme(MODEL, variant="paper"),
    "fedmm": lambda: mj.fedmm(SURROGATE, DATA, start=SURROGATE.init(jax.random.key(0)), alpha=0),
}


def stacked():
    """The clients' samples side by side."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(CLIENTS, ROWS, 3)).astype(np.float32)
    y, places = rng.integers(0, 2, (CLIENTS, ROWS)).astype(np.int32), np.arange(CLIENTS, dtype=np.int32)
    return ClientData(x, y, np.full(CLIENTS, ROWS, np.int32), places, places)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore:δ = ")
def test_one_client_moves_the_sum_by_no_more_than_the_bound(name):
    channel = chain(adaptive_clip(start=RADIUS) if name == "fedem" else mj.channel.clip(RADIUS), gaussian(1.0))
    found = federation(METHODS[name](), training=np.arange(CLIENTS), channel=channel)
    bound = found.guarantee.noise.bound

    @jit
    def total(data, active):
        server = set_up.start_server(found, CLIENTS, jax.random.key(0), {}, jnp.int32(1))
        held, answers = set_up.start_clients(found, server, jax.random.key(0), data, jnp.ones(CLIENTS, bool), CLIENTS)
        server = set_up.finish_start(found, server, [answers], [data.slot], CLIENTS)
        view, key = rounds.begin_round(found, server, jax.random.key(0))
        sums, *_ = rounds.chunk_pass(found, view, key, held, data, active)
        return sums.value, sums.weight, server

    def with_first(x=None, y=None, size=ROWS):
        data = stacked()
        for array, rows in ((data.x, x), (data.y, y)):
            if rows is not None:
                array[0] = rows
        data.size[0] = size
        return data

    everybody = np.ones(CLIENTS, bool)
    absent = everybody & (np.arange(CLIENTS) > 0)
    without, count, server = total(with_first(), absent)
    assert count == CLIENTS - 1
    worlds = {
        "as it is": with_first(),
        "huge": with_first(1e9),
        "opposite": with_first(-stacked().x[0], 1 - stacked().y[0]),
        "not a number": with_first(np.nan),
        "one sample": with_first(size=1),
        "none": with_first(size=0),
    }
    moved, sums = {}, {}
    for world, data in worlds.items():
        sums[world], weight, started = total(data, everybody)
        moved[world] = float(jnp.linalg.norm(sums[world] - without))
        assert weight <= CLIENTS  # every client counts once, however many samples it has
        jax.tree.map(np.testing.assert_array_equal, started, server)  # nothing was sent before round 1
    assert np.max(list(moved.values())) <= bound * (1 + 1e-4)  # which NaN is not, unlike by Python's own maximum
    assert moved["as it is"] > 0.9 * bound  # the radius is small here: the bound is reached
    apart = np.max([float(jnp.linalg.norm(a - b)) for a in sums.values() for b in sums.values()])
    assert apart <= 2 * bound * (1 + 1e-4)


def test_without_clipping_and_with_next_to_no_noise_equal_clients_are_averaged_as_ever():
    rows = [tuple(part[:9] for part in zoo.training().train.client(t)) for t in range(4)]
    data, algorithm = zoo.federated(rows), mj.fedavg(zoo.model(), local=mj.local_sgd(0.1))
    options = {"rounds": 3, "participation": mj.participation.uniform(0.5)}
    plain = mj.simulate(algorithm, data, **options)
    private = mj.simulate(algorithm, data, channel=chain(mj.channel.clip(1e3), gaussian(1e-9)), **options)
    for one, two in zip(*(jax.tree.leaves(run.server.value) for run in (plain, private)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    assert private.history[-1]["epsilon"] == private.summary()["privacy"]["epsilon"] > 1e6


def test_a_round_in_which_nobody_takes_part_releases_noise_all_the_same():
    data, algorithm = zoo.training(), mj.fedavg(zoo.model(), local=mj.local_sgd(0.1))
    channel = chain(mj.channel.clip(1.0), gaussian(1.0))
    run = mj.simulate(algorithm, data, rounds=1, channel=channel, participation=mj.participation.bernoulli(1e-6))
    assert run.history[0]["participants"] == 0
    start = algorithm.server.init(jax.random.key(0)).value
    assert all((a != b).all() for a, b in zip(jax.tree.leaves(run.server.value), jax.tree.leaves(start), strict=True))


@pytest.mark.filterwarnings("ignore:δ = ")
def test_a_run_goes_on_with_the_noise_that_it_began_with():
    """A budget for more rounds needs more noise than the first rounds had: they would count as if they had had it."""
    data, algorithm, budget = zoo.training(), mj.fedavg(zoo.model(), local=mj.local_sgd(0.1)), mj.Privacy(epsilon=8.0)
    private = {"channel": mj.channel.clip(0.5), "privacy": budget}
    begun = mj.simulate(algorithm, data, rounds=2, **private)
    with pytest.raises(ValueError, match=r"made with ε = 7\.999, .* count them as ε = 4\."):
        mj.simulate(algorithm, data, rounds=6, resume=begun.snapshot, **private)
    with pytest.raises(ValueError, match="would count them as no promise of privacy"):
        mj.simulate(algorithm, data, rounds=6, resume=begun.snapshot)
    same = private | {"privacy": budget._replace(rounds=2)}
    assert mj.simulate(algorithm, data, rounds=2, resume=begun.snapshot, **same).rounds == 2


@pytest.mark.parametrize(
    ("channel", "local", "sent"),
    [
        (chain(mj.channel.clip(1.0), gaussian(1.0)), None, True),
        (chain(mj.channel.clip(1.0), gaussian(1.0, at="client")), None, False),
        (None, mj.solvers.local_private_sgd(0.1, noise=1.0, clip=1.0, batch_size=4), False),
    ],
)
@pytest.mark.filterwarnings("ignore:δ = ")
def test_losses_for_the_log_are_not_sent_where_noise_hides_something_from_the_server(channel, local, sent):
    """No noise covers them. A server that draws the noise itself sees uploads as they are, and may see losses."""
    run = mj.simulate(mj.fedavg(zoo.model(), local=local), zoo.training(), rounds=1, channel=channel)
    assert ("loss" in run.history[0]) == sent


@pytest.mark.filterwarnings("ignore:δ = ")
def test_a_client_does_not_tell_how_many_samples_it_has_where_noise_hides_it():
    """Not in its answer before round 1 either, of which the sum is as good as it is where it is the only other one."""
    algorithm, data = mj.fedavg(zoo.model(), absent="hold"), stacked()
    one = jax.tree.map(lambda a: a[0], data)
    for channel, expected in ((None, ROWS), (chain(mj.channel.clip(1.0), gaussian(1.0, at="client")), 1)):
        found = federation(algorithm, training=np.arange(CLIENTS), channel=channel)
        server = set_up.start_server(found, CLIENTS, jax.random.key(0), {}, jnp.int32(1))
        view = rounds.sent_view(found, server, jax.random.key(0))
        _, answer = set_up.first_held(found, view, jax.random.key(0), one)
        assert float(answer.weight) == expected
