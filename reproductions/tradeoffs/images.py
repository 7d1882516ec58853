"""Section 3 of the multi-objective paper: five agents with images and a coordinator who wants small parameters.

The text and the authors' notebooks differ (the errata): the notebooks have c = 10⁻² (i.i.d.) and 10⁻⁹ (two digits) in
S = (c/2) ‖Θ‖², the text 2·10² and 2·10⁷. So every experiment is run as

    notebooks             a fresh Adam every round (rate 0.01, batches of 64; two digits: 0.001, 50), 5×5 convolutions
                          of 8 and 16 and 64 dense units, own initial points, 9,600 + 2,400 images an agent (two
                          digits: 8,000 + 2,000)
    Table 1's network     its network and 8,000 + 2,000 images, one initial point; solver and c of the notebooks
    text                  that network, SGD with η = 10⁻³ and S₁ as printed, the step on (1 − λ) C_i + λ S₁
    text, implicit        the same with S₁'s proximal operator in place of its gradient
    text, notebooks' c    SGD with η = 10⁻³ and S of the notebooks

What neither states is chosen here: batches of 64 for SGD, one split of the images for all seeds (a seed decides on
initial points and batches), two digits drawn as they come rather than in equal parts. Runs of the same seed have the
same initial points and batches for every λ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from majorant_reproductions.tradeoffs.agents import AGENTS, LOADERS, Agents, Path, accuracy, agents, follow, macro_f1
from majorant_reproductions.tradeoffs.released import RELEASED, network, released, released_solver
from scipy import stats

import majorant as mj
from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm
from majorant.models.base import Model

LAMBDAS = (0.0, 0.25, 0.5, 0.65, 0.75, 0.87)
SHOWN = 0.87  # the λ of Tables 2, 3, 5 and 6
ROUNDS, EVERY, TABLE_ROUNDS = 50, 5, (1, 10, 20, 30, 40, 50)
PRINTED = {"iid": 2e2, "two-digits": 2e7}  # S₁ = (c/2) ‖Θ‖²
BITING, REFERENCE, MILD = (1e-4, 1e-3, 1e-2, 1e-1), 0.1, 1e-4
SWEPT = (0.25, 0.5, 0.75, 0.87)
SCORES = {"accuracy": accuracy, "F1": macro_f1}

PAPER_AGENTS: dict[str, dict[str, list[list[float]]]] = {
    "iid": {
        "accuracy": [
            [0.3900, 0.9367, 0.9367, 0.9429, 0.9371, 0.9396],
            [0.3804, 0.9317, 0.9346, 0.9371, 0.9317, 0.9325],
            [0.3825, 0.9342, 0.9379, 0.9392, 0.9417, 0.9383],
            [0.3842, 0.9267, 0.9279, 0.9329, 0.9313, 0.9317],
            [0.3842, 0.9371, 0.9383, 0.9396, 0.9387, 0.9363],
        ],
        "F1": [
            [0.3966, 0.9359, 0.9362, 0.9422, 0.9364, 0.9390],
            [0.3912, 0.9307, 0.9337, 0.9361, 0.9307, 0.9348],
            [0.3867, 0.9331, 0.9372, 0.9384, 0.9410, 0.9377],
            [0.3929, 0.9264, 0.9280, 0.9325, 0.9383, 0.9316],
            [0.3887, 0.9366, 0.9381, 0.9391, 0.9383, 0.9358],
        ],
    },
    "two-digits": {
        "accuracy": [
            [0.4790, 0.6450, 0.6805, 0.6330, 0.6950, 0.7670],
            [0.0000, 0.2735, 0.5040, 0.7295, 0.7875, 0.7575],
            [0.0000, 0.7390, 0.8295, 0.9195, 0.9120, 0.9015],
            [0.0000, 0.2720, 0.3875, 0.4705, 0.3915, 0.4390],
            [0.0000, 0.5610, 0.6570, 0.7215, 0.7105, 0.7160],
        ],
        "F1": [
            [0.3239, 0.1531, 0.1601, 0.1531, 0.1633, 0.1736],
            [0.0000, 0.0783, 0.1211, 0.1683, 0.1745, 0.1692],
            [0.0000, 0.1884, 0.2015, 0.2129, 0.2726, 0.2371],
            [0.0000, 0.0854, 0.1227, 0.1228, 0.1126, 0.1209],
            [0.0000, 0.1392, 0.1550, 0.1649, 0.1630, 0.1620],
        ],
    },
}
PAPER_LAMBDAS = {
    "iid": {
        "accuracy": [0.9837, 0.9846, 0.9728, 0.9657, 0.9538, 0.9409],
        "F1": [0.9836, 0.9845, 0.9727, 0.9655, 0.9535, 0.9404],
    },
    "two-digits": {
        "accuracy": [0.6600, 0.6943, 0.7771, 0.7212, 0.7505, 0.8056],
        "F1": [0.6389, 0.6820, 0.7755, 0.6919, 0.7366, 0.7999],
    },
}
TABLES = {"iid": {"accuracy": 2, "F1": 3, "test": 4}, "two-digits": {"accuracy": 5, "F1": 6, "test": 7}}


class Variant(NamedTuple):
    """A way to run an experiment: its network, sizes, options of the method, seeds, and who makes the method."""

    name: str
    network: str
    train: int
    validation: int
    options: dict[str, Any]
    seeds: int
    first_seed: int = 0
    make: Callable[..., Algorithm] = mj.tradeoffs.weighted_sum


def variants(setting: str) -> list[Variant]:
    """The five ways of the module's introduction."""
    ran, many = RELEASED[setting], {"iid": 5, "two-digits": 10}[setting]
    own = (9_600, 2_400) if setting == "iid" else (8_000, 2_000)
    sgd = mj.local_sgd(1e-3, epochs=1, batch_size=64)
    small, printed = mj.criteria.squared_norm(ran.factor), mj.criteria.squared_norm(PRINTED[setting])
    adam = released_solver(setting)
    return [
        Variant("notebooks", "released", *own, {"setting": setting}, many, make=released),
        Variant("Table 1's network", "paper", 8_000, 2_000, {"criteria": small, "local": adam}, 3),
        Variant("text", "paper", 8_000, 2_000, {"criteria": printed, "local": sgd}, 1),
        Variant("text, implicit", "paper", 8_000, 2_000, {"criteria": printed, "local": sgd, "step": "implicit"}, 1),
        Variant("text, notebooks' c", "paper", 8_000, 2_000, {"criteria": small, "local": sgd}, 3),
    ]


