"""The FedEM paper's tables and figures with deep networks, by name: what `deep` trains, beside the paper's figures.

A table is made of jobs, methods with settings of their own as `deep` takes them, for three seeds unless told. What has
been trained is kept in the folder ``runs`` of the experiment's, a file a job and seed: an experiment that was stopped
resumes there. FedProx and pFedMe have the learning rate 10^−0.5: they have no momentum, and learn too little with the
rates of the paper's Table 5 (`deep.md` has both). ``head`` trains the last layer alone, over images four times as high
and wide, with rates of its own: that needs no GPU.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from majorant_reproductions.fedem.deep import arguments, stem, train_all
from majorant_reproductions.fedem.deep_settings import GREY, WEIGHTS

from majorant.app.reproduce import Context, Result
from majorant.data.image_files import data_folder

TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "emnist": "EMNIST",
    "mnist": "MNIST in EMNIST's place",
    "fashion-mnist": "Fashion-MNIST in EMNIST's place",
    "shakespeare": "Shakespeare",
}
RATE = f"{10**-0.5:.5f}"
FEDPROX, PFEDME = f"fedprox@mu=0.01@lr={RATE}", f"pfedme@mu=1@lr={RATE}"
METHODS = ("fedem", "fedavg", "local", "clustered", PFEDME, FEDPROX)
COLUMNS = ["method", "ours", "train", "each seed", "paper", "rounds", "seconds"]
TABLE7 = {"fedem@rounds=66": "82.5 (92.2)", "fedem": "84.3", "fedavg": "78.2 (96.8)", "fedavg+": "82.3 (98.9)"}
TABLE8 = {"fedavg": "73.1 ± 0.14", "fedavg+": "77.7 ± 0.16", PFEDME: "77.8 ± 0.07", "apfl": "78.2 ± 0.27"}
TABLE8 |= {"fedem": "82.1 ± 0.13"}
HEAD = {"trained": "head", "enlarge": 4, "precision": "single"}
Found = list[dict[str, Any]]  # what was saved of a job, for each seed


def trained(context: Context, jobs: Sequence[str], options: Mapping[str, Any]) -> list[Path]:
    """Trains all jobs for all seeds; gives the folders of the seeds."""
    place = (context.folder or Path(tempfile.mkdtemp(prefix="majorant-"))) / "runs"
    folders = [place / f"seed-{seed}" for seed in range(context.seeds or (1 if context.quick else 3))]
    for seed, folder in enumerate(folders):
        given = arguments([str(folder)])
        vars(given).update(options)
        given.methods = ",".join(jobs)
        given.rounds = arguments([str(folder), "--data", given.data]).rounds
        given.every_position, given.seed, given.tell, given.minutes = True, seed, context.tell, 24 * 60
        if context.quick:
            given.tiny, given.rounds, given.weights = True, 2, None
            given.methods = ",".join(without_rounds(job) for job in given.methods.split(",")[:2])
        train_all(given)
    return folders


def without_rounds(job: str) -> str:
    """A job with the number of rounds that all have.

    >>> without_rounds("fedem@rounds=66@unseen=0.2")
    'fedem@unseen=0.2'
    """
    return "@".join(part for part in job.split("@") if not part.startswith("rounds="))


def found_of(folders: Sequence[Path], job: str, before: str = "") -> Found:
    """What was saved of a job for each seed for which there is something; ``before`` begins the files' names."""
    paths = [folder / f"{before}{stem(job)}.json" for folder in folders]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def finished(folders: Sequence[Path], job: str) -> Found:
    """The same, of seeds that were trained to their end."""
    return [run for run in found_of(folders, job) if run.get("finished")]


def with_tuned(jobs: Sequence[str]) -> list[str]:
    """Jobs, and after those of FedAvg what their runs end with.

    >>> with_tuned(["fedavg@unseen=0.2", "local"])
    ['fedavg@unseen=0.2', 'fedavg+@unseen=0.2', 'local']
    """
    both = lambda job: [job, f"fedavg+{job[6:]}"] if job.partition("@")[0] == "fedavg" else [job]
    return [each for job in jobs for each in both(job)]


def rows_of(
    folders: Sequence[Path], jobs: Sequence[str], paper: Mapping[str, str] | None = None, before: str = ""
) -> list[list[Any]]:
    """A row for each job, over the seeds whose results are in these folders, beside the paper's figures.

    Means and standard deviations are over the seeds that were trained to their end; all seeds are named. ``paper`` has
    figures by job; without, they are Table 2's. ``before`` begins the files' names.
    """
    rows = []
    for job in jobs:
        found = found_of(folders, job, before)
        if not found:
            continue
        ends = [run["history"][-1] for run in found if run.get("finished")]
        over = lambda what, ends=ends: spread([end[what] for end in ends])
        ours = [f"{over('test_accuracy')} / {over('bottom_decile')}", over("train_accuracy")] if ends else ["", ""]
        figure = (paper or {}).get(job, "")
        if paper is None and found[0].get("paper"):
            figure = "{:.1f} / {:.1f}".format(*found[0]["paper"])
        cost = [ends[0]["round"], f"{np.mean([end['seconds'] for end in ends]):.0f}"] if ends else ["", ""]
        rows.append([job.replace("@", " "), *ours, ", ".join(map(end_of, found)), figure, *cost])
    return rows


