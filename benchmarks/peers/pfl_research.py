"""pfl-research with its PyTorch backend: FedAvg by ``FederatedAveraging`` on ``SimulatedBackend``.

Rows and network are where its benchmarks have them, on the GPU if there is one. It imports accounting for differential
privacy and processes that prepare clients; neither is used, and either may be absent.
"""

# ruff: noqa: E402 - what may be absent is said before the imports

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import torch

from benchmarks.peers.absent import may_be_absent

may_be_absent("dp_accounting", "prv_accountant", "multiprocess")

from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers.clock import Clock, work_file
from benchmarks.peers.torch_parts import accuracy, network, tensors
from benchmarks.peers.work import load


class Learner(torch.nn.Module):
    """A network with the loss and metrics that pfl-research asks for."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)

    def loss(self, x, y, eval=False):
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def metrics(self, x, y, eval=False):
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class Told(TrainingProcessCallback):
    """Stops the clock after each round."""

    def __init__(self, clock: Clock, learner: Learner, held_out) -> None:
        self.clock, self.learner, self.held_out = clock, learner, held_out

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.clock.round(lambda: accuracy(self.learner, self.held_out))
        return False, Metrics()


def main() -> None:
    """All clients, or a sample without replacement, take part in a round."""
    work, train, test = load(work_file())
    np.random.seed(0)  # noqa: NPY002 - what its sampler draws from
    x, y = tensors(train, work.device)
    learner = Learner(network(work, train.x.shape[2:]))
    central = torch.optim.SGD(learner.parameters(), lr=1.0)
    model = PyTorchModel(learner, torch.optim.SGD, central)
    sampler = get_user_sampler("minimize_reuse", range(work.clients))
    users = FederatedDataset(lambda t: PyTorchTensorDataset([x[t], y[t]]), sampler)
    backend = SimulatedBackend(training_data=users, val_data=users)
    params = NNAlgorithmParams(
        central_num_iterations=work.rounds,
        evaluation_frequency=10 * work.rounds,
        train_cohort_size=work.sampled,
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=work.lr, local_batch_size=work.batch)
    clock = Clock(work)
    clock.ready()
    FederatedAveraging().run(
        algorithm_params=params,
        backend=backend,
        model=model,
        model_train_params=local,
        model_eval_params=None,
        callbacks=[Told(clock, learner, tensors(test, work.device))],
        send_metrics_to_platform=False,
    )
    clock.finish(version=f"pfl {version('pfl')}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
