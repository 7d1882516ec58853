"""The server's letters: to whom, until when, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

from majorant.app.flower.letters import Letter

POLL = 0.3  # seconds between two looks at what has come
REST = 5.0  # seconds that a busy silo is left alone
GARBAGE = "no letter of ours"  # the kind of a reply that could not be read, with a reason; no letter has this kind
KINDS = {"round": "train", "evaluate": "evaluate"}  # what Flower calls these messages; all others are queries


class Failed(str):
    """Why a silo gave no answer, in words."""


Reply = Letter | Failed


class Carrier(Protocol):
    """What carries letters: Flower's grid, behind `apps.GridCarrier`."""

    def nodes(self) -> set[int]:
        """Those that are connected."""

    def send(self, node: int, letter: Letter) -> str:
        """Sends a letter, and gives it a number."""

    def collect(self, numbers: Collection[str]) -> Iterable[tuple[str, int, Reply]]:
        """What has come of some letters: number, node, reply."""


class Office:
    """Asks silos, by their places among all, and hears them."""

    def __init__(
        self,
        carrier: Carrier,
        node_of: Callable[[Any], int | None],
        meanwhile: Callable[[set[int]], None] = lambda connected: None,
        *,
        poll: float = POLL,
    ) -> None:
        self.carrier, self.node_of, self.poll = carrier, node_of, poll
        self.meanwhile = meanwhile  # is told now and then who is connected
        self.down = 0  # bytes sent in the last call of `ask`

    def ask(
        self,
        whom: Iterable[Any],
        letter_for: Callable[[Any], Letter],
        hear: Callable[[Any, Reply], bool],
        *,
        seconds: float,
        needed: int,
    ) -> list[Any]:
        """Sends everybody a letter, and hands on what comes back; those from whom nothing came in time.

        ``hear`` says whether a reply will do; otherwise the silo is asked once more. So is one that is silent for half
        of the time: answers are the same however often it is asked. Silos that are away are waited for as long as fewer
        than ``needed`` have answered.
        """
        letters: dict[Any, Letter] = {}
        under_way: dict[str, Any] = {}
        open_: list[Any] = list(whom)  # who has not answered
        useless: list[Any] = []  # whose answers are of no use
        everybody, self.down, attempts = len(open_), 0, dict.fromkeys(open_, 0)
        rests: dict[Any, float] = {}  # until when a silo that is busy is left alone
        begin, again = time.monotonic(), False
        while open_ and time.monotonic() - begin < seconds:
            connected = self.carrier.nodes()
            self.meanwhile(connected)
            late = not again and time.monotonic() - begin > seconds / 2
            again |= late
            asked = set(under_way.values())
            for who in open_:
                node = self.node_of(who)
                if node is None or node not in connected or (who in asked and not late) or attempts[who] >= 3:
                    continue
                if rests.get(who, 0) > time.monotonic():
                    continue
                if who not in letters:
                    letters[who] = letter_for(who)
                letter = letters[who]
                under_way[self.carrier.send(node, letter)] = who
                attempts[who] += 1
                self.down += letter.size
            for number, node, reply in self.carrier.collect(list(under_way)):
                who = under_way.pop(number, None)
                if who not in open_ or node != self.node_of(who):
                    continue  # it answered twice, or another one did
                if isinstance(reply, Letter) and reply.kind == "busy":  # with our first letter, or an earlier server's
                    rests[who], attempts[who] = time.monotonic() + REST, attempts[who] - 1
                    continue
                if hear(who, reply):
                    open_.remove(who)
                elif attempts[who] >= 2:
                    open_.remove(who)
                    useless.append(who)
            reachable = [who for who in open_ if self.node_of(who) in connected]
            if not reachable and everybody - len(open_) - len(useless) >= needed:
                break
            if open_:
                time.sleep(self.poll)
        return [*open_, *useless]