def spread(values: Sequence[float]) -> str:
    """The mean and, of several values, their standard deviation."""
    return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")


def end_of(found: dict[str, Any]) -> str:
    """A seed's last test accuracy, the round it is of where that is not the last, and what went wrong."""
    last = found["history"][-1] if found["history"] else None
    accuracy = f"{last['test_accuracy']:.1f}" if last else ""
    early = f" after {last['round']} rounds" if last and not found.get("finished") else ""
    return " ".join(filter(None, [accuracy + early, found.get("error", "")[:60]]))


def curve(found: Found, points: Callable[[dict[str, Any]], dict[float, float]]) -> tuple[list[float], list[float]]:
    """Means over the seeds at the points that all have."""
    each = [points(run) for run in found]
    common = sorted(set.intersection(*(set(own) for own in each))) if each else []
    return common, [float(np.mean([own[at] for own in each])) for at in common]


def along_rounds(run: dict[str, Any]) -> dict[float, float]:
    """Test accuracy after rounds."""
    return {line["round"]: line["test_accuracy"] for line in run["history"]}


def over_fixed_layers(job: str) -> str:
    """A job whose learning rate is a head's: the one in `deep_settings`.

    >>> over_fixed_layers("pfedme@mu=1@lr=0.31623")
    'pfedme@mu=1'
    """
    return "@".join(part for part in job.split("@") if not part.startswith("lr="))


def notes_of(data: str, weights: bool, head: bool) -> list[str]:
    """What must be known to compare the numbers with the paper's."""
    network = "EfficientNet-Lite0 from ImageNet weights" if weights else "MobileNet-v2 from random weights"
    images = f"{network}; the paper: MobileNet-v2 from ImageNet weights, one seed, learning rates by grid search"
    text = (
        "lines are split; a loss at each of 80 characters, weighted as in the released code; all count for the accuracy"
    )
    grey = "the released network, LEAF's, from random weights" + ("" if data == "emnist" else "; in EMNIST's place")
    fixed = "the last layer of EfficientNet-Lite0 over fixed ImageNet layers, images enlarged to 128×128; " + (
        "the paper trains all of MobileNet-v2"
    )
    rates = "learning rates of the paper's Table 5, for FedProx and pFedMe 10^−0.5"
    return [
        text if data == "shakespeare" else grey if data in GREY else fixed if head else images,
        "learning rates by grid search on the validation samples of another seed" if head else rates,
        "average over clients, weighted by their test samples / the (T/10)-th smallest; ± is the standard deviation of "
        "the seeds (partition, start and minibatches)",
    ]


def sheet(
    context: Context,
    title: str,
    jobs: Sequence[str],
    *,
    data: str = "cifar10",
    weights: bool = True,
    head: bool = False,
    paper: Mapping[str, str] | None = None,
    **options: Any,
) -> tuple[Result, list[Path]]:
    """Trains jobs; their table, and the folders of the seeds."""
    file = data_folder() / WEIGHTS if weights else None
    folders = trained(context, jobs, options | (HEAD if head else {}) | {"data": data, "weights": file})
    rows = rows_of(folders, with_tuned(jobs), paper)
    notes = ["a small network on a few random images"] if context.quick else notes_of(data, weights, head)
    return Result(f"{title}: test accuracy, %", COLUMNS, rows, notes), folders


def table2(
    context: Context, data: str = "cifar10", weights: bool = False, *, head: bool = False, **options: Any
) -> list[Result]:
    """A row of Table 2, and accuracies along the rounds (Figures 3 to 7)."""
    named = f"Table 2, {TITLES[data]}" + (", the split of the paper's text" if options.get("split") == "paper" else "")
    jobs = [*map(over_fixed_layers, METHODS), "apfl"] if head else METHODS
    table, folders = sheet(context, named, jobs, data=data, weights=weights or head, head=head, **options)
    curves = {job.replace("@", " "): curve(finished(folders, job), along_rounds) for job in with_tuned(jobs)}
    drawn = {name: points for name, points in curves.items() if len(points[0]) > 1}
    return [table._replace(curves=drawn, axes=("round", "test accuracy, %"))]


