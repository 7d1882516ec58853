"""Secure sums: exact arithmetic modulo a power of two, its stated error, what is caught, and who may use it."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from compiling import quickly
from majorant.engines import rounds, set_up
from majorant.engines.divergence import Unopened
from majorant.engines.population import build_buckets
from majorant.exchange.federation import federation
from majorant.exchange.participation import Participation
from majorant.exchange.secure_sum import Masked, SecureSum, WholeNoise, open_sum, seal, secure_sum

KEY = jax.random.key(0)
LINEAR = [
    name
    for name, entry in zoo.ZOO.items()
    if entry.exchange is None and zoo.algorithm(name).traits.reads == "sum" and name != "local"
]
CLIENTS = len(zoo.SIZES) - 1


def residues(spec, x, weights):
    """The clients' messages, as NumPy arrays."""
    channel = spec.following()
    one = lambda key, x, weight: seal(channel, key, x, weight, weights.max(), ())
    return jax.tree.map(np.asarray, quickly(jax.vmap(one))(jax.random.split(KEY, len(x)), x, weights))


@pytest.mark.parametrize(("bits", "modulus"), [(8, None), (16, 24), (12, 13)])
def test_the_sum_is_that_of_whole_numbers_modulo_the_power_of_two(bits, modulus):
    """By Python's own integers; 13 bits are too few for six clients of 12, and the sum wraps as it would outside."""
    x = np.random.default_rng(0).uniform(-1, 1, (6, 50)).astype(np.float32)
    x[:, 0] = 1.0  # as much as there can be
    spec = SecureSum(1.0, bits, "nearest", clients=6, modulus=modulus or SecureSum(1.0, bits).needed(6))
    sent, *_ = residues(spec, x, np.ones(6, np.float32))
    power = 2**spec.modulus
    whole = [[round(float(v) * 2 ** (bits - 1)) % power for v in row] for row in x]
    np.testing.assert_array_equal(sent.numbers, whole)
    expected = [sum(column) % power for column in zip(*whole, strict=True)]
    expected = [v - power if v >= power // 2 else v for v in expected]
    total = jax.tree.map(lambda a: a.sum(axis=0, dtype=a.dtype), sent)
    np.testing.assert_array_equal(spec.signed(total.numbers), expected)
    wrapped = abs(expected[0] / 2 ** (bits - 1) - 6) > 1
    assert wrapped == (modulus == 13)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_the_mean_is_off_by_no_more_than_is_stated(rounding):
    rng = np.random.default_rng(1)
    weights = np.array([3, 7, 12, 1, 30], np.float32)
    x = rng.uniform(-2, 2, (5, 400)).astype(np.float32)
    spec = SecureSum(2.0, 9, rounding).among(5)
    sent, held, fits, *_ = residues(spec, x, weights)
    total = jax.tree.map(lambda a: a.sum(axis=0, dtype=a.dtype), sent)
    moved, weight = open_sum(spec.following(), total, weights.max(), jnp.float32)
    assert fits.all()
    assert float(weight) == weights.sum()
    off = np.abs(moved / weight - np.average(x, axis=0, weights=weights))
    assert spec.error(weights) / 20 < off.max() <= spec.error(weights)
    np.testing.assert_allclose(weights @ held, moved, rtol=1e-5, atol=1e-5)  # what clients take the sum to hold


def test_stochastic_rounding_is_right_on_average():
    x = np.full((4000, 1), 0.3, np.float32)
    spec = SecureSum(1.0, 2).among(4000)
    sent, *_ = residues(spec, x, np.ones(4000, np.float32))
    mean = float(spec.decode(sent.numbers.sum(axis=0, dtype=np.uint32))[0]) / 4000
    spread = 0.5 * np.sqrt(0.6 * 0.4 / 4000)
    assert abs(mean - 0.3) < 4 * spread


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1.001, 1e30])
def test_numbers_that_would_destroy_a_sum_are_caught_before_it(bad):
    x = np.array([[0.5, bad], [0.5, 1.0]], np.float32)
    _, _, fits, *_ = residues(SecureSum(1.0).among(2), x, np.ones(2, np.float32))
    assert fits.tolist() == [False, True]


