"""Every method under every attack and rule, several seeds each: the accuracy of honest clients.

All of a method's runs are one compiled program, in which step size, rule, attack and hostile clients are arguments.
Step sizes are chosen for each method without an attack, on validation rows.
"""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from majorant.core import Algorithm
from majorant.core.trees import stack_rows
from majorant.data.federated import FederatedData
from majorant.engines import evaluation, forging, rounds, set_up
from majorant.engines.population import stack
from majorant.exchange import attack as attacks
from majorant.exchange import displacements, robust
from majorant.exchange._combine import Combine
from majorant.exchange.attack import Attack, Seen
from majorant.exchange.federation import Federation
from majorant.exchange.star import star

SHARES = (0.1, 0.2, 0.3, 0.4)
SEEDS = tuple(range(5))
STEPS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
CLIENTS, ROUNDS = 24, 100
RULES: dict[str, Combine] = {  # each set for 40 % of hostile clients
    "median": robust.median(),
    "trimmed-mean": robust.trimmed_mean(0.4),
    "geometric-median": robust.geometric_median(iterations=20),
    "krum": robust.krum(0.4),
    "multi-krum": robust.multi_krum(0.4),
    "centered-clip": robust.centered_clip(),
    "norm-bound": robust.norm_bound(),
    "median, bucket=2": robust.median(bucket=2),
}
ATTACKS: dict[str, Attack] = {
    "sign-flip": attacks.sign_flip(scale=3.0),
    "noise": attacks.noise(scale=3.0),
    "label-flip": attacks.label_flip(),
    "model-replacement": attacks.model_replacement(),
    "alie": attacks.alie(),
    "inner-product": attacks.inner_product(scale=3.0),
    "huge": attacks.huge(),
}


class Menu(NamedTuple):
    """What one run is told: numbers of a rule and of an attack, who is hostile, what is poisoned, the step size."""

    rule: Any  # 0 is the mean
    attack: Any  # 0 is none
    hostile: Any  # (clients,)
    component: Any  # the only component of a mixture that hostile clients forge; −1: all
    step: Any


class Case(NamedTuple):
    """A run in words."""

    rule: str = "mean"
    attack: str = "none"
    share: float = 0.0
    component: int = -1
    step: float | None = None


def data_of(name: str, seed: int) -> FederatedData:
    """Clients that differ: the FedEM paper's mixture, or digits of which each client has some classes more."""
    if name == "synthetic":
        return mj.data.synthetic_mixture(clients=CLIENTS, dimension=20, noise=0.1, seed=seed)
    from majorant.app import catalogue

    return catalogue.datasets.make(f"digits:clients={CLIENTS},alpha=1.0,seed={seed}")


METHODS = ("local", "fedavg", "fedavg+", "fedem", "ditto", "pfedme", "apfl", "clustered")


def method_of(name: str, data: FederatedData) -> Algorithm:
    """A method; all train a linear model by as many epochs."""
    model, local = mj.models.linear(data), mj.local_sgd(0.1, epochs=1, batch_size=32)
    made = {
        "local": mj.local,
        "fedavg": mj.fedavg,
        "fedavg+": mj.fedavg_plus,
        "fedem": functools.partial(mj.fedem, components=3),
        "ditto": mj.ditto,
        "pfedme": mj.pfedme,
        "apfl": mj.apfl,
        "clustered": functools.partial(mj.clustered, clients=data.clients),
    }
    return made[name](model, local=local)


