"""Privacy: what is accounted for with which participation, budgets, and what is refused before anything runs."""

import math
from types import SimpleNamespace

import dp_accounting as dp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import majorant as mj
import zoo
from majorant.core import Answer, Setup
from majorant.engines.messages import tiny_client
from majorant.engines.simulation import Simulation
from majorant.exchange import accounting, chain, federation, gaussian, skellam
from majorant.exchange.privacy import Privacy, of_samples
from majorant.exchange.secure_sum import secure_sum, skellam_parts
from majorant.solvers import local_private_sgd

MODEL = mj.models.linear(zoo.training())
CLIP, CLIENTS = mj.channel.clip(1.0), 1000


def federated(algorithm=None, clients=CLIENTS, **terms):
    return federation(algorithm or mj.fedavg(MODEL), training=np.arange(clients), **terms)


def asked(event, times, relation=dp.NeighboringRelation.ADD_OR_REMOVE_ONE, orders=accounting.ORDERS):
    """What dp-accounting itself says of a composition, by Rényi divergences."""
    counting = dp.rdp.RdpAccountant(orders, relation)
    counting.compose(dp.SelfComposedDpEvent(event, times))
    return counting.get_epsilon(1e-5)


def test_every_kind_of_participation_is_the_event_that_its_theorem_is_about():
    noise, rdp = chain(CLIP, gaussian(1.5)), Privacy(accountant="rdp")
    spent = lambda participation: federated(channel=noise, participation=participation, privacy=rdp).guarantee.epsilon(
        40
    )
    plain = dp.GaussianDpEvent(1.5)
    assert spent(mj.participation.full()) == pytest.approx(asked(plain, 40))
    poisson = dp.PoissonSampledDpEvent(0.1, plain)
    assert spent(mj.participation.bernoulli(0.1)) == pytest.approx(asked(poisson, 40))
    half = dp.SampledWithoutReplacementDpEvent(CLIENTS, 100, dp.GaussianDpEvent(0.75))  # a client can be replaced: 2C
    fixed = asked(half, 40, dp.NeighboringRelation.REPLACE_ONE)
    assert spent(mj.participation.uniform(0.1)) == pytest.approx(fixed)
    assert spent(mj.participation.cyclic(0.25)) == pytest.approx(asked(plain, 10))  # its own rounds, no amplification
    turns = federated(channel=noise, participation=mj.participation.cyclic(0.25)).guarantee
    assert [turns.times(rounds) for rounds in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_noise_at_clients_hides_any_two_messages_and_no_sampling_amplifies_it():
    found = federated(
        channel=chain(CLIP, gaussian(1.5, at="client")),
        participation=mj.participation.bernoulli(0.1),
        privacy=Privacy(accountant="rdp"),
    ).guarantee
    assert found.epsilon(40) == pytest.approx(asked(dp.GaussianDpEvent(0.75), 40))
    assert "server included" in found.protects


def test_loss_distributions_are_tighter_than_divergences_and_exact_without_sampling():
    exact = dp.get_epsilon_gaussian(1.5 / math.sqrt(40), 1e-5)
    event = accounting.Event(1.5)
    assert accounting.epsilon(event, 40, 1e-5, "pld") == pytest.approx(exact)
    assert exact < asked(dp.GaussianDpEvent(1.5), 40)
    sample = accounting.Event(1.0, "poisson", 0.05)
    pld, rdp = (accounting.epsilon(sample, 20, 1e-5, name) for name in ("pld", "rdp"))
    assert 0.5 * rdp < pld < rdp


def test_a_budget_solves_for_the_least_noise_that_keeps_to_it():
    found = federated(channel=CLIP, privacy=Privacy(epsilon=4.0, rounds=50))
    multiplier, guarantee = found.channel.noise.multiplier, found.guarantee
    assert 3.99 < guarantee.epsilon(50) <= 4.0
    assert guarantee.allowed(50) == 50
    assert accounting.epsilon(accounting.Event(0.999 * multiplier), 50, 1e-5, "pld") > 4.0


@pytest.mark.parametrize("budget", [0.3, 1.0, 1.7, 3.0, 6.0, 11.0])
def test_no_budget_is_passed_by_the_noise_that_is_solved_for(budget):
    """By the Gaussian's own formula; the last of the four digits that it is rounded to is rounded up."""
    for times in (1, 7, 120):
        multiplier = accounting.calibrated(accounting.Event(1.0), times, 1e-5, "pld", budget)
        assert dp.get_epsilon_gaussian(multiplier / math.sqrt(times), 1e-5) <= budget
        assert dp.get_epsilon_gaussian(0.998 * multiplier / math.sqrt(times), 1e-5) > budget


def test_training_stops_before_a_budget_is_passed():
    noise = chain(CLIP, gaussian(5.0))
    guarantee = federated(channel=noise, privacy=Privacy(epsilon=2.0, rounds=50)).guarantee
    last = guarantee.allowed(50)
    assert guarantee.epsilon(last) <= 2.0 < guarantee.epsilon(last + 1)
    turns = federated(
        channel=noise, participation=mj.participation.cyclic(0.5), privacy=Privacy(epsilon=2.0, rounds=50)
    ).guarantee
    assert turns.allowed(50) == 2 * last


def test_several_runs_on_the_same_clients_spend_together():
    found = federated(channel=chain(CLIP, gaussian(5.0))).guarantee
    record = found.record(10, runs=3)
    assert record["epsilon_of_all_runs"] == pytest.approx(found.epsilon(30))
    assert found.epsilon(30) > record["epsilon"] == found.epsilon(10)


REFUSED = {
    "positive number": {"channel": CLIP, "privacy": Privacy(epsilon=0.0)},
    "positive number, a budget of privacy loss, got nan": {"channel": CLIP, "privacy": Privacy(epsilon=math.nan)},
    "delta must be between 0 and 1": {"channel": CLIP, "privacy": Privacy(epsilon=1.0, delta=1.0)},
    "noise without clipping": {"channel": gaussian(1.0)},
    "promises nothing": {"channel": CLIP, "privacy": Privacy(delta=1e-6)},
    "amplification by sampling cannot be claimed: with participation 'cyclic:0.1'": {
        "channel": chain(CLIP, gaussian(1.0)),
        "participation": mj.participation.cyclic(0.1),
        "privacy": Privacy(amplification=True),
    },
    "the server sees who sends": {
        "channel": chain(CLIP, gaussian(1.0, at="client")),
        "participation": mj.participation.bernoulli(0.1),
        "privacy": Privacy(amplification=True),
    },
    "first round alone spends": {"channel": chain(CLIP, gaussian(0.5)), "privacy": Privacy(epsilon=0.1, rounds=5)},
    "fixed number of clients is accounted for by Rényi": {
        "channel": chain(CLIP, gaussian(1.0)),
        "participation": mj.participation.uniform(0.1),
        "privacy": Privacy(accountant="pld"),
    },
    "accountant must be": {"channel": chain(CLIP, gaussian(1.0)), "privacy": Privacy(accountant="moments")},
    "put secure-sum after it": {"channel": chain(CLIP, skellam(1.0))},
    "reads each": {"algorithm": mj.clustered(MODEL, clients=CLIENTS), "channel": chain(CLIP, gaussian(1.0))},
    "between peers": {"channel": chain(CLIP, gaussian(1.0)), "exchange": mj.gossip(mj.topology.ring()), "clients": 5},
}


@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.filterwarnings("ignore:δ = ")
def test_what_cannot_be_promised_is_refused(words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        federated(**REFUSED[words])


def test_stages_that_change_lengths_cannot_stand_between_clipping_and_noise():
    with pytest.raises(ValueError, match=r"cannot be added up before they are decoded: leave random-k:0\.5 out"):
        chain(CLIP, mj.channel.random_k(0.5), gaussian(1.0))
    with pytest.raises(ValueError, match="noise without clipping"):
        federated(channel=chain(CLIP, mj.channel.random_k(0.5), gaussian(1.0, at="client")))
    after = federated(
        channel=chain(CLIP, gaussian(1.0, at="client"), mj.channel.quantized(8))
    )  # noise is there already
    assert after.guarantee.noise.bound == 1.0
    with pytest.raises(ValueError, match="one stage that adds noise"):
        chain(CLIP, gaussian(1.0), gaussian(2.0))


def test_a_large_delta_is_warned_of():
    with pytest.warns(UserWarning, match="Take less than 1/1,000"):
        federated(channel=chain(CLIP, gaussian(1.0)), privacy=Privacy(delta=0.01))


def weighs_by_labels():
    """FedAvg in which clients count by their labels."""
    plain = mj.fedavg(MODEL)

    def update(view, state, data, key):
        upload, state = plain.client.update(view, state, data, key)
        return upload._replace(weight=data.y.sum().astype(upload.weight.dtype)), state

    return plain._replace(client=plain.client._replace(update=update))


def tells_sizes():
    """FedAvg in which clients say before round 1 how many samples they have."""
    ask = lambda view, state, data, key: Answer(data.size.astype(float), jnp.ones(()))
    return mj.fedavg(MODEL)._replace(setup=Setup(ask, lambda server, answers: server))


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (tells_sizes, "answer depends on their samples"),
        (lambda: zoo.algorithm("fedmm"), "answer depends on their samples"),
        (weighs_by_labels, "weighs its clients by what their samples say"),
    ],
)
@pytest.mark.filterwarnings("ignore:δ = ")
def test_messages_that_no_noise_covers_are_refused(algorithm, words):
    made = algorithm()
    made = made._replace(traits=made.traits._replace(check_channel=None))
    with pytest.raises(ValueError, match=words):
        mj.simulate(made, zoo.training(), rounds=1, channel=chain(CLIP, gaussian(1.0)))