def table3(context: Context, **options: Any) -> list[Result]:
    """Table 3 and Figure 2: a fifth of the clients join after training, with a part of their samples."""
    jobs = ["fedem@unseen=0.2", "fedavg@unseen=0.2"]
    table, folders = sheet(context, "Table 3, CIFAR-10, clients that trained", jobs, paper={}, **options)
    rows, curves, shares = [], {}, []
    for job in with_tuned(jobs):
        found = finished(folders, job)
        if not found:
            continue
        of = lambda what, found=found: spread([run["history"][-1][what] for run in found])
        name, points = job.partition("@")[0], curve(found, by_share)
        shares, curves[name] = points[0], points
        rows.append([name, of("unseen_accuracy"), of("unseen_train_accuracy"), *(f"{v:.1f}" for v in points[1])])
    columns = ["method", "test", "train", *(f"{share:g}" for share in shares)]
    axes = ("share of the local training samples", "test accuracy of clients that join, %")
    title = (
        "Table 3 and Figure 2, CIFAR-10, clients that join: accuracy, and test accuracy by the share of samples used, %"
    )
    return [table, Result(title, columns, rows, [], curves, axes)]


def by_share(run: dict[str, Any]) -> dict[float, float]:
    """Test accuracy of clients that join, by the share of their samples."""
    return {float(share): accuracy for share, accuracy in run["unseen_by_share"].items()}


def figure1(context: Context, **options: Any) -> list[Result]:
    """Figure 1: the share of clients in a round, and the number of components."""
    shares, numbers = (0.1, 0.2, 0.5, 1.0), (1, 2, 3, 4)
    of_share = lambda method: [f"{method}@participation={share}" for share in shares]
    of_number = [f"fedem@components={number}" for number in numbers]
    left, folders = sheet(
        context, "Figure 1 (left), CIFAR-10", [*of_share("fedem"), *of_share("fedavg")], paper={}, **options
    )
    drawn = {method: at_end(folders, shares, of_share(method)) for method in ("fedem", "fedavg+")}
    left = left._replace(curves=drawn, axes=("share of the clients in a round", "test accuracy, %"))
    right, folders = sheet(context, "Figure 1 (right), CIFAR-10", of_number, paper={}, **options)
    drawn = {"fedem": at_end(folders, numbers, of_number)}
    return [left, right._replace(curves=drawn, axes=("components M", "test accuracy, %"))]


def at_end(folders: Sequence[Path], values: Sequence[float], jobs: Sequence[str]) -> tuple[list[float], list[float]]:
    """Mean accuracies at the end of jobs that differ in a value."""
    accuracies = {
        float(value): [run["history"][-1]["test_accuracy"] for run in finished(folders, job)]
        for value, job in zip(values, jobs, strict=True)
    }
    there = [value for value, found in accuracies.items() if found]
    return there, [float(np.mean(accuracies[value])) for value in there]


def table7(context: Context, **options: Any) -> list[Result]:
    """Table 7: FedEM in a third of the rounds."""
    jobs = ["fedem@rounds=66", "fedem", "fedavg"]
    title = "Table 7, CIFAR-10 (paper: test and, in brackets, train)"
    return [sheet(context, title, jobs, paper=TABLE7, **options)[0]]


def table8(context: Context, *, head: bool = False) -> list[Result]:
    """Table 8: a fifth of the clients in each of 1,200 rounds."""
    named = over_fixed_layers if head else str
    paper = {f"{named(job)}@rounds=1200@participation=0.2": figure for job, figure in TABLE8.items()}
    jobs = [job for job in paper if not job.startswith("fedavg+")]  # FedAvg's run ends with it
    return [sheet(context, "Table 8, CIFAR-10", jobs, paper=paper, head=head)[0]]


def decentralized(context: Context, **options: Any) -> list[Result]:
    """App. J.1: FedEM on a graph of peers."""
    paper = {"fedem@topology=fastest": "77.0", "fedem": "84.3"}
    return [sheet(context, "App. J.1, CIFAR-10", list(paper), paper=paper, **options)[0]]


def larger(context: Context) -> list[Result]:
    """App. J.5: networks with as many parameters as FedEM's three together, and more."""
    paper = {"fedavg@network=resnet18": "below MobileNet-v2", "fedavg@network=resnet34": "below MobileNet-v2"}
    jobs = [*paper, "fedavg", "fedem"]
    return [sheet(context, "App. J.5, CIFAR-10, random weights", jobs, weights=False, paper=paper)[0]]


def heads(context: Context) -> list[Result]:
    """Full personalization against personal heads."""
    jobs = ["fedem", "fedper", "apfl", PFEDME, "fedavg"]
    return [sheet(context, "Personal networks, mixtures and heads, CIFAR-10", jobs, paper={})[0]]
