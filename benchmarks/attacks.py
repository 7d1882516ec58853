"""Who is hurt by hostile clients: methods × rules × attacks × shares, and what rules and secure sums cost.

``python -m benchmarks.attacks study OUT.json [synthetic|digits [SHARE …]]`` trains every method under every attack and
rule, two seeds each, and writes the accuracy of honest clients. All of a method's runs are calls of one compiled
program, in which rule, attack and hostile clients are arguments. ``python -m benchmarks.attacks cost OUT.json`` times a
round of FedAvg with every rule and with secure sums against the plain one, and counts its bytes.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from benchmarks.machine import interleaved
from majorant.core import Algorithm
from majorant.core.trees import stack_rows
from majorant.data.federated import FederatedData
from majorant.engines import evaluation, forging, rounds, set_up
from majorant.engines.memory import message_shapes
from majorant.engines.population import stack
from majorant.exchange import attack as attacks
from majorant.exchange import robust
from majorant.exchange._combine import Combine
from majorant.exchange.attack import Attack, Seen
from majorant.exchange.federation import Federation, federation
from majorant.exchange.star import star

SHARES = (0.1, 0.2, 0.4)
SEEDS = (0, 1)
RULES: dict[str, Combine] = {  # each set for 40 % of hostile clients
    "median": robust.median(),
    "trimmed-mean": robust.trimmed_mean(0.4),
    "geometric-median": robust.geometric_median(iterations=20),
    "multi-krum": robust.multi_krum(0.4),
    "centered-clip": robust.centered_clip(),
    "median, bucket=2": robust.median(bucket=2),
}
ATTACKS: dict[str, Attack] = {
    "sign-flip": attacks.sign_flip(scale=3.0),
    "label-flip": attacks.label_flip(),
    "model-replacement": attacks.model_replacement(),
    "alie": attacks.alie(),
    "inner-product": attacks.inner_product(scale=3.0),
}


class Menu(NamedTuple):
    """What one call of a program is told: numbers of a rule and of an attack, who is hostile, what is poisoned."""

    rule: jax.Array  # 0 is the mean
    attack: jax.Array  # 0 is none
    hostile: jax.Array  # (clients,)
    component: jax.Array  # the only component of a mixture that hostile clients forge; −1: all


def data_of(name: str, seed: int) -> FederatedData:
    """Clients that differ: the FedEM paper's mixture, or digits of which each client has some classes more."""
    if name == "synthetic":
        return mj.data.synthetic_mixture(clients=24, dimension=20, noise=0.1, seed=seed)
    from majorant.app import catalogue

    return catalogue.datasets.make(f"digits:clients=24,alpha=1.0,seed={seed}")


@functools.cache
def methods_of(name: str) -> dict[str, Algorithm]:
    """The methods, with one local solver."""
    model = mj.models.linear(data_of(name, SEEDS[0]))
    local = mj.local_sgd(0.5 if name == "synthetic" else 0.1, epochs=1, batch_size=32)
    return {
        "local": mj.local(model, local=local),
        "fedavg": mj.fedavg(model, local=local),
        "fedem": mj.fedem(model, components=3, local=local),
        "ditto": mj.ditto(model, local=local),
        "pfedme": mj.pfedme(model, local=local),
        "fedavg+": mj.fedavg_plus(model, local=local),
    }


def chosen_rule(number: jax.Array, x: Any, present: jax.Array, weights: jax.Array, key: jax.Array) -> Any:
    """The displacement that one of the rules gives; 0 is the weighted mean."""
    mean = lambda x, present, key: robust.weighted(x, weights / jnp.maximum(weights.sum(), 1e-30))
    if not jax.tree.leaves(x):  # nothing is sent
        return x
    rules = [mean, *(combine.rule for combine in RULES.values())]
    return jax.lax.switch(number, rules, x, present, key)


def chosen_attack(menu: Menu, key: jax.Array, seen: Seen) -> Any:
    """What hostile clients send under one of the attacks; 0 is none, and some attack by their samples alone."""
    own = lambda key, seen: seen.moved
    forged = jax.lax.switch(menu.attack, [own, *(kind.forge or own for kind in ATTACKS.values())], key, seen)

    def part(f: jax.Array, a: jax.Array) -> jax.Array:  # (clients, components, …)
        if a.ndim < 3:
            return jnp.where(menu.component < 0, f, a)
        poisoned = (jnp.arange(a.shape[1]) == menu.component) | (menu.component < 0)
        return jnp.where(poisoned.reshape((1, -1) + (1,) * (a.ndim - 2)), f, a)

    return jax.tree.map(part, forged, seen.moved)


