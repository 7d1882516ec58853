"""What robust rules, noise and secure sums cost: seconds and bytes of a round of FedAvg, against the plain one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from benchmarks.attack_study import RULES
from benchmarks.machine import interleaved
from majorant.core.trees import stack_rows
from majorant.engines import rounds, set_up
from majorant.engines.messages import message_shapes
from majorant.engines.tally import empty_tally
from majorant.exchange.federation import Federation, federation
from majorant.exchange.star import star


def cost(out: Path, clients: int = 50, dimension: int = 2000, repeats: int = 5) -> list[dict[str, Any]]:
    """Seconds and bytes up of a round of FedAvg on a softmax model, as ratios to the plain round.

    On processors it is their own time, which others that use the machine do not change.
    """
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(clients, 20, dimension)).astype(np.float32), rng.integers(0, 10, (clients, 20))
    one = np.arange(clients, dtype=np.int32)
    data = mj.ClientData(jnp.asarray(x), jnp.asarray(y, jnp.int32), jnp.full(clients, 20), jnp.asarray(one), one)
    data = data._replace(slot=jnp.asarray(one))
    from majorant.exchange import adaptive_clip, chain, gaussian, skellam
    from majorant.models.base import Spec

    model = mj.models.softmax_regression(Spec((dimension,), 10))
    algorithm = mj.fedavg(model, local=mj.local_sgd(0.1, epochs=1, batch_size=10))
    hidden = mj.solvers.local_private_sgd(0.1, noise=1.0, clip=1.0, batch_size=10, steps=2)
    clip, secure = mj.channel.clip(1.0), mj.channel.secure_sum
    channels = {
        "clip": clip,
        "adaptive-clip": adaptive_clip(),
        "clip, gaussian": chain(clip, gaussian(1.0)),
        "adaptive-clip, gaussian": chain(adaptive_clip(), gaussian(1.0)),
        "clip, gaussian at clients": chain(clip, gaussian(1.0, at="client")),
        "clip, skellam, secure-sum, 12 bits": chain(clip, skellam(1.0), secure(1.0, bits=12, threshold=40)),
        **{f"secure-sum, {bits} bits": secure(64.0, bits=bits) for bits in (8, 16, 24)},
        "quantized:8": mj.channel.quantized(8),
    }
    kinds: dict[str, dict[str, Any]] = {"plain": {}, "DP-SGD of samples": {"algorithm": mj.fedavg(model, local=hidden)}}
    kinds |= {name: {"channel": channel} for name, channel in channels.items()}
    kinds |= {rule: {"exchange": star(combine)} for rule, combine in RULES.items()}
    works, sent = {}, {}
    for name, options in kinds.items():
        together = federation(**({"algorithm": algorithm} | options), training=one)
        works[name], sent[name] = timed_round(together, data)
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    seconds = interleaved(works, repeats, clock)
    found = [
        {
            "name": name,
            "seconds": seconds[name],
            "time_ratio": seconds[name] / seconds["plain"],
            "bytes_up": sent[name],
            "bytes_ratio": sent[name] / sent["plain"],
        }
        for name in kinds
    ]
    about = {"clients": clients, "numbers": 10 * (dimension + 1), "device": jax.devices()[0].device_kind}
    out.write_text(json.dumps({"about": about, "rounds": found}, indent=1), encoding="utf-8")
    return found


def timed_round(together: Federation, data: Any) -> tuple[Any, int]:
    """A round, compiled, and the bytes that one client sends in it."""
    clients = data.id.shape[0]
    upload = message_shapes(together, jax.tree.map(lambda a: a[0], data))[0]
    numbers = sum(leaf.size for leaf in jax.tree.leaves(upload.value))
    bits = 32 * numbers if together.channel is None else together.channel.bits(numbers)

    @jax.jit
    def start(key: jax.Array) -> Any:
        server = set_up.start_server(together, clients, key, {}, jnp.int32(1))
        held, answers = set_up.start_clients(together, server, key, data, jnp.ones(clients, bool), clients)
        return set_up.finish_start(together, server, [answers], [data.slot], clients), held

    @jax.jit
    def step(server: Any, held: Any, key: jax.Array) -> Any:
        view, own = rounds.begin_round(together, server, key)
        sums, held, sent = rounds.chunk_pass(together, view, own, held, data, jnp.ones(clients, bool))
        stacked = None if sent is None else stack_rows([sent], [data.slot], clients)
        tally = empty_tally(message_shapes(together, jax.tree.map(lambda a: a[0], data)))
        return rounds.end_round(together, server, view, own, sums, stacked, tally)[0], held

    key = jax.random.key(0)
    server, held = start(key)
    return lambda: jax.block_until_ready(step(server, held, key)), bits // 8 + 4  # and a weight
