"""Section 5 of the unified framework's paper: solvers of personalized objectives on synthetic logistic regressions.

5.1 (Figure 1, Table 4) minimises the mixture objective (11) with λ = σ_h/100, 5.2 (Figure 2, Table 5) the objective
(16) of shared weights, which has no λ (the text refers to (11) there, too). M = 20 clients with n = 1,000 samples each,
15 coefficients and no bias, 30 data sets for every level of heterogeneity σ_h. All starts at zero, in double precision.

Constants, as in "Tuning parameters": 𝓛' = max ‖x‖²/4, 𝓛^w and 𝓛^β from it, μ = μ'/(3M) with μ' the least eigenvalue of
the mean Hessian at the true coefficients. ASCD-PFL has η, γ, ν of Theorem 8 and θ = min{0.8, 1/η} (`paper_ascd`) or
Theorem 8's θ_1. LSGD-PFL has τ = 5 and B = 1. Its η is 0.01 in the paper, for an update whose β-step lacks the factor
1/M; here that step would be η/20, so η is also chosen from a grid, on five more data sets.

Rounds of the coordinate methods have 1/p_w iterations on average (720, 240 and 74 for the three levels in 5.1), and
control variates are refreshed once in n rounds: the numbers of rounds below are a few refreshes.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from majorant_reproductions.unified.paper_ascd import paper_ascd
from majorant_reproductions.unified.replicas import (
    Method,
    Path,
    Problem,
    curvature_at_minimum,
    curvature_at_truth,
    errors,
    first_below,
    follow,
    log_curve,
    make_problem,
    minimum,
    prepared,
    repeated,
    side_by_side,
    start,
    with_error,
)

import majorant as mj
from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm, Terms, Tree
from majorant.data.federated import FederatedData
from majorant.methods import ascd, asvrcd, l2sgd_plus, lsgd, pfedme
from majorant.methods._coordinate_theory import block_numbers
from majorant.models.functions import from_functions
from majorant.objectives import Constants, Objective, mixture, weight_sharing

REPLICAS, EVALUATIONS, TAU = 30, 50, 5
RATES = (0.01, 0.03, 0.1, 0.2, 0.3, 1.0, 3.0, 10.0, 30.0)  # for LSGD-PFL; 0.2 makes its step on β the paper's, 0.01
TUNING_DATA = 5  # data sets on which η is chosen, of other seeds than those that are reported
LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # of F − F*, whose first iterations are told
STALLED = 0.25  # of the rounds that ASCD-PFL is run for: it has stalled by then
TIMED_ITERATIONS = 10_000


def momentum_point(snapshot: Any) -> Any:
    """(w, all β_m) of a coordinate method."""
    return snapshot.server.value.w.y, snapshot.clients.beta.y


def coordinate(make: Callable, **options: Any) -> Method:
    """A coordinate method with numbers from theory."""
    return Method(lambda f, constants: make(f, constants=constants, **options), momentum_point)


LSGD = Method(
    lambda f, constants: lsgd(f, lr=0.01, tau=TAU, batch_size=1),
    lambda snapshot: (snapshot.server.value, snapshot.clients.beta),
)


def averaging(f: Objective, constants: Constants) -> Algorithm:
    """L2SGD+ with the p and the step of ASVRCD-PFL, as in the paper."""
    like = block_numbers(True, constants, Terms(), None, None)
    return l2sgd_plus(f, constants=constants, p_w=float(like["p_w"]), lr=float(like["lr"]))


def envelopes(f: Objective, constants: Constants) -> Algorithm:
    """pFedMe with R = 20, K = 5, batches of 5 and η = 0.005; the inner step is not in the paper."""
    assert f.penalty is not None
    start = f.init_personal(jax.random.key(0))
    model = from_functions(
        lambda key: jax.tree.map(jax.numpy.zeros_like, start),
        lambda params, x: x @ params["weight"],
        mj.models.Spec((start["weight"].shape[0],), 2),
    )
    local = mj.local_sgd(INNER_RATE, steps=20, batch_size=5)
    made = pfedme(model, mu=f.penalty.lambda_, local=local, variant="paper", inner_steps=5, outer_lr=0.005)
    log = lambda server: {"iterations": STEPS["pFedMe"] * jax.numpy.asarray(server.round)}
    return made._replace(diagnostics=made.diagnostics._replace(log=log))


def of_means(beta: Callable[[Any], Tree]) -> Callable[[Any], tuple[Tree, Tree]]:
    """(w, all β_m) of a method whose server has M^(−1/2) w."""

    def at(snapshot: Any) -> tuple[Tree, Tree]:
        own = beta(snapshot.clients)
        clients = jax.tree.leaves(own)[0].shape[1]
        return jax.tree.map(lambda a: clients**0.5 * a, snapshot.server.value), own

    return at


STEPS = {"LSGD": TAU, "pFedMe": 100}  # in a round
INNER_RATE = 0.01  # of pFedMe
GENERAL: dict[str, tuple[Method, float]] = {  # and the share of the rounds that it is run for
    "ASCD-PFL (θ of the paper)": (coordinate(paper_ascd), STALLED),
    "ASCD-PFL (θ of Theorem 8)": (coordinate(ascd), STALLED),
    "ASVRCD-PFL": (coordinate(asvrcd), 1.0),
}
BASELINES = {
    "L2SGD+": (Method(averaging, of_means(lambda clients: clients.x)), 1.0),
    "pFedMe": (Method(envelopes, of_means(lambda clients: clients.theta)), 1.0),
}
TIMED = {
    "LSGD": LSGD,
    "ASCD": GENERAL["ASCD-PFL (θ of the paper)"][0],
    "ASVRCD": GENERAL["ASVRCD-PFL"][0],
    "pFedMe": BASELINES["pFedMe"][0],
    "L2SGD+": BASELINES["L2SGD+"][0],
}


class Setting(NamedTuple):
    """One of the two experiments."""

    section: str
    says: str  # what the paper reports
    table: str
    make: Callable[[float], Callable[[FederatedData], Objective]]  # of σ_h
    data: dict[str, Any]
    rounds: dict[float, int]  # for each σ_h
    seconds: dict[str, tuple[float, ...]]  # the paper's times
    methods: dict[str, tuple[Method, float]] = GENERAL


MIXTURE = Setting(
    section="5.1",
    says="paper: ASVRCD-PFL and L2SGD+ reach the lowest loss; LSGD-PFL suffers from heterogeneity, ASVRCD-PFL does not",
    table="Table 4",
    make=lambda sigma: lambda data: mixture(data, lambda_=sigma / 100, l2=0.0, bias=False),
    data={},
    rounds={0.1: 1500, 0.3: 2000, 1.0: 3000},
    seconds={
        "LSGD": (260.98, 256.16, 237.18),
        "ASCD": (28.79, 51.71, 142.59),
        "ASVRCD": (47.94, 97.61, 274.60),
        "pFedMe": (399.33, 370.42, 370.35),
        "L2SGD+": (25.83, 47.59, 182.29),
    },
    methods=GENERAL | BASELINES,
)
SHARING = Setting(
    section="5.2",
    says="paper: ASCD-PFL is fast at first, ASVRCD-PFL ends lower, both are much better than LSGD-PFL",
    table="Table 5",
    make=lambda sigma: lambda data: weight_sharing(data, shared=range(10), l2=0.0, bias=False),
    data={"shared": 10},
    rounds=dict.fromkeys((5.0, 10.0, 15.0), 8000),
    seconds={"LSGD": (238.01, 237.67, 234.33), "ASCD": (17.00, 16.55, 16.46), "ASVRCD": (23.35, 22.12, 23.51)},
)


def figure1(context: Context) -> list[Result]:
    """Section 5.1: the mixture objective."""
    return section(context, MIXTURE)


def figure2(context: Context) -> list[Result]:
    """Section 5.2: the weight-sharing objective."""
    return section(context, SHARING)


def section(context: Context, setting: Setting) -> list[Result]:
    """Curves and tables of one of the two experiments."""
    levels = list(setting.rounds)[-1:] if context.quick else list(setting.rounds)
    rounds = {sigma: 20 if context.quick else setting.rounds[sigma] for sigma in levels}
    replicas = context.seeds or (2 if context.quick else REPLICAS)
    with jax.enable_x64(True):
        context.tell("minima")
        problems = {sigma: draw(setting, sigma, range(replicas), quick=context.quick) for sigma in levels}
        rates = {}
        for sigma in levels:
            context.tell(f"choosing η, σ_h = {sigma:g}")
            seeds = range(1000, 1001 if context.quick else 1000 + TUNING_DATA)
            rates[sigma] = best_rate(draw(setting, sigma, seeds, quick=context.quick), rounds[sigma])

        def job(sigma: float, name: str) -> Path:
            context.tell(f"{name}, σ_h = {sigma:g}")
            method, share = setting.methods.get(name, (LSGD, 1.0))
            hyper = {} if name in setting.methods else {"lr": lsgd_rates(rates[sigma])[name]}
            return follow(problems[sigma], method, max(1, round(share * rounds[sigma])), EVALUATIONS, hyper)

        some = list(setting.methods)[2:] if context.quick else list(setting.methods)
        jobs = [(sigma, name) for sigma in levels for name in [*lsgd_rates(rates[sigma]), *some]]
        paths = dict(zip(jobs, side_by_side(*(functools.partial(job, *which) for which in jobs)), strict=True))
        context.tell("times")
        return [
            *curves(setting, problems, paths, rates),
            times(setting, problems, ["ASVRCD"] if context.quick else list(setting.seconds)),
        ]


def draw(setting: Setting, sigma: float, seeds: Iterable[int], *, quick: bool) -> Problem:
    """The problem at one level of heterogeneity, on a data set for each seed."""
    size = {"clients": 4, "samples": 40} if quick else {}
    make = functools.partial(mj.data.heterogeneous_logistic, sigma=sigma, test_samples=1, **setting.data, **size)
    mu = lambda data: curvature_at_truth(data) / (3 * data.clients)
    return make_problem(setting.make(sigma), [make(seed=seed) for seed in seeds], mu)


def lsgd_rates(best: float) -> dict[str, float]:
    """LSGD-PFL with the paper's η and with the chosen one."""
    return {"LSGD-PFL, η = 0.01": 0.01, "LSGD-PFL, η chosen": best}


