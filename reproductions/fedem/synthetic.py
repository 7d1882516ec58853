"""The experiments of the FedEM paper on its synthetic data, and their analogues on digits.

Settings are those of the authors' released code, which the paper leaves out: momentum 0.9 kept on the client (0 for
FedProx and pFedMe), weight decay 5e-4, batches of 128, learning rate ×0.1 at 1/2 and 3/4 of the rounds, one local
epoch, 200 rounds. Learning rates (and μ) come from the paper's own grids (App. I.2.3), chosen for every method by test
accuracy on *sibling data*, the same generator with another seed; on digits, by the validation part of each client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import majorant as mj
from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm
from majorant.data.federated import FederatedData, Ragged, concatenated_ranges, offsets_of
from majorant.engines.run import Run
from majorant.models.base import Model
from majorant.solvers import LocalSolver

RATES = tuple(10**exponent for exponent in (-0.5, -1, -1.5, -2, -2.5, -3))
PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)
TUNING_SEEDS = 3
SEEDS = 5


class Method(NamedTuple):
    """A method under the paper's settings, and what its grid varies."""

    make: Callable[[Model, FederatedData], Algorithm]
    grid: dict[str, tuple[float, ...]]


def sgd(momentum: float = 0.9) -> LocalSolver:
    """Local SGD as in the released code; the learning rate is set run by run."""
    return mj.local_sgd(
        0.1, epochs=1, batch_size=128, momentum=momentum, weight_decay=5e-4, schedule=mj.schedules.multi_step()
    )


METHODS = {
    "Local": Method(lambda m, d: mj.local(m, local=sgd()), {"lr": RATES}),
    "FedAvg": Method(lambda m, d: mj.fedavg(m, local=sgd()), {"lr": RATES}),
    "FedProx": Method(lambda m, d: mj.fedprox(m, mu=1.0, local=sgd(0)), {"lr": RATES, "mu": PENALTIES}),
    "FedAvg+": Method(lambda m, d: mj.fedavg_plus(m, local=sgd()), {"lr": RATES}),
    "Clustered FL": Method(lambda m, d: mj.clustered(m, clients=d.clients, local=sgd()), {"lr": RATES}),
    "pFedMe": Method(lambda m, d: mj.pfedme(m, mu=1.0, local=sgd(0)), {"lr": RATES, "mu": PENALTIES}),
    "APFL": Method(lambda m, d: mj.apfl(m, local=sgd()), {"lr": RATES, "alpha": (0.25, 0.5, 0.75)}),
    "MOCHA": Method(lambda m, d: mj.mocha(m, clients=d.clients), {"lambda": PENALTIES}),
    "FedEM": Method(lambda m, d: mj.fedem(m, components=3, local=sgd()), {"lr": RATES}),
    "FedEM, M = 4": Method(lambda m, d: mj.fedem(m, components=4, local=sgd()), {"lr": RATES}),
}


def synthetic(context: Context, variant: str = "released", seed: int = 12345, **options: Any) -> FederatedData:
    """The paper's synthetic data (fewer clients and test points in a quick run)."""
    size = {"clients": 30, "dimension": 20, "test_samples": 200} if context.quick else {}
    return mj.data.synthetic_mixture(variant=variant, seed=seed, **(size | options))


def sibling_data(context: Context, variant: str = "released") -> FederatedData:
    """Data from the same generator with another seed, for choosing hyperparameters."""
    return synthetic(context, variant, seed=54321, **({} if context.quick else {"test_samples": 1000}))