def test_a_weight_above_the_largest_is_caught_before_the_sum():
    channel = SecureSum(1.0).among(2).following()
    fits = lambda weight: bool(seal(channel, KEY, jnp.zeros(3), jnp.float32(weight), jnp.float32(3.0), ())[2])
    assert [fits(weight) for weight in (0.0, 3.0, 4.0, 4.5, -1.0, np.nan)] == [True, True, True, False, False, False]


def test_what_is_clipped_to_the_range_is_within_it():
    long = 1e3 * np.eye(3, 7, dtype=np.float32) + 1e-3
    channel = mj.chain(mj.channel.clip(0.3), secure_sum(0.3))
    sealed = jax.vmap(lambda x: seal(channel, KEY, x, jnp.float32(1), jnp.float32(1), ()))(long)
    assert sealed[2].all()


def test_noise_is_added_to_whole_numbers_before_they_become_residues():
    noise = WholeNoise(lambda key, whole: whole - 7, most=lambda clients: 7 * clients)
    spec = SecureSum(1.0, 4, "nearest", noise=noise).among(3)
    assert spec.modulus == (3 * 8 + 21).bit_length() + 1
    sent, *_ = residues(spec, np.zeros((3, 2), np.float32), np.ones(3, np.float32))
    assert spec.signed(sent.numbers.sum(axis=0, dtype=np.uint32)).tolist() == [-21, -21]


def test_double_precision_has_sums_of_64_bits():
    with pytest.raises(ValueError, match="needs 43 bits, more than the 32"):
        SecureSum(1.0, 40).among(5)
    with jax.enable_x64(True):
        spec = SecureSum(1.0, 40, "nearest").among(5)
        sent, *_ = residues(spec, np.full((5, 1), 0.7), np.ones(5))
        assert sent.numbers.dtype == np.uint64
        total = float(spec.decode(sent.numbers.sum(axis=0, dtype=np.uint64), float)[0])
    assert abs(total - 3.5) <= 5 * spec.step / 2


@functools.cache
def bucket():
    """The clients that train, as one stack."""
    data = zoo.training()
    (only,) = build_buckets(data, np.arange(data.clients), chunk_bytes=1 << 20, most=8, one_at_a_time=False)
    return jax.tree.map(jnp.asarray, only.train(data))


@pytest.mark.parametrize("name", LINEAR)
def test_a_round_of_every_linear_method_sums_up_to_the_plain_sum(name):
    """Within the stated error: of all that the server would be given, of private states, and of the weights."""
    algorithm, train = zoo.algorithm(name), bucket()
    plain, secure = (
        federation(algorithm, training=np.arange(CLIENTS), channel=channel)
        for channel in (None, secure_sum(64.0, bits=26))
    )
    spec = secure.channel.secure[0]

    @quickly
    def both(key):
        found = []
        for each in (plain, secure):
            server = set_up.start_server(each, CLIENTS, key, {}, jnp.int32(1))
            clients, answers = set_up.start_clients(each, server, key, train, jnp.ones(CLIENTS, bool), CLIENTS)
            server = set_up.finish_start(each, server, [answers], [train.slot], CLIENTS)
            view, own = rounds.begin_round(each, server, key)
            sums, *_ = rounds.chunk_pass(each, view, own, clients, train, jnp.ones(CLIENTS, bool))
            found.append((sums, rounds.opened(each, view, sums) if each is secure else None))
        return found

    (sums, _), (sealed, (uploads, enough)) = both(KEY)
    assert enough
    assert isinstance(sealed.value, Masked)
    assert sealed.value.numbers.dtype == np.uint32
    assert sealed.info == {}
    assert int(sealed.rejected) == 0
    np.testing.assert_allclose(uploads.weight, sums.weight, rtol=1e-6)
    error = CLIENTS * spec.step * 16  # every weight is at most 16
    for total, exact in zip(jax.tree.leaves(uploads.value), jax.tree.leaves(sums.value), strict=True):
        np.testing.assert_allclose(total, exact, atol=error, rtol=1e-5)


