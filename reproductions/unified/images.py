"""The unified framework's experiments on images (Section 6): Figures 3 to 8. The settings are in `settings`.

LSGD-PFL takes τ = 5 steps with single samples. Its learning rate is not given in Section 6, and the order of the
methods depends on it, so there are three: 0.01 as in Section 5.1, the largest of Theorem 1, and the one of a grid with
the least training loss after the last round. ASCD-PFL has the steps of the paper, θ = min{0.8, 1/η} with η, γ and ν of
Theorem 9, and, as the fair counterpart of the tuned LSGD-PFL, η and γ times the best of a few factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from majorant_reproductions.unified.paper_ascd import paper_ascd
from majorant_reproductions.unified.settings import (
    FAMILIES,
    Setting,
    Trace,
    by_rate,
    constants,
    families,
    image_sets,
    length,
    notes_on,
    of_classes,
    trained,
    written,
)

from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm
from majorant.data.federated import FederatedData
from majorant.engines.settings import hyper_after_setup
from majorant.methods import acd, asvrcd, lsgd
from majorant.methods.lsgd import theoretical_rate
from majorant.objectives.base import Constants, Objective

STATED_RATE = 0.01  # LSGD-PFL's in Section 5.1
RATES = (3.0, 10.0, 30.0, 100.0, 300.0)
FACTORS = (1.0, 3.0, 10.0, 30.0)
PLAIN_RATE = 1.0  # LSGD-PFL's in Figure 8, the same for every Λ
TAU = 5
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # values of p_w
RELAXATIONS = (1.0, 10.0, 100.0)  # values of Λ
LSGD, ASCD, ASVRCD, ACD = "LSGD-PFL", "ASCD-PFL", "ASVRCD-PFL", "ACD-PFL"
STATED, THEOREM, TUNED = f"{LSGD}, η = {STATED_RATE}", f"{LSGD}, Theorem 1's η", f"{LSGD}, tuned"
ASCD_TUNED = f"{ASCD}, tuned"
Y_NAMES = {"loss": "training loss F", "accuracy": "test accuracy, %", "fit": "training loss of personal models"}


def figure3(context: Context) -> list[Result]:
    """Figure 3: two classes on each device."""
    return comparison(context, 2)


def figure4(context: Context) -> list[Result]:
    """Figure 4: four classes."""
    return comparison(context, 4)


def figure5(context: Context) -> list[Result]:
    """Figure 5: eight classes."""
    return comparison(context, 8)


class Made(NamedTuple):
    """An objective, the constants of Section 6, and the methods on it."""

    objective: Objective
    constants: Constants
    methods: dict[str, Algorithm]


class Maker:
    """Makes an objective and its methods once for each shape of data: sets of one shape share compiled programs."""

    def __init__(self, family: str, setting: Setting) -> None:
        self.family, self.setting = family, setting
        self.made: dict[Any, Made] = {}

    def __call__(self, data: FederatedData) -> Made:
        shape = (data.clients, data.spec, int(data.train.sizes[0]))
        if shape not in self.made:
            objective = FAMILIES[self.family].make(data, self.setting)
            numbers = constants(self.family, self.setting, data.clients)
            methods = {
                LSGD: lsgd(objective, constants=numbers, tau=TAU, batch_size=1),
                ASCD: paper_ascd(objective, constants=numbers),
                ASVRCD: asvrcd(objective, constants=numbers),
                ACD: acd(objective, constants=numbers),
            }
            self.made[shape] = Made(objective, numbers, methods)
        return self.made[shape]


def comparison(context: Context, k: int) -> list[Result]:
    """The three methods on every data set and objective."""
    sets, rows, panels = image_sets(context, k), [], []
    ends: list[dict[str, float]] = []
    for family in families(context):
        maker = Maker(family, of_classes(k))
        for label, data in sets.items():
            traces = compared(context, f"{label}, {family}", maker, data)
            panels += panel(f"{label}, {family}, K = {k}", {name: found for name, (_, found) in traces.items()})
            ends.append({name: found.end()[0] for name, (_, found) in traces.items()})
            for name, (step, found) in traces.items():
                scores = [written(found.end()), written(found.end("accuracy"), 1)]
                rows.append([f"{label}, {family}", name, step, *scores, f"{found.iterations:.0f}"])
    wins = lambda one, other: f"{sum(e[one] < e[other] for e in ends)} of {len(ends)}"
    listed = lambda values: ", ".join(f"{value:g}" for value in values)
    notes = [
        *notes_on(sets, context),
        f"after {length(context)[0]} rounds ASCD-PFL is below LSGD-PFL in {wins(ASCD, STATED)} cases with the stated "
        f"η = {STATED_RATE}, in {wins(ASCD, THEOREM)} with Theorem 1's η, in {wins(ASCD, TUNED)} with the tuned one; "
        f"with both tuned, in {wins(ASCD_TUNED, TUNED)}",
        f"ASVRCD-PFL is above ASCD-PFL in {wins(ASCD, ASVRCD)} cases",
        f"tuned by the training loss after the last round: η of LSGD-PFL from {STATED_RATE}, Theorem 1's, "
        f"{listed(rates(context))}; η and γ of ASCD-PFL times one of {listed(factors(context))}",
    ]
    columns = ["data, objective", "method", "step", "F", "test accuracy, %", "iterations"]
    return [Result(f"{k} classes on each device", columns, rows, notes), *panels]


def rates(context: Context) -> tuple[float, ...]:
    """LSGD-PFL's learning rates to choose from."""
    return RATES[:2] if context.quick else RATES