def build(variant: Variant, held: Agents) -> tuple[Algorithm, Model]:
    """The method and its network."""
    model = network(held.data, variant.network)
    return variant.make(model, **variant.options), model


def made_agents(context: Context, images: str, split: str, train: int, validation: int) -> Agents:
    """The agents, or small ones to see that all works."""
    if context.quick:
        return agents(LOADERS[images](), split, train=60, validation=20, test=200)
    return agents(LOADERS[images](), split, train=train, validation=validation)


def lengths(context: Context) -> tuple[int, int]:
    """Rounds, and between looks."""
    return (2, 1) if context.quick else (ROUNDS, EVERY)


def trained(context: Context, images: str, setting: str, variant: Variant, lambdas: Sequence[float]) -> Path:
    """All λ and seeds of a variant, in one program."""
    held = made_agents(context, images, setting, variant.train, variant.validation)
    rounds, every = lengths(context)
    count = 2 if context.quick else context.seeds or variant.seeds
    seeds = range(variant.first_seed, variant.first_seed + count)
    algorithm, model = build(variant, held)
    seen = len(lambdas) * count * rounds * len(held.data.train.y)
    context.tell(f"{images}, {setting}, {variant.name}: {len(lambdas)} λ × {count} seeds, {seen:,} images to train on")
    return follow(algorithm, model, held, lambdas=lambdas, seeds=seeds, rounds=rounds, every=every)


def iid(context: Context) -> list[Result]:
    """Experiment 1: Tables 2, 3 and 4."""
    return experiment(context, "MNIST", "iid")


def two_digits(context: Context) -> list[Result]:
    """Experiment 2: Tables 5, 6 and 7, whether λ has an effect, and a penalty that has one."""
    found = experiment(context, "MNIST", "two-digits")
    return [*found, sweep(context, "MNIST"), mild(context, "MNIST")]


