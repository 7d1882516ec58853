"""The unified framework's theory, measured: linear rates, rounds of communication, and who converges to the minimum.

Problems are small, solved to high precision by Newton's method, and run in double precision.

**Rates.** Theorem 7: an iteration of ACD-PFL contracts by 1 − θ. Theorem 8 states the order of ASVRCD-PFL's iteration
complexity and refers to Hanzely, Kovalev, Richtárik (2020), Theorem 4.1, whose Lyapunov function has three terms (the
distance of z, and F − F* at y and at v) that contract by 1 − γμ, 1 − θ_1/2 and 1 − ρθ_1/(2θ_2 + θ_1): the rate is the
least of the three. With Theorem 8's parameters it is at least min{ρ, √(ρμ/(2𝓛))}/4.

**Communication.** ACD-PFL needs O(√(L^w/μ) log 1/ε) rounds, whatever L^β is. So personal models that are tied together
loosely (mixture, with L^w = λ/M) need fewer rounds than a single model (traditional, with L^w = L').

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Sections 1 and 4.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from majorant_reproductions.unified.replicas import SMALLEST, standard_error, with_error

import majorant as mj
from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm
from majorant.data.federated import FederatedData
from majorant.engines.run import Run
from majorant.engines.settings import hyper_after_setup
from majorant.methods import acd, ascd, asvrcd, l2sgd_plus, lsgd, scd, svrcd
from majorant.metrics.rates import fitted_slope
from majorant.objectives import (
    Objective,
    mixture,
    multi_task,
    reference_solution,
    residual,
    traditional,
    weight_sharing,
)

SEEDS, EVALUATIONS = 10, 200
FITTED = (1e-2, 1e-11)  # F − F*, as a share of what it is at the start, between which rates are fitted
Made = Callable[[Objective, FederatedData], Algorithm]


def regressions(clients: int = 10, samples: int = 40, dimension: int = 6, spread: float = 1.0) -> FederatedData:
    """Linear regressions that differ from client to client; features fall from 1 to ``spread`` in scale."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients, samples, dimension)) * np.geomspace(1, spread, dimension)
    slopes = rng.normal(size=dimension) + 0.5 * rng.normal(size=(clients, dimension))
    y = np.einsum("mnd,md->mn", x, slopes) + 0.3 * rng.normal(size=(clients, samples))
    owner = np.repeat(np.arange(clients), samples)
    return FederatedData.from_arrays(x.reshape(-1, dimension), y.ravel(), owner, split=(1, 0, 0), task="regression")


def classifications(clients: int = 10, samples: int = 40, dimension: int = 6) -> FederatedData:
    """The same with the signs of what was drawn as labels."""
    data = regressions(clients, samples, dimension)
    owner, labels = np.repeat(np.arange(clients), data.train.sizes), (data.train.y > 0).astype(int)
    return FederatedData.from_arrays(data.train.x, labels, owner, split=(1, 0, 0))


