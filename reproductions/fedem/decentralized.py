"""The FedEM paper without a server (App. J.1), its rates (Theorems 3.2 and 3.3), and networks that fail.

J.1 trains D-FedEM on an Erdős–Rényi graph with p = 0.5 and fastest-mixing weights. The settings are those of the
client-server experiments (see `fedem`); the learning rate is chosen from the paper's grid on sibling data, with
Metropolis weights, which on this graph mix about as fast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from majorant_reproductions.fedem.synthetic import (
    METHODS,
    RATES,
    SEEDS,
    percent,
    rounds_of,
    runs_of,
    sibling_data,
    synthetic,
    tuned,
)

import majorant as mj
from majorant.app.report.diagnosis import BOUNDS
from majorant.app.reproduce import Context, Result
from majorant.data.federated import FederatedData
from majorant.engines.run import Run
from majorant.exchange.participation import Participation, bernoulli, full
from majorant.exchange.topology import Topology
from majorant.metrics.rates import fitted_slope

EVALUATIONS = 20


def best_rate(context: Context, topology: Topology | None, scaling: str = "sizes") -> float:
    """The learning rate of the paper's grid with the best accuracy on sibling data (no topology: with a server)."""
    if context.quick:
        return float(RATES[0])
    peers = None if topology is None else mj.gossip(topology, scaling=scaling)
    return tuned(context, "FedEM", sibling_data(context), rounds_of(context, 200), exchange=peers)["lr"]