def fashion(context: Context) -> list[Result]:
    """Both experiments as in the notebooks on Fashion-MNIST; the pairs of classes have the digits' numbers."""
    both = [experiment(context, "Fashion-MNIST", setting, only="notebooks") for setting in RELEASED]
    return [*both[0], *both[1], sweep(context, "Fashion-MNIST"), mild(context, "Fashion-MNIST")]


def experiment(context: Context, images: str, setting: str, only: str | None = None) -> list[Result]:
    """The tables of one experiment, for every variant of it."""
    lambdas = (0.0, 0.5, SHOWN) if context.quick else LAMBDAS
    chosen = [v for v in variants(setting) if only in (None, v.name)]
    paths = {v.name: trained(context, images, setting, v, lambdas) for v in chosen}
    compared = images == "MNIST"
    where = f"{images}, {'i.i.d.' if setting == 'iid' else 'two classes an agent'}"
    tables = [
        agents_table(where, setting, name, path, lambdas, score, compared)
        for name, path in paths.items()
        for score in SCORES
        if name in ("notebooks", "Table 1's network", "text, notebooks' c")
    ]
    return [
        lambda_table(where, setting, paths, lambdas, compared),
        trends(where, setting, paths, lambdas, compared),
        *tables,
    ]


def agents_table(
    where: str, setting: str, name: str, path: Path, lambdas: Sequence[float], score: str, compared: bool
) -> Result:
    """Every agent's validation score along the rounds for one λ, the paper's in brackets."""
    place = list(lambdas).index(SHOWN)
    values = SCORES[score](path.validation[:, place]).mean(axis=1)  # (points, agents), the mean over seeds
    columns = sorted({t for t in TABLE_ROUNDS if t in path.rounds} | {int(path.rounds[-1])})
    theirs = PAPER_AGENTS[setting][score]
    shown = lambda agent, t: (
        f"{values[list(path.rounds).index(t), agent]:.4f}"
        + (f" ({theirs[agent][TABLE_ROUNDS.index(t)]:.4f})" if compared and t in TABLE_ROUNDS else "")
    )
    rows = [[f"agent {i + 1}", *(shown(i, t) for t in columns)] for i in range(AGENTS)]
    number = f"Table {TABLES[setting][score]}, " if compared else ""
    scores = {f"agent {i + 1}": (path.rounds.tolist(), values[:, i].tolist()) for i in range(AGENTS)}
    seeds = path.test.shape[2]
    return Result(
        f"{number}{where}, {name}: validation {score}, λ = {SHOWN:g}",
        ["", *(f"t = {t}" for t in columns)],
        rows,
        [f"Means over {seeds} seeds" + ("; in brackets the paper's numbers." if compared else ".")],
        scores,
        ("round", f"validation {score}"),
    )


def lambda_table(where: str, setting: str, paths: dict[str, Path], lambdas: Sequence[float], compared: bool) -> Result:
    """Test scores at the end for every λ, with the deviation over seeds, and what became of the parameters."""
    rows: list[list[str]] = []
    for score, of in SCORES.items():
        if compared:
            rows.append(
                [f"the paper: {score}", *(f"{PAPER_LAMBDAS[setting][score][LAMBDAS.index(v)]:.4f}" for v in lambdas)]
            )
        for name, path in paths.items():
            rows.append([f"{name}: {score}", *(spread(each) for each in of(path.test[-1]))])
    for name, path in paths.items():
        rows.append([f"{name}: ‖Θ‖", *(f"{each.mean():.3g}" for each in path.norm)])
    rows += [
        [f"{name}: rejected updates, %", *(f"{100 * each.mean():.0f}" for each in path.rejected)]
        for name, path in paths.items()
        if path.rejected.any()
    ]
    theirs = {"the paper, one run": np.array(PAPER_LAMBDAS[setting]["accuracy"])} if compared else {}
    curves, bands = against_lambda(lambdas, theirs | {name: accuracy(path.test[-1]) for name, path in paths.items()})
    notes = [
        f"After {paths[next(iter(paths))].rounds[-1]} rounds; mean ± standard deviation over seeds: "
        + ", ".join(f"{path.test.shape[2]} ({name})" for name, path in paths.items())
        + ".",
        "An update that is infinite or NaN is rejected: a run whose updates all are keeps its initial point.",
    ]
    number = f"Table {TABLES[setting]['test']}, " if compared else ""
    columns = ["", *(f"λ = {value:g}" for value in lambdas)]
    return Result(f"{number}{where}: test scores", columns, rows, notes, curves, ("λ", "test accuracy"), bands)


