"""What a round costs on Flower: ours against Flower's own FedAvg with the same local work; and bytes on the wire.

Ours also under a secure sum, which is four letters in a round.

Both run with real processes on this machine, with TLS and keys: the same silos, the same model, the same local epochs
of SGD in JAX. Ours adds what a study needs: checked messages, private state and a checkpoint on the disk in every
round. The seconds of a round are between the ends of two rounds; the first is left out. python -m benchmarks.flower
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from majorant.app.files import atomic_write_text
from majorant.app.flower.new import write_app
from majorant.app.flower.processes import program
from majorant.app.flower.study import Study, study_of
from majorant.app.flower.up import LINK, Federation
from majorant.app.logs import read_jsonl

SILOS, ROUNDS, DIMENSION = 2, 4, 20
PLAIN_CLIENT = '''"""A plain Flower client that trains a linear model by SGD in JAX."""

import jax
import jax.numpy as jnp
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import majorant as mj
from majorant.app.build import load_data
from majorant.app.config import load_config
from majorant.engines.programs import enable_compilation_cache
from pathlib import Path

app = ClientApp()


@app.train()
def train(message, context):
    enable_compilation_cache()
    data, _ = load_data(load_config(Path(__file__).with_name("study.toml")))
    x, y = map(jnp.asarray, data.train.client(data.names.index(context.node_config["name"])))
    model = mj.models.linear(data)

    @jax.jit
    def trained(params):
        loss = lambda p: model.loss.per_sample(model.apply(p, x), y).mean()
        step = lambda p, _: (jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(loss)(p)), None)
        return jax.lax.scan(step, params, None, length=4)[0]

    shape = jax.eval_shape(model.init, jax.random.key(0))
    given = message.content["arrays"].to_numpy_ndarrays()
    params = trained(jax.tree.unflatten(jax.tree.structure(shape), given))
    arrays = ArrayRecord([jax.device_get(leaf) for leaf in jax.tree.leaves(params)])
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": len(y)})}), reply_to=message)
'''
PLAIN_SERVER = '''"""Flower's own FedAvg, which notes when its rounds end."""

import json
import time
from pathlib import Path

import jax
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

import majorant as mj
from majorant.app.build import load_data
from majorant.app.config import load_config

app = ServerApp()


@app.main()
def main(grid, context):
    data, _ = load_data(load_config(Path(__file__).with_name("study.toml")))
    params = mj.models.linear(data).init(jax.random.key(0))
    ends = []

    def note(number, arrays):
        ends.append(time.time())

    silos, rounds = context.run_config["silos"], context.run_config["rounds"]
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=silos, min_available_nodes=silos)
    first = ArrayRecord([jax.device_get(leaf) for leaf in jax.tree.leaves(params)])
    strategy.start(grid=grid, initial_arrays=first, num_rounds=rounds, evaluate_fn=note)
    Path(context.run_config["status"]).write_text(json.dumps({"state": "finished", "ends": ends}))
'''


def study(channel: list[str]) -> Study:
    """FedAvg on synthetic silos."""
    values = {
        "algorithm": "fedavg",
        "data": f"synthetic:clients={SILOS},dimension={DIMENSION}",
        "model": "linear",
        "rounds": ROUNDS,
        "evaluate_every": ROUNDS,
        "channel": channel,
        "local": {"lr": 0.1, "epochs": 4, "batch_size": 0, "momentum": 0.0, "weight_decay": 0.0},
        "flower": {"clients": SILOS, "wait": 900.0, "timeout": 900.0},
    }
    return study_of(values)


def plain(folder: Path) -> list[float]:
    """When the rounds of Flower's own FedAvg ended."""
    federation = Federation(study([]), folder)
    with federation.processes:
        federation.start()
        app = write_app(federation.place / "app", federation.study)
        more = f'status = ""\nsilos = {SILOS}\nrounds = {ROUNDS}'
        text = (app / "pyproject.toml").read_text().replace('status = ""', more)
        atomic_write_text(app / "pyproject.toml", text)
        atomic_write_text(app / "study" / "client_app.py", PLAIN_CLIENT)
        atomic_write_text(app / "study" / "server_app.py", PLAIN_SERVER)
        status = f"status={json.dumps(str(federation.status))}"
        federation.processes.call(program("flwr"), "run", str(app), LINK, "--run-config", status)
        while not federation.status.is_file():
            federation.processes.check()
            time.sleep(0.5)
        return json.loads(federation.status.read_text())["ends"]


def ours(folder: Path, channel: list[str]) -> tuple[list[float], dict[str, int]]:
    """When the rounds of ours ended, and what was sent."""
    federation, ends = Federation(study(channel), folder), []
    with federation.processes:
        federation.start()
        federation.submit()
        manifest, seen = folder / "checkpoint" / "manifest.json", 0.0
        while not federation.status.is_file():
            federation.processes.check()
            if manifest.is_file() and (changed := manifest.stat().st_mtime) > seen:
                ends.append(seen := changed)
            time.sleep(0.1)
        federation.conclude(json.loads(federation.status.read_text()))
    assert read_jsonl(folder / "metrics.jsonl")
    return ends[: ROUNDS + 1], json.loads((folder / "summary.json").read_text())["communication"]


def each_round(ends: list[float]) -> list[float]:
    """The seconds between the ends of rounds, without the first one."""
    return [b - a for a, b in itertools.pairwise(ends[1:])]


def main() -> None:
    """Prints a table."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        print(f"{SILOS} silos, {DIMENSION} features, {ROUNDS} rounds; seconds of a round, median", flush=True)
        theirs = each_round(plain(place / "plain"))
        print(f"  Flower's own FedAvg      {statistics.median(theirs):6.1f}", flush=True)
        for number, channel in enumerate(([], ["quantized:8"], ["secure-sum:8.0"])):
            ends, sent = ours(place / f"ours-{number}", channel)
            name = f"ours{', ' + channel[0] if channel else ''}"
            ratio = statistics.median(each_round(ends)) / statistics.median(theirs)
            print(f"  {name:24} {statistics.median(each_round(ends)):6.1f}  ({ratio:.2f} times)", flush=True)
            for way in ("up", "down"):
                counted, wire = sent[f"bytes_{way}"], sent[f"wire_{way}"]
                print(f"    bytes {way:4} counted {counted:8,}  on the wire {wire:8,}  (arrays and facts)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