def test_parts_of_noise_from_as_many_clients_as_a_sum_needs_make_the_whole_noise():
    noise = skellam_parts(1.5, 1000.0, 10)
    one = jax.vmap(lambda key: noise.add(key, jnp.zeros(25, jnp.int32)))(jax.random.split(jax.random.key(0), 4000))
    whole = np.asarray(one).reshape(400, 10, 25).sum(axis=1)
    assert whole.std() == pytest.approx(1.5 * (1000 + 5), rel=0.03)
    assert abs(whole.mean()) < 0.05 * whole.std()
    assert np.abs(whole).max() < noise.most(10)
    steep = skellam_parts(2.0, 30.0, 4)  # as much is added by rounding 900 numbers as there is
    parts = jax.vmap(lambda key: steep.add(key, jnp.zeros(900, jnp.int32)))(jax.random.split(jax.random.key(1), 400))
    assert np.asarray(parts).reshape(100, 4, 900).sum(axis=1).std() == pytest.approx(2.0 * (30 + 30), rel=0.03)
    with pytest.raises(ValueError, match="give fewer bits"):
        skellam_parts(1.5, 1e6, 10).add(jax.random.key(0), jnp.zeros(25, jnp.int32))
    with pytest.raises(ValueError, match="give more bits"):
        skellam_parts(1.5, 4.0, 10).add(jax.random.key(0), jnp.zeros(25, jnp.int32))


