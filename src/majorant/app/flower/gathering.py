"""Who is there, and what they agree on: introductions, one encoding for all tables, and silos that come later.

Silos are known by their names; their places are in the order of the names. Everything that makes a study impossible is
told here, before anything is trained: tables that do not go together, two silos with one name, another study.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import jax

import majorant
from majorant._words import some
from majorant.app.flower.ledger import Record
from majorant.app.flower.letters import Count, Hello, Introduction, Letter, Readiness, Task, one_line, read_facts
from majorant.app.flower.office import GARBAGE, Carrier, Failed, Office, Reply
from majorant.app.flower.silo import told
from majorant.app.flower.study import Study
from majorant.data.tabular.agreeing import agree
from majorant.data.tabular.answers import TableAnswer
from majorant.data.tabular.options import TableOptions
from majorant.data.tabular.summed_answers import own_part, to_be_summed, with_sums
from majorant.engines.remote.server import Sending
from majorant.engines.remote.wire import Raw, Refused, encode, leaves_of

ASK_AGAIN = 15.0  # seconds after which a node that failed is asked again
INTRODUCTION = 60.0  # seconds that a node has to introduce itself when training has ended


class Gathering:
    """The silos of a study, by name and by node."""

    def __init__(
        self, study: Study, carrier: Carrier, record: Record, tell: Callable[[str], None], *, poll: float
    ) -> None:
        self.study, self.record, self.tell = study, record, tell
        self.nodes: dict[str, int] = {}  # where a silo is
        self.introductions: dict[str, Introduction] = {}
        self.greeted: dict[int, float] = {}  # when a node may be asked for its name again
        self.failures: dict[int, str] = {}  # of nodes that did not introduce themselves
        self.under_way: dict[str, int] = {}
        self.office = Office(carrier, self.node_of, self.greet, poll=poll)
        self.carrier = carrier

    def node_of(self, who: Any) -> int | None:
        """The node of a silo, by its slot or name."""
        name = self.record.names[who] if isinstance(who, int) else who
        return self.nodes.get(name)

    def greet(self, connected: set[int]) -> None:
        """Asks nodes that are new for their names, and hears those that answer."""
        now, known = time.monotonic(), set(self.nodes.values())
        for node in (node for node in connected - known if self.greeted.get(node, now) <= now):
            hello = Hello(run=self.record.run, settings=self.study.to_toml())
            self.under_way[self.carrier.send(node, told(hello, "hello"))] = node
            self.greeted[node] = math.inf
        for number, node, reply in self.carrier.collect(list(self.under_way)) if self.under_way else ():
            if self.under_way.pop(number, None) == node:
                self.meet(node, reply, connected)

    def meet(self, node: int, reply: Reply, connected: set[int]) -> None:
        """Takes an introduction."""
        try:
            facts = read_facts(Introduction, self.usable(f"node {node}", reply, "introduction"), f"node {node}")
            other = self.nodes.get(facts.name)
            if other is not None and other != node and other in connected:
                raise ValueError(
                    f"two silos are named {facts.name!r}: give each a name of its own in its node configuration"
                )
        except ValueError as error:
            if not (isinstance(error, Refused) or self.record.heard):
                raise  # before training, what a silo complains of stops the run
            self.tell(f"node {node} did not introduce itself: {error}")
            self.failures[node] = str(error)
            self.greeted[node] = time.monotonic() + ASK_AGAIN
            return
        if facts.version != majorant.__version__:
            self.tell(f"{facts.name!r} has version {facts.version} of Majorant, the server {majorant.__version__}")
        self.nodes[facts.name], self.introductions[facts.name] = node, facts
        self.tell(f"{facts.name!r} is here")

    def wait_for(self, names: list[str]) -> None:
        """Waits until some silos are there; with fewer than the study needs, no longer than it says."""
        begin = time.monotonic()
        while not set(names) <= set(self.nodes):
            self.greet(self.carrier.nodes())
            if time.monotonic() - begin > self.study.flower.wait:
                missing = ", ".join(repr(name) for name in names if name not in self.nodes)
                raise ValueError(f"{missing} did not come within {self.study.flower.wait:g} s: start their SuperNodes")
            time.sleep(self.office.poll)

    def gather(self) -> None:
        """Waits for as many silos as the study says, and lets them agree."""
        wanted, begin = self.study.flower.clients, time.monotonic()
        while len(self.nodes) < wanted:
            self.greet(self.carrier.nodes())
            if len(self.nodes) < wanted and time.monotonic() - begin > self.study.flower.wait:
                here = ", ".join(map(repr, sorted(self.nodes))) or "nobody"
                why = "".join(f". {failure}" for failure in list(self.failures.values())[:3])
                raise ValueError(
                    f"{len(self.nodes)} of {wanted} silos are here after {self.study.flower.wait:g} s ({here}): start "
                    f"the others' SuperNodes, or lower clients in [flower]{why}"
                )
            if len(self.nodes) < wanted:
                time.sleep(self.office.poll)
        self.record.names = in_order(self.nodes)[:wanted]
        self.agree()
        self.prepare()

    def agree(self) -> None:
        """What all silos' samples look like."""
        record, config = self.record, self.study.config
        said = {name: self.introductions[name] for name in record.names}
        tables = {name: each.table for name, each in said.items() if each.table is not None}
        if tables and len(tables) < len(said):
            raise ValueError("some silos have tables and others have not: all need the same kind of data")
        if tables:
            options = TableOptions(**config.table_options())
            if self.study.secure is not None:
                agree(tables, options)  # names and kinds go together
                tables = self.counted(tables)
            encoding = agree(tables, options)
            record.encoding = encoding.to_dict()
            record.features, record.classes = [len(encoding.features)], list(encoding.classes)
            self.tell(f"agreed on {len(encoding.columns)} columns, {len(encoding.features)} features")
            return
        first, *others = said
        shape = lambda each: (each.features, each.classes)
        for name in others:
            if shape(said[name]) != shape(said[first]):
                raise ValueError(
                    f"{in_shape(first, said[first], said[name])}, {in_shape(name, said[name], said[first])}"
                )
        record.features, record.classes = list(said[first].features or []), list(said[first].classes)

    def counted(self, tables: dict[str, TableAnswer]) -> dict[str, TableAnswer]:
        """The sums of all silos' counts and moments, in the place of the first one's."""
        from majorant.app.flower.secret_sums import exact_total

        asked = to_be_summed(tables)
        size = len(own_part(next(iter(tables.values())), asked))
        letter = lambda secret: told(Count(run=self.record.run, asked=asked, secret=secret), "count")
        total = exact_total(self, size, lambda slot, secret: letter(secret), "counted")
        return with_sums(tables, asked, total)

    def prepare(self) -> None:
        """Every silo reads its rows by what was agreed on, and says how many there are."""
        record, ready = self.record, {}

        def hear(slot: int, reply: Reply) -> bool:
            letter = self.attempt(slot, reply, "ready")
            if letter is not None:
                ready[slot] = read_facts(Readiness, letter, repr(record.names[slot]))
                if ready[slot].train is None and self.study.secure is None:
                    raise Refused(f"{record.names[slot]!r} does not say how many rows it has")
            return letter is not None

        everyone, wait = range(len(record.names)), self.study.flower.wait
        send = lambda slot: told(record.agreement(slot), "prepare")
        missing = self.office.ask(everyone, send, hear, seconds=wait, needed=len(everyone))
        if missing:
            raise ValueError(f"{record.names[missing[0]]!r} did not read its rows within {wait:g} s: look at its log")
        record.sizes = [[ready[s].train or 0, ready[s].validation, ready[s].test] for s in everyone]
        steps = [each.step for each in ready.values() if each.step is not None]
        record.rate = min(steps) if steps else None

    def invite_newcomers(self, sending: Callable[[], Sending]) -> None:
        """Silos that came after the start are given a model each; they took no part in training."""
        begin = time.monotonic()
        self.greet(self.carrier.nodes())
        while self.under_way and time.monotonic() - begin < min(INTRODUCTION, self.study.flower.timeout):
            time.sleep(self.office.poll)
            self.greet(self.carrier.nodes())
        names = [name for name in in_order(self.nodes) if name not in self.record.names]
        if not names:
            return
        arrays, round = sent_arrays(sending()), self.record.round
        letters = [
            (told(self.record.agreement(-1), "prepare"), "ready"),
            (told(Task(run=self.record.run, round=round, delivered=round), "join", arrays), "evaluation"),
        ]
        for letter, kind in letters:
            left: list[str] = []

            def hear(name: str, reply: Reply, kind: str = kind, left: list[str] = left) -> bool:
                try:
                    self.usable(name, reply, kind)
                    left.append(name)
                except (Refused, ValueError) as error:
                    self.tell(f"{name!r} gets no model: {error}")
                return True

            send: Callable[[Any], Letter] = functools.partial(lambda letter, name: letter, letter)
            self.office.ask(names, send, hear, seconds=self.study.flower.timeout, needed=0)
            names = left
        for name in names:
            self.tell(f"{name!r}, which took no part in training, has a model now")

    def attempt(self, slot: int, reply: Reply, kind: str) -> Letter | None:
        """A reply of the expected kind, or None where the silo failed and may be asked once more."""
        if isinstance(reply, Failed):
            self.tell(f"{self.record.names[slot]!r} failed: {reply}")
            return None
        return self.usable(slot, reply, kind)

    def usable(self, who: Any, reply: Reply, kind: str, *, fatal: bool = True) -> Letter:
        """A reply of the expected kind; what a silo refuses stops the run before it trains, with the silo's words."""
        name = repr(self.record.names[who]) if isinstance(who, int) else str(who)
        if isinstance(reply, Failed):
            raise Refused(f"{name} failed: {reply}")
        if reply.kind == "refused":
            words = one_line(f"{reply.facts.get('name')!r} refuses: {reply.facts.get('reason')}")
            raise ValueError(words) if fatal else Refused(words)
        if reply.kind == GARBAGE:
            raise Refused(f"{name} sends what cannot be read: {reply.facts['reason']}")
        if reply.kind != kind:
            raise Refused(f"{name} sends a letter of the kind {reply.kind[:40]!r}, expected {kind!r}")
        return reply


def in_order(names: Any) -> list[str]:
    """Names as the simulator sorts them: numbers by value, all else as text.

    >>> in_order(["10", "9"]), in_order(["b", "10", "9"])
    (['9', '10'], ['10', '9', 'b'])
    """
    names = list(names)
    numbers = all(name.removeprefix("-").isdecimal() for name in names)
    return sorted(names, key=int) if numbers else sorted(names)


def sent_arrays(sending: Sending) -> list[Raw]:
    """A view and a silo's own key, as they travel."""
    arrays = [*jax.tree.leaves(sending.view), sending.key]
    return encode(arrays, leaves_of(arrays))


def in_shape(name: str, own: Introduction, other: Introduction) -> str:
    """A silo's samples in words, with the classes that another one has not."""
    alone = [label for label in own.classes if label not in other.classes]
    beyond = f" ({some(alone)} not at the other)" if alone else ""
    return f"{name!r} has samples of shape {own.features} and {len(own.classes)} classes{beyond}"