def trained(context: Context, data: FederatedData, rate: float, label: str = "with a server", **options: Any) -> Run:
    """A run of all seeds with a curve."""
    context.tell(f"training FedEM {label}")
    rounds = rounds_of(context, 200)
    curve = mj.Evaluation(every=max(1, rounds // EVALUATIONS))
    algorithm = METHODS["FedEM"].make(mj.models.linear(data), data)
    return runs_of(context, algorithm, data, rounds, {"lr": rate}, evaluation=curve, **options)


def curve(run: Run) -> tuple[list[float], list[float]]:
    """Accuracy in per cent against rounds, the mean over seeds."""
    rounds = [line["round"] for line in run.history]
    values = np.mean([[line["test_accuracy"]["mean"] for line in lines] for lines in run.histories], axis=0)
    return rounds, (100 * values).tolist()


def first_above(run: Run, level: float) -> str:
    """The first evaluated round at which the mean curve has reached a level."""
    found = [r for r, value in zip(*curve(run), strict=True) if value >= level]
    return f"{found[0]:.0f}" if found else "–"


def last(run: Run, name: str) -> float:
    """A logged number at the end, the mean over seeds."""
    return float(np.mean([lines[-1][name] for lines in run.histories]))


def largest(run: Run, name: str) -> float:
    """The largest value of a logged number on the way, the mean over seeds."""
    return float(np.mean([max(line[name] for line in lines) for lines in run.histories]))


def decentralized(context: Context) -> list[Result]:
    """App. J.1: D-FedEM on an Erdős–Rényi graph beside FedEM, and on other networks."""
    data = synthetic(context)
    random = mj.topology.erdos_renyi(0.5)
    rate = best_rate(context, random)
    server = trained(context, data, best_rate(context, None))
    level = curve(server)[1][-1] - 1
    networks = {
        "Erdős–Rényi 0.5, fastest mixing": mj.topology.erdos_renyi(0.5, weights="fastest"),
        "Erdős–Rényi 0.5, Metropolis": random,
        "exponential": mj.topology.exponential(),
        "one-peer exponential": mj.topology.one_peer_exponential(),
        "random matchings": mj.topology.matching(),
        "torus": mj.topology.torus(),
        "ring": mj.topology.ring(),
    }
    networks = {name: networks[name] for name in (list(networks)[::6] if context.quick else networks)}
    decile = percent(server, part="bottom_decile")
    rows = [["server (FedEM)", "–", "–", percent(server), decile, "–", "–", first_above(server, level), "74.7"]]
    curves, gaps = {"server": curve(server)}, []
    for label, topology in networks.items():
        run = trained(context, data, rate, label, exchange=mj.gossip(topology))
        facts = run.summary()["network"]
        curves[label] = curve(run)
        gaps.append((facts["spectral_gap"], curves[label][1][-1]))
        rows.append(
            [
                label,
                f"{facts['spectral_gap']:.3g}",
                f"{facts['contraction']:.3g} / {facts['period']}",
                percent(run),
                percent(run, part="bottom_decile"),
                f"{largest(run, 'consensus_distance'):.2g}",
                f"{last(run, 'consensus_distance'):.2g}",
                first_above(run, level),
                "73.8" if "fastest" in label else "–",
            ]
        )
    unscaled = mj.topology.erdos_renyi(0.5)
    own_rate = best_rate(context, unscaled, "none")
    peers = mj.gossip(unscaled, scaling="none")
    released = trained(context, data, own_rate, "without scaling", exchange=peers)
    notes = [
        f"learning rate {rate:.2g}, chosen on sibling data on the Erdős–Rényi graph for all networks",
        f"'rounds': the first evaluation at or above {level:.1f} %, one point below FedEM's end",
        "p / τ: contraction over τ rounds of Assumption 8 (estimated from draws where links are random)",
        f"displacements not scaled by sizes, as in the released code (lr {own_rate:.2g}): {percent(released)} %, "
        f"consensus distance {last(released, 'consensus_distance'):.2g}",
    ]
    columns = ["network", "spectral gap", "p / τ", "average", "bottom decile"]
    columns += ["consensus, largest", "consensus, end", "rounds", "paper"]
    gaps.sort()
    return [
        Result(
            "App. J.1: D-FedEM on the released synthetic data, test accuracy, %",
            columns,
            rows,
            notes,
            curves,
            ("rounds", "test accuracy, %"),
        ),
        Result(
            "Accuracy after the last round against the spectral gap",
            ["spectral gap", "average"],
            [[f"{gap:.3g}", f"{value:.1f}"] for gap, value in gaps],
            [],
            {"D-FedEM": ([np.log10(gap) for gap, _ in gaps], [value for _, value in gaps])},
            ("log10 of the spectral gap", "test accuracy, %"),
        ),
    ]


def failures(context: Context) -> list[Result]:
    """Links that fail and nodes that leave and come back: training goes on."""
    data = synthetic(context)
    rate = best_rate(context, mj.topology.erdos_renyi(0.5))
    cases: dict[str, tuple[float, Participation]] = {
        "nothing fails": (0.0, full()),
        "10 % of the links": (0.1, full()),
        "30 % of the links": (0.3, full()),
        "70 % of the links": (0.7, full()),
        "20 % of the nodes away": (0.0, bernoulli(0.8)),
        "half of the nodes away": (0.0, bernoulli(0.5)),
        "30 % of the links, 20 % of the nodes": (0.3, bernoulli(0.8)),
    }
    rows, curves = [], {}
    for graph, make in (("Erdős–Rényi 0.5", lambda f: mj.topology.erdos_renyi(0.5, link_failure=f)),
                        ("exponential", lambda f: mj.topology.exponential(link_failure=f))):  # fmt: skip
        for label, (failing, present) in cases.items():
            run = trained(context, data, rate, label, participation=present, exchange=mj.gossip(make(failing)))
            curves[f"{graph}: {label}"] = curve(run)
            rejected = sum(line["rejected"] for lines in run.histories for line in lines)
            rows.append(
                [
                    graph,
                    label,
                    percent(run),
                    percent(run, part="bottom_decile"),
                    f"{last(run, 'consensus_distance'):.2g}",
                    rejected,
                ]
            )
    columns = ["network", "each round, at random", "average", "bottom decile", "consensus, end", "updates lost"]
    kept = {k.partition(": ")[2]: v for k, v in curves.items() if k.startswith("exp")}
    return [
        Result(
            "D-FedEM on networks that fail: released synthetic data, test accuracy, %",
            columns,
            rows,
            [f"learning rate {rate:.2g}; a node that is away neither trains nor talks in that round"],
            kept,
            ("rounds", "test accuracy, % (exponential graph)"),
        )
    ]


def rates(context: Context) -> list[Result]:
    """Theorems 3.2 and 3.3: a run for every K with the step a₀/√K, and the slope of the means over the rounds.

    A mixture of linear regressions, five local steps on batches of 8 without momentum: the squared loss is a Gaussian
    log-likelihood, smooth and bounded below, and gradients are unbiased. Every round is evaluated.
    """
    data = mixed_regressions(clients=16, samples=80, dimension=5)
    lengths = LENGTHS[:2] if context.quick else LENGTHS
    local = mj.local_sgd(1.0, steps=5, batch_size=8)
    em = mj.fedem(mj.models.linear(data), components=2, local=local)
    forms = {"FedEM (Theorem 3.2)": None, "D-FedEM on a ring (Theorem 3.3)": mj.gossip(mj.topology.ring())}
    seeds = context.seeds or SEEDS
    results = []
    for label, exchange in forms.items():
        means: dict[str, list[float]] = {}
        for k in lengths:
            context.tell(f"{label}, {k} rounds")
            options = {"rounds": k, "hyper": {"lr": A0 / np.sqrt(k)}, "seeds": seeds, "exchange": exchange}
            run = mj.simulate(em, data, evaluation=mj.Evaluation(every=1, diagnostics=True), **options)
            for bound in BOUNDS:
                if bound.name in run.history[0]:
                    values = [line[bound.name] for lines in run.histories for line in lines]
                    means.setdefault(bound.name, []).append(float(np.mean(values)))
        stated = {b.name: b for b in BOUNDS if b.name in means}
        slope = lambda values: f"{fitted_slope(np.array(lengths[-FITTED:]), np.array(values[-FITTED:])):.2f}"
        rows = [
            [stated[name].words, *(f"{v:.3g}" for v in values), slope(values), f"{stated[name].exponent:g}"]
            for name, values in means.items()
        ]
        logs = {stated[n].words: (np.log10(lengths).tolist(), np.log10(v).tolist()) for n, v in means.items()}
        results.append(
            Result(
                f"{label}: means over K rounds with step {A0:g}/√K",
                ["mean over the rounds of", *(f"K = {k}" for k in lengths), "slope", "theorem"],
                rows,
                [f"slope: least squares in logarithms over the last {FITTED} values of K; {seeds} seeds"],
                logs,
                ("log10 K", "log10 of the mean"),
            )
        )
    return results


def mixed_regressions(clients: int, samples: int, dimension: int) -> FederatedData:
    """Targets from two linear functions with unit noise, in proportions that differ from client to client."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(2, dimension))
    x = rng.normal(size=(clients, samples, dimension))
    first = rng.random((clients, samples)) < rng.dirichlet([0.5, 0.5], clients)[:, :1]
    y = np.where(first, x @ theta[0], x @ theta[1]) + rng.normal(size=(clients, samples))
    owner = np.repeat(np.arange(clients), samples)
    rows = x.reshape(-1, dimension).astype(np.float32)
    return FederatedData.from_arrays(rows, y.ravel().astype(np.float32), owner, split=(0.8, 0.0, 0.2), name="mixed")


LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # values of K
FITTED = 5  # the longest runs, on which a slope is fitted: the theorems are about large K
A0 = 0.25  # small enough that the theorems' condition on the step, J η ≤ 1/(2√2 L), holds from about 50 rounds on
