"""Section 7 of the FedMM paper: transport maps on the Wasserstein-2 benchmark, in a federation (Figure 3).

Ten clients have samples of P in cells of constrained k-means, the reference is drawn from Q. Everybody's potentials are
the benchmark's dense convex networks; clients take one gradient step a round on 1,024 of their samples, the server ten
steps on the conjugate. What is compared, for the same number of rounds and with cosine-decayed rates:

    FedMM-OT            the method, with Adam on the server's H: both losses, and in the coordinates of the Gaussian map
    FedAdam, FedAvg     clients move both networks, the server averages: first-order federated learning on the same loss
    centralized         the same on one client that has all samples
    clients alone       the same on each client's samples
    Gaussian map        from federated means and covariances, one round

FedMM-OT with each loss and in Gaussian coordinates, FedAdam and FedAvg choose a rate (and λ of the cycle loss) from
five points, each tried on another seed for a quarter of the rounds, then five seeds are run. Everything else runs with
the rates that FedMM-OT has chosen.

Every piece writes a JSON file of its own as soon as it is done, so that a run may be stopped at any time::

    python -m majorant_reproductions.fedmm.transport OUT --dimensions 16 --minutes 9

Pieces come in order of importance and are left out when the time is spent. `majorant reproduce fedmm/figure3` runs the
same and shows tables; with ``--quick`` in two dimensions.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from majorant_reproductions.fedmm import w2
from majorant_reproductions.fedmm.transport_tables import curves_of, results_of
from majorant_reproductions.fedmm.transport_variants import Study, Variant, fedadam, fedavg, fedmm_ot

import majorant as mj
from majorant.app.files import atomic_write_bytes, atomic_write_text, strict_json
from majorant.app.reproduce import Context, Result
from majorant.core import Algorithm
from majorant.data.federated import FederatedData
from majorant.models.convex import dense_icnn
from majorant.surrogates.transport import Coordinates, in_gaussian_coordinates

DIMENSIONS, CLIENTS, SAMPLES, BATCH, SEEDS = (16, 32, 64), 10, 10_000, 1024, 5
MAIN, GAUSSIAN = "FedMM-OT, max-min", "FedMM-OT, Gaussian coordinates"
LONGER = GAUSSIAN + ", three times the rounds"
RIVAL = "FedAdam, cycle, tuned on all rounds"
POINTS = 25  # of a curve
DEFAULT = {"server_scale": 2.0, "inner_scale": 2.0}  # where nothing was tuned
TUNING_SEEDS = (100, 101, 102, 103, 104)
LONGEST = 10_000


def pooled(data: FederatedData) -> FederatedData:
    """All samples on one client."""
    return FederatedData.unlabelled(data.train.x, clients=np.zeros(len(data.train.x), int), name=data.name)


def follow(study: Study, algorithm: Algorithm, data: Any, *, rounds: int, change: Any = None, **options: Any) -> dict:
    """Runs side by side, with both errors of each at some rounds."""
    errors = errors_in(study.benchmark, change)
    forward, inverse = [], []

    def look(records: list[dict[str, Any]], snapshot: Callable) -> None:
        found = errors(*snapshot().server.value)
        forward.append(np.asarray(found[0]))
        inverse.append(np.asarray(found[1]))

    every = max(1, rounds // POINTS)
    run = mj.simulate(algorithm, data, rounds=rounds, evaluation=mj.Evaluation(every=every, report=look), **options)
    lines = run.history
    return {
        "rounds": [line["round"] for line in lines],
        "forward": np.stack(forward, axis=1).tolist(),  # (runs, points)
        "inverse": np.stack(inverse, axis=1).tolist(),
        "bytes_up": [line["bytes_up"] for line in lines],
        "bytes_down": [line["bytes_down"] for line in lines],
        "seconds": dict(run.seconds),
        "rejected": [sum(line["rejected"] for line in one) for one in run.histories],
    }


def errors_in(benchmark: w2.Benchmark, change: Coordinates | None) -> Callable:
    """The errors of maps, also of maps in other coordinates."""
    if change is None:
        return w2.errors_of(benchmark)
    network = dense_icnn(benchmark.dimension)
    x = benchmark.source(jax.random.key(1_000_003), 4096)
    y = benchmark.truth(x)
    inside, image = (jnp.asarray(a, x.dtype) for a in (change.into(x), change.reference_into(y)))

    def one(pair: Any) -> Any:
        there = change.out(network.gradient(pair[0], inside))
        back = change.source_out(network.gradient(pair[1], image))
        return w2.uvp(there, y, benchmark.q_var), w2.uvp(back, x, benchmark.p_var)

    return jax.jit(lambda omega, theta: jax.lax.map(one, (omega, theta)))


def tune(study: Study, variant: Variant, data: Any, **options: Any) -> tuple[dict[str, float], list[float]]:
    """The point of the grid with the least error after a part of the rounds; every point has a seed of its own.

    The runs have the shape of those that are reported, so that their program is compiled once for both.
    """
    points = [variant.grid[i % len(variant.grid)] for i in range(study.seeds)]
    found = follow(
        study,
        variant.algorithm,
        data,
        rounds=max(2, study.rounds // study.tuning),
        seeds=TUNING_SEEDS[: study.seeds],
        hyper={name: [point[name] for point in points] for name in points[0]},
        **options,
    )
    ends = [path[-1] if np.isfinite(path[-1]) else np.inf for path in found["forward"]]
    return points[int(np.argmin(ends))], ends


def run_piece(
    study: Study, name: str, variant: Variant, data: Any, *, chosen: dict[str, float] | None = None, **options: Any
) -> dict[str, float]:
    """Tunes (unless a point is given), runs and writes; the point that was used."""
    begin, tuning, more = time.monotonic(), None, options.pop("hyper", {})
    if chosen is None:
        chosen, tuning = tune(study, variant, data, **options)
    hyper = {key: [value] * study.seeds for key, value in (chosen | more).items()}
    found = follow(study, variant.algorithm, data, rounds=study.rounds, seeds=study.seeds, hyper=hyper, **options)
    save(study, name, found | {"chosen": chosen | more, "tuning": tuning}, begin)
    return chosen


def save(study: Study, name: str, found: dict[str, Any], begin: float) -> None:
    """A file for the piece, and a line about it."""
    d, device = study.benchmark.dimension, jax.devices()[0]
    record = {"piece": name, "dimension": d, "device": device.device_kind, "wall": time.monotonic() - begin} | found
    study.folder.mkdir(parents=True, exist_ok=True)
    atomic_write_text(file_of(study.folder, d, name), strict_json(record) + "\n")
    last = lambda key: [round(path[-1], 2) for path in found[key]]
    took = time.monotonic() - begin
    study.tell(f"d = {d}, {name}: forward {last('forward')}, inverse {last('inverse')} ({took:.0f} s)")


def file_of(folder: Path, dimension: int, piece: str) -> Path:
    """The file of a piece."""
    return folder / f"d{dimension}-{piece.replace(' ', '_').replace(',', '')}.json"


def pieces(study: Study, own: Variant, more: bool) -> list[tuple[str, Callable[[], Any]]]:
    """What is run, the most important first; later pieces use the rates that the first has found for FedMM-OT."""
    data, found = study.data, file_of(study.folder, study.benchmark.dimension, MAIN)

    def tuned() -> dict[str, float]:
        return json.loads(found.read_text())["chosen"] if found.exists() else DEFAULT

    def plain(name: str, make: Callable[[], Variant]) -> tuple[str, Callable[[], Any]]:
        return name, lambda: run_piece(study, name, make(), data)

    def again(name: str, data: Any = data, **options: Any) -> tuple[str, Callable[[], Any]]:
        return name, lambda: run_piece(study, name, own, data() if callable(data) else data, chosen=tuned(), **options)

    def gaussian() -> None:
        begin = time.monotonic()
        reference = np.asarray(study.benchmark.target(jax.random.key(7), 100_000), np.float64)
        forward, inverse = w2.gaussian_errors(study.benchmark, data, reference)
        save(study, "Gaussian map", {"rounds": [1], "forward": [[forward]], "inverse": [[inverse]]}, begin)

    def coordinates(name: str, times: int = 1) -> None:
        x = data.train.x.astype(np.float64)
        y = np.asarray(study.benchmark.target(jax.random.key(7), 100_000), np.float64)
        change = in_gaussian_coordinates(x.mean(axis=0), np.cov(x.T), y.mean(axis=0), np.cov(y.T))
        moved = FederatedData.unlabelled(
            change.into(x).astype(np.float32), clients=np.repeat(np.arange(data.clients), data.train.sizes)
        )
        run_piece(
            study._replace(rounds=times * study.rounds), name, fedmm_ot(study, change=change), moved, change=change
        )

    def alone() -> None:
        begin = time.monotonic()
        sets = [data.take(np.array([c])) for c in range(data.clients)]
        point = tuned()
        hyper = {key: [value] * len(sets) for key, value in point.items()}
        found = follow(study, own.algorithm, sets, rounds=study.rounds, hyper=hyper)
        save(study, "clients alone", found | {"chosen": point}, begin)

    def mixed(share: float) -> FederatedData:
        return w2.clients_of(study.benchmark, clients=data.clients, samples=int(data.train.sizes[0]), share=share)

    some = mj.participation.uniform(0.3)
    listed = [
        plain(MAIN, lambda: own),
        ("Gaussian map", gaussian),
        plain("FedAdam, cycle", lambda: fedadam(study, "cycle")),
        plain("FedAdam, max-min", lambda: fedadam(study, "max-min")),
        again("centralized", lambda: pooled(data)),
        (GAUSSIAN, lambda: coordinates(GAUSSIAN)),
        again("participation 0.3", participation=some, hyper={"alpha": 0.0}),
        again("participation 0.3, control variates", participation=some, hyper={"alpha": 0.1}),
    ]
    if more:
        listed += [
            again("8 bits", channel=mj.channel.quantized(8)),
            again("i.i.d. clients", lambda: mixed(0.0)),
            again("half i.i.d. clients", lambda: mixed(0.5)),
        ]
    return [
        *listed,
        plain("FedMM-OT, cycle", lambda: fedmm_ot(study, "cycle")),
        plain("FedAvg, cycle", lambda: fedavg(study, "cycle")),
        plain("FedAvg, max-min", lambda: fedavg(study, "max-min")),
        ("clients alone", alone),
        (RIVAL, lambda: run_piece(study._replace(tuning=1), RIVAL, fedadam(study, "cycle"), data)),
        (LONGER, lambda: coordinates(LONGER, times=3)),
    ]


def pace(study: Study, algorithm: Algorithm, rounds: int | None, weight: float) -> int:
    """The rounds that fit the time: a short run is timed; everything takes about ``weight`` times the main piece."""
    if rounds is not None:
        return rounds
    options: dict[str, Any] = {"seeds": study.seeds, "evaluation": mj.Evaluation(every=10_000)}
    mj.simulate(algorithm, study.data, rounds=20, **options)
    begin = time.monotonic()
    mj.simulate(algorithm, study.data, rounds=200, **options)
    each = (time.monotonic() - begin) / 200
    fits = 0.6 * study.left() / (weight * each)  # the rest is for compiling
    chosen = int(np.clip(round(fits / 500) * 500, 1000, LONGEST))
    study.tell(f"d = {study.benchmark.dimension}: {1000 * each:.2f} ms a round, {chosen} rounds")
    return chosen


def run_all(
    folder: Path,
    dimensions: Sequence[int],
    *,
    minutes: float,
    rounds: int | None = None,
    seeds: int = SEEDS,
    samples: int = SAMPLES,
    batch: int = BATCH,
    clients: int = CLIENTS,
    only: Sequence[str] | None = None,
    tuning: int = 4,
    tell: Callable[[str], None] = print,
) -> None:
    """All pieces of some dimensions; those whose files are there already are left out, and so is what would be late."""
    begin = time.monotonic()
    for place, d in enumerate(dimensions):
        deadline = begin + 60 * minutes * (place + 1) / len(dimensions)
        benchmark = w2.load(d)
        data = w2.clients_of(benchmark, clients=clients, samples=samples)
        tell(f"d = {d}: data ready after {time.monotonic() - begin:.0f} s")
        study = Study(benchmark, data, batch, seeds, 0, folder, deadline, tell, tuning)
        more = d == min(dimensions) or d == DIMENSIONS[0]
        own = fedmm_ot(study)
        study = study._replace(rounds=pace(study, own.algorithm, rounds, 13.0 if more else 9.0))
        took = 0.0
        for name, run in pieces(study, own, more):
            if file_of(folder, d, name).exists() or (only is not None and name not in only):
                continue
            if study.left() < took / 2:
                tell(f"d = {d}: no time for {name}")
                continue
            started = time.monotonic()
            try:
                run()
            except Exception as error:  # one piece that fails must not take the others with it
                tell(f"d = {d}, {name} failed: {type(error).__name__}: {error}")
            took = max(took, time.monotonic() - started)


def figure3(context: Context) -> list[Result]:
    """Figure 3 and what belongs to it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if context.quick:
            names = (MAIN, "Gaussian map", "FedAdam, cycle")
            options = {"rounds": 40, "seeds": 2, "samples": 200, "batch": 64, "clients": 4, "only": names}
            run_all(folder, (2,), minutes=5, tell=context.tell, **options)  # type: ignore[arg-type]
        else:
            run_all(folder, DIMENSIONS, minutes=180, rounds=4000, seeds=context.seeds or SEEDS, tell=context.tell)
        return results_of(folder)


