"""PyTorch clients: the same numbers as ours where both can be had, in FedAvg, FedEM and mixed federations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import majorant as mj
import zoo

LR = 0.3
make = lambda: torch.nn.Linear(3, 1)


def one_step(module, x, y, weights):
    """One full-batch step of SGD on the weighted logistic loss."""
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(module(x)[:, 0], y.float(), reduction="none")
    (weights * losses).mean().backward()
    optimizer.step()


def several_steps(module, x, y, weights):
    for _ in range(10):
        module.zero_grad()
        one_step(module, x, y, weights)


def in_jax():
    """The same map and the same initial points as those of the torch model, with gradients."""
    start = mj.models.from_torch(make, zoo.problem()).init
    return mj.models.from_functions(start, lambda p, x: x @ p["weight"].T + p["bias"], zoo.problem())


def assert_close(a, b, tolerance=1e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance), a, b)


def test_outputs_are_those_of_the_module():
    model = mj.models.from_torch(make, zoo.problem())
    x, _ = zoo.problem().train.client(0)
    params = model.init(jax.random.key(0))
    assert params["weight"].shape == (1, 3)
    assert_close(jax.jit(model.apply)(params, x), in_jax().apply(params, x), 1e-6)
    both = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 2))
    assert (both["weight"][0] != both["weight"][1]).any()
    assert_close(jax.vmap(lambda p: model.apply(p, x))(both), jax.vmap(lambda p: in_jax().apply(p, x))(both), 1e-6)
    assert_close(model.init(jax.random.key(0)), params, 0)


@pytest.mark.parametrize("name", ["fedavg", "fedem", "local"])
def test_a_torch_step_is_a_step_of_sgd(name):
    method = getattr(mj, name)
    torch_side = method(mj.models.from_torch(make, zoo.problem()), local=mj.solvers.local_torch(make, one_step))
    ours = method(in_jax(), local=mj.local_sgd(LR, batch_size=None))
    first, second = (
        mj.simulate(algorithm, zoo.problem(), rounds=3, resources=mj.Resources(extra_padding=2))
        for algorithm in (torch_side, ours)
    )
    assert_close(first.snapshot.server.value, second.snapshot.server.value)
    assert_close(first.snapshot.clients, second.snapshot.clients)
    assert first.history[-1]["train_loss"] == pytest.approx(second.history[-1]["train_loss"], abs=1e-5)


def test_fed_em_with_torch_clients_improves_the_likelihood():
    algorithm = mj.fedem(
        mj.models.from_torch(make, zoo.problem()), components=2, local=mj.solvers.local_torch(make, several_steps)
    )
    run = mj.simulate(algorithm, zoo.problem(), rounds=6, evaluation=mj.Evaluation(every=1))
    loss = [line["loss"] for line in run.history]
    assert (np.diff(loss) < 0).all()
    assert loss[-1] < 0.9 * loss[0]


def test_torch_clients_and_others_share_a_federation():
    """Clients 1 and 4 train in PyTorch, the others by our SGD, on the same parameters."""
    mixed = mj.solvers.local_by_client(
        [mj.local_sgd(LR, batch_size=None), mj.solvers.local_torch(make, one_step)], {1: 1, 4: 1}
    )
    runs = [
        mj.simulate(mj.fedavg(in_jax(), local=local), zoo.problem(), rounds=3)
        for local in (mixed, mj.local_sgd(LR, batch_size=None))
    ]
    assert_close(*(run.snapshot.server.value for run in runs))


class Normalised(torch.nn.Module):
    """Batch normalisation keeps two running statistics and a counter of whole numbers."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))

    def forward(self, x):
        return self.layers(x)


def test_buffers_are_averaged_and_counters_stay_whole():
    counts = []

    def train(module, x, y, weights):
        assert module.training
        counts.append(module.layers[1].num_batches_tracked.clone())
        one_step(module, x, y, weights)

    model = mj.models.from_torch(Normalised, zoo.problem())
    run = mj.simulate(mj.fedavg(model, local=mj.solvers.local_torch(Normalised, train)), zoo.problem(), rounds=2)
    value = run.snapshot.server.value
    assert value["layers.1.num_batches_tracked"].tolist() == [2.0]
    assert {str(leaf.dtype) for leaf in value.values()} == {"float32"}
    assert {c.dtype for c in counts} == {torch.int64}
    assert sorted(int(c) for c in counts) == [0] * 5 + [1] * 5
    assert (value["layers.1.running_mean"] != 0).any()
    assert run.summary()["rejected"] == 0


def test_a_seed_makes_training_repeatable_and_leaves_torchs_own_alone():
    def noisy(module, x, y, weights):
        with torch.no_grad():
            module.weight += torch.randn_like(module.weight)

    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    algorithm = mj.fedavg(mj.models.from_torch(make, zoo.problem()), local=mj.solvers.local_torch(make, noisy))
    first, second = (mj.simulate(algorithm, zoo.problem(), rounds=2, seed=3) for _ in range(2))
    assert_close(first.snapshot.server.value, second.snapshot.server.value, 0)
    assert torch.rand(1) == expected


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        ValueError, match=r"Linear gives \(3, 2\) for 3 samples; the logistic loss with 2 classes needs"
    ):
        mj.models.from_torch(lambda: torch.nn.Linear(3, 2), zoo.problem())
    with pytest.raises(ValueError, match=r"Linear fails on samples \(3, 3\)"):
        mj.models.from_torch(lambda: torch.nn.Linear(5, 1), zoo.problem())
    with pytest.raises(TypeError, match="takes a function that makes a torch module"):
        mj.models.from_torch(torch.nn.Linear(3, 1), zoo.problem())
    model = mj.models.from_torch(make, zoo.problem())
    with pytest.raises(ValueError, match="whose gradients JAX does not see: train it with local_torch"):
        mj.simulate(mj.fedavg(model, local=mj.local_sgd()), zoo.problem(), rounds=1)
    other = mj.solvers.local_torch(lambda: torch.nn.Linear(3, 2), one_step)
    with pytest.raises(ValueError, match=r"local_torch trains a Linear with parameters .*but the model's are"):
        mj.simulate(mj.fedavg(model, local=other), zoo.problem(), rounds=1)
    same = mj.solvers.local_torch(make, one_step)
    with pytest.raises(
        ValueError, match=r"trains a Linear as a whole, and this method, .* a part of it alone \(bias\)"
    ):
        mj.simulate(mj.methods.fedrep(model, personal=["bias"], local=same), zoo.problem(), rounds=1)


def test_codes_go_in_as_whole_numbers():
    make_text = lambda: torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Flatten(), torch.nn.Linear(12, 1))
    model = mj.models.from_torch(make_text, mj.models.Spec((3,), 2))
    outputs = model.apply(model.init(jax.random.key(0)), jnp.arange(6, dtype=jnp.int32).reshape(2, 3))
    assert outputs.shape == (2, 1)