def rounds_of(context: Context, rounds: int) -> int:
    """The paper's number of rounds, or a few in a quick run."""
    return max(8, rounds // 20) if context.quick else rounds


def tuned(
    context: Context,
    name: str,
    data: FederatedData,
    rounds: int,
    more: dict[str, tuple[float, ...]] | None = None,
    part: str = "test",
    **options: Any,
) -> dict[str, float]:
    """The best point of a method's grid by its mean over seeds, all points side by side in one program."""
    method = METHODS[name]
    grid = {k: (more or {}).get(k, ()) + v for k, v in method.grid.items()}
    grid = {k: v[1:3] for k, v in grid.items()} if context.quick else grid
    context.tell(f"tuning {name}")
    algorithm = method.make(mj.models.linear(data), data)
    seeds = 1 if context.quick else TUNING_SEEDS
    run = mj.simulate(
        algorithm, data, rounds=rounds, grid=grid, seeds=seeds, evaluation=mj.Evaluation(every=rounds), **options
    )
    means = np.array([scores.summary(run.metric)[f"{part}_{run.metric}"]["mean"] for scores in run.scores])
    best = int(np.nanargmax(means.reshape(-1, seeds).mean(axis=1)))
    return dict(run.settings[best * seeds]["hyper"])


def trained(
    context: Context, name: str, data: FederatedData, rounds: int, hyper: dict[str, float], **options: Any
) -> Run:
    """A method on the data, for the given number of seeds."""
    context.tell(f"training {name}")
    return runs_of(context, METHODS[name].make(mj.models.linear(data), data), data, rounds, hyper, **options)


def runs_of(
    context: Context, algorithm: Algorithm, data: FederatedData, rounds: int, hyper: dict[str, float], **options: Any
) -> Run:
    """An algorithm on the data for the given number of seeds, evaluated at its end."""
    options = {"seeds": context.seeds or SEEDS, "evaluation": mj.Evaluation(every=rounds)} | options
    return mj.simulate(algorithm, data, rounds=rounds, hyper=hyper, **options)


def percent(run: Run, key: str = "test_accuracy", part: str = "mean") -> str:
    """A mean in per cent, with the standard deviation over seeds."""
    values = [100 * scores.summary(run.metric)[key][part] for scores in run.scores]
    spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


def written(hyper: dict[str, float]) -> str:
    """Hyperparameters for a table."""
    return ", ".join(f"{k}={v:.2g}" for k, v in hyper.items())


PAPER_TABLE2 = {
    "Local": "65.7 / 58.4",
    "FedAvg": "68.2 / 58.9",
    "FedProx": "68.2 / 59.0",
    "FedAvg+": "68.9 / 60.2",
    "Clustered FL": "69.1 / 59.0",
    "pFedMe": "69.2 / 61.2",
    "MOCHA": "73.4 / –",
    "FedEM": "74.7 / 66.7",
}


def table2(context: Context, variant: str = "released") -> list[Result]:
    """Table 2, synthetic row, and MOCHA of App. J.2: on data by the released generator.

    On data by the paper's text (``variant`` "paper") the paper's column is for orientation only.
    """
    data, sibling = synthetic(context, variant), sibling_data(context, variant)
    rounds, rows = rounds_of(context, 200), []
    for name, reported in PAPER_TABLE2.items():
        hyper = tuned(context, name, sibling, rounds)
        run = trained(context, name, data, rounds, hyper)
        row = [name, percent(run), percent(run, part="bottom_decile"), percent(run, "train_accuracy")]
        rows.append([*row, written(hyper), reported])
    title = f"Table 2, synthetic data, variant {variant!r}: test accuracy of personalized models, %"
    columns = ["method", "average", "bottom decile", "train", "tuned", "paper (average / bottom decile)"]
    return [Result(title, columns, rows, [data.describe()])]


def table3(context: Context) -> list[Result]:
    """Table 3's analogue: clients that join after training."""
    data = synthetic(context, unseen=0.2)
    rounds, rows = rounds_of(context, 200), []
    for name in ("FedAvg", "FedAvg+", "FedEM"):
        hyper = tuned(context, name, sibling_data(context), rounds)
        run = trained(context, name, data, rounds, hyper)
        unseen = f"{percent(run, 'unseen_accuracy')} ({percent(run, 'unseen_train_accuracy')})"
        rows.append([name, unseen, percent(run), written(hyper)])
    title = "Table 3 on the synthetic data: clients unseen at training, test accuracy (train), %"
    return [Result(title, ["method", "unseen clients", "clients that trained", "tuned"], rows, [data.describe()])]


def table7(context: Context) -> list[Result]:
    """Table 7, synthetic row: FedEM with as much computation as the others."""
    data, sibling = synthetic(context), sibling_data(context)
    rows = []
    for name, rounds, reported in (
        ("FedEM", 66, "73.2 (74.7)"),
        ("FedEM", 200, "74.7"),
        ("FedAvg", 200, "68.2 (68.7)"),
    ):
        hyper = tuned(context, name, sibling, rounds_of(context, rounds))
        run = trained(context, name, data, rounds_of(context, rounds), hyper)
        rows.append([name, rounds, f"{percent(run)} ({percent(run, 'train_accuracy')})", written(hyper), reported])
    title = "Table 7, synthetic row: a third of the rounds; test (train) accuracy, %"
    return [Result(title, ["method", "rounds", "accuracy", "tuned", "paper"], rows)]


def table8(context: Context) -> list[Result]:
    """Table 8, synthetic row: a fifth of the clients in each round."""
    paper = {"FedAvg": "68.2", "FedAvg+": "69.0", "pFedMe": "69.1", "APFL": "69.1", "FedEM": "74.7"}
    data, sibling = synthetic(context), sibling_data(context)
    some, rounds, rows = mj.participation.uniform(0.2), rounds_of(context, 1200), []
    for name, reported in paper.items():
        hyper = tuned(context, name, sibling, rounds_of(context, 200), participation=some)
        run = trained(context, name, data, rounds, hyper, participation=some)
        rows.append([name, percent(run), written(hyper), reported])
    title = "Table 8, synthetic row: 20 % of the clients in each of 1,200 rounds; test accuracy, %"
    notes = ["tuned with 200 rounds, under the same sampling"]
    return [Result(title, ["method", "accuracy", "tuned", "paper"], rows, notes)]


def figure1_sampling(context: Context) -> list[Result]:
    """Figure 1 (left)'s analogue: the share of clients sampled in each round."""
    data, shares = synthetic(context), (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    rounds, rows, curves = rounds_of(context, 200), [], {}
    for name in ("FedEM", "FedAvg+"):
        hyper = tuned(context, name, sibling_data(context), rounds)
        runs = [
            trained(context, name, data, rounds, hyper, participation=mj.participation.uniform(share))
            for share in shares
        ]
        rows.append([name, *(percent(run) for run in runs)])
        curves[name] = (list(shares), [100 * run.summary()["test_accuracy"]["mean"] for run in runs])
    title = "Figure 1 (left) on the synthetic data: test accuracy against the sampling rate, %"
    columns = ["method", *(f"{share:g}" for share in shares)]
    return [Result(title, columns, rows, [], curves, ("share of clients sampled", "test accuracy, %"))]


def figure1_components(context: Context) -> list[Result]:
    """Figure 1 (right)'s analogue: the number of components."""
    data, numbers = synthetic(context), (1, 2, 3, 4, 5)
    rounds, accuracy, decile = rounds_of(context, 200), [], []
    rows: list[list[Any]] = [["average"], ["bottom decile"]]
    hyper = tuned(context, "FedEM", sibling_data(context), rounds)
    for components in numbers:
        context.tell(f"training FedEM with {components} components")
        algorithm = mj.fedem(mj.models.linear(data), components=components, local=sgd())
        run = runs_of(context, algorithm, data, rounds, hyper)
        rows[0].append(percent(run))
        rows[1].append(percent(run, part="bottom_decile"))
        summary = run.summary()["test_accuracy"]
        accuracy.append(100 * summary["mean"])
        decile.append(100 * summary["bottom_decile"])
    curves = {"average": (list(map(float, numbers)), accuracy), "bottom decile": (list(map(float, numbers)), decile)}
    title = "Figure 1 (right) on the synthetic data (three true components): test accuracy against M, %"
    notes = [f"learning rate tuned for M = 3: {written(hyper)}"]
    return [Result(title, ["", *map(str, numbers)], rows, notes, curves, ("components M", "test accuracy, %"))]


def truncated(data: FederatedData, share: float) -> FederatedData:
    """Every client with only the first ``share`` of its training samples."""
    sizes = np.floor(share * data.train.sizes + 1e-9).astype(np.int64)
    rows = concatenated_ranges(data.train.offsets[:-1], sizes)
    return replace(data, train=Ragged(data.train.x[rows], data.train.y[rows], offsets_of(sizes)))


def figure2(context: Context) -> list[Result]:
    """Figure 2's analogue: how many samples an unseen client needs."""
    data, shares = synthetic(context, unseen=0.2), (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    rounds, rows, curves = rounds_of(context, 200), [], {}
    joining = replace(data, unseen=np.zeros(data.clients, bool)).take(data.unseen)
    for name in ("FedEM", "FedAvg+", "FedAvg"):
        hyper = tuned(context, name, sibling_data(context), rounds)
        run = trained(context._replace(seeds=1), name, data, rounds, hyper)
        scores = [run.evaluate_new(truncated(joining, share)) for share in shares]
        values = [100 * s.summary(run.metric)["unseen_accuracy"]["mean"] for s in scores]
        rows.append([name, *(f"{v:.1f}" for v in values)])
        curves[name] = (list(shares), values)
    title = "Figure 2 on the synthetic data: accuracy of unseen clients against the share of their samples they use, %"
    axes = ("share of the local training samples", "test accuracy of unseen clients, %")
    return [Result(title, ["method", *(f"{s:g}" for s in shares)], rows, [joining.describe()], curves, axes)]


def clusters(context: Context) -> list[Result]:
    """App. J.4: one component per client; recovered clusters and parameters."""
    from scipy.optimize import linear_sum_assignment

    rows = []
    for components in (2, 3):
        data = synthetic(context, "released", one_hot=True, components=components)
        context.tell(f"training FedEM with {components} components")
        local = sgd()._replace(schedule=mj.schedules.constant())
        algorithm = mj.fedem(mj.models.linear(data), components=components, local=local)
        runs = runs_of(context, algorithm, data, rounds_of(context, 200), {"lr": RATES[0]})
        for number in range(len(runs)):
            found = np.asarray(runs[number].server.value[0]["weight"])[..., 0]  # (M, d)
            true = data.truth["theta"]
            cosine = 1 - (found / norms(found)) @ (true / norms(true)).T  # found × true
            mine, theirs = linear_sum_assignment(cosine)
            match = np.zeros(components, int)
            match[mine] = theirs
            pi = runs.scores[number].values["pi"]
            guessed = match[pi.argmax(axis=1)]
            right = np.mean(guessed == data.truth["pi"].argmax(axis=1))
            weights = pi[:, np.argsort(match)]
            distance = 1 - np.mean(np.sum(weights * data.truth["pi"], axis=1) / norms(weights)[:, 0])
            seed = runs.settings[number]["seed"]
            rows.append(
                [components, seed, f"{100 * right:.1f} %", f"{cosine[mine, theirs].max():.1e}", f"{distance:.1e}"]
            )
    title = "App. J.4: clients from a single component each (paper: 100 %, ≤ 1e-2, ≤ 1e-8)"
    columns = ["M", "seed", "clusters recovered", "cosine distance of Θ (worst)", "of Π (mean)"]
    notes = [
        "learning rate 10^-0.5, constant: smaller or falling rates leave some seeds (with M = 3, at 0.1 and the"
        " released schedule, 4 of 12) in poorer local optima after 200 rounds"
    ]
    return [Result(title, columns, rows, notes)]


def norms(rows: np.ndarray) -> np.ndarray:
    """Euclidean norms of rows, as a column."""
    return np.linalg.norm(rows, axis=1, keepdims=True)


def digits(context: Context) -> list[Result]:
    """The comparison of Table 2 on scikit-learn's digits with skewed labels."""
    data = "digits:clients=20,partition=dirichlet,alpha=0.4"
    return on_digits(context, data, "labels Dirichlet(0.4) over clients")


def rotated_digits(context: Context) -> list[Result]:
    """The same on digits that are turned: four hidden clusters."""
    return on_digits(context, "rotated-digits:clients=20", "each client's digits are turned by one of four angles")


def on_digits(context: Context, text: str, note: str) -> list[Result]:
    """All methods on digits, tuned by the validation part of every client."""
    import warnings

    from majorant.app.catalogue import datasets

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # single-class clients are what such splits are about
        data = datasets.make(text)
    rounds, rows = rounds_of(context, 400), []
    for name in ("Local", "FedAvg", "FedProx", "FedAvg+", "Clustered FL", "pFedMe", "APFL", "FedEM", "FedEM, M = 4"):
        hyper = tuned(context, name, data, rounds, more={"lr": (1.0,)}, part="validation")
        run = trained(context, name, data, rounds, hyper)
        train = percent(run, "train_accuracy")
        rows.append([name, percent(run), percent(run, part="bottom_decile"), train, written(hyper)])
    title = f"{data.name}, 20 clients ({note}): test accuracy, %"
    notes = [data.describe(), f"{rounds} rounds; rates from 1 to 10^-3"]
    return [Result(title, ["method", "average", "bottom decile", "train", "tuned"], rows, notes)]