def test_noise_on_whole_numbers_is_accounted_for_by_the_lengths_that_rounding_leaves():
    channel = chain(CLIP, skellam(4.0), secure_sum(1.0, bits=12, threshold=100))
    found = federated(channel=channel, participation=mj.participation.bernoulli(0.5)).guarantee
    numbers = sum(leaf.size for leaf in jax.tree.leaves(MODEL.init(jax.random.key(0))))
    assert found.event.l2 == 2 * (2**11 + math.sqrt(numbers))
    assert found.event.l1 == pytest.approx(math.sqrt(numbers) * found.event.l2)  # of a vector of equal numbers
    gaussian_alone = asked(dp.GaussianDpEvent(2.0), 30)
    at_whole_orders = asked(dp.GaussianDpEvent(2.0), 30, orders=range(2, 64))  # which the theorem is about
    assert gaussian_alone < found.epsilon(30) < 1.001 * at_whole_orders  # many steps in the radius: hardly dearer
    assert "no amplification" in found.sampling
    with pytest.raises(ValueError, match="has a part at the server"):
        chain(CLIP, gaussian(1.0), secure_sum(1.0))
    solved = federated(channel=chain(CLIP, secure_sum(1.0, bits=12)), privacy=Privacy(epsilon=4.0, rounds=20))
    assert solved.channel.noise.at == "together"
    assert 3.9 < solved.guarantee.epsilon(20) <= 4.0


def test_single_samples_are_drawn_in_every_step_of_the_smallest_client():
    solver = local_private_sgd(noise=2.0, clip=1.0, batch_size=10, steps=3)
    algorithm = mj.fedavg(MODEL, local=solver)
    found = of_samples(algorithm, Privacy(accountant="rdp"), mj.participation.full(), [400, 0, 100, 250])
    assert found.epsilon(7) == pytest.approx(asked(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0)), 21))
    assert of_samples(mj.fedavg(MODEL), None, mj.participation.full(), [5]) is None
    assert "how many samples each client has" in found.not_covered