def chosen_rule(number: jax.Array, x: Any, present: jax.Array, weights: jax.Array, key: jax.Array) -> Any:
    """The displacement that one of the rules gives; 0 is the weighted mean."""
    mean = lambda x, present, key: displacements.weighted(x, weights / jnp.maximum(weights.sum(), 1e-30))
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
    """Some rounds and an evaluation, compiled once, for several data sets and for several runs on each.

    ``(train, others, keys, menus) -> (accuracies (data sets, runs, parts, clients), mixture weights)``.
    """
    flips = jnp.asarray([False, *(kind.flips_labels for kind in ATTACKS.values())])

    def trained(train: Any, others: Any, key: jax.Array, menu: Menu) -> Any:
        clients = train.id.shape[0]
        turned = (menu.hostile & flips[menu.attack])[:, None]
        train = train._replace(y=jnp.where(turned, classes - 1 - train.y, train.y))
        reading = lambda value, weight: (value, weight)
        together = Federation(algorithm, exchange=star(Combine("by number", reading)))
        server = set_up.start_server(together, clients, key, {"lr": menu.step}, jnp.int32(count))
        everyone = jnp.ones(clients, bool)
        held, answers = set_up.start_clients(together, server, key, train, everyone, clients)
        server = set_up.finish_start(together, server, [answers], [train.slot], clients)

        def one_round(_: Any, state: Any) -> Any:
            server, held = state
            view, own = rounds.begin_round(together, server, key)
            _, held, sent = rounds.chunk_pass(together, view, own, held, train, everyone)
            uploads, heard = stack_rows([sent], [train.slot], clients)
            uploads, heard, _ = forging.forged(together, view, own, uploads, heard, Forger(menu))
            if algorithm.traits.reads == "sum":
                origin, total = algorithm.client.origin(view), uploads.weight.sum()
                moved = jax.tree.map(lambda v, o: v - o, uploads.value, origin)
                moved = chosen_rule(menu.rule, moved, uploads.weight > 0, uploads.weight, own)
                uploads = type(uploads)(jax.tree.map(lambda o, m: (o + m) * total, origin, moved), total)
            updated = algorithm.server.update(server, view, uploads)
            return updated._replace(round=server.round + 1, rounds=server.rounds, terms=server.terms), held

        server, held = jax.lax.fori_loop(0, count, one_round, (server, held))
        view, own = evaluation.released_view(together, server, key)

        def score(state: Any, train: Any, *others: Any) -> Any:
            model = evaluation.deployed_model(together, view, own, state, train, unseen=False)
            right = lambda rows: algorithm.deployment.predict(model, rows.x).argmax(axis=1) == rows.y
            share = lambda rows: jnp.where(rows.mask, right(rows), False).sum() / jnp.maximum(rows.size, 1)
            pi = jnp.zeros(1) if algorithm.deployment.mixture is None else algorithm.deployment.mixture(model)
            return jnp.stack([share(rows) for rows in others]), pi

        each, pi = jax.vmap(score)(held.state, train, *others)
        return each.T, pi

    several = jax.vmap(trained, (None, None, None, 0))
    return jax.jit(jax.vmap(several))


def hostile_of(clients: int, share: float, seed: int) -> np.ndarray:
    """Who is hostile: those of any attack of this share and seed."""
    if not share:
        return np.zeros(clients, bool)
    return attacks.sign_flip(share, seed=seed).among(np.arange(clients)).mask(clients)


