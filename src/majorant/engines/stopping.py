"""When a run stops before its last round: bounds on the numbers of its history.

A bound is a text such as ``gradient_norm < 1e-6``. It may name any number of a line of the history; of an entry with
several, such as ``test_accuracy``, the mean is meant. Two more are made of others::

    gradient_norm = √gradient_squared,     gradients = gradients_w + gradients_beta

and where the minimum F* is known, lines have ``suboptimality`` = objective − F*.
"""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import ClientData
from majorant.data.federated import PARTS, FederatedData
from majorant.engines import evaluation, set_up
from majorant.engines.messages import message_shapes, tiny_client
from majorant.exchange.federation import Federation
from majorant.metrics.scores import metric_name

SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FORM = re.compile(r"\s*([A-Za-z_]\w*)\s*(<=|>=|<|>)\s*([^\s<>=]+)\s*")
ALWAYS = ("round", "seed", "seconds", "bytes_up", "bytes_down", "participants", "rejected")
MADE_OF = {"gradient_norm": ("gradient_squared",), "gradients": ("gradients_w", "gradients_beta")}


class Bound(NamedTuple):
    """A number of the history, and what it must be below or above."""

    name: str
    sign: str
    value: float

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.value:g}"

    def met(self, line: dict[str, Any]) -> bool:
        """Whether a line of the history meets it; a number that is not there, or NaN, does not."""
        return bool(SIGNS[self.sign](number_of(line, self.name), self.value))


def parse_bounds(until: str | Sequence[str] | None) -> tuple[Bound, ...]:
    """Bounds from a text, or from several.

    >>> parse_bounds("gradient_norm<1e-6")
    (Bound(name='gradient_norm', sign='<', value=1e-06),)
    """
    texts = [] if until is None else [until] if isinstance(until, str) else list(until)
    return tuple(parse_bound(text) for text in texts)


def parse_bound(text: str) -> Bound:
    """A bound from a text: a name, a sign, a number."""
    found = FORM.fullmatch(text) if isinstance(text, str) else None
    try:
        value = float(found[3]) if found else math.nan
    except ValueError:
        value = math.nan
    if found is None or not math.isfinite(value):
        raise ValueError(
            f"until takes a name, one of {' '.join(SIGNS)}, and a finite number, as in 'gradient_norm < 1e-6', "
            f"got {text!r}"
        )
    return Bound(found[1], found[2], value)


def number_of(line: dict[str, Any], name: str) -> float:
    """A number of a line by its name, NaN where it is not there.

    >>> number_of({"gradient_squared": 4.0, "test_accuracy": {"mean": 0.5}}, "gradient_norm")
    2.0
    """
    if name == "gradients":
        return sum(number_of(line, part) for part in MADE_OF[name])
    if name == "gradient_norm":
        squared = number_of(line, "gradient_squared")
        return math.sqrt(squared) if squared >= 0 else math.nan
    value = line.get(name)
    value = value.get("mean") if isinstance(value, dict) else value
    return float(value) if isinstance(value, int | float) else math.nan


class Target:
    """What a run is stopped by, and measured against: bounds, and the minimum of the objective where it is known."""

    def __init__(self, bounds: tuple[Bound, ...] = (), optimum: float | None = None) -> None:
        if optimum is not None and not math.isfinite(optimum):
            raise ValueError(f"optimum must be a finite number, the minimum of the objective, got {optimum}")
        self.bounds, self.optimum = bounds, optimum
        self.met: dict[int, Bound] = {}  # by run, the bound that it has met first
        self.read = 0

    def reached(self, histories: list[list[dict[str, Any]]]) -> bool:
        """Whether every run has met a bound at some evaluation."""
        for run, lines in enumerate(histories):
            for line, bound in ((line, bound) for line in lines[self.read :] for bound in self.bounds):
                if bound.met(line):
                    self.met.setdefault(run, bound)
        self.read = len(histories[0])
        return bool(self.bounds) and len(self.met) == len(histories)

    def reason(self, histories: list[list[dict[str, Any]]]) -> str | None:
        """Why the runs stopped, or None where the rounds came to their end."""
        return " or ".join(dict.fromkeys(map(str, self.met.values()))) if self.reached(histories) else None

    def measured(self, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What was measured at an evaluation, with the distance from the minimum."""
        if self.optimum is None or "objective" not in found:
            return found
        return found | {"suboptimality": np.asarray(found["objective"], np.float64) - self.optimum}


def needs_diagnostics(
    bounds: tuple[Bound, ...], federation: Federation, data: FederatedData, *, optimum_known: bool
) -> bool:
    """Whether the bounds name what only diagnostics measure; names that will not be in the history are refused."""
    algorithm = federation.algorithm
    metric = metric_name(algorithm, len(data.classes))
    plain = set(ALWAYS) | scores_of(data, metric) | ({"epsilon"} if federation.guarantee is not None else set())
    wanted = {part for b in bounds for part in MADE_OF.get(b.name, [b.name])}
    if wanted <= plain and not optimum_known:
        return False
    logged, diagnosed = names_of(federation, data)
    known = plain | logged | diagnosed
    if optimum_known and "objective" not in known:
        raise ValueError(f"{algorithm.name} does not measure its objective: it cannot be compared with an optimum")
    known |= {"suboptimality"} if optimum_known else set()
    known |= {name for name, parts in MADE_OF.items() if known.issuperset(parts)}
    for bound in bounds:
        if bound.name == "suboptimality" and not optimum_known:
            raise ValueError(
                f"until {str(bound)!r} needs the minimum of the objective: in Python give optimum=F*, on the command "
                "line a convex --objective without --no-reference"
            )
        if bound.name not in known:
            near = difflib.get_close_matches(bound.name, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"until names {bound.name!r}, which {algorithm.name} does not log: {hint}known are "
                f"{', '.join(sorted(known))}"
            )
    return optimum_known or not wanted <= plain | logged


def scores_of(data: FederatedData, metric: str) -> set[str]:
    """The names under which the clients' scores are in the history."""
    found = set()
    for part in PARTS:
        if part == "validation" and not len(data.validation.y):
            continue
        found |= {f"{part}_{metric}", f"{part}_loss"}
        if data.unseen.any():
            found.add(f"unseen_{metric}" if part == "test" else f"unseen_{part}_{metric}")
    return found


def names_of(federation: Federation, data: FederatedData) -> tuple[set[str], set[str]]:
    """The names of what a method logs, and of what its diagnostics measure, without computing any of it."""
    algorithm = federation.algorithm

    def numbers(key: jax.Array, one: ClientData) -> Any:
        server = set_up.start_server(federation, 1, key, {}, jnp.int32(1))
        several, real = jax.tree.map(lambda a: a[None], one), jnp.ones(1, bool)
        clients, answers = set_up.start_clients(federation, server, key, several, real, 1)
        server = set_up.finish_start(federation, server, [answers], [several.slot], data.clients)
        logged = evaluation.conclude(federation, server, None)
        if algorithm.diagnostics.measure is None:
            return logged, {}
        sums = evaluation.measure_clients(federation, server, key, clients.state, several, real, chunk=1)
        diagnosed = evaluation.conclude(federation, server, sums)
        if algorithm.diagnostics.probe is not None:
            client = jax.tree.map(lambda a: a[0], clients.state)
            diagnosed = diagnosed | evaluation.probe_client(federation, server, key, client, one)
        return logged, diagnosed

    one = tiny_client(data)
    logged, diagnosed = jax.eval_shape(numbers, jax.random.key(0), one)
    return {*logged, *message_shapes(federation, one)[0].info}, set(diagnosed)
