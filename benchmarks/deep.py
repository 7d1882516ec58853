"""A FedAvg round of deep networks: ours against PyTorch, one client after the other and by a compiled ``vmap``.

MobileNet-v2 on 32×32×3 images, 40 clients × 4 steps of 128; the papers' CNN on 28×28, 100 clients × 4 steps of 128;
their LSTM on texts of 80 characters with a loss at each, 16 clients × 4 steps of 128 (on a CPU two clients); SGD with
momentum, random samples (the work is the same). PyTorch has no ``vmap`` of its LSTM. Each piece is saved as it is done,
with its share of the device's own limits, which are measured first:

    python -m benchmarks.deep FOLDER --minutes 5                     all pieces, as many as fit the time
    python -m benchmarks.deep FOLDER --pieces limits,mobilenet       some of them
    python -m benchmarks.deep FOLDER --tiny                          small networks and few clients, to try it out

FLOPs are those of the network's forward pass, three times for a training step. Bytes are what XLA says the compiled
step reads and writes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from benchmarks import torch_networks as theirs
from benchmarks.machine import best_of
from majorant.data.federated import FederatedData
from majorant.engines.simulation import Simulation
from majorant.exchange.federation import federation
from majorant.models import inverted_residuals
from majorant.models.cost import forward_flops

BATCH, STEPS, LR, CLASSES = 128, 4, 0.03, 10


class Work(NamedTuple):
    """What is measured: clients of equal sizes and their images."""

    clients: int
    samples: int
    shape: tuple[int, ...]  # of an image, or the length of a text
    batch: int
    stages: int = 7  # of MobileNet-v2
    hidden: int = 256  # of the LSTM
    classes: int = CLASSES  # of an LSTM, the characters

    def made(self) -> tuple[np.ndarray, np.ndarray]:
        """Random images (clients, samples, …) and labels, or texts and the characters that follow."""
        rng, codes = np.random.default_rng(0), self.classes if len(self.shape) == 1 else 256
        x = rng.integers(0, codes, (self.clients, self.samples, *self.shape), dtype=np.uint8)
        y = rng.integers(0, self.classes, (self.clients, self.samples)).astype(np.int32)
        y.flat[: self.classes] = np.arange(self.classes)  # each is there
        return x, y

    def data(self) -> FederatedData:
        """The same as federated data, a few more for test."""
        x, y = self.made()
        x, y = (np.concatenate([a, a[:, :8]], axis=1) for a in (x, y))
        owner = np.repeat(np.arange(self.clients), self.samples + 8)
        split = (self.samples / (self.samples + 8), 0.0, 8 / (self.samples + 8))
        return FederatedData.from_arrays(x.reshape(-1, *self.shape), y.reshape(-1), owner, split=split, name="random")


def network(kind: str, work: Work, data: Any, precision: str) -> Any:
    """Our model."""
    if kind == "cnn":
        model = mj.models.cnn(data)
    elif kind == "lstm":
        model = mj.models.lstm(data, hidden=work.hidden, every_position=True)
    else:
        plan = inverted_residuals.MOBILENET_V2
        plan = plan._replace(stages=plan.stages[: work.stages])
        model = mj.models.packed(inverted_residuals.network(plan, data, "averaged", 0.0, "unit", 1.0, 2))
    return mj.models.mixed_precision(model) if precision == "mixed" else model


def ours(
    kind: str, work: Work, limits: dict, *, precision: str = "single", components: int = 1, rounds: int = 5
) -> dict:
    """Seconds of a round, of compiling, and shares of the limits."""
    data = work.data()
    model = network(kind, work, data, precision)
    local = mj.local_sgd(LR, steps=STEPS, batch_size=work.batch, momentum=0.9)
    algorithm = (
        mj.fedavg(model, local=local) if components == 1 else mj.fedem(model, components=components, local=local)
    )
    begin = time.perf_counter()
    simulation = started(algorithm, data)
    ready = time.perf_counter() - begin
    seconds = best_of(lambda: simulation.block(rounds), 3) / rounds
    program = next(iter(simulation.engine.programs.block.compiled.values()))
    cost = program.cost_analysis() or {}
    cost = cost[0] if isinstance(cost, list) else cost
    samples = work.clients * STEPS * work.batch * components
    flops = 3 * forward_flops(model) * samples
    moved = float(cost.get("bytes accessed", 0)) * STEPS  # loops are counted once
    memory = program.memory_analysis()
    return {
        "round_seconds": seconds,
        "ready_seconds": ready,
        "compile_seconds": simulation.seconds["compile"],
        "clients_side_by_side": simulation.layout.at_once,
        "temporary_gigabytes": getattr(memory, "temp_size_in_bytes", 0) / 1e9,
        "tera_flops_a_round": flops / 1e12,
        "gigabytes_a_round": moved / 1e9,
        "share_of_flops": flops / seconds / limits["flops_" + ("bfloat16" if precision == "mixed" else "float32")],
        "share_of_bytes": moved / seconds / limits["bytes"],
    }


def started(algorithm: Any, data: FederatedData) -> Simulation:
    """A simulation that has made its first round."""
    together = federation(algorithm, training=np.arange(data.clients))
    simulation = Simulation(together, [data], [{"seed": 0, "hyper": {}}], 100)
    simulation.start()
    simulation.block(1)
    return simulation


def profiled(work: Work, folder: Path) -> dict[str, Any]:
    """Where a round of MobileNet-v2 in mixed precision spends its time: the kernels that take most of it."""
    data = work.data()
    local = mj.local_sgd(LR, steps=STEPS, batch_size=work.batch, momentum=0.9)
    simulation = started(mj.fedavg(network("mobilenet", work, data, "mixed"), local=local), data)
    with tempfile.TemporaryDirectory() as target:
        with jax.profiler.trace(target):
            simulation.block(1)
        trace = next(Path(target).rglob("*.xplane.pb"))
        planes = list(jax.profiler.ProfileData.from_file(str(trace)).planes)
    chosen = [p for p in planes if p.name.startswith("/device:GPU")] or planes
    total: dict[str, list[float]] = {}
    for line in (line for plane in chosen for line in plane.lines if chosen is planes or "Stream" in line.name):
        for event in line.events:
            seconds = total.setdefault(event.name, [0.0, 0])
            seconds[0] += event.duration_ns / 1e9
            seconds[1] += 1
    by_time = sorted(((*value, name) for name, value in total.items()), reverse=True)
    program = next(iter(simulation.engine.programs.block.compiled.values()))
    (folder / "block.hlo.txt").write_text(program.as_text())
    return {
        "kernels": sum(int(count) for _, count, _ in by_time),
        "seconds": sum(seconds for seconds, _, _ in by_time),
        "slowest": [{"name": n[:120], "milliseconds": 1e3 * s, "calls": int(c)} for s, c, n in by_time[:60]],
        "planes": [plane.name for plane in planes],
    }


def measure_limits(tiny: bool) -> dict[str, float]:
    """What the device does at best: FLOP/s of a large product in both precisions, bytes/s of a large copy."""
    n, length = (256, 1 << 16) if tiny else (8192, 1 << 28)
    found: dict[str, Any] = {"device": str(jax.devices()[0].device_kind)}
    for dtype in (jnp.float32, jnp.bfloat16):
        a = jnp.ones((n, n), dtype)
        product = jax.jit(lambda a: a @ a)
        found[f"flops_{jnp.dtype(dtype).name}"] = 2 * n**3 / best_of(lambda: product(a).block_until_ready())  # noqa: B023
    big, copy = jnp.zeros(length, jnp.float32), jax.jit(lambda a: a + 1)
    found["bytes"] = 2 * big.nbytes / best_of(lambda: copy(big).block_until_ready())
    return found


def torch_round(kind: str, work: Work, way: str) -> dict[str, float]:
    """PyTorch's round, ``way`` "loop" or "vmap"."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    make = {
        "cnn": lambda: theirs.cnn(CLASSES),
        "lstm": lambda: theirs.lstm(work.classes, hidden=work.hidden),
        "mobilenet": lambda: theirs.mobilenet(CLASSES, track=way == "loop", stages=theirs.STAGES[: work.stages]),
    }[kind]
    options: dict[str, Any] = {"steps": STEPS, "batch": work.batch, "lr": LR}
    x, y = work.made()
    if kind == "lstm":
        y, options["read"] = np.concatenate([x[..., 1:], y[..., None]], axis=-1), lambda x: x
    x, y = theirs.on_device(x, y)
    if way == "loop":
        return theirs.timed(theirs.loop_round(make, x, y, **options), 6.0)
    try:
        found = theirs.timed(theirs.side_by_side_round(make, x, y, **options, compiled=True), 4.0)
        return found | {"compiled": True}
    except Exception as error:
        print(f"torch.compile fails, {type(error).__name__}: {str(error)[-300:]}", flush=True)
        found = theirs.timed(theirs.side_by_side_round(make, x, y, **options, compiled=False), 4.0)
        return found | {"compiled": False}