def factors(context: Context) -> tuple[float, ...]:
    """Factors on ASCD-PFL's steps to choose from."""
    return FACTORS[:2] if context.quick else FACTORS


def compared(context: Context, where: str, maker: Maker, data: FederatedData) -> dict[str, tuple[str, Trace]]:
    """Each method's step and trace."""
    _, numbers, methods = maker(data)
    tried = [STATED_RATE, float(theoretical_rate(numbers, TAU)), *rates(context)]
    context.tell(f"{where}: {LSGD} with {len(tried)} rates")
    local = by_rate(context, methods[LSGD], data, tried)
    places = {STATED: 0, THEOREM: 1, TUNED: least(local)}
    found = {name: (f"η = {tried[i]:.3g}", local[i]) for name, i in places.items()}
    own, coordinate = hyper_after_setup(methods[ASCD], data), []
    for factor in factors(context):
        context.tell(f"{where}: {ASCD}, steps times {factor:g}")
        steps = {name: factor * own[name] for name in ("lr", "gamma")}
        coordinate.append(trained(context, methods[ASCD], data, hyper=steps))
    for name, i in {ASCD: 0, ASCD_TUNED: least(coordinate)}.items():
        found[name] = stepped(own, factors(context)[i]), coordinate[i]
    context.tell(f"{where}: {ASVRCD}")
    found[ASVRCD] = stepped(hyper_after_setup(methods[ASVRCD], data)), trained(context, methods[ASVRCD], data)
    return found


def stepped(hyper: dict[str, float], factor: float = 1.0) -> str:
    """The steps of a coordinate method for a table."""
    return f"η = {factor * hyper['lr']:.3g}, γ = {factor * hyper['gamma']:.3g}"


def least(traces: list[Trace]) -> int:
    """The place of the one with the least loss after the last round; what diverged loses."""
    return int(np.argmin([np.nan_to_num(found.end()[0], nan=np.inf) for found in traces]))


def panel(title: str, traces: dict[str, Trace], names: Sequence[str] = ("loss", "accuracy")) -> list[Result]:
    """The curves of one data set and objective, by default loss and accuracy, with their values on the way."""
    results = []
    for what in names:
        name = Y_NAMES[what]
        rounds = next(iter(traces.values())).rounds
        places = sorted({round(share * (len(rounds) - 1)) for share in (0, 0.25, 0.5, 1)})
        rows = [[label, *(cell(found.curve(what)[1][i], what) for i in places)] for label, found in traces.items()]
        curves = {label: found.curve(what) for label, found in traces.items()}
        columns = ["after rounds", *(f"{rounds[i]:.0f}" for i in places)]
        full = f"{title}: {name}"
        results.append(Result(full, columns, rows, [], curves, ("communication rounds", full)))
    return results


def cell(value: float, what: str) -> str:
    """A value of a curve for a table."""
    return "–" if not np.isfinite(value) else f"{value:.{1 if what == 'accuracy' else 3}f}"


def figure6(context: Context) -> list[Result]:
    """Figure 6: how often ASCD-PFL communicates, against the theory's choice of p_w."""
    sets, rows, panels = image_sets(context, 2), [], []
    shares = SHARES[::2] if context.quick else SHARES
    verdicts: list[str] = []
    for family in families(context):
        maker = Maker(family, of_classes(2))
        for label, data in sets.items():
            objective, numbers, methods = maker(data)
            theory = hyper_after_setup(methods[ASCD], data)["p_w"]
            traces: dict[float, Trace] = {}
            for share in sorted({*shares, theory}):
                context.tell(f"{label}, {family}: p_w = {share:.3g}")
                like = hyper_after_setup(paper_ascd(objective, constants=numbers, p_w=share), data)
                traces[share] = trained(context, methods[ASCD], data, hyper=like)
            named = {f"p_w = {s:.3g}" + " (theory)" * (s == theory): found for s, found in traces.items()}
            panels += panel(f"{label}, {family}, K = 2", named)
            others = {s: found.end() for s, found in traces.items() if s != theory}
            best = min(others, key=lambda s: np.nan_to_num(others[s][0], nan=np.inf))
            mine = traces[theory].end()
            gap, error = mine[0] - others[best][0], float(np.hypot(mine[1], others[best][1]))
            verdicts.append("best" if gap < 0 else "within noise" if gap < 2 * error else "not best")
            cells = [written(traces[s].end()) for s in shares]
            compare = f"{gap:+.3f} ± {error:.3f} (p_w = {best:g})"
            rows.append([f"{label}, {family}", *cells, f"{written(mine)} (p_w = {theory:.3g})", compare, verdicts[-1]])
    count = lambda verdict: f"{verdicts.count(verdict)} of {len(verdicts)}"
    notes = [
        *notes_on(sets, context),
        f"after {length(context)[0]} rounds theory's p_w is best in {count('best')} cases, within two standard errors "
        f"of the best in {count('within noise')}, worse in {count('not best')}",
        "what depends on p_w follows it: η, ρ, γ, ν, θ",
        "below theory's p_w, η is proportional to p_w and a round has 1/p_w iterations: it makes as much progress and "
        "costs more, so that theory's is the cheapest of about equal choices; above it η falls and rounds are short",
    ]
    columns = ["F after the last round", *(f"p_w = {s:g}" for s in shares)]
    columns += ["theory's p_w", "theory − best other", "theory is"]
    return [Result("ASCD-PFL with different p_w, two classes on each device", columns, rows, notes), *panels]


