"""What a simulation leaves behind: its history, every client's scores, and models to deploy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from majorant.core import Algorithm, Server
from majorant.data.federated import PARTS, FederatedData, aligned
from majorant.data.tabular import Encoding
from majorant.engines.deployment import PersonalModel, Trained, precision_of
from majorant.engines.stopping import number_of
from majorant.exchange.federation import Federation
from majorant.exchange.gossip import Peers
from majorant.metrics.scores import across_clients

if TYPE_CHECKING:
    from majorant.engines.snapshots import Snapshot


MUCH_PADDING = 0.5  # the share from which on a summary in words speaks of it
PADDED = {"memory": "rows in memory", "work": "rows worked on"}


class Scores(NamedTuple):
    """Each client's loss and score on its own samples, in the order of the clients."""

    values: dict[str, np.ndarray]  # train_loss, train_score, …, and pi where the method has mixture weights
    samples: dict[str, np.ndarray]  # of train, validation and test
    unseen: np.ndarray
    hostile: np.ndarray | None = None  # clients that attack: what is said of all is said of the others

    @classmethod
    def of(
        cls,
        values: dict[str, np.ndarray],
        data: FederatedData,
        unseen: np.ndarray,
        metric: str,
        hostile: np.ndarray | None = None,
    ) -> Scores:
        """Scores with the sizes of the data's parts; RMSE in the original units of the targets."""
        if metric == "rmse" and data.target_scale is not None:
            unit = data.target_scale.scale
            values = values | {name: unit * each for name, each in values.items() if name.endswith("_score")}
        return cls(values, {part: getattr(data, part).sizes for part in PARTS}, unseen, hostile)

    @property
    def seen(self) -> np.ndarray:
        """The honest clients that train."""
        return ~self.unseen if self.hostile is None else ~self.unseen & ~self.hostile

    def lost(self) -> bool:
        """Whether the models of most clients that train give NaN on their own training samples."""
        known = self.seen & (self.samples["train"] > 0)
        return 2 * int(np.isnan(self.values["train_loss"][known]).sum()) > int(known.sum())

    def summary(self, metric: str) -> dict[str, Any]:
        """Weighted means, bottom deciles and standard deviations: seen clients, then unseen ones."""
        seen, new = self.seen, self.unseen
        found: dict[str, Any] = {}
        for part, samples in self.samples.items():
            if f"{part}_score" not in self.values or (metric == "objective" and not samples.any()):
                continue
            score, loss = self.values[f"{part}_score"], self.values[f"{part}_loss"]
            found[f"{part}_{metric}"] = across_clients(score[seen], samples[seen], metric)
            there = seen & (samples > 0)  # of a silo that did not answer nothing is known
            if there.any():
                found[f"{part}_loss"] = float(np.average(loss[there], weights=samples[there]))
            if new.any():
                name = f"unseen_{metric}" if part == "test" else f"unseen_{part}_{metric}"
                found[name] = across_clients(score[new], samples[new], metric)
        return found

    def table(self, names: Sequence[str], metric: str) -> dict[str, Any]:
        """A column per fact about clients, for files and figures."""
        columns: dict[str, Any] = {
            "name": list(names),
            "unseen": self.unseen.astype(int),
            **({} if self.hostile is None else {"hostile": self.hostile.astype(int)}),
            "train_samples": self.samples["train"],
            "test_samples": self.samples["test"],
        }
        for part in ("train", "test"):
            if f"{part}_score" in self.values:
                columns[f"{part}_{metric}"] = self.values[f"{part}_score"]
        for m, weights in enumerate(self.values["pi"].T if "pi" in self.values else []):
            columns[f"pi_{m + 1}"] = weights
        return columns


