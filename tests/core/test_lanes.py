"""Lanes: every client's steps, in whatever order clients go through."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
from compiling import quickly
from majorant.core import ClientData, blockwise, blockwise_parts, lanes
from majorant.core.lanes import for_shapes, has_lanes, in_lanes, once, repeat
from majorant.core.trees import ROWS_IN_LANES
from majorant.engines import laying_out
from majorant.engines.population import best_lanes
from majorant.engines.simulator import planned
from majorant.solvers.minibatches import minibatches, run_minibatches

rng = np.random.default_rng(0)
CLIENTS, COMPONENTS = 11, 2
STEPS = jnp.asarray([3, 0, 7, 1, 1, 0, 2, 7, 5, 1, 4])
KEYS = jax.random.split(jax.random.key(0), CLIENTS)
DATA = jnp.asarray(rng.normal(size=(CLIENTS, 7, 3)), jnp.float32)
MOMENTS = jnp.asarray(rng.normal(size=(CLIENTS, COMPONENTS, 3)), jnp.float32)
START = jnp.asarray(rng.normal(size=(COMPONENTS, 3)), jnp.float32)  # the same for all


def client(steps, key, data, moments):
    """Each component goes its way, with the client's samples and draws."""

    def component(theta, moments):
        def step(i, carry):
            theta, moments, taken = carry
            noise = jax.random.normal(jax.random.fold_in(key, i), theta.shape)
            moments = 0.5 * moments + data[i] * theta.sum() + noise
            return theta - 0.1 * moments, moments, taken + 1

        return repeat(steps, step, (theta, moments, jnp.int32(0)))

    return jax.vmap(component)(START, moments)


def all_clients(lanes, *args):
    with in_lanes(lanes):
        return jax.vmap(client)(*args)


@pytest.mark.parametrize("lanes", [1, 2, 4, 10, 11, 30])
def test_results_are_those_without_lanes(lanes):
    whole = quickly(lambda *args: all_clients(None, *args))(STEPS, KEYS, DATA, MOMENTS)
    found = quickly(lambda *args: all_clients(lanes, *args))(STEPS, KEYS, DATA, MOMENTS)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, whole)
    np.testing.assert_array_equal(found[2], np.tile(STEPS[:, None], COMPONENTS))