def best_rate(problem: Problem, rounds: int) -> float:
    """The η of the grid with the least mean F − F* at the end, all of them in one program."""
    count = len(problem.data)
    hyper = {"lr": [rate for rate in RATES for _ in range(count)]}
    path = follow(repeated(problem, len(RATES)), LSGD, rounds, 1, hyper)
    return float(RATES[int(np.nanargmin(path.gap[:, -1].reshape(len(RATES), count).mean(axis=1)))])


def curves(
    setting: Setting, problems: dict[float, Problem], paths: dict[tuple[float, str], Path], rates: dict[float, float]
) -> list[Result]:
    """Training loss against rounds and against iterations, and the estimation error."""
    some = next(iter(problems.values()))
    name = f"Section {setting.section}, {some.objective.name} objective"
    rows: list[list[list[Any]]] = [[], [], []]
    drawn: list[dict[str, Any]] = [{}, {}, {}]
    bands: list[dict[str, Any]] = [{}, {}, {}]
    for (sigma, method), path in paths.items():
        label = method.replace("chosen", f"= {rates[sigma]:g} (chosen)")
        iterations, late = path.iterations.mean(axis=0), path.gap[:, 3 * path.gap.shape[1] // 4 :].mean(axis=1)
        ends = [f"{path.rounds[-1]:,}", f"{iterations[-1]:,.0f}", path.end(path.gap), with_error(late)]
        reached = [first_below(iterations, path.gap, level) for level in LEVELS]
        error = [path.end(path.error), f"{path.error.mean(axis=0).min():.3g}"]
        for place, found in enumerate((ends, reached, error)):
            rows[place].append([f"{sigma:g}", label, *found])
        shown = (
            (path.rounds, path.gap),
            (np.log10(np.maximum(iterations, 1)), path.gap),
            (path.rounds, path.error),
        )
        for place, (x, values) in enumerate(shown):
            key = f"σ_h = {sigma:g} | {method}"
            drawn[place][key], bands[place][key] = log_curve(x, values)
    told = [
        f"σ_h = {sigma:g}: at the start {with_error(errors(problem, *start(problem)))}, at the minimum "
        f"{with_error(errors(problem, *minimum(problem)))}"
        for sigma, problem in problems.items()
    ]
    over = f"means over {len(some.data)} data sets ± standard errors"
    titles = (
        f"{name}: F − F*, {over}",
        f"{name}: iterations until the mean F − F* is at or below a level (at an evaluation)",
        f"{name}: estimation error ‖M^(−1/2) ŵ − w*‖² + Σ ‖β̂_m − β_m*‖², {over}",
    )
    columns = (
        ["rounds", "iterations", "at the end", "in the last quarter"],
        [f"{level:.0e}" for level in LEVELS],
        ["at the end", "least mean on the way"],
    )
    axes = (
        ("communication rounds", "log10 of F − F*"),
        ("log10 of iterations", "log10 of F − F*"),
        ("communication rounds", "log10 of the estimation error"),
    )
    if setting is SHARING:
        told.append(
            "where all labels of a client agree there is no minimum: F* is the infimum, and β_m goes to infinity"
        )
    notes: tuple[list[str], ...] = (loss_notes(setting, problems), [], told)
    return [
        Result(titles[i], ["σ_h", "method", *columns[i]], rows[i], notes[i], drawn[i], axes[i], bands[i])
        for i in range(3)
    ]


def loss_notes(setting: Setting, problems: dict[float, Problem]) -> list[str]:
    """What the paper says, and what the reader should know about steps and constants."""
    notes: list[str] = [
        setting.says,
        f"LSGD-PFL's η is chosen from {', '.join(f'{rate:g}' for rate in RATES)} on {TUNING_DATA} other data sets",
        f"ASCD-PFL is run for {STALLED:.0%} of the rounds: it has stalled by then",
    ]
    if "pFedMe" in setting.methods:
        notes.append(
            f"pFedMe: R = 20, K = 5, batches of 5, η = 0.005, as in the paper; inner step {INNER_RATE:g}, our choice"
        )
    for sigma, problem in problems.items():
        own = [curvature_at_minimum(problem, i) for i in range(min(5, len(problem.data)))]
        hyper = {name: values[0] for name, values in prepared(problem, GENERAL["ASVRCD-PFL"][0])[1].items()}
        notes.append(
            f"σ_h = {sigma:g}: 1/p_w = {1 / hyper['p_w']:.0f}, 1/ρ = {1 / hyper['rho']:,.0f}, θ_1 = "
            f"{hyper['theta_1']:.2g}; μ'/(3M) is {', '.join(f'{c.mu:.1e}' for c in problem.constants[: len(own)])} on "
            f"the first data sets, the least eigenvalue of F'' at the minimum {', '.join(f'{mu:.1e}' for mu in own)}"
        )
    return notes


def times(setting: Setting, problems: dict[float, Problem], methods: list[str]) -> Result:
    """Seconds of training, of programs that are compiled already: one run, and all data sets together."""
    rows = []
    for place, (sigma, problem) in enumerate(problems.items()):
        for name in methods:
            algorithm, hyper = prepared(problem, TIMED[name])
            rounds = math.ceil(TIMED_ITERATIONS * (hyper["p_w"][0] if "p_w" in hyper else 1 / STEPS[name]))
            single = {key: values[0] for key, values in hyper.items()}
            spent = []
            for data, own in ((problem.data[0], single), (problem.data, hyper)):
                for _ in range(2):  # the first one compiles
                    run = mj.simulate(algorithm, data, rounds=rounds, hyper=own, evaluation=mj.Evaluation(every=rounds))
                done = sum(lines[-1]["iterations"] for lines in run.histories)
                spent.append(1000 * run.seconds["train"] / done)
            a_round = spent[0] * run.histories[0][-1]["iterations"] / rounds
            paper = setting.seconds[name][place] if len(problems) > 1 else setting.seconds[name][-1]
            per_iteration = paper / STEPS.get(name, 1)
            each = [f"{seconds:.3g}" for seconds in (*spent, a_round)]
            rows.append([f"{sigma:g}", name, *each, f"{paper:.4g}", f"{per_iteration / spent[0]:,.0f}"])
    together = f"per run of {len(next(iter(problems.values())).data)}"
    columns = ["1,000 iterations, one run", together, "1,000 rounds, one run", "paper", "times faster per iteration"]
    return Result(
        f"Section {setting.section}, running times in seconds ({setting.table})",
        ["σ_h", "method", *columns],
        rows,
        [
            "the paper's times are said to be for 1,000 communication rounds; for the coordinate methods those of "
            "Table 4 can only be for 1,000 iterations: a round has fewer of them the larger σ_h is, yet times grow. So "
            f"these are compared with ours for 1,000 iterations; LSGD's with 1,000 rounds of {TAU}, pFedMe's with "
            f"1,000 rounds of {STEPS['pFedMe']}",
            "the paper's computer: a laptop with an Intel i7-9750H; ours: " + machine(),
            "without compiling and evaluating, in double precision",
        ],
    )


def machine() -> str:
    """The processors that the times are from."""
    return f"{os.cpu_count()} {jax.default_backend().upper()} cores"