def figure7(context: Context) -> list[Result]:
    """Figure 7: ASCD-PFL with and without the rescaling of the shared block by M^{−1/2}."""
    sets, rows, panels = image_sets(context, 2), [], []
    lower, better, number = 0, 0, 0
    for family in families(context):
        makers = {name: Maker(family, of_classes(2, rescale=name == "rescaled")) for name in ("rescaled", "plain")}
        for label, data in sets.items():
            traces: dict[str, Trace] = {}
            for name, maker in makers.items():
                context.tell(f"{label}, {family}: {name}")
                algorithm = maker(data).methods[ASCD]
                found = traces[name] = trained(context, algorithm, data)
                own = hyper_after_setup(algorithm, data)
                step = f"p_w = {own['p_w']:.3g}, {stepped(own)}"
                scores = [written(found.end()), written(found.end("accuracy"), 1)]
                counts = [f"{found.iterations:.0f}", f"{found.beta_steps:.0f}"]
                rows.append([f"{label}, {family}", name, step, *scores, *counts])
            panels += panel(f"{label}, {family}, K = 2", traces)
            number += 1
            lower += traces["rescaled"].end()[0] < traces["plain"].end()[0]
            better += traces["rescaled"].end("accuracy")[0] > traces["plain"].end("accuracy")[0]
    notes = [
        *notes_on(sets, context),
        f"{length(context)[0]} rounds; with rescaling the loss is lower in {lower} and the accuracy higher in {better} "
        f"of {number} cases",
        "not rescaled, 𝓛^w is M times as large, and with it p_w: nearly every iteration moves w and communicates",
    ]
    columns = ["data, objective", "shared block", "steps", "F", "test accuracy, %", "iterations", "β-steps"]
    return [Result("ASCD-PFL with and without rescaling, two classes on each device", columns, rows, notes), *panels]


def figure8(context: Context) -> list[Result]:
    """Figure 8: MT2 with growing Λ, four classes and few samples. The paper does not say by which method."""
    sets = image_sets(context, 4, samples=30, test_samples=100)
    rows: list[list[Any]] = []
    curves: dict[str, dict[str, Trace]] = {label: {} for label in sets}
    for relaxation in RELAXATIONS[::2] if context.quick else RELAXATIONS:
        maker = Maker("MT2", Setting(0.1, relaxation))
        for label, data in sets.items():
            methods = maker(data).methods
            context.tell(f"{label}: Λ = {relaxation:g}")
            found = {
                ASCD: trained(context, methods[ASCD], data),
                LSGD: by_rate(context, methods[LSGD], data, [PLAIN_RATE])[0],
                ACD: trained(context, methods[ACD], data),
            }
            curves[label] |= {f"{name}, Λ = {relaxation:g}": found[name] for name in (ASCD, LSGD)}
            for name, t in found.items():
                scores = [written(t.end("accuracy"), 1), written(t.end("fit")), written(t.end())]
                rows.append([f"{label}, {name}", f"{relaxation:g}", *scores, f"{t.beta_steps:.0f}"])
    places = [f"{label}, {name}" for label in sets for name in (ASCD, LSGD, ACD)]
    rows.sort(key=lambda row: places.index(row[0]))  # keeps the order of Λ
    notes = [
        *notes_on(sets, context),
        f"λ = 0.1, {length(context)[0]} rounds; F is another function for every Λ, the personal models' loss is not",
        f"{ASCD}: theory's p_w grows with Λ (0.5, 0.902, 0.989), so that β hardly moves when Λ is large; {LSGD} with "
        f"η = {PLAIN_RATE:g} moves both blocks for every Λ; {ACD}, with full gradients, comes nearest to the minimum",
    ]
    columns = ["data, method", "Λ", "accuracy, %", "loss of personal models", "F", "gradients in β"]
    panels = [p for label, found in curves.items() for p in panel(f"{label}, MT2", found, ("accuracy", "fit"))]
    return [Result("MT2 with different Λ, four classes on each device", columns, rows, notes), *panels]