def against_lambda(lambdas: Sequence[float], scores: dict[str, np.ndarray]) -> tuple[dict, dict]:
    """Curves of means over seeds, scores being ``(λ, seeds)`` or ``(λ,)``, and bands of a deviation."""
    curves, bands = {}, {}
    for name, values in scores.items():
        of = values.reshape(len(values), -1)[-len(lambdas) :]
        mean, deviation = of.mean(axis=1), of.std(axis=1, ddof=1) if of.shape[1] > 1 else 0.0
        curves[name] = (list(lambdas), mean.tolist())
        bands[name] = ((mean - deviation).tolist(), (mean + deviation).tolist())
    return curves, bands


def spread(values: np.ndarray) -> str:
    """A mean and a deviation.

    >>> spread(np.array([0.5, 0.7]))
    '0.6000 ± 0.1414'
    """
    deviation = values.std(ddof=1) if len(values) > 1 else 0.0
    return f"{values.mean():.4f} ± {deviation:.4f}"


class Trend(NamedTuple):
    """The slope of a score over λ: its mean over seeds, the standard error of that, and the p-value of a t test."""

    slope: float
    error: float
    p: float


def trend(lambdas: Sequence[float], scores: np.ndarray) -> Trend:
    """A line through each seed's scores ``(λ, seeds)``, then a t test of the mean slope against 0 over the seeds.

    Runs of one seed share initial points and batches, so slopes and not scores are what seeds repeat.

    >>> found = trend([0.0, 1.0], np.array([[0.0, 0.1, 0.2], [1.0, 1.2, 1.1]]))
    >>> round(found.slope, 3), found.error < 0.1, found.p < 0.05
    (1.0, True, True)
    """
    slopes = np.polyfit(np.asarray(lambdas, float), np.asarray(scores, float), 1)[0]
    mean, count = float(slopes.mean()), len(slopes)
    error = float(slopes.std(ddof=1) / count**0.5) if count > 1 else float("nan")
    if not error > 1e-12:  # one seed, or scores that do not vary at all
        return Trend(mean, error, float("nan"))
    return Trend(mean, error, 2 * float(stats.t.sf(abs(mean) / error, count - 1)))


def trends(where: str, setting: str, paths: dict[str, Path], lambdas: Sequence[float], compared: bool) -> Result:
    """Whether λ moves test scores."""
    rows: list[list[str]] = []
    for score, of in SCORES.items():
        if compared:
            theirs = stats.linregress(
                lambdas, [PAPER_LAMBDAS[setting][score][LAMBDAS.index(value)] for value in lambdas]
            )
            slope = f"{theirs.slope:+.3f} ± {theirs.stderr:.3f}"
            rows.append([f"the paper, one run: {score}", "1", slope, "", "", ""])
        for name, path in paths.items():
            scores = of(path.test[-1])  # (λ, seeds)
            rows.append([f"{name}: {score}", str(scores.shape[1]), *judged(lambdas, scores)])
    notes = [
        "Slope: the mean over seeds of a line through the λ, with its standard error over seeds; p: t test against 0."
        + (" The paper's standard error is that of one line's residuals." if compared else ""),
        "Between seeds: the mean over λ of the deviation over seeds at one λ. Between λ: the mean over seeds of the "
        "range over λ.",
    ]
    columns = ["", "seeds", "slope over λ", "p", "deviation between seeds", "range between λ"]
    return Result(f"{where}: does λ move test scores?", columns, rows, notes)


def judged(lambdas: Sequence[float], scores: np.ndarray) -> list[str]:
    """The cells of a trend."""
    found = trend(lambdas, scores)
    between = scores.std(axis=1, ddof=1).mean() if scores.shape[1] > 1 else float("nan")
    return [
        f"{found.slope:+.4f} ± {found.error:.4f}",
        f"{found.p:.2g}",
        f"{between:.4f}",
        f"{np.ptp(scores, axis=0).mean():.4f}",
    ]