class Summary(dict):
    """The numbers of a run as a dictionary that prints readably."""

    def __str__(self) -> str:
        metric = self["metric"]
        several = f", {self['runs']} runs (means over them)" if self["runs"] > 1 else ""
        rounds = f"{self['rounds']} rounds" + (f" (stopped by {self['stopped']})" if self.get("stopped") else "")
        if "kept_round" in self:
            rounds += f", models of round {', '.join(map(str, self['kept_round']))}"
        lines = [f"{self['algorithm']} on {self['dataset']}: {rounds}, {self['clients']} clients{several}"]
        for name in (f"test_{metric}", f"train_{metric}", f"unseen_{metric}"):
            if name in self:
                s = self[name]
                tail = "bottom decile" if metric == "accuracy" else "worst decile"
                lines.append(
                    f"  {name.replace('_', ' '):16s} {shown(s['mean'], metric)}{between(s, metric)} mean,"
                    f" {shown(s['bottom_decile'], metric)} {tail}, {shown(s['std'], metric)} std over clients"
                )
        lines += [
            f"  {name:16s} {text}" for name, text in (("objective", distance(self)), ("a client", work(self))) if text
        ]
        if self.get("rejected"):
            such = ", ".join(repr(name) for name in self.get("rejected_clients", [])[:3])
            lines.append(
                f"  rejected         {self['rejected']} updates" + (f", such as those of {such}" if such else "")
            )
        if "privacy" in self:
            lines += [f"  {'privacy':16s} {line}" for line in promised(self["privacy"])]
        if "attack" in self:
            hostile = len(self["attack"]["hostile"])
            who = f"{hostile} client{'s' * (hostile != 1)}"
            lines.append(f"  under attack     {self['attack']['name']} by {who}; scores are of the honest ones")
        if max((empty := self.get("padding", {"memory": 0.0})).values()) >= MUCH_PADDING:
            shares = ", ".join(f"{100 * share:.0f} % of the {PADDED[what]}" for what, share in empty.items())
            lines.append(f"  padding          {shares}: the clients' sizes differ much")
        up, down = self["communication"]["bytes_up"], self["communication"]["bytes_down"]
        spent = ", ".join(f"{k} {v:.1f} s" for k, v in self["seconds"].items())
        return "\n".join([*lines, f"  sent {megabytes(up)} up, {megabytes(down)} down; {spent}"])

    __repr__ = __str__


def flat_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the history without nested records.

    >>> flat_line({"round": 1, "test_rmse": {"mean": 0.5}})
    {'round': 1, 'test_rmse_mean': 0.5}
    """
    found: dict[str, Any] = {}
    for name, value in line.items():
        found |= {f"{name}_{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {name: value}
    return found


def distance(summary: dict[str, Any]) -> str:
    """The objective at the end, and how far it is from its minimum, in words.

    >>> distance({"objective": 0.5, "suboptimality": 1e-9, "gradient_norm": 2e-5})
    'F = 0.5, F − F* = 1e-09, gradient norm 2e-05'
    """
    words = {"objective": "F = {:.6g}", "suboptimality": "F − F* = {:.3g}", "gradient_norm": "gradient norm {:.3g}"}
    return ", ".join(form.format(summary[name]) for name, form in words.items() if name in summary)


def work(summary: dict[str, Any]) -> str:
    """The gradients that a client has computed, in words.

    >>> work({"gradients": {"w": 1200.0, "beta": 4000.0}, "iterations": 52.0})
    '1,200 gradients in w, 4,000 in β, in 52 iterations'
    """
    if "gradients" not in summary:
        return ""
    w, beta = summary["gradients"]["w"], summary["gradients"]["beta"]
    steps = f", in {summary['iterations']:,.0f} iterations" if "iterations" in summary else ""
    return f"{w:,.0f} gradients in w, {beta:,.0f} in β{steps}"


def promised(privacy: Mapping[str, Any]) -> list[str]:
    """The guarantee of a run in words."""
    drawn = {"server": "at the server", "client": "at every client", "together": "by all clients together"}
    noise = f"noise {privacy['noise_multiplier']:g} × {privacy['clip']:.3g}, drawn {drawn[privacy['noise_at']]}"
    whole = (
        f"; all {privacy['runs']} runs together ε = {privacy['epsilon_of_all_runs']:.3g}" if "runs" in privacy else ""
    )
    return [
        f"ε = {privacy['epsilon']:.3g} at δ = {privacy['delta']:g} for a {privacy['unit']}, {noise}{whole}",
        f"protects {privacy['protects']}",
    ]


def between(score: dict[str, float], metric: str) -> str:
    """The standard deviation between runs, where there are several."""
    return f" ± {shown(score['std_over_runs'], metric)}" if "std_over_runs" in score else ""


def shown(value: float | None, metric: str) -> str:
    """A score for people: accuracies in per cent; a dash where it is not known.

    >>> shown(0.5, "accuracy"), shown(None, "rmse")
    ('50.0 %', '–')
    """
    if value is None:
        return "–"
    return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.4g}"


def megabytes(count: float) -> str:
    """Bytes for people.

    >>> megabytes(2_500_000)
    '2.5 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