class Study:
    """One method on the data sets of all seeds."""

    def __init__(self, name: str, method: str, count: int = ROUNDS, seeds: tuple[int, ...] = SEEDS) -> None:
        self.name, self.method, self.count, self.seeds = name, method, count, seeds
        self.sets = [data_of(name, seed) for seed in seeds]
        longest = [max(int(getattr(d, p).sizes.max()) for d in self.sets) for p in ("train", "validation", "test")]
        slots = np.arange(self.sets[0].clients)
        parts = [
            [stack(part, slots, rows) for part, rows in zip((d.train, d.validation, d.test), longest, strict=True)]
            for d in self.sets
        ]
        self.train, *others = jax.tree.map(lambda *each: jnp.stack([jnp.asarray(a) for a in each]), *parts)
        self.others, self.keys = tuple(others), jnp.stack([jax.random.key(seed) for seed in seeds])
        self.algorithm = method_of(method, self.sets[0])
        self.at_once = 4 if jax.default_backend() == "cpu" else 64
        self.step = STEPS[0]

    def menus(self, cases: list[Case]) -> Menu:
        """The cases as arrays, (seeds, cases)."""
        number = lambda names, name: [*names].index(name) + 1 if name in names else 0
        hostile = [
            [hostile_of(d.clients, c.share, s) for c in cases] for d, s in zip(self.sets, self.seeds, strict=True)
        ]
        same = lambda each, kind: jnp.broadcast_to(jnp.asarray(each, kind), (len(self.seeds), len(cases)))
        return Menu(
            same([number(RULES, c.rule) for c in cases], jnp.int32),
            same([number(ATTACKS, c.attack) for c in cases], jnp.int32),
            jnp.asarray(hostile),
            same([c.component for c in cases], jnp.int32),
            same([self.step if c.step is None else c.step for c in cases], jnp.float32),
        )

    def results(self, cases: list[Case]) -> list[dict[str, Any]]:
        """The accuracy of honest clients (mean by samples, bottom decile) for each seed, and their mixture weights."""
        run = program(self.algorithm, len(self.sets[0].classes), self.count)
        lines: list[dict[str, Any]] = []
        for first in range(0, len(cases), self.at_once):
            some = cases[first : first + self.at_once]
            padded = [*some, *[some[-1]] * (self.at_once - len(some))]
            each, pi = jax.tree.map(np.asarray, run(self.train, self.others, self.keys, self.menus(padded)))
            lines += [self.line(case, each[:, i], pi[:, i]) for i, case in enumerate(some)]
        return lines

    def line(self, case: Case, each: np.ndarray, pi: np.ndarray) -> dict[str, Any]:
        """What is written of a case: ``each`` (seeds, parts, clients), ``pi`` (seeds, clients, components)."""
        found: dict[str, Any] = {"data": self.name, "method": self.method} | case._asdict()
        found |= {"rounds": self.count, "step": self.step if case.step is None else case.step}
        found |= {"validation": [], "test": [], "bottom_decile": []} | ({"pi": []} if pi.shape[2] > 1 else {})
        for s, (data, seed) in enumerate(zip(self.sets, self.seeds, strict=True)):
            honest = ~hostile_of(data.clients, case.share, seed)
            for place, part in enumerate(("validation", "test")):
                sizes = getattr(data, part).sizes[honest]
                found[part].append(float(np.average(each[s, place, honest], weights=sizes)))
            found["bottom_decile"].append(float(np.sort(each[s, 1, honest])[max(0, honest.sum() // 10 - 1)]))
            if "pi" in found:
                found["pi"].append(np.average(pi[s, honest], axis=0, weights=data.train.sizes[honest]).tolist())
        return found

    def everything(self, shares: tuple[float, ...] = SHARES) -> list[dict[str, Any]]:
        """The step size, then all cases that make sense for the method."""
        tried = self.results([Case(step=step) for step in STEPS])
        self.step = max(tried, key=lambda line: float(np.mean(line["validation"])))["step"]
        ruled = self.method != "local" and self.algorithm.traits.reads == "sum"
        rules = ("mean", *RULES) if ruled else ("mean",)
        cases = [Case(rule) for rule in rules]
        cases += [Case(rule, kind, share) for kind in ATTACKS for share in shares for rule in rules]
        if self.method == "fedem":
            cases += [Case("mean", kind, share, 0) for kind in ("sign-flip", "inner-product") for share in shares]
        return [line | {"tuning": True} for line in tried] + self.results(cases)


def study(name: str, out: Path, methods: tuple[str, ...] = METHODS) -> None:
    """All combinations, method after method; the file is written as it grows."""
    lines: list[dict[str, Any]] = []
    for method in methods:
        begin = time.perf_counter()
        done = Study(name, method)
        lines += done.everything()
        print(f"{name} {method}: step {done.step:g}, {time.perf_counter() - begin:.0f} s", flush=True)
        out.write_text(json.dumps(lines), encoding="utf-8")
