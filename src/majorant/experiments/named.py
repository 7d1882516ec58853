"""Named experiments: a paper's tables and figures, run by ``majorant reproduce``, our numbers beside the paper's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from majorant.experiments.names import nearest
from majorant.experiments.storage import atomic_write_text, check_writable, strict_json

if TYPE_CHECKING:
    from rich.console import Console


class Result(NamedTuple):
    """A table with a title and notes; ``curves`` (name → x and y values) make a figure where the paper has one.

    ``bands`` (name → low and high values) are shaded around curves; a curve "panel | name" is drawn in a panel; curves
    named in ``dots`` are points with nothing between them.
    """

    title: str
    columns: list[str]
    rows: list[list[Any]]
    notes: list[str] = []  # noqa: RUF012 - never mutated
    curves: dict[str, tuple[list[float], list[float]]] = {}  # noqa: RUF012
    axes: tuple[str, str] = ("", "")
    bands: dict[str, tuple[list[float], list[float]]] = {}  # noqa: RUF012
    dots: tuple[str, ...] = ()


class Context(NamedTuple):
    """How an experiment is run: small (to see that it works), how many seeds, and where progress is told."""

    quick: bool
    seeds: int | None
    tell: Callable[[str], None]


class Experiment(NamedTuple):
    """An experiment: one line about it, and the function that runs it."""

    help: str
    run: Callable[[Context], list[Result]]


def lazily(module: str, function: str, help: str) -> Experiment:
    """An experiment whose module is imported when it runs."""

    def run(context: Context) -> list[Result]:
        import importlib

        return getattr(importlib.import_module(f"majorant.experiments.{module}"), function)(context)

    return Experiment(help, run)


EXPERIMENTS = {
    "fedem/table2-synthetic": lazily("fedem", "table2", "average and bottom-decile accuracy of all methods, tuned"),
    "fedem/table2-synthetic-text": lazily("fedem", "table2_text", "the same on data made by the paper's text"),
    "fedem/table3-unseen": lazily("fedem", "table3", "clients unseen at training (20 %) against FedAvg and FedAvg+"),
    "fedem/table7-third": lazily("fedem", "table7", "FedEM with a third of the rounds"),
    "fedem/table8-sampling": lazily("fedem", "table8", "20 % of the clients in each of 1,200 rounds"),
    "fedem/figure1-sampling": lazily("fedem", "figure1_sampling", "accuracy against the share of sampled clients"),
    "fedem/figure1-components": lazily("fedem", "figure1_components", "accuracy against the number of components"),
    "fedem/figure2-samples": lazily("fedem", "figure2", "accuracy against an unseen client's number of samples"),
    "fedem/j4-clusters": lazily("fedem", "clusters", "clients from one component each: recovered clusters"),
    "fedem/j1-decentralized": lazily("decentralized", "decentralized", "D-FedEM on networks of peers, and FedEM"),
    "fedem/failures": lazily("decentralized", "failures", "D-FedEM while links fail and nodes come and go"),
    "fedem/rates": lazily("decentralized", "rates", "the rates of Theorems 3.2 and 3.3, a run for every length"),
    "fedem/digits": lazily("fedem", "digits", "digits with labels Dirichlet(0.4) over clients"),
    "fedem/rotated-digits": lazily("fedem", "rotated_digits", "digits turned by four angles: hidden clusters"),
    "fedmm/figure1": lazily("fed_mm", "figure1", "dictionary learning: averages of surrogates against parameters"),
    "fedmm/figure2": lazily("fed_mm", "figure2", "dictionary learning with control variates on and off"),
    "fedmm/longer": lazily("fed_mm", "longer", "the same with larger steps and more rounds: who drifts"),
    "fedmm/bits": lazily("fed_mm", "bits", "the objective against bits sent: 32, 8, 4, 2 a number, absent clients"),
    "fedmm/equivalence": lazily(
        "fed_mm_equivalence", "equivalence", "every surrogate against centralized MM, scikit-learn and Remark 1"
    ),
    "fedmm/theorem1": lazily("fed_mm_theory", "theorem1", "mean fields along runs under Theorem 1's bound"),
    "tradeoffs/iid": lazily("trade_offs", "iid", "agents and a coordinator, Tables 2 to 4, five ways to run them"),
    "tradeoffs/two-digits": lazily("trade_offs", "two_digits", "Tables 5 to 7, whether λ matters, penalties that bite"),
    "tradeoffs/fashion": lazily("trade_offs", "fashion", "both experiments on Fashion-MNIST"),
    "tradeoffs/logistic": lazily("trade_offs_theory", "logistic", "softmax regression against the true Pareto front"),
    "tradeoffs/collapse": lazily("trade_offs_collapse", "collapse", "large λ: is Θ = 0 the minimiser or a trap"),
    "tradeoffs/theorem": lazily("trade_offs_theory", "theorem", "Theorem 2.4: measured suboptimality and the bound"),
    "tradeoffs/chebyshev": lazily(
        "trade_offs_chebyshev", "chebyshev", "a front that is not convex, and the worst client of fair methods"
    ),
    "unified/figure1": lazily("unified", "figure1", "solvers of personalized objectives: mixture, and Table 4's times"),
    "unified/figure2": lazily("unified", "figure2", "solvers of personalized objectives: weight sharing, and Table 5"),
    "unified/rates": lazily(
        "unified_theory", "rates", "linear rates, rounds against L^w/μ, who stalls and who does not"
    ),
    "unified/personalization": lazily("unified_theory", "personalization", "fewer rounds the more personal models are"),
    "unified/figure3": lazily("unified_images", "figure3", "LSGD-, ASCD-, ASVRCD-PFL on images, 2 classes a device"),
    "unified/figure4": lazily("unified_images", "figure4", "the same with 4 classes"),
    "unified/figure5": lazily("unified_images", "figure5", "the same with 8 classes"),
    "unified/figure6": lazily("unified_images", "figure6", "ASCD-PFL: how often to communicate, against theory's p_w"),
    "unified/figure7": lazily("unified_images", "figure7", "ASCD-PFL with and without rescaling the shared block"),
    "unified/figure8": lazily("unified_images", "figure8", "the multi-task objective with growing relaxation"),
}


def reproduce(name: str, folder: Path, *, quick: bool, seeds: int | None, console: Console) -> dict[str, Any]:
    """Runs an experiment, prints its tables, and writes ``results.json``, ``results.md`` and figures."""
    from rich.table import Table

    if name not in EXPERIMENTS:
        raise ValueError(
            f"there is no experiment {name!r}{nearest(name, EXPERIMENTS)}; there are {', '.join(EXPERIMENTS)}"
        )
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder)
    with console.status(f"{name} …") as status:
        tell = lambda text: status.update(f"{name}: {text} …")
        results = EXPERIMENTS[name].run(Context(quick, seeds, tell))
    for result in results:
        table = Table(title=result.title, title_justify="left")
        for i, column in enumerate(result.columns):
            table.add_column(column, justify="left" if i == 0 else "right")
        for row in result.rows:
            table.add_row(*map(str, row))
        console.print(table)
        for note in result.notes:
            console.print(f"  {note}", highlight=False)
    record = {"experiment": name, "quick": quick, "results": [r._asdict() for r in results]}
    atomic_write_text(folder / "results.json", strict_json(record, indent=2) + "\n")
    atomic_write_text(folder / "results.md", "\n".join(markdown(r) for r in results))
    draw(results, folder)
    return record


def markdown(result: Result) -> str:
    """The table and its notes in Markdown."""
    line = lambda cells: "| " + " | ".join(str(c) for c in cells) + " |"
    rule = "|---|" + "---:|" * (len(result.columns) - 1)
    rows = [line(result.columns), rule, *map(line, result.rows)]
    return "\n".join([f"### {result.title}", "", *rows, "", *(f"- {note}" for note in result.notes), ""])


def draw(results: list[Result], folder: Path) -> None:
    """A figure for every result with curves, where matplotlib is installed."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        return
    from majorant.report.figures import lines, render

    for number, result in enumerate(results, 1):
        if result.curves:
            picture = render(lines(result.curves, *result.axes, result.bands, result.dots), "png")
            (folder / f"figure{number}.png").write_bytes(picture)
