"""A federation: an algorithm, who takes part, through which channel, and who combines. Every engine takes one."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from majorant.core import Algorithm, Terms
from majorant.exchange._stage import Stage, numbers_sent
from majorant.exchange.gossip import Gossip, Peers
from majorant.exchange.participation import Participation, full
from majorant.exchange.privacy import Guarantee, Privacy, of_samples, protected
from majorant.exchange.star import Star, star


class Federation(NamedTuple):
    """An algorithm and the way its clients exchange messages."""

    algorithm: Algorithm
    participation: Participation = full()
    channel: Stage | None = None
    exchange: Star | Peers = star()
    expected: float = 0.0  # the clients that are expected in a round, where noise hides who was there; else 0
    guarantee: Guarantee | None = None  # what noise protects, and how well

    @property
    def hides(self) -> bool:
        """Whether noise hides clients: then all count equally."""
        return self.channel is not None and self.channel.noise is not None

    @property
    def adds_payloads(self) -> bool:
        """Whether messages are added up before they are decoded."""
        return self.channel is not None and self.channel.server is not None

    @property
    def name(self) -> str:
        """The algorithm's name, with what is done to its messages."""
        name = self.exchange.title(self.algorithm.name)
        return name if self.channel is None else f"{name}, {self.channel.name}"

    def terms(self, training: int) -> Terms:
        """What methods may depend on, as arrays. A peer that is away makes no step, and is missed by nobody."""
        number = lambda value: jnp.asarray(value, jnp.result_type(float))
        if self.exchange.network is not None:
            return Terms(number(1), number(0), number(0), number(1))
        inclusion = self.participation.probability(training)
        if self.channel is None:
            return Terms(number(inclusion), number(0), number(0), number(1))
        omega = self.channel.omega(numbers_sent(self.algorithm))
        return Terms(
            number(inclusion * self.channel.arrives),
            number(omega if math.isfinite(omega) else 0),
            number(self.channel.remembers),
            number(1),
        )


def federation(
    algorithm: Algorithm,
    *,
    training: np.ndarray,
    participation: Participation | None = None,
    channel: Stage | None = None,
    exchange: Star | Gossip | None = None,
    privacy: Privacy | None = None,
    sizes: np.ndarray | None = None,
) -> Federation:
    """The federation of the clients in the slots ``training``; combinations that cannot work are refused.

    ``sizes`` are the clients' numbers of samples, which what is promised of single samples depends on.
    """
    participation = full() if participation is None else participation
    if channel is not None and not isinstance(channel, Stage):
        raise ValueError(f"expected a channel, such as mj.channel.quantized(8) or mj.chain(...), got {channel!r}")
    channel, guarantee = protected(algorithm, privacy, channel, participation, len(training))
    if guarantee is None and sizes is not None:
        guarantee = of_samples(algorithm, privacy, participation, sizes)
    bound: Star | Peers = (star() if exchange is None else exchange).bind(algorithm, training)
    found = Federation(algorithm, participation, channel, bound, guarantee=guarantee)
    if channel is not None:
        check_channel(found, channel)
        if channel.noise is not None and channel.noise.at != "client":
            share = participation.probability(len(training)) * channel.arrives
            found = found._replace(expected=share * len(training))
    one_sided = bound.network is not None and not bound.network.symmetric
    absences = participation.probability(len(training)) * (1.0 if channel is None else channel.arrives) < 1
    if absences and (algorithm.traits.needs_everyone or one_sided):
        why = " (its network's links are one-sided: absences would move the mean)" if one_sided else ""
        whose = f"participation {participation.name!r}" if channel is None or channel.arrives == 1 else channel.name
        raise ValueError(
            f"{found.name} must see every client in every round{why} and cannot run with {whose}: "
            "use full participation"
        )
    return found


def check_channel(found: Federation, channel: Stage) -> None:
    """Refuses channels that an algorithm, or its exchange, cannot be used with."""
    algorithm, numbers = found.algorithm, numbers_sent(found.algorithm)
    omega = channel.omega(numbers)
    if found.exchange.network is not None and (omega != 0 or channel.remembers):
        raise ValueError(
            f"{channel.name} cannot be put between peers: they do not know the point that a neighbour's displacement "
            "departs from; use a server, or send points as they are"
        )
    if channel.server is not None and found.exchange.network is None and found.exchange.stacks(algorithm):
        whose = found.exchange.name if algorithm.traits.reads == "sum" else algorithm.name
        raise ValueError(
            f"{channel.name} works on the sum of all uploads, and {whose} reads each of them: one client could move "
            "what it makes of them by any amount. Noise at the client works: gaussian:1.0,at=client"
            if channel.noise is not None
            else f"{channel.name} works on the sum of all uploads, and {whose} reads each of them"
        )
    if channel.remembers and channel.unbiased and not omega < 1:
        raise ValueError(
            f"{channel.name} adds more noise than there is signal (ω ≥ 1, or unknown): with error feedback it "
            "diverges, and without it there is no bias to feed back"
        )
    if algorithm.traits.check_channel is not None:
        algorithm.traits.check_channel(channel.name, channel.unbiased, omega, channel.remembers)
