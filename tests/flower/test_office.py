"""Asking silos: once more those that fail or are silent, and no longer than the time there is."""

from __future__ import annotations

from majorant.app.flower.letters import Letter
from majorant.app.flower.office import Failed, Office

HELLO = Letter("round", {})


class Script:
    """A carrier whose nodes answer as they are told to, one reply after the other; None is silence."""

    def __init__(self, **replies):
        self.replies, self.sent = {int(node[1:]): list(each) for node, each in replies.items()}, []

    def nodes(self):
        return set(self.replies)

    def send(self, node, letter):
        self.sent.append(node)
        return str(len(self.sent))

    def collect(self, numbers):
        for number in numbers:
            node = self.sent[int(number) - 1]
            reply = self.replies[node].pop(0) if self.replies[node] else None
            if reply is not None:
                yield number, node, reply


def ask(carrier, whom, seconds=0.2, needed=1, hear=None):
    heard = []
    take = hear or (lambda who, reply: not isinstance(reply, Failed) and not heard.append(who))
    office = Office(carrier, lambda who: who, poll=0.01)
    return office.ask(whom, lambda who: HELLO, take, seconds=seconds, needed=needed), heard


def test_a_silo_that_fails_is_asked_once_more():
    carrier = Script(n1=[Failed("a cable"), HELLO], n2=[Failed("a cable"), Failed("the same")], n3=[HELLO])
    assert ask(carrier, [1, 2, 3]) == ([2], [3, 1])
    assert sorted(carrier.sent) == [1, 1, 2, 2, 3]


def test_a_silent_silo_is_asked_again_after_half_of_the_time():
    carrier = Script(n1=[None] * 5)
    assert ask(carrier, [1]) == ([1], [])
    assert carrier.sent == [1, 1]


def test_nobody_waits_for_those_who_are_away_when_enough_have_answered():
    assert ask(Script(n1=[HELLO]), [1, 7], seconds=60.0, needed=1) == ([7], [1])
    assert ask(Script(n1=[HELLO]), [1, 7], seconds=0.1, needed=2) == ([7], [1])


def test_a_busy_silo_is_left_alone_and_its_first_letter_waited_for():
    class Slow(Script):
        busy = False

        def collect(self, numbers):
            if self.busy:
                return [("1", 1, HELLO)]
            self.busy = "2" in numbers
            return [("2", 1, Letter("busy", {}))] if self.busy else []

    carrier = Slow(n1=[])
    assert ask(carrier, [1], seconds=0.4) == ([], [1])
    assert carrier.sent == [1, 1]


def test_nobody_answers_for_another():
    class Forged(Script):
        def collect(self, numbers):
            return [(number, 9, HELLO) for number in numbers]

    assert ask(Forged(n1=[]), [1], seconds=0.05) == ([1], [])