class Run:
    """One or several runs of an algorithm, on the same data or each on its own; ``run[i]`` is a single one."""

    def __init__(
        self,
        federation: Federation,
        data_sets: Sequence[FederatedData],
        settings: list[dict[str, Any]],
        histories: list[list[dict[str, Any]]],
        scores: list[Scores],
        snapshot: Snapshot,
        seconds: dict[str, float],
        communication: list[dict[str, int]],
        metric: str,
        rounds: int,
        stopped: str | None = None,
        optimum: float | None = None,
        last: Snapshot | None = None,
        encoding: Encoding | None = None,
        origin: Mapping[str, Any] = MappingProxyType({}),
        padding: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.encoding, self.origin = encoding, origin  # of a table, and for models that are saved
        self.federation, self.data_sets, self.settings, self.histories = federation, data_sets, settings, histories
        self.scores, self.snapshot, self.seconds, self.communication = scores, snapshot, seconds, communication
        self.metric, self.rounds, self.stopped, self.optimum = metric, rounds, stopped, optimum
        self.padding = padding  # the share of training rows without a sample
        self.last = last or snapshot  # at the last round, to resume from; models are those of ``snapshot``

    def __len__(self) -> int:
        return len(self.settings)

    def __repr__(self) -> str:
        return f"<Run of {self.federation.name} on {self.data.name}: {self.rounds} rounds, {len(self)} run(s)>"

    def __getitem__(self, index: int) -> Run:
        """A single run (its times are those of all runs together)."""
        from majorant.engines.snapshots import some_runs

        index = range(len(self))[index]
        some = slice(index, index + 1)
        return Run(
            self.federation,
            self.data_sets[some],
            self.settings[some],
            self.histories[some],
            self.scores[some],
            some_runs(self.snapshot, [index]),
            self.seconds,
            self.communication[some],
            self.metric,
            self.rounds,
            self.stopped,
            self.optimum,
            some_runs(self.last, [index]),
            self.encoding,
            self.origin,
            self.padding,
        )

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
        scale, clients = self.data.target_scale, self.data.clients
        more = (scale, self.encoding, {"clients": clients, "seed": seed} | dict(self.origin))
        server = self.server._replace(channel=())  # is told to clients that train
        return Trained(self.federation, server, seed, self.data.classes, features, clients, *more)

    def model(self, client: int | str) -> PersonalModel:
        """The model of one of the data's clients, by index or name."""
        known = (
            client in self.data.names if isinstance(client, str) else -self.data.clients <= client < self.data.clients
        )
        if not known:
            raise ValueError(f"there is no client {client!r}: names are {', '.join(self.data.names[:10])}, …")
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
        from majorant.engines.joining import evaluate_joining

        data = aligned(data, self.data)
        with precision_of(self.server):
            return evaluate_joining(self.federation, self.server, self.settings[0]["seed"], data, self.data.clients)