def gaps(
    objective: Objective, data: FederatedData, make: Made, rounds: int, seeds: int, evaluations: int = EVALUATIONS
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Run]:
    """The rounds, iterations and F − F* (a share of that at the start) at evaluations, the latter two for each seed."""
    best, algorithm = reference_solution(objective, data), make(objective, data)
    every = max(1, rounds // evaluations)
    run = mj.simulate(
        algorithm, data, rounds=rounds, seeds=seeds, evaluation=mj.Evaluation(every=every, diagnostics=True)
    )
    column = lambda name: np.array([[line[name] for line in lines] for lines in run.histories])
    start = first_value(objective, data) - best.value
    return column("round")[0], column("iterations"), (column("objective") - best.value) / start, run


def first_value(objective: Objective, data: FederatedData) -> float:
    """F where all solvers start."""
    w, beta = objective.init(jax.random.key(0)), objective.init_personal(jax.random.key(0))
    all_beta = jax.tree.map(lambda a: np.broadcast_to(a, (objective.clients, *a.shape)), beta)
    return mj.objectives.reference.global_value(objective, data, w, all_beta)


def by_theory(make: Callable[..., Algorithm]) -> Made:
    """A method with its theorem's numbers, from the constants of all data together."""
    return lambda objective, data: make(objective, constants=objective.constants(data))


def rates(context: Context) -> list[Result]:
    """Linear rates, rounds against L^w/μ, and the lowest F − F*."""
    with jax.enable_x64(True):
        return [linear_rates(context), rounds_against_conditioning(context), lowest(context)]


def linear_rates(context: Context) -> Result:
    """Measured contraction per iteration beside the theorems'."""
    regression, classification = regressions(), classifications()
    problems: dict[str, tuple[FederatedData, Objective]] = {
        "mixture, logistic, l2 = 0.1": (classification, mixture(classification, lambda_=0.1, l2=0.1)),
        "mixture, logistic, l2 = 0.01": (classification, mixture(classification, lambda_=0.1, l2=0.01)),
        "multi-task, logistic, l2 = 0.01": (classification, multi_task(classification, lambda_=0.1, l2=0.01)),
        "weight sharing, least squares": (regression, weight_sharing(regression, shared=range(3), l2=0.01)),
    }
    methods: dict[str, tuple[Made, Callable[[dict, Any], float]]] = {
        "ACD-PFL": (by_theory(acd), lambda h, constants: h["theta"]),
        "ASVRCD-PFL": (by_theory(asvrcd), contraction_asvrcd),
    }
    seeds, rows, drawn = context.seeds or (2 if context.quick else SEEDS), [], {}
    for label, (data, objective) in list(problems.items())[-1 if context.quick else 0 :]:
        for name, (make, theory) in methods.items():
            context.tell(f"{name}, {label}")
            hyper = hyper_after_setup(make(objective, data), data)
            rate = theory(hyper, objective.constants(data))
            silent = 1 - (1 - hyper["p_w"]) * (1 - hyper.get("rho", 0.0))
            rounds = 40 if context.quick else int(np.ceil(30 * silent / rate))
            _, iterations, share, _ = gaps(objective, data, make, rounds, seeds)
            slopes = np.array([slope(x, y) for x, y in zip(iterations, share, strict=True)])
            measured = f"{np.nanmean(slopes):.2e} ± {standard_error(slopes):.0e}"
            rows.append([label, name, measured, f"{-np.log1p(-rate):.2e}", f"{np.nanmean(slopes) / rate:.1f}"])
            mean = np.maximum(share.mean(axis=0), SMALLEST)
            drawn[f"{name} | {label}"] = (iterations.mean(axis=0).tolist(), np.log10(mean).tolist())
    return Result(
        "Linear convergence: −d log(F − F*) per iteration",
        ["problem", "method", "measured", "theorem, at least", "ratio"],
        rows,
        [
            f"slopes fitted to single runs while F − F* is between {FITTED[0]:g} and {FITTED[1]:g} of what it is at "
            f"the start; {seeds} seeds ± standard error",
            "theorem: θ for ACD-PFL (Theorem 7), min{γμ, θ_1/2, ρθ_1/(2θ_2 + θ_1)} for ASVRCD-PFL (Theorem 8)",
        ],
        drawn,
        ("iterations", "log10 of (F − F*) / (F_0 − F*)"),
    )


def contraction_asvrcd(hyper: dict[str, float], constants: Any) -> float:
    """The least of the three contractions in ASVRCD-PFL's Lyapunov function."""
    one, two = hyper["theta_1"], hyper["theta_2"]
    return min(hyper["gamma"] * constants.mu, one / 2, hyper["rho"] * one / (2 * two + one))


def slope(iterations: np.ndarray, share: np.ndarray) -> float:
    """How fast the logarithm falls per iteration, by least squares over the fitted part of a run."""
    below, done = np.flatnonzero(share <= FITTED[0]), np.flatnonzero(share <= FITTED[1])
    begin, end = below[0] if len(below) else 0, done[0] if len(done) else len(share)
    inside = slice(begin, max(end, begin + 2))
    return float(-np.polyfit(iterations[inside], np.log(np.maximum(share[inside], SMALLEST)), 1)[0])


def rounds_until(share: np.ndarray, rounds: np.ndarray, level: float) -> np.ndarray:
    """For each seed, the first round at which F − F* is at most a share of what it is at the start."""
    reached = share <= level
    return np.where(reached.any(axis=1), rounds[reached.argmax(axis=1)], np.nan)


def rounds_against_conditioning(context: Context) -> Result:
    """ACD-PFL's rounds to 1e-8 while L^w/μ grows: with a smaller l2, and with larger shared features."""
    level, seeds = (1e-2 if context.quick else 1e-8), context.seeds or (2 if context.quick else 5)
    series: dict[str, list[tuple[str, FederatedData, Objective]]] = {"l2 falls": [], "shared features grow": []}
    parts: dict[str, Any] = {"shared": (0, 2, 4), "personal": (1, 3, 5)}
    data = regressions(spread=1e-3)
    for l2 in (1.0, 1e-1, 1e-2, 1e-3, 1e-4)[: 2 if context.quick else None]:
        series["l2 falls"].append((f"l2 = {l2:g}", data, residual(data, **parts, l2=l2)))
    for scale in (1.0, 3.0, 10.0, 30.0, 100.0)[: 0 if context.quick else None]:
        larger = scaled_columns(data, parts["shared"], scale)
        series["shared features grow"].append((f"times {scale:g}", larger, residual(larger, **parts, l2=1e-1)))
    rows, drawn, notes = [], {}, []
    for name, cases in series.items():
        if not cases:
            continue
        found = []
        for label, data, objective in cases:
            context.tell(f"ACD-PFL, {label}")
            constants = objective.constants(data)
            ratio = constants.smooth_w / constants.mu
            planned = 40 if context.quick else int(np.ceil(3 * np.sqrt(ratio) * np.log(1 / level))) + 20
            rounds, _, share, _ = gaps(objective, data, by_theory(acd), planned, seeds, 400)
            needed = rounds_until(share, rounds, level)
            found.append((ratio, float(np.mean(needed))))
            roots = constants.smooth_w**0.5, constants.smooth_beta**0.5
            bound = np.sqrt(ratio) * np.log(1 / level)
            rows.append(
                [name, label, f"{ratio:.3g}", f"{roots[0] / sum(roots):.2g}", with_error(needed), f"{bound:.3g}"]
            )
        x, y = np.array(found).T
        all_of_them, steepest = fitted_slope(x, y), fitted_slope(x[-3:], y[-3:])
        notes.append(
            f"{name}: rounds grow as (L^w/μ)^{all_of_them:.2f}, over the last three as (L^w/μ)^{steepest:.2f}; the "
            "theorem has the exponent 0.5"
        )
        drawn[name] = (np.log10(x).tolist(), np.log10(y).tolist())
    return Result(
        f"ACD-PFL: communication rounds until F − F* is {level:g} of what it is at the start",
        ["while", "problem", "L^w/μ", "p_w", "rounds", "√(L^w/μ) log(1/ε)"],
        rows,
        [*notes, f"residual objective, least squares; {seeds} seeds ± standard error"],
        drawn,
        ("log10 of L^w/μ", "log10 of rounds"),
    )


def scaled_columns(data: FederatedData, columns: tuple[int, ...], scale: float) -> FederatedData:
    """Data with some features multiplied by a number, with the same targets."""
    x = data.train.x.copy()
    x[:, list(columns)] *= scale
    owner = np.repeat(np.arange(data.clients), data.train.sizes)
    return FederatedData.from_arrays(x, data.train.y, owner, split=(1, 0, 0), task="regression")


LOWEST: dict[str, Made] = {
    "LSGD-PFL": by_theory(lsgd),
    "SCD-PFL": by_theory(scd),
    "ASCD-PFL": by_theory(ascd),
    "SVRCD-PFL": by_theory(svrcd),
    "ASVRCD-PFL": by_theory(asvrcd),
    "ASVRCD-PFL, warm start": by_theory(functools.partial(asvrcd, warm_up=True)),
    "L2SGD+": by_theory(l2sgd_plus),
    "ACD-PFL": by_theory(acd),
}


def lowest(context: Context) -> Result:
    """Who reaches the minimum, and where the others stall."""
    data = classifications()
    objective = mixture(data, lambda_=0.1, l2=0.05)
    seeds, rounds = context.seeds or (2 if context.quick else SEEDS), 30 if context.quick else 3000
    rows, drawn = [], {}
    for name, make in list(LOWEST.items())[:: 4 if context.quick else 1]:
        context.tell(name)
        at, iterations, share, _ = gaps(objective, data, make, rounds, seeds, 100)
        mean = np.maximum(share.mean(axis=0), SMALLEST)
        late = share[:, 3 * share.shape[1] // 4 :].mean(axis=1)
        first = np.flatnonzero(mean <= 1e-10)
        reached = f"{at[first[0]]:,}" if len(first) else "–"
        done = f"{iterations[:, -1].mean():,.0f}"
        levels = [f"{v:.1e}" if v > 1e-14 else "below 1e-14" for v in (mean.min(), late.mean())]
        rows.append([name, done, *levels, reached, PROMISED[name]])
        drawn[name] = (at.tolist(), np.log10(mean).tolist())
    return Result(
        f"The lowest F − F* of {rounds:,} rounds, as a share of what it is at the start",
        ["method", "iterations", "lowest", "mean of the last quarter", "rounds to 1e-10", "theory"],
        rows,
        [f"mixture objective, logistic, 10 clients with 40 samples, λ = 0.1, l2 = 0.05; means over {seeds} seeds"],
        drawn,
        ("communication rounds", "log10 of (F − F*) / (F_0 − F*)"),
    )


PROMISED = dict.fromkeys(LOWEST, "the minimum") | dict.fromkeys(("LSGD-PFL", "SCD-PFL"), "a noise level")
PROMISED["ASCD-PFL"] = "no theorem"


def personalization(context: Context) -> list[Result]:
    """ACD-PFL's rounds for mixtures of personal models, the more loosely tied the fewer, beside one model for all."""
    level, seeds, l2 = (1e-2 if context.quick else 1e-6), context.seeds or (2 if context.quick else SEEDS), 1e-3
    with jax.enable_x64(True):
        data = mj.data.heterogeneous_logistic(clients=4 if context.quick else 20, samples=200, sigma=1.0)
        single = traditional(data, l2=l2)
        steep = single.constants(data).smooth_w
        shares = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)[:: 3 if context.quick else 1]
        cases = {f"mixture, λ = {share:g} L'": mixture(data, lambda_=share * steep, l2=l2) for share in shares}
        rows, found = [], []
        for label, objective in (cases | {"traditional (one model)": single}).items():
            context.tell(label)
            constants = objective.constants(data)
            ratio = constants.smooth_w / constants.mu
            planned = 40 if context.quick else int(np.ceil(2 * np.sqrt(ratio) * np.log(1 / level))) + 40
            rounds, iterations, share, run = gaps(objective, data, by_theory(acd), planned, seeds, 400)
            needed = rounds_until(share, rounds, level)
            roots = constants.smooth_w**0.5, constants.smooth_beta**0.5
            accuracy = f"{100 * run.summary()['test_accuracy']['mean']:.1f} %"
            worked = np.nanmean(rounds_until(share, iterations.mean(axis=0), level))
            rows.append(
                [label, f"{roots[0] / sum(roots):.2g}", f"{ratio:.3g}", with_error(needed), f"{worked:,.0f}", accuracy]
            )
            found.append(float(np.mean(needed)))
    x = np.log10(shares).tolist()
    drawn = {
        "mixture": (x, np.log10(found[:-1]).tolist()),
        "traditional": (x, [float(np.log10(found[-1]))] * len(x)),
    }
    exponent = fitted_slope(np.array(shares)[-4:], np.array(found[:-1])[-4:])
    return [
        Result(
            f"ACD-PFL: communication rounds until F − F* is {level:g} of what it is at the start",
            ["objective", "p_w", "L^w/μ", "rounds", "iterations", "test accuracy"],
            rows,
            [
                "paper, Section 1.1 and Table 3: √(λ/μ') rounds for the mixture, √(L'/μ') for one model, up to a "
                "logarithm: personalization saves communication while λ is below L'",
                f"the exponent of λ over the last four is {exponent:.2f} (theory: at most 0.5)",
                f"heterogeneous logistic regressions, σ_h = 1, l2 = {l2:g}, {seeds} seeds ± standard error; the "
                "accuracy is that of the models at the end of the runs, which are longer",
            ],
            drawn,
            ("log10 of λ/L'", "log10 of rounds"),
        )
    ]
