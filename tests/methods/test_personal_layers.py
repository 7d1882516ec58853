"""FedPer, FedRep and FedBN: their papers' updates in NumPy, and what stays with a client."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant import methods
from majorant.core import ClientData
from majorant.methods.fedbn import norm_names
from majorant.methods.fedper import split_model
from majorant.models import inverted_residuals as inverted
from majorant.objectives.splits import split_by_name
from majorant.solvers import statistic_leaves

LR, STEPS, ROUNDS = 0.3, 3, 2
DATA = zoo.problem()
MODEL = mj.models.linear(DATA, start="zeros")
LOCAL = mj.local_sgd(LR, steps=STEPS, batch_size=None)


def gradient(w, b, x, y):
    """Of logistic regression, in the weight and the bias."""
    slope = 1 / (1 + np.exp(-(x @ w + b))) - y
    return x.T @ slope / len(y), slope.mean()


def by_hand(train):
    """Rounds of ``train(w, b, x, y)`` with a shared weight and personal biases, in NumPy."""
    first = jax.tree.map(lambda a: np.asarray(a, float), MODEL.init(jax.random.key(0)))[0]
    clients = np.flatnonzero(~DATA.unseen)
    w, biases = first["weight"][:, 0], dict.fromkeys(clients, first["bias"][0])
    for _ in range(ROUNDS):
        sent = {}
        for t in clients:
            sent[t], biases[t] = train(w, biases[t], *map(np.asarray, DATA.train.client(t)))
        w = sum(DATA.train.sizes[t] * sent[t] for t in clients) / DATA.train.sizes[clients].sum()
    return w, np.array([biases[t] for t in clients])


def together(w, b, x, y):
    for _ in range(STEPS):
        slopes = gradient(w, b, x, y)
        w, b = w - LR * slopes[0], b - LR * slopes[1]
    return w, b


def in_turn(w, b, x, y):
    for _ in range(2 * STEPS):
        b = b - LR * gradient(w, b, x, y)[1]
    for _ in range(STEPS):
        w = w - LR * gradient(w, b, x, y)[0]
    return w, b


@pytest.mark.parametrize(
    ("algorithm", "train"),
    [
        (methods.fedper(MODEL, personal=["0.bias"], local=LOCAL), together),
        (methods.fedrep(MODEL, personal=["0.bias"], head_passes=2, local=LOCAL), in_turn),
    ],
    ids=["fedper", "fedrep"],
)
def test_rounds_are_the_papers(algorithm, train):
    run = mj.simulate(algorithm, DATA, rounds=ROUNDS, evaluation=mj.Evaluation(every=ROUNDS))
    w, biases = by_hand(train)
    np.testing.assert_allclose(run.server.value["0.weight"][:, 0], w, atol=1e-5)
    np.testing.assert_allclose(run.snapshot.clients.beta["0.bias"][0, :, 0], biases, atol=1e-5)
    assert run.server.value.keys() == {"0.weight"}
    model = run.model(0)
    x = DATA.test.client(0)[0]
    np.testing.assert_allclose(model.predict_proba(x)[:, 1], 1 / (1 + np.exp(-(x @ w + biases[0]))), atol=1e-5)


def test_every_pass_over_a_head_draws_anew():
    keys = []
    solve = lambda model, task, params, moments: (keys.append(task.key), (params, moments, jnp.float32(0)))[1]
    local = SimpleNamespace(hyper={}, moments=lambda params: (), solve=solve)
    algorithm = methods.fedrep(MODEL, personal=["0.bias"], head_passes=3, local=local)
    view = algorithm.server.broadcast(algorithm.server.init(jax.random.key(0)), jax.random.key(0))
    data = ClientData(DATA.train.x, DATA.train.y, jnp.int32(5), jnp.int32(0))
    algorithm.client.update(view, algorithm.client.init(view, data, None), data, jax.random.key(0))
    assert len({jax.random.key_data(key).tobytes() for key in keys}) == len(keys) == 4


def test_the_last_layer_is_personal_unless_told():
    network = mj.models.mlp(DATA, hidden=(3,))
    server = methods.fedper(network).server.init(jax.random.key(0))
    assert server.value.keys() == {"0.bias", "0.weight"}
    for make in (methods.fedper, methods.fedrep):
        view = make(network).server.broadcast(server, jax.random.key(1))
        begins = make(network).client.init(view, None, jax.random.key(2)).beta
        head = network.init(jax.random.key(0))[1]  # the server's first, for everybody
        jax.tree.map(np.testing.assert_array_equal, begins, {f"1.{name}": leaf for name, leaf in head.items()})
        with pytest.raises(ValueError, match="has one layer only: take a model with several"):
            make(MODEL)
    with pytest.raises(ValueError, match="unknown parameter '2'"):
        methods.fedper(network, personal=["2"])


def test_normalisation_layers_stay_with_their_clients():
    """FedBN is FedPer with their parameters; what a normalised layer computes, in NumPy."""
    network = mj.models.mlp(DATA, hidden=(3,), norm="layer")
    params = network.init(jax.random.key(1))
    params[0] |= {"norm_scale": jnp.array([1.0, 2.0, 0.5]), "norm_shift": jnp.array([0.1, 0.0, -0.2])}
    x = DATA.train.x[:5]
    inner = x @ np.asarray(params[0]["weight"]) + np.asarray(params[0]["bias"])
    inner = (inner - inner.mean(1, keepdims=True)) / np.sqrt(inner.var(1, keepdims=True) + 1e-5)
    inner = np.maximum(inner * np.array([1.0, 2.0, 0.5]) + np.array([0.1, 0.0, -0.2]), 0)
    expected = inner @ np.asarray(params[1]["weight"]) + np.asarray(params[1]["bias"])
    np.testing.assert_allclose(network.apply(params, x), expected, atol=1e-5)
    names = ["0.norm_scale", "0.norm_shift"]
    assert norm_names(network) == names
    run = mj.simulate(methods.fedbn(network, local=LOCAL), DATA, rounds=2)
    split = split_by_name(params, personal=names)
    assert run.server.value.keys() == split.shared(params).keys()
    scales = run.snapshot.clients.beta["0.norm_scale"][0]
    assert scales.shape == (len(zoo.SIZES) - 1, 3)
    assert len(np.unique(scales[:, 0])) == len(scales)  # everybody's own
    with pytest.raises(ValueError, match="linear has none: take mlp:norm=layer"):
        methods.fedbn(MODEL)
    with pytest.raises(ValueError, match='norm must be "none" or "layer"'):
        mj.models.mlp(DATA, norm="batch")


def test_a_layer_that_is_packed_is_refused_with_the_option_that_names_it():
    model = mj.models.packed(mj.models.mlp(mj.models.Spec((4,), classes=3), hidden=(5, 6)))
    with pytest.raises(ValueError, match=r"unknown parameter '1'.*Known: head\.bias.*by_layers=true names them"):
        mj.methods.fedper(model, personal=["1"])


def test_names_of_flax_layers_are_known():
    from flax import linen as nn

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x, train: bool):
            return nn.Dense(1)(nn.BatchNorm(use_running_average=not train)(nn.Dense(2)(x)))

    model = mj.models.from_flax(Network(), DATA, normalisation="averaged")
    assert {name.rpartition(".")[2] for name in norm_names(model)} == {"mean", "var", "scale", "bias"}
    assert len(norm_names(model)) == 4
    run = mj.simulate(methods.fedbn(model, local=LOCAL), DATA, rounds=1)
    name = next(name for name in norm_names(model) if name.endswith("mean"))
    means = run.snapshot.clients.beta[name][0]
    assert len(np.unique(means[:, 0])) == len(means)  # running statistics are everybody's own, a newcomer's too
    assert run.personalize(DATA.train.client(zoo.UNSEEN)).predict_proba(DATA.test.x[:3]).shape == (3, 2)


@pytest.mark.parametrize(
    ("model", "head"),
    [
        (mj.models.resnet18(mj.models.Spec((32, 32, 3), 10)), "head"),
        (mj.models.resnet18(mj.models.Spec((32, 32, 3), 10), by_layers=True), "weights.dense"),
        (mj.models.lstm(mj.models.Spec((5,), 4)), "dense"),
        (mj.models.cnn(mj.models.Spec((8, 8), 10)), "dense.1"),
    ],
)
def test_the_head_of_a_deep_network_is_its_last_layer(model, head):
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    own = split_model(model, (), "fedper").personal(shapes)
    assert set(own) == {f"{head}.weight", f"{head}.bias"}


def of_shapes(**layers):
    """A model for four features and three classes that has these parameters."""
    zeros = lambda key: jax.tree.map(jnp.zeros, layers, is_leaf=lambda shape: isinstance(shape, tuple))
    return mj.models.from_functions(zeros, lambda params, x: jnp.zeros((len(x), 3)), mj.models.Spec((4,), 3))


def test_the_last_layer_of_a_dictionary_is_the_one_that_maps_to_the_outputs_whatever_it_is_called():
    head, trunk, norm = {"w": (5, 3), "b": (3,)}, {"w": (4, 5), "b": (5,)}, {"scale": (5,), "bias": (5,)}
    for model in (of_shapes(head=head, trunk=trunk), of_shapes(head=head, layer_norm=norm, a=trunk)):
        own = split_model(model, (), "fedper").personal(jax.eval_shape(model.init, jax.random.key(0)))
        assert set(own) == {"head.w", "head.b"}
    square = {"w": (3, 3), "b": (3,)}
    for model in (of_shapes(first=square, second=square), of_shapes(w=(4, 3), v=(4, 3), net=trunk)):
        with pytest.raises(ValueError, match=r"do not say which that is: name it by personal=\. They are "):
            methods.fedper(model)
    assert split_model(of_shapes(first=square, second=square), ["second"], "fedper")


def test_layers_of_other_libraries_modules_are_known_by_their_names():
    import equinox as eqx
    from flax import nnx

    class Nnx(nnx.Module):
        def __init__(self, rngs):
            self.a_head, self.bn = nnx.Linear(2, 1, rngs=rngs), nnx.BatchNorm(2, rngs=rngs)
            self.dense = nnx.Linear(3, 2, rngs=rngs)

        def __call__(self, x):
            return self.a_head(self.bn(self.dense(x)))

    averaged = mj.models.from_nnx(Nnx, DATA, normalisation="averaged")
    net = mj.models.from_equinox(lambda key: eqx.nn.MLP(3, 1, 5, 1, key=key), DATA)
    for model, head in ((averaged, "weights.a_head"), (net, "layers.1"), (mj.models.packed(averaged), "head")):
        personal = split_model(model, (), "fedper").personal(jax.eval_shape(model.init, jax.random.key(0)))
        assert {name.rpartition(".")[0] for name in personal} == {head}
    assert norm_names(averaged) == [
        *("statistics.bn.mean", "statistics.bn.var"),
        *("weights.bn.bias", "weights.bn.scale"),
    ]
    assert set(methods.fedrep(net, personal=["layers.0"]).server.init(jax.random.key(0)).value) == {
        *("layers.1.weight", "layers.1.bias")
    }
    torchs = {"conv1": {"weight": (4, 3)}, "bn1": {"weight": (3,), "bias": (3,), "running_mean": (3,)}}
    assert norm_names(of_shapes(**torchs)) == ["bn1.bias", "bn1.running_mean", "bn1.weight"]


def test_statistics_are_found_by_tracing_in_a_network_that_draws():
    plan = inverted.MOBILENET_V2._replace(stages=inverted.MOBILENET_V2.stages[:1])
    network = inverted.network(plan, mj.models.Spec((8, 8, 3), 3), "averaged", 0.5, "unit", 0.25, 2)
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    params = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    found = statistic_leaves(network._replace(statistics=None), params, jnp.zeros((2, 8, 8, 3)))
    assert all(jax.tree.leaves(found["statistics"]))
    assert not any(jax.tree.leaves(found["weights"]))


def test_normalisation_of_a_deep_network_is_found_with_its_statistics():
    model = mj.models.resnet18(mj.models.Spec((32, 32, 3), 10), by_layers=True)
    kinds = {name.rpartition(".")[2] for name in norm_names(model)}
    assert kinds == {"scale", "shift", "mean", "variance"}
    assert norm_names(mj.models.packed(model)) == ["norms", "statistics"]