@pytest.mark.parametrize("lanes", [None, 2])
def test_a_single_step_is_that_of_a_loop(lanes):
    """Of two components each, for some clients: those without a step keep both parts of their carry, exactly."""

    def both(condition, data, moments):
        step = lambda carry: (carry[0] - 0.1 * data[0] * carry[1].sum(), 0.5 * carry[1] / carry[0].sum())
        loop = lambda carry: repeat(jnp.where(condition, 1, 0), lambda _, carry: step(carry), carry)
        each = lambda theta, moments: (once(condition, step, (theta, moments)), loop((theta, moments)))
        return jax.vmap(each)(START, moments)

    steps = STEPS > 0
    with in_lanes(lanes):
        found, expected = quickly(jax.vmap(both))(steps, DATA, MOMENTS)
        looped = "while" in str(jax.make_jaxpr(lambda c, x: once(c, lambda x: x + 1, x))(True, 1.0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)
    np.testing.assert_array_equal(found[1][~steps], MOMENTS[~steps])
    assert looped == (lanes is not None)


def test_a_chunk_takes_as_many_steps_as_its_lanes_need():
    calls = []

    def step(i, x):
        jax.debug.callback(calls.append, i)
        return x

    with in_lanes(2):
        jax.jit(jax.vmap(lambda n: repeat(n, step, n)))(jnp.asarray([1, 2, 1, 4])).block_until_ready()
    jax.effects_barrier()
    assert len(calls) == 2 * 4  # the longest alone in a lane, the others one after the other in the second


@pytest.mark.parametrize(
    ("plan", "steps", "calls"),
    [
        (minibatches(epochs=1, steps=None, batch_size=2), [3, 0, 1, 0, 1], 2 * 3),
        (minibatches(epochs=1, steps=None, batch_size=5)._replace(in_any_order=True), [1, 0, 1, 0, 1], 2 * 2),
        (minibatches(epochs=None, steps=3, batch_size=2), [3, 0, 3, 0, 3], 2 * 6),
        (minibatches(epochs=3, steps=None, batch_size=None), [3, 0, 3, 0, 3], 2 * 6),
        (minibatches(epochs=1, steps=None, batch_size=None), [1, 0, 1, 0, 1], 2 * 2),
    ],
)
def test_minibatches_of_any_plan_go_in_lanes(plan, steps, calls):
    """Five clients, of whom two have no samples; no step is made for more than the two in lanes."""
    made = []

    def step(carry, batch):
        jax.debug.callback(made.append, carry)
        return carry + 10 ** jnp.asarray(batch.number)

    def one(size, id):
        data = ClientData(jnp.arange(5.0)[:, None], jnp.zeros(5), size, id)
        return run_minibatches(plan, step, jnp.int32(0), data, jax.random.key(0))

    with in_lanes(2):
        found = quickly(jax.vmap(one))(jnp.asarray([5, 0, 2, 0, 1]), jnp.arange(5))
    jax.effects_barrier()
    np.testing.assert_array_equal(found, [(0, 1, 11, 111)[count] for count in steps])
    assert len(made) == calls


def test_runs_beside_each_other_have_lanes_too():
    keys = jax.vmap(lambda seed: jax.random.split(jax.random.key(seed), CLIENTS))(jnp.arange(2))

    def both(lanes):
        with in_lanes(lanes):
            return jax.vmap(lambda keys: jax.vmap(client)(STEPS, keys, DATA, MOMENTS))(keys)

    same = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    jax.tree.map(same, quickly(lambda: both(3))(), quickly(lambda: both(None))())


def test_passes_over_samples_go_in_lanes():
    sizes = jnp.asarray([5, 0, 2])
    x = jnp.asarray(rng.normal(size=(3, 5, 2)), jnp.float32)
    real = jnp.arange(5) < sizes[:, None]
    each = lambda x, n: blockwise(lambda x: x.sum(axis=1), x, at_once=2, size=n)
    parts = lambda x, n: blockwise_parts(lambda x: x.sum(axis=1), [(x,), (x[:3],)], [n, jnp.minimum(n, 3)])
    with in_lanes(2):
        assert has_lanes()
        np.testing.assert_allclose(jnp.where(real, jax.vmap(each)(x, sizes), 0), jnp.where(real, x.sum(axis=2), 0))
        found, shorter = jax.vmap(parts)(x, sizes)
    assert not has_lanes()
    np.testing.assert_allclose(jnp.where(real, found, 0), jnp.where(real, x.sum(axis=2), 0))
    np.testing.assert_allclose(jnp.where(real[:, :3], shorter, 0), jnp.where(real[:, :3], x[:, :3].sum(axis=2), 0))


def test_a_client_in_a_lane_passes_few_samples_at_once():
    seen = []

    def product(x):
        seen.append(x.shape[0])
        return x.sum(axis=1)

    x = (
        np.random.default_rng(0).normal(size=(2, 3000, 2)).astype(np.float32)
    )  # fewer values than go at once without lanes
    go_over = lambda x, size: blockwise(product, x, size=size)
    with in_lanes(1):
        found = jax.vmap(go_over)(x, np.array([3000, 1500]))
    assert max(seen) <= ROWS_IN_LANES
    np.testing.assert_allclose(found[0], x[0].sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found[1, :1500], x[1, :1500].sum(axis=1), rtol=1e-6)


def test_no_more_clients_than_lanes_are_scored_at_once():
    """Three clients, of whom one has no samples: each of the others has a block, or two of different parts."""
    seen, x = [], jnp.ones((3, 5, 2))

    def function(x):
        jax.debug.callback(seen.append, x[0, 0])
        return x.sum(axis=1)

    each = lambda x, n: blockwise(function, x, size=n)
    parts = lambda x, n: blockwise_parts(function, [(x,), (x[:3],)], [n, jnp.minimum(n, 3)])
    for score, calls in ((each, 2), (parts, 2 * 2)):
        with in_lanes(2):
            jax.block_until_ready(quickly(jax.vmap(score))(x, jnp.asarray([5, 0, 2])))
        jax.effects_barrier()
        assert len(seen) == calls
        seen.clear()


@pytest.mark.parametrize("participation", [None, mj.participation.bernoulli(0.5)])
@pytest.mark.parametrize("method", [mj.fedem, mj.fedavg, mj.pfedme])
def test_a_simulation_in_lanes_is_the_same(monkeypatch, method, participation):
    data = mj.data.synthetic_mixture(clients=9, dimension=3, unseen=0.25, seed=0)
    model = mj.models.linear(data)
    algorithm = method(model, local=mj.local_sgd(0.1, epochs=2, batch_size=16, momentum=0.9))
    together = {} if participation is None else {"participation": participation}
    one = mj.simulate(algorithm, data, rounds=3, seed=0, **together)
    monkeypatch.setattr(laying_out, "clients_that_saturate", lambda *_: 1)
    used, by_lanes = [], lanes._by_lanes
    monkeypatch.setattr(
        lanes, "_by_lanes", lambda step, several, *rest: used.append(several) or by_lanes(step, several, *rest)
    )
    options = {"seed": 0, "resources": mj.Resources(side_by_side=2), **together}
    layout = planned(algorithm, data, 3, **options).layout
    assert (layout.lanes, layout.at_once) == (2, 2)
    assert min(layout.chunks + layout.pass_chunks) > 2
    other = mj.simulate(algorithm, data, rounds=3, **options)
    assert set(used) == {2}
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    jax.tree.map(close, other.server.value, one.server.value)
    jax.tree.map(close, other.snapshot.clients, one.snapshot.clients)
    assert other.history[-1]["test_accuracy"]["mean"] == pytest.approx(
        one.history[-1]["test_accuracy"]["mean"], abs=1e-6
    )


def test_lanes_are_as_many_as_the_longest_client_leaves_work_for():
    assert best_lanes(np.full(40, 512), saturating=7, most=100) == 40
    assert best_lanes(np.array([2816] + [128] * 66), saturating=7, most=100) == 4
    assert best_lanes(np.full(40, 512), saturating=7, most=10) == 10
    fewer = best_lanes(np.array([2816] + [128] * 66), saturating=7, most=100, share=0.1)
    assert 1 <= fewer <= 7
    assert best_lanes(np.full(40, 512), saturating=7, most=100, share=0.1) < 10  # of whom 4 take part


def test_few_participants_have_few_lanes(monkeypatch):
    data = mj.data.heterogeneous_logistic(clients=40, samples=10, test_samples=2, dimension=2)
    algorithm = mj.fedavg(mj.models.linear(data))
    monkeypatch.setattr(laying_out, "clients_that_saturate", lambda *_: 7)
    assert planned(algorithm, data, 1).layout.lanes is None  # a lane for each
    assert planned(algorithm, data, 1, participation=mj.participation.bernoulli(0.1)).layout.lanes < 10


def test_a_plan_that_must_hold_fewer_has_smaller_chunks(monkeypatch):
    """As where a program says that it takes more memory than there is; with lanes and without."""
    data = mj.data.heterogeneous_logistic(clients=9, samples=10, test_samples=2, dimension=2)
    simulation = planned(mj.fedavg(mj.models.linear(data)), data, 1, resources=mj.Resources(side_by_side=5))
    largest = lambda held: max(simulation.planned(held).layout.chunks)
    assert [largest(held) for held in (None, 3, 1)] == [5, 3, 1]
    monkeypatch.setattr(laying_out, "clients_that_saturate", lambda *_: 1)
    assert [largest(held) for held in (None, 3, 1)] == [9, 3, 1]
    assert simulation.planned().layout.lanes == 5


def test_many_newcomers_of_a_few_clients_have_lanes(monkeypatch):
    """Three train, each with a lane; nine join, of whom no more than fit are scored at once."""
    data = mj.data.synthetic_mixture(clients=12, dimension=3, unseen=0.75, seed=0)
    algorithm = mj.fedavg(mj.models.linear(data))
    monkeypatch.setattr(laying_out, "clients_that_saturate", lambda *_: 4)
    layout = planned(algorithm, data, 1, resources=mj.Resources(side_by_side=2)).layout
    assert max(layout.unseen_chunks) > 2
    assert layout.lanes == 2


def test_loops_for_shapes_have_the_shapes_alone_and_leave_nothing_to_others():
    """A function that was traced for its shapes is traced anew for its values."""
    counted = []

    def step(i, carry):
        counted.append(i)
        return carry[0] + i, jnp.outer(carry[0], carry[1]) @ carry[1]

    carry = jnp.arange(2.0), jnp.ones(2)
    function = jax.jit(lambda count, carry: repeat(count, step, once(count > 0, lambda c: step(0, c), carry)))
    with for_shapes():
        found = jax.eval_shape(function, jnp.int32(3), carry)
    assert not counted
    values = function(jnp.int32(3), carry)
    assert counted
    assert jax.tree.map(lambda a: (a.shape, a.dtype), found) == jax.tree.map(lambda a: (a.shape, a.dtype), values)
    np.testing.assert_array_equal(values[0], [3, 4])
    with in_lanes(2):
        np.testing.assert_array_equal(function(jnp.int32(3), carry)[0], [3, 4])