def test_the_methods_that_read_each_upload_refuse_with_the_reason():
    for name in zoo.ZOO:
        algorithm = zoo.algorithm(name)
        if name not in LINEAR and name != "local":
            options = zoo.ZOO[name].options
            exchange = {"exchange": options["exchange"]} if "exchange" in options else {}
            why = "no server to open sums" if exchange else rf"{re.escape(algorithm.name)} reads each upload by itself"
            with pytest.raises(ValueError, match=why):
                federation(algorithm, training=np.arange(CLIENTS), channel=secure_sum(1.0), **exchange)


def refused(match, channel, clients=5, **options):
    with pytest.raises(ValueError, match=match):
        federation(zoo.algorithm("fedavg"), training=np.arange(clients), channel=channel(), **options)


def test_what_cannot_work_is_refused_before_anything_runs():
    refused("nothing can be done to what is masked", lambda: mj.chain(secure_sum(1.0), mj.channel.clip(1.0)))
    refused("cannot be added up before they are decoded", lambda: mj.chain(mj.channel.quantized(8), secure_sum(1.0)))
    refused("cannot be added up before they are decoded", lambda: mj.chain(mj.channel.top_k(0.5), secure_sum(1.0)))
    refused("needs 19 bits, more than the modulus of 16: lower bits to 13", lambda: secure_sum(1.0, modulus=16))
    refused("fewer than 2 clients is not opened, and 1 train: what one client sends", lambda: secure_sum(1.0), 1)
    refused("fewer than 6 clients is not opened, and 5 train", lambda: secure_sum(1.0, threshold=6))
    third = mj.participation.uniform(0.3)
    refused("1 of 5 take part in a round", lambda: secure_sum(1.0), participation=third)
    for options, match in {
        (("range", 0.0),): "range must be",
        (("range", 1.0), ("bits", 1)): "bits must be",
        (("range", 1.0), ("threshold", 1)): "threshold must be a whole number, at least 2",
        (("range", 1.0), ("rounding", "up")): "'stochastic' or 'nearest'",
    }.items():
        refused(match, lambda options=options: secure_sum(**dict(options)))


def test_messages_have_the_bits_of_the_sum():
    settled = federation(zoo.algorithm("fedavg"), training=np.arange(100), channel=secure_sum(1.0, bits=8)).channel
    assert settled.bits(1000) == 15 * 1000


@pytest.mark.parametrize(("there", "opens"), [(3, True), (2, False)])
def test_a_sum_is_opened_with_as_many_as_its_threshold_and_not_with_one_fewer(there, opens):
    some = Participation("some", lambda key, round, n: jnp.arange(n) < there, lambda n: there / n, fixed=False)
    options = {"rounds": 1, "participation": some, "channel": secure_sum(32.0, threshold=3)}
    if opens:
        assert mj.simulate(zoo.algorithm("fedavg"), zoo.training(), **options).rounds == 1
    else:
        with pytest.raises(Unopened, match="fewer than 3 clients' messages arrived"):
            mj.simulate(zoo.algorithm("fedavg"), zoo.training(), **options)


def test_a_run_survives_drop_outs_until_too_few_are_left():
    """One program: more and more messages are lost, and with too few of them the run stops."""
    fedavg, data = zoo.algorithm("fedavg"), zoo.training()
    lossy = lambda p, **options: mj.chain(mj.channel.lossy(p), secure_sum(32.0, **options))
    run = mj.simulate(fedavg, data, rounds=3, channel=lossy(0.2))
    assert run.summary()["rejected"] == 0
    assert "loss" not in run.history[-1]
    with pytest.raises(Unopened, match=r"fewer than 5 clients' messages arrived.*Let more clients take part"):
        mj.simulate(fedavg, data, rounds=3, channel=lossy(0.2, threshold=5))
    with pytest.raises(Unopened, match=r"beyond the range of 0.0001, are not sent: give a larger range"):
        mj.simulate(fedavg, data, rounds=3, channel=secure_sum(1e-4))
