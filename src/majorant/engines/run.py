"""What a simulation leaves behind: its history, every client's scores, and models to deploy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from majorant._words import some
from majorant.core import Algorithm, Server
from majorant.data.federated import FederatedData, aligned
from majorant.data.tabular import Encoding
from majorant.engines.client_scores import Scores
from majorant.engines.deployment import PersonalModel, Trained, precision_of
from majorant.engines.joining import evaluate_joining
from majorant.engines.snapshots import Snapshot, some_runs
from majorant.engines.stopping import number_of
from majorant.engines.summary import Summary
from majorant.exchange.federation import Federation
from majorant.exchange.gossip import Peers


@dataclass(eq=False, repr=False)
class Run:
    """One or several runs of an algorithm, on the same data or each on its own; ``run[i]`` is a single one."""

    federation: Federation
    data_sets: Sequence[FederatedData]  # of each run
    settings: list[dict[str, Any]]
    histories: list[list[dict[str, Any]]]
    scores: list[Scores]
    snapshot: Snapshot  # whose models are the runs'
    last: Snapshot  # at the last round, to resume from
    seconds: dict[str, float]
    communication: list[dict[str, int]]
    metric: str
    rounds: int
    stopped: str | None = None  # why, if not because the rounds came to their end
    optimum: float | None = None
    encoding: Encoding | None = None  # of a table
    origin: Mapping[str, Any] = field(default_factory=dict)  # for models that are saved
    padding: Mapping[str, float] = field(default_factory=dict)  # the share of training rows without a sample

    def __len__(self) -> int:
        return len(self.settings)

    def __repr__(self) -> str:
        return f"<Run of {self.federation.name} on {self.data.name}: {self.rounds} rounds, {len(self)} run(s)>"

    def __getitem__(self, index: int) -> Run:
        """A single run (its times are those of all runs together)."""
        index = range(len(self))[index]
        each = ("data_sets", "settings", "histories", "scores", "communication")
        own: dict[str, Any] = {name: getattr(self, name)[index : index + 1] for name in each}
        return replace(self, **own, snapshot=some_runs(self.snapshot, [index]), last=some_runs(self.last, [index]))

    @property
    def algorithm(self) -> Algorithm:
        """What was trained."""
        return self.federation.algorithm

    @property
    def data(self) -> FederatedData:
        """The (first) run's data."""
        return self.data_sets[0]

    @property
    def history(self) -> list[dict[str, Any]]:
        """The evaluations of the (first) run, oldest first."""
        return self.histories[0]

    @property
    def evaluations(self) -> dict[str, list[Any]]:
        """The evaluations of all runs as columns, ``pandas.DataFrame(run.evaluations)``; nested numbers are flat.

        A column such as ``test_accuracy_mean`` has None where a line says nothing.
        """
        lines = [flat_line(line) for lines in self.histories for line in lines]
        names = dict.fromkeys(name for line in lines for name in line)
        return {name: [line.get(name) for line in lines] for name in names}

    @property
    def clients(self) -> dict[str, Any]:
        """A column per fact about the (first) run's clients, as in ``clients.csv``: ``pandas.DataFrame(run.clients)``.

        >>> import majorant as mj
        >>> data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
        >>> run = mj.simulate(mj.local(mj.models.linear(data)), data, rounds=1)
        >>> list(run.clients)
        ['name', 'unseen', 'train_samples', 'test_samples', 'train_accuracy', 'test_accuracy']
        """
        return self.scores[0].table(self.data.names, self.metric)

    @property
    def server(self) -> Server:
        """The (first) run's server at the end."""
        return jax.tree.map(lambda a: a[0], self.snapshot.server)

    def summary(self) -> Summary:
        """The run in numbers; for several runs, means over them, with the standard deviation between them."""
        each = [s.summary(self.metric) for s in self.scores]
        found = Summary(
            algorithm=self.federation.name,
            dataset=self.data.name,
            seed=self.settings[0]["seed"] if len(self) == 1 else [s["seed"] for s in self.settings],
            rounds=self.rounds,
            stopped=self.stopped,
            clients=self.data.clients,
            metric=self.metric,
            runs=len(self),
        )
        if self.last.best:  # with patience: the round of each run's models
            found["kept_round"] = np.asarray(self.snapshot.server.round).tolist()
        if any(s["hyper"] for s in self.settings):  # of every run: means over a grid mix different settings
            found["hyper"] = [s["hyper"] for s in self.settings]
        for name, value in each[0].items():
            if isinstance(value, dict):
                found[name] = {k: float(np.mean([e[name][k] for e in each])) for k in value}
                if len(self) > 1:
                    found[name]["std_over_runs"] = float(np.std([e[name]["mean"] for e in each], ddof=1))
            else:
                found[name] = float(np.mean([e[name] for e in each]))
        found |= self.ending()
        everything = [line for lines in self.histories for line in lines]
        found["rejected"] = sum(line["rejected"] for line in everything)
        if found["rejected"]:  # one at least from every evaluation
            found["rejected_clients"] = sorted(
                {n for line in everything if (n := line.get("rejected_client")) is not None}
            )
        if self.federation.hostile is not None:
            found["attack"] = self.federation.hostile.told(self.data.names)
        found["seconds"] = dict(self.seconds)
        found["communication"] = dict(self.communication[0])
        if self.padding:
            found["padding"] = dict(self.padding)
        if self.federation.guarantee is not None:
            found["privacy"] = self.federation.guarantee.record(self.rounds, len(self))
        if isinstance(self.federation.exchange, Peers):
            told = ("nodes", "links", "spectral_gap", "contraction", "period", "symmetric")
            found["network"] = {name: getattr(self.federation.exchange.facts, name) for name in told}
        return found

    def ending(self) -> dict[str, Any]:
        """What the last evaluation says of objective and gradients, where it says something; means over runs."""
        last = lambda name: float(np.mean([number_of(lines[-1], name) for lines in self.histories]))
        found: dict[str, Any] = {} if self.optimum is None else {"optimum": self.optimum}
        names = ("objective", "suboptimality", "gradient_norm", "iterations")
        found |= {name: last(name) for name in names if not np.isnan(last(name))}
        if not np.isnan(last("gradients")):
            found["gradients"] = {"w": last("gradients_w"), "beta": last("gradients_beta")}
        return found

    @property
    def deployment(self) -> Trained:
        """The (first) run's server, ready to give models to clients."""
        features, seed = self.data.spec.features, self.settings[0]["seed"]
        scale, clients, in_bytes = self.data.target_scale, self.data.clients, self.data.train.x.dtype == np.uint8
        more = (scale, self.encoding, {"clients": clients, "seed": seed, "in_bytes": in_bytes} | dict(self.origin))
        server = self.server._replace(channel=())  # is told to clients that train
        return Trained(self.federation, server, seed, self.data.classes, features, clients, *more)

    def model(self, client: int | str) -> PersonalModel:
        """The model of one of the data's clients, by index or name."""
        known = (
            client in self.data.names if isinstance(client, str) else -self.data.clients <= client < self.data.clients
        )
        if not known:
            raise ValueError(f"there is no client {client!r}: names are {some(self.data.names, 10, str)}")
        index = self.data.names.index(client) if isinstance(client, str) else range(self.data.clients)[client]
        x, y = self.data.train.client(index)
        trained = self.deployment
        trained = trained._replace(origin=dict(trained.origin) | {"client": self.data.names[index], "samples": len(x)})
        if self.data.unseen[index]:
            return trained.personalize(x, self.data.label_values(y), index)
        position = int((~self.data.unseen[:index]).sum())
        state = jax.tree.map(lambda a: a[0, position], self.snapshot.clients)
        return trained.known(state, x, y, index)

    def personalize(self, new: tuple[np.ndarray, Any] | FederatedData) -> Any:
        """A model for a client that did not take part in training, from its own samples alone.

        ``new`` is ``(x, y)``, with labels as in the training data; no samples at all are fine where the method allows
        it (FedEM starts from uniform weights). `FederatedData` gives a list with a model for each of its clients.
        """
        if isinstance(new, FederatedData):
            trained, first = self.deployment, self.data.clients  # newcomers' ids come after those of training
            clients = enumerate(map(new.train.client, range(new.clients)), first)
            return [trained.personalize(x, new.label_values(y), id) for id, (x, y) in clients]
        if not (isinstance(new, tuple) and len(new) == 2):
            raise ValueError("give the new client's samples as a pair (x, y), or as FederatedData")
        return self.deployment.personalize(*new)

    def evaluate_new(self, data: FederatedData) -> Scores:
        """The scores of clients that join now: each fits its model to its own training samples."""
        data = aligned(data, self.data)
        with precision_of(self.server):
            return evaluate_joining(self.federation, self.server, self.settings[0]["seed"], data, self.data.clients)


def flat_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the history without nested records.

    >>> flat_line({"round": 1, "test_rmse": {"mean": 0.5}})
    {'round': 1, 'test_rmse_mean': 0.5}
    """
    found: dict[str, Any] = {}
    for name, value in line.items():
        found |= {f"{name}_{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {name: value}
    return found