class Forger(NamedTuple):
    """Stands for an attack whose kind and clients are arguments of the program."""

    menu: Menu

    @property
    def attack(self) -> Any:
        """With the one function of an attack that a round calls."""
        menu = self.menu
        return type("Chosen", (), {"forge": staticmethod(lambda key, seen: chosen_attack(menu, key, seen))})

    def among(self, slots: np.ndarray) -> jax.Array:
        """Who is hostile, of the clients in some slots."""
        return self.menu.hostile[slots]


@functools.cache
def program(algorithm: Algorithm, classes: int, count: int) -> Any:
    """Some rounds and an evaluation, compiled once: ``(train, test, key, menu) -> (accuracies, mixture weights)``."""
    flips = jnp.asarray([False, *(kind.flips_labels for kind in ATTACKS.values())])

    def trained(train: Any, test: Any, key: jax.Array, menu: Menu) -> Any:
        clients = train.id.shape[0]
        turned = (menu.hostile & flips[menu.attack])[:, None]
        train = train._replace(y=jnp.where(turned, classes - 1 - train.y, train.y))
        reading = lambda value, weight: (value, weight)
        together = Federation(algorithm, exchange=star(Combine("by number", reading)))
        server = set_up.start_server(together, clients, key, {}, jnp.int32(count))
        everyone = jnp.ones(clients, bool)
        held, answers = set_up.start_clients(together, server, key, train, everyone, clients)
        server = set_up.finish_start(together, server, [answers], [train.slot], clients)

        def one_round(_: Any, state: Any) -> Any:
            server, held = state
            view, own = rounds.begin_round(together, server, key)
            _, held, sent = rounds.chunk_pass(together, view, own, held, train, everyone)
            uploads, heard = stack_rows([sent], [train.slot], clients)
            uploads, heard, _ = forging.forged(together, view, own, uploads, heard, Forger(menu))
            origin = algorithm.client.origin(view)
            moved = jax.tree.map(lambda v, o: v - o, uploads.value, origin)
            moved = chosen_rule(menu.rule, moved, uploads.weight > 0, uploads.weight, own)
            total = uploads.weight.sum()
            summed = jax.tree.map(lambda o, m: (o + m) * total, origin, moved)
            updated = algorithm.server.update(server, view, type(uploads)(summed, total))
            return updated._replace(round=server.round + 1, rounds=server.rounds, terms=server.terms), held

        server, held = jax.lax.fori_loop(0, count, one_round, (server, held))
        view, own = evaluation.released_view(together, server, key)

        def score(state: Any, train: Any, test: Any) -> Any:
            model = evaluation.deployed_model(together, view, own, state, train, unseen=False)
            right = algorithm.deployment.predict(model, test.x).argmax(axis=1) == test.y
            pi = jnp.zeros(1) if algorithm.deployment.mixture is None else algorithm.deployment.mixture(model)
            return jnp.where(test.mask, right, False).sum() / jnp.maximum(test.size, 1), pi

        return jax.vmap(score)(held.state, train, test)

    return jax.jit(trained)


