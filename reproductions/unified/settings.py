"""The settings of the unified framework's experiments on images (Section 6): data, objectives, constants and runs.

**Data.** M = 20 devices, K of the ten classes each, n = 100 samples to train on and 300 to test on; see `few_classes`.
MNIST, Fashion-MNIST and CIFAR-10 in gray, as "a gray scale picture" is what the paper unrolls; its fourth set, KMNIST,
is left out. A quick run takes fewer clients and samples from scikit-learn's digits.

**Objectives.** Softmax regression without a bias or an L2 term; MT2 with Λ = 1 and λ = 1/K, MX2 with λ = 1/K, APFL2
with Λ = 1 and α_m = 0.05 K.

**Constants.** 𝓛' = 1 as in the paper, a bound for samples of unit norm: softmax has a second derivative of at most 1/2.
With M 𝓛^w and M 𝓛^β = (Λ𝓛' + λ, 𝓛' + λ) for MT2, (λ, 𝓛' + λ) for MX2, ((Λ + α²)𝓛', (1 − α)²𝓛') for APFL2 and K = 2,
the theory's p_w = 𝓛^w/(𝓛^w + 𝓛^β) is 0.5, 0.25 and 0.555, which are the paper's 0.5, 0.25 and 0.55; as printed, without
1/M in the 𝓛^β of MT2 and MX2, it would be 0.048 and 0.016. Without the rescaling of w by M^{−1/2}, 𝓛^w is M times as
large. μ = μ'/(3M) with the paper's μ' = 0.01: a guess, as the objective is not strongly convex.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

import majorant as mj
from majorant.app.reproduce import Context
from majorant.core import Algorithm
from majorant.data.federated import FederatedData
from majorant.data.few_classes import few_classes, gray
from majorant.engines.divergence import Diverged
from majorant.engines.run import Run
from majorant.objectives import apfl2, mixture, multi_task
from majorant.objectives.base import Constants, Objective

MODEL: dict[str, Any] = {"l2": 0.0, "bias": False}  # of every objective: softmax regression
SMOOTH = 1.0  # 𝓛'
CONVEX = 0.01  # μ'
ROUNDS, EVALUATIONS, SEEDS = 1000, 25, 5


class Setting(NamedTuple):
    """The numbers of the objectives."""

    lambda_: float
    relaxation: float = 1.0  # Λ
    alpha: float = 0.5
    rescale: bool = True


class Family(NamedTuple):
    """An objective, and its M 𝓛^w and M 𝓛^β."""

    make: Callable[[FederatedData, Setting], Objective]
    smooth: Callable[[Setting], tuple[float, float]]


def of_classes(k: int, *, rescale: bool = True) -> Setting:
    """The setting of Section 6.1 for K classes on each device."""
    return Setting(1 / k, 1.0, 0.05 * k, rescale)


FAMILIES = {
    "MT2": Family(
        lambda data, s: multi_task(data, lambda_=s.lambda_, relaxation=s.relaxation, rescale=s.rescale, **MODEL),
        lambda s: (s.relaxation * SMOOTH + s.lambda_, SMOOTH + s.lambda_),
    ),
    "MX2": Family(
        lambda data, s: mixture(data, lambda_=s.lambda_, rescale=s.rescale, **MODEL),
        lambda s: (s.lambda_, SMOOTH + s.lambda_),
    ),
    "APFL2": Family(
        lambda data, s: apfl2(data, alpha=s.alpha, relaxation=s.relaxation, rescale=s.rescale, **MODEL),
        lambda s: ((s.relaxation + s.alpha**2) * SMOOTH, (1 - s.alpha) ** 2 * SMOOTH),
    ),
}


def constants(family: str, setting: Setting, clients: int) -> Constants:
    """The constants that Section 6.1 works with, corrected.

    >>> found = constants("MX2", of_classes(2), clients=20)
    >>> round(found.sample_smooth_w / (found.sample_smooth_w + found.sample_smooth_beta), 3)
    0.25
    """
    w, beta = (value / clients for value in FAMILIES[family].smooth(setting))
    w = w if setting.rescale else clients * w
    return Constants(CONVEX / (3 * clients), w, beta, w, beta)


def families(context: Context) -> list[str]:
    """The objectives of a figure."""
    return ["MX2"] if context.quick else list(FAMILIES)


def image_sets(context: Context, k: int, *, samples: int = 100, test_samples: int = 300) -> dict[str, FederatedData]:
    """The data sets of a figure, all of them read before anything is computed."""
    if context.quick:
        x, y = mj.data.load_digits()
        return {"digits": few_classes(x, y, k=k, clients=6, samples=20, test_samples=40, name="digits")}
    context.tell("reading images")
    loaders: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        "MNIST": mj.data.load_mnist,
        "Fashion-MNIST": mj.data.load_fashion_mnist,
        "CIFAR-10": mj.data.load_cifar10,
    }
    sets = {}
    for name, load in loaders.items():
        x, y = load()
        x = gray(x) if x.shape[-1] == 3 else x
        sets[name] = few_classes(x, y, k=k, samples=samples, test_samples=test_samples, name=name)
    return sets


def notes_on(sets: Mapping[str, FederatedData], context: Context) -> list[str]:
    """What a reader of a figure must know about its data and runs."""
    first = next(iter(sets.values()))
    return [
        f"{first.clients} clients, {first.train.sizes[0]} training and {first.test.sizes[0]} test samples each; "
        "features standardised over the training samples of all clients, then samples scaled to norm 1",
        "digits in place of the image sets (a quick run)"
        if context.quick
        else "CIFAR-10 in gray; the paper's KMNIST is left out",
        f"{seeds_of(context)} seed(s) of the methods on the same data, ± standard error; accuracy is of the deployed "
        "personal model",
    ]


def seeds_of(context: Context) -> int:
    """How many runs differ in their seed only."""
    return context.seeds or (2 if context.quick else SEEDS)


class Trace(NamedTuple):
    """What is kept of runs that differ in their seed only, at every evaluation."""

    rounds: list[float]
    loss: np.ndarray  # F, (seeds, evaluations); NaN from where a run diverged
    accuracy: np.ndarray  # in per cent
    fit: np.ndarray  # the mean training loss of the deployed models
    iterations: float
    beta_steps: float  # gradients in β, of single samples, per client

    def curve(self, what: str) -> tuple[list[float], list[float]]:
        """The mean over seeds of "loss" or "accuracy" against rounds."""
        return self.rounds, getattr(self, what).mean(axis=0).tolist()

    def end(self, what: str = "loss") -> tuple[float, float]:
        """The mean over seeds after the last round, and its standard error."""
        return mean_and_error(getattr(self, what)[:, -1])


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """A mean and its standard error (0 for a single value).

    >>> mean_and_error(np.array([1.0, 3.0]))
    (2.0, 1.0)
    """
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
    return float(np.mean(values)), error


def written(found: tuple[float, float], digits: int = 3) -> str:
    """A mean and its standard error for a table."""
    mean, error = found
    if not np.isfinite(mean):
        return "diverged"
    return f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if error else "")


def trace(histories: Sequence[Sequence[Mapping[str, Any]]]) -> Trace:
    """The trace of runs from their histories."""
    of = lambda read: np.array([[read(line) for line in lines] for lines in histories], float)
    return Trace(
        [float(line["round"]) for line in histories[0]],
        of(lambda line: line["objective"]),
        of(lambda line: 100 * line["test_accuracy"]["mean"]),
        of(lambda line: line["train_loss"]),
        float(of(lambda line: line["iterations"])[:, -1].mean()),
        float(of(lambda line: line["gradients_beta"])[:, -1].mean()),
    )


def trained(context: Context, algorithm: Algorithm, data: FederatedData, **options: Any) -> Trace:
    """Runs of all seeds; what diverges is NaN.

    On a CPU seeds run one after the other: side by side, every round has as many steps as the longest of their draws,
    and as many gradients at control variates as there are rounds.
    """
    numbers = list(range(seeds_of(context)))
    groups = [[seed] for seed in numbers] if jax.default_backend() == "cpu" else [numbers]
    rounds, every = length(context)
    try:
        runs = [simulated(algorithm, data, rounds, every, seeds=group, **options) for group in groups]
    except Diverged:
        at = [float(r) for r in range(every, rounds + 1, every)]
        lost = np.full((len(numbers), len(at)), np.nan)
        return Trace(at, lost, lost, lost, np.nan, np.nan)
    return trace([lines for run in runs for lines in run.histories])


def by_rate(context: Context, algorithm: Algorithm, data: FederatedData, rates: Sequence[float]) -> list[Trace]:
    """Runs of all seeds for every learning rate, side by side in one program."""
    rounds, every = length(context)
    seeds = seeds_of(context)
    histories = simulated(algorithm, data, rounds, every, seeds=seeds, grid={"lr": list(rates)}).histories
    return [trace(histories[i * seeds : (i + 1) * seeds]) for i in range(len(rates))]


def simulated(algorithm: Algorithm, data: FederatedData, rounds: int, every: int, **options: Any) -> Run:
    """A simulation that measures F."""
    return mj.simulate(
        algorithm,
        data,
        rounds=rounds,
        evaluation=mj.Evaluation(every=every, diagnostics=True),
        resources=mj.Resources(clients="vmap"),
        **options,
    )


def length(context: Context) -> tuple[int, int]:
    """Rounds, and rounds between evaluations."""
    rounds, evaluations = (20, 2) if context.quick else (ROUNDS, EVALUATIONS)
    return rounds, rounds // evaluations
