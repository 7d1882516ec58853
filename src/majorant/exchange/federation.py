"""A federation: an algorithm, who takes part, through which channel, and who combines. Every engine takes one."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from majorant.core import Algorithm, ServerSide, Terms
from majorant.exchange._stage import ServerEnd, Stage, numbers_sent
from majorant.exchange.attack import Attack, Hostile
from majorant.exchange.displacements import part
from majorant.exchange.gossip import Gossip, Peers
from majorant.exchange.participation import Participation, full
from majorant.exchange.privacy import Guarantee, Privacy, of_samples, protected
from majorant.exchange.secure_sum import settled
from majorant.exchange.star import Star, star


class Federation(NamedTuple):
    """An algorithm and the way its clients exchange messages."""

    algorithm: Algorithm
    participation: Participation = full()
    channel: Stage | None = None
    exchange: Star | Peers = star()
    hostile: Hostile | None = None
    expected: float = 0.0  # the clients that are expected in a round, where noise hides who was there; else 0
    guarantee: Guarantee | None = None  # what noise protects, and how well

    @property
    def hides(self) -> bool:
        """Whether noise hides clients: then all count equally."""
        return self.channel is not None and self.channel.noise is not None

    @property
    def hides_from_server(self) -> bool:
        """Whether clients draw noise themselves, because the server is not to learn what they hold."""
        drawn = None if self.channel is None else self.channel.noise
        return self.algorithm.traits.sample_noise is not None or (drawn is not None and drawn.at != "server")

    @property
    def adds_payloads(self) -> bool:
        """Whether messages are added up before they are decoded."""
        return self.channel is not None and self.channel.server is not None

    @property
    def way(self) -> Stage:
        """The channel, where it is known that there is one."""
        assert self.channel is not None
        return self.channel

    @property
    def far_end(self) -> ServerEnd:
        """The channel's part at the server, where it is known that there is one."""
        assert self.way.server is not None
        return self.way.server

    @property
    def name(self) -> str:
        """The algorithm's name, with what is done to its messages."""
        name = self.exchange.title(self.algorithm.name)
        name = name if self.channel is None else f"{name}, {self.channel.name}"
        return name if self.hostile is None else f"{name}, under {self.hostile.attack.name}"

    @property
    def stacks(self) -> bool:
        """Whether uploads are needed side by side, or else their sum."""
        return self.exchange.stacks(self.algorithm) or self.hostile is not None

    @property
    def can_be_dealt(self) -> bool:
        """Whether peers can be dealt over devices: where some are hostile or clip, all values are needed together."""
        return isinstance(self.exchange, Peers) and self.exchange.spec.combine is None and self.hostile is None

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
            () if self.channel.secure is None else number(1),
        )


def federation(
    algorithm: Algorithm,
    *,
    training: np.ndarray,
    participation: Participation | None = None,
    channel: Stage | None = None,
    exchange: Star | Gossip | None = None,
    attack: Attack | None = None,
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
        guarantee = of_samples(algorithm, privacy, participation, list(map(int, sizes)))
    bound: Star | Peers = (star() if exchange is None else exchange).bind(algorithm, training)
    channel = settled(channel, len(training))
    hostile = None if attack is None else attack.among(np.asarray(training))
    found = Federation(algorithm, participation, channel, bound, hostile, guarantee=guarantee)
    if hostile is not None:
        check_attack(found, hostile, len(training))
    if channel is not None:
        check_channel(found, channel)
        if channel.noise is not None and channel.noise.at == "server":
            share = participation.probability(len(training)) * channel.arrives
            found = found._replace(expected=share * len(training))
    if channel is not None and channel.secure is not None:
        check_secure(found, channel, len(training))
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
    if channel.server is not None and found.exchange.network is None and found.stacks:
        whose = found.exchange.name if algorithm.traits.reads == "sum" else algorithm.name
        whose = whose if found.hostile is None else found.hostile.attack.name
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


def check_attack(found: Federation, hostile: Hostile, clients: int) -> None:
    """Refuses an attack that cannot be made, and warns of one, or refuses it, that a rule does not bear."""
    attack = hostile.attack
    if found.channel is not None and found.channel.secure is not None:
        raise ValueError(
            f"{attack.name} cannot be tried under a secure sum: nobody sees single uploads there, neither a hostile "
            "client, nor who would look for it. Try the same attack without"
        )
    combine = getattr(found.exchange, "combine", None)
    if combine is None or combine.rule is None:
        return
    least = max(1, int(found.participation.probability(clients) * clients))
    expected = part(len(hostile.slots) / clients, least)
    bears = combine.tolerates(least)
    if expected > bears:
        told = (
            f"{combine.name} bears {bears} hostile clients among {least}, and {attack.name} has {expected}: it may be "
            "led anywhere"
        )
        if attack.strict:
            raise ValueError(told)
        warnings.warn(told, stacklevel=3)


def check_secure(found: Federation, channel: Stage, clients: int) -> None:
    """Refuses a secure sum where more than the sum of the uploads is read, or where it would not be opened."""
    spec, algorithm = channel.secure[0], found.algorithm
    why = None
    if isinstance(found.exchange, Peers):
        why = "there is no server to open sums, and every peer has a sum of its own neighbours"
    elif algorithm.traits.reads != "sum":
        why = f"{algorithm.name} reads each upload by itself, and a secure sum is all that the server would see"
    elif found.exchange.stacks(algorithm):
        why = f"{found.exchange.name} reads each upload by itself, and a secure sum is all that the server would see"
    elif algorithm.server.address is not ServerSide._field_defaults["address"]:
        why = f"clients of {algorithm.name} are sent different things, so that their displacements have no sum"
    if why is not None:
        raise ValueError(f"{spec.name} cannot be used here: {why}")
    expected = found.participation.probability(clients) * clients
    if found.participation.fixed and round(expected) < spec.threshold:
        raise ValueError(
            f"{spec.name}: a sum of fewer than {spec.threshold} clients is not opened, and {round(expected)} of "
            f"{clients} take part in a round ({found.participation.name}): let more of them"
        )