def accuracy(
    algorithm: Algorithm,
    data: FederatedData,
    longest: int,
    seed: int,
    count: int,
    rule: str,
    attack: str,
    share: float,
    part: int,
) -> dict[str, Any]:
    """One run: the accuracy of honest clients (mean by samples, bottom decile), and their mixture weights."""
    slots = np.arange(data.clients)
    train, test = (jax.tree.map(jnp.asarray, stack(p, slots, longest)) for p in (data.train, data.test))
    kind = attacks.sign_flip(share or 0.1, seed=seed)  # any attack of this share and seed has these clients
    hostile = kind.among(slots).mask(data.clients) if share else np.zeros(data.clients, bool)
    number = lambda names, name: jnp.int32([*names].index(name) + 1 if name in names else 0)
    menu = Menu(number(RULES, rule), number(ATTACKS, attack), jnp.asarray(hostile), jnp.int32(part))
    run = program(algorithm, len(data.classes), count)
    each, pi = jax.tree.map(np.asarray, run(train, test, jax.random.key(seed), menu))
    sizes = data.test.sizes[~hostile]
    found = {
        "mean": float(np.average(each[~hostile], weights=sizes)),
        "bottom_decile": float(np.sort(each[~hostile])[max(0, (~hostile).sum() // 10 - 1)]),
    }
    if pi.shape[1] > 1:
        found["pi"] = np.average(pi[~hostile], axis=0, weights=data.train.sizes[~hostile]).tolist()
    return found


def study(
    name: str, out: Path, count: int = 40, seeds: tuple[int, ...] = SEEDS, shares: tuple[float, ...] = SHARES
) -> list[dict[str, Any]]:
    """All combinations, method after method; the file is written as it grows."""
    lines: list[dict[str, Any]] = []
    cases = [("mean", "none", 0.0, -1), *((rule, "none", 0.0, -1) for rule in RULES)]
    cases += [(rule, kind, share, -1) for kind in ATTACKS for share in shares for rule in ("mean", *RULES)]
    poisoned = [("mean", "inner-product", share, 0) for share in shares]
    sets = {seed: data_of(name, seed) for seed in seeds}
    longest = max(int(part.sizes.max()) for data in sets.values() for part in (data.train, data.test))
    for method, built in methods_of(name).items():
        begin = time.perf_counter()
        alone = [("mean", kind, share, part) for rule, kind, share, part in cases if rule == "mean"]
        wanted = alone if method == "local" else cases + (poisoned if method == "fedem" else [])
        for rule, kind, share, part in wanted:
            each = [accuracy(built, sets[s], longest, s, count, rule, kind, share, part) for s in seeds]
            line = {"data": name, "method": method, "rule": rule, "attack": kind, "share": share, "rounds": count}
            line |= {"component": part} if part >= 0 else {}
            line |= {key: [one[key] for one in each] for key in each[0]}
            lines.append(line)
        print(f"{name} {method}: {len(wanted)} cases, {time.perf_counter() - begin:.0f} s", flush=True)
        out.write_text(json.dumps(lines), encoding="utf-8")
    return lines


def cost(out: Path, clients: int = 50, dimension: int = 2000, repeats: int = 7) -> list[dict[str, Any]]:
    """Seconds and bytes up of a round of FedAvg on a softmax model, as ratios to the plain round."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(clients, 20, dimension)).astype(np.float32), rng.integers(0, 10, (clients, 20))
    one = np.arange(clients, dtype=np.int32)
    data = mj.ClientData(jnp.asarray(x), jnp.asarray(y, jnp.int32), jnp.full(clients, 20), jnp.asarray(one), one)
    data = data._replace(slot=jnp.asarray(one))
    from majorant.models.base import Spec

    model = mj.models.softmax_regression(Spec((dimension,), 10))
    algorithm = mj.fedavg(model, local=mj.local_sgd(0.1, epochs=1, batch_size=10))
    kinds: dict[str, dict[str, Any]] = {"plain": {}}
    kinds |= {rule: {"exchange": star(combine)} for rule, combine in RULES.items()}
    kinds |= {f"secure-sum, {bits} bits": {"channel": mj.channel.secure_sum(64.0, bits=bits)} for bits in (8, 16, 24)}
    kinds |= {"quantized:8": {"channel": mj.channel.quantized(8)}, "clip": {"channel": mj.channel.clip(1.0)}}
    works, sent = {}, {}
    for name, options in kinds.items():
        together = federation(algorithm, training=one, **options)
        works[name], sent[name] = timed_round(together, data)
    seconds = interleaved(works, repeats)
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
        tally = rounds.empty_tally(message_shapes(together, jax.tree.map(lambda a: a[0], data)))
        return rounds.end_round(together, server, view, own, sums, stacked, tally)[0], held

    key = jax.random.key(0)
    server, held = start(key)
    return lambda: jax.block_until_ready(step(server, held, key)), bits // 8 + 4  # and a weight


def main() -> None:
    """``study OUT.json [synthetic|digits [SHARE …]]`` or ``cost OUT.json``."""
    kind, out, *names = sys.argv[1:]
    if kind == "cost":
        for line in cost(Path(out)):
            print(f"{line['name']:20s} {line['time_ratio']:6.2f} × seconds, {line['bytes_ratio']:5.2f} × bytes up")
        return
    shares = tuple(float(share) for share in names[1:]) or SHARES
    for name in names[:1] or ["synthetic", "digits"]:
        study(name, Path(out) if names else Path(out).with_stem(f"{Path(out).stem}-{name}"), shares=shares)


if __name__ == "__main__":
    main()