def same_balance(weight: float, factor: float, reference: float) -> float:
    """The λ' for which λ'c'/(1 − λ') = λc/(1 − λ), c' the reference: the two weighted sums are multiples of each other.

    >>> round(same_balance(0.87, 0.1, 0.1), 6), round(same_balance(0.5, 0.01, 0.1), 6)
    (0.87, 0.090909)
    """
    balance = weight * factor / (1 - weight)
    return balance / (reference + balance)


def sweep(context: Context, images: str) -> Result:
    """Two digits an agent with penalties that bite."""
    factors = BITING[-1:] if context.quick else BITING
    pairs = [(c, value) for c in factors for value in SWEPT]
    lambdas = [0.0, *(same_balance(value, c, REFERENCE) for c, value in pairs)]
    base = variants("two-digits")[0]
    options = base.options | {"criteria": mj.criteria.squared_norm(REFERENCE)}
    path = trained(context, images, "two-digits", base._replace(options=options, seeds=5), lambdas)
    scores = {name: of(path.test[-1]) for name, of in SCORES.items()}
    rows, drawn = [], {}
    for i, c in enumerate(factors):
        places = [0, *range(1 + i * len(SWEPT), 1 + (i + 1) * len(SWEPT))]
        drawn[f"c = {c:g}"] = scores["accuracy"][places]
        for name, values in scores.items():
            rows.append(
                [f"c = {c:g}: {name}", *(spread(values[k]) for k in places), *judged([0.0, *SWEPT], values[places])[:2]]
            )
        rows.append([f"c = {c:g}: ‖Θ‖", *(f"{path.norm[k].mean():.3g}" for k in places), "", ""])
    notes = [
        f"As in the notebooks but for c; {path.rounds[-1]} rounds, {path.test.shape[2]} seeds, mean ± deviation.",
        f"All c and λ are one program with c' = {REFERENCE:g} and λ' of the same λc/(1 − λ): the sums are multiples of "
        "each other, to which Adam's steps are blind (up to its ε = 10⁻⁸).",
    ]
    columns = ["", "λ = 0", *(f"λ = {value:g}" for value in SWEPT), "slope over λ", "p"]
    curves, bands = against_lambda([0.0, *SWEPT], drawn)
    title = f"{images}, two classes an agent: penalties (c/2) ‖Θ‖² that bite"
    return Result(title, columns, rows, notes, curves, ("λ", "test accuracy"), bands)


def mild(context: Context, images: str) -> Result:
    """The mildest penalty of the sweep, which seemed to help, on seeds that the sweep has not seen."""
    base, lambdas = variants("two-digits")[0], (0.0, 0.25, 0.5)
    options = base.options | {"criteria": mj.criteria.squared_norm(MILD)}
    fresh = base._replace(name="mild", options=options, seeds=15, first_seed=100)
    path = trained(context, images, "two-digits", fresh, lambdas)
    rows = []
    for name, of in SCORES.items():
        values = of(path.test[-1])
        rows.append([name, *map(spread, values), *(gained(each - values[0]) for each in values[1:])])
    rows.append(["‖Θ‖", *(f"{each.mean():.3g}" for each in path.norm), "", ""])
    notes = [
        f"c = {MILD:g}, as in the notebooks otherwise; {path.test.shape[2]} seeds from 100 on, mean ± deviation; gains "
        "over λ = 0 seed by seed, with their standard error and the p-value of a t test.",
    ]
    columns = ["", *(f"λ = {value:g}" for value in lambdas), *(f"gain, λ = {value:g}" for value in lambdas[1:])]
    return Result(f"{images}, two classes an agent: the mildest penalty on other seeds", columns, rows, notes)


def gained(differences: np.ndarray) -> str:
    """A mean difference, its standard error, and the p-value of a t test.

    >>> gained(np.array([0.1, 0.2, 0.3]))
    '+0.2000 ± 0.0577 (p = 0.074)'
    """
    error = differences.std(ddof=1) / len(differences) ** 0.5
    p = float(stats.ttest_1samp(differences, 0).pvalue)
    return f"{differences.mean():+.4f} ± {error:.4f} (p = {p:.2g})"