@pytest.mark.parametrize(("deviation", "shift"), [(1.5, 1), (4.0, 3), (30.0, 12), (60.0, 5)])
def test_the_divergence_of_noise_on_whole_numbers_is_above_the_exact_one_and_near_it(deviation, shift):
    """Of one number, with probability e^−μ I_k(μ) for k; the theorem is about whole orders."""
    bound = accounting.divergences(accounting.Event(deviation / shift, l1=shift, l2=shift))
    values = np.arange(-int(15 * deviation), int(15 * deviation) + shift)
    log_p, log_q = (np.log(special.ive(np.abs(values - away), deviation**2)) for away in (0, shift))
    for order in (2, 2.25, 2.5, 3, 7.75, 8):
        exact = special.logsumexp(order * log_p - (order - 1) * log_q) / (order - 1)
        claimed = bound[accounting.ORDERS.index(order)]
        assert exact <= claimed
        assert deviation < 30 or order % 1 or claimed < 1.05 * exact
    two, half, three = (bound[accounting.ORDERS.index(order)] for order in (2, 2.5, 3))
    assert 1.5 * half == pytest.approx((two + 2 * three) / 2)  # between whole orders, on the chord of (α − 1) D


def test_a_fixed_number_amplifies_nothing_where_clients_keep_a_state():
    """One client's place is another's absence, and shows in what the other keeps; coins of their own tell nothing."""
    noise, rdp = chain(CLIP, gaussian(1.5)), Privacy(accountant="rdp")
    fixed = {"channel": noise, "participation": mj.participation.uniform(0.1)}
    whole = asked(dp.GaussianDpEvent(1.5), 40)
    for algorithm in (mj.fedem(MODEL, components=2), mj.fedavg(MODEL, local=mj.local_sgd(momentum=0.9))):
        found = federated(algorithm, privacy=rdp, **fixed).guarantee
        assert found.epsilon(40) == pytest.approx(whole)
        assert "clients keep a state" in found.sampling
        assert "without it" in found.worlds
        coins = federated(algorithm, channel=noise, participation=mj.participation.bernoulli(0.1), privacy=rdp)
        assert coins.guarantee.epsilon(40) < whole / 3
        with pytest.raises(ValueError, match="one's state tells of another's absence"):
            federated(algorithm, privacy=Privacy(amplification=True), **fixed)
    assert federated(privacy=rdp, **fixed).guarantee.epsilon(40) < whole  # FedAvg: clients keep nothing


def test_a_run_does_not_go_on_with_other_noise():
    """Its first rounds would count as rounds with the noise that is asked for now."""
    run = lambda **options: SimpleNamespace(federation=federated(privacy=Privacy(accountant="rdp"), **options))
    noisy, noisier = (run(channel=chain(CLIP, gaussian(multiplier))) for multiplier in (1.5, 3.0))
    plain = SimpleNamespace(federation=federated())
    made = [{"round": 7, "epsilon": noisy.federation.guarantee.epsilon(7)}]
    Simulation.refuse_other_privacy(noisy, made)
    Simulation.refuse_other_privacy(noisier, [])
    Simulation.refuse_other_privacy(plain, [{"round": 7}])
    for now, lines in ((noisier, made), (plain, made), (noisy, [{"round": 7}])):
        with pytest.raises(ValueError, match="the first 7 rounds were made with"):
            Simulation.refuse_other_privacy(now, lines)


def test_a_share_of_the_clients_is_the_number_that_it_stands_for():
    """0.29 · 100 is less than 29 in floating-point numbers."""
    event = accounting.as_dp_event(accounting.Event(1.0, "fixed", 0.29, 100))
    assert (event.source_dataset_size, event.sample_size) == (100, 29)


def test_what_is_said_to_keep_nothing_keeps_nothing():
    data = tiny_client(zoo.training())
    for name in zoo.ZOO:
        algorithm = zoo.algorithm(name)
        if algorithm.traits.stateless:
            view = algorithm.server.broadcast(algorithm.server.init(jax.random.key(0)), jax.random.key(0))
            assert not jax.tree.leaves(algorithm.client.init(view, data, jax.random.key(0)))