def plane(path: Path, *, rounds: int = 400, samples: int = 500, seed: int = 0) -> tuple[float, float]:
    """A picture of the map in two dimensions, by the estimator; both of its L2-UVPs."""
    from majorant.app.report.figures import render
    from majorant.app.report.transport_picture import transport_picture
    from majorant.estimators import FederatedTransport

    benchmark = w2.load(2)
    data = w2.clients_of(benchmark, samples=samples)
    reference = np.asarray(benchmark.target(jax.random.key(7), 5000))
    groups = np.repeat(np.arange(data.clients), data.train.sizes)
    options: dict[str, Any] = {"max_iter": rounds, "validation_fraction": 0.0, "random_state": seed}
    model = FederatedTransport(**options).fit(data.train.x, groups=groups, reference=reference)
    moved = model.transform(data.train.x)
    atomic_write_bytes(path, render(transport_picture(data.train.x, moved, reference), "png"))
    x = np.asarray(benchmark.source(jax.random.key(1_000_003), 4096))
    y = np.asarray(benchmark.truth(x))
    forward = w2.uvp(model.transform(x), y, benchmark.q_var)
    return float(forward), float(w2.uvp(model.inverse_transform(y), x, benchmark.p_var))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="FedMM-OT on the Wasserstein-2 benchmark")
    parser.add_argument("out", type=Path, help="where a JSON file for each piece goes")
    parser.add_argument("--dimensions", default="16,32,64")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--rounds", type=int, default=None, help="default: what fits the time")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--only", action="append", help="run these pieces alone")
    parser.add_argument("--tuning", type=int, default=4, help="points of a grid are tried for the rounds over this")
    parser.add_argument("--picture", type=Path, help="draw the map in two dimensions to this file, and end")
    parser.add_argument("--curves", type=Path, help="draw the curves of OUT to this file, FILE-inverse, and end")
    given = vars(parser.parse_args())
    picture, curves = given.pop("picture"), given.pop("curves")
    if curves is not None:
        return curves_of(given["out"], curves)
    if picture is not None:
        return print("forward {:.2f}, inverse {:.2f}".format(*plane(picture)))
    given["dimensions"] = [int(d) for d in given["dimensions"].split(",")]
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {os.cpu_count()} cores", flush=True)
    folder, dimensions = given.pop("out"), given.pop("dimensions")
    run_all(folder, dimensions, tell=lambda text: print(text, flush=True), **given)


if __name__ == "__main__":
    main()