def pieces(tiny: bool, folder: Path) -> dict[str, tuple[float, Callable[[dict], dict]]]:
    """Names, seconds that each is expected to take on an H200, and what it does with the limits."""
    full = 2 if tiny else 7
    deep = Work(2, 16, (32, 32, 3), 8, full) if tiny else Work(40, 512, (32, 32, 3), BATCH, full)
    flat = Work(3, 16, (28, 28, 1), 8, full) if tiny else Work(100, 512, (28, 28, 1), BATCH, full)
    texts = 2 if tiny or jax.default_backend() == "cpu" else 16
    text = Work(2, 16, (10,), 8, hidden=4) if tiny else Work(texts, 512, (80,), BATCH, classes=80)
    rounds = 1 if tiny else 5
    return {
        "mobilenet": (60, lambda limits: ours("mobilenet", deep, limits, rounds=rounds)),
        "mobilenet-mixed": (60, lambda limits: ours("mobilenet", deep, limits, precision="mixed", rounds=rounds)),
        "profile": (40, lambda limits: profiled(deep, folder)),
        "cnn": (20, lambda limits: ours("cnn", flat, limits, rounds=rounds)),
        "cnn-mixed": (20, lambda limits: ours("cnn", flat, limits, precision="mixed", rounds=rounds)),
        "lstm": (20, lambda limits: ours("lstm", text, limits, rounds=rounds)),
        "lstm-mixed": (20, lambda limits: ours("lstm", text, limits, precision="mixed", rounds=rounds)),
        "torch-lstm-loop": (15, lambda limits: torch_round("lstm", text, "loop")),
        "torch-mobilenet-loop": (25, lambda limits: torch_round("mobilenet", deep, "loop")),
        "torch-cnn-loop": (10, lambda limits: torch_round("cnn", flat, "loop")),
        "torch-cnn-vmap": (40, lambda limits: torch_round("cnn", flat, "vmap")),
        "torch-mobilenet-vmap": (120, lambda limits: torch_round("mobilenet", deep, "vmap")),
        "fedem": (70, lambda limits: ours("mobilenet", deep, limits, precision="mixed", components=3, rounds=rounds)),
    }


def main() -> None:
    """Runs pieces until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pieces", default="")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    known, end = pieces(given.tiny, given.folder), time.perf_counter() + 60 * given.minutes
    wanted = [name for name in given.pieces.split(",") if name and name != "limits"] or list(known)
    given.folder.mkdir(parents=True, exist_ok=True)

    def save(name: str, found: dict) -> None:
        (given.folder / f"deep-{name}.json").write_text(json.dumps(found, indent=1))
        print(f"{name}: {json.dumps(found)}", flush=True)

    limits = measure_limits(given.tiny)
    save("limits", limits)
    for name in wanted:
        expected, work = known[name]
        if time.perf_counter() + expected > end:
            print(f"{name}: left out, {end - time.perf_counter():.0f} s are left and it takes about {expected} s")
            continue
        try:
            save(name, work(limits))
        except Exception as error:  # the other pieces count all the same
            save(name, {"error": f"{type(error).__name__}: {error}"[:2000]})


if __name__ == "__main__":
    main()
