"""What noise in a channel protects: whom, from whom, how well, and what it does not cover.

`Privacy` is what is asked for: a budget ε at a δ. `Guarantee` is what holds for a federation then. Where noise at the
server hides clients from everybody who sees models, the sum of a round changes by at most the clipping bound C when a
client's data is there or not, so that a round is a Gaussian mechanism with multiplier z. A random choice of clients
hides them further ("amplification"), where a theorem says so and nobody but the server learns who was chosen:

=============  ========================================  ==========================  ===========================
participation  the two worlds that are told apart        a round is                  accountants
=============  ========================================  ==========================  ===========================
full           with a client, and without                Gaussian, z                 PLD (exact), RDP
bernoulli      with a client, and without                Poisson sample of it        PLD, RDP
uniform        a client, and another in its place        fixed-size sample, z/2      RDP (Wang et al., 2019)
uniform, state with a client, and without                Gaussian, z; no sample      PLD (exact), RDP
cyclic, other  with a client, and without                Gaussian, z; no sample      PLD (exact), RDP
=============  ========================================  ==========================  ===========================

What clients keep between rounds (mixture weights, control variates) is made in the rounds that they took part in. Where
each is drawn on its own, this tells nothing of another client's draws, and Poisson sampling amplifies all the same:
given the others' draws, a round without the client is one Gaussian, and with it a mixture over what the client holds.
Of a fixed number, one client's place is another's absence, which then shows in what the other sends later: no theorem
about rounds on their own covers it, and nothing is claimed where clients keep a state (`Traits.stateless`).

With cyclic participation a client's own rounds are counted alone. Where clients draw the noise, the server sees who
sends what: two values of one client's message are told apart, which differ by up to 2C, so that z counts half, and no
sampling amplifies anything. The same holds for noise that clients draw together under a secure sum.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from majorant.core import Algorithm
from majorant.exchange import accounting
from majorant.exchange._stage import Noise, Stage, chain, numbers_sent
from majorant.exchange.noise import adaptive_clip, gaussian, skellam
from majorant.exchange.participation import Participation

EVERYWHERE = (
    "scores of evaluations, losses in the log, and counts of participants and of rejected updates",
    "features and encodings that were made from a table before training",
    "what is decided by looking at scores: when to stop, which round's models to keep, which settings to use",
    "the noise's own seed: whoever knows the run's seed can subtract the noise",
    "rounding of floating-point numbers",
)
OF_CLIENTS = (
    "several samples of one client are protected together; a person with samples at several clients is not",
    "personal models and mixture weights, which stay with their client: a personal model that is published is a leak",
)


class Privacy(NamedTuple):
    """A privacy budget: at most ``epsilon`` at ``delta`` (None: whatever the channel's noise gives).

    ``amplification`` True refuses participation for which no theorem holds, False claims none. ``accountant`` is "pld"
    or "rdp", by default the tighter one. If the channel has no noise, the server adds the least
    that allows ``rounds`` (by default those of the run).
    """

    epsilon: float | None = None
    delta: float = 1e-5
    amplification: bool | None = None
    accountant: str | None = None
    rounds: int | None = None

    def check(self) -> None:
        """Refuses numbers that mean nothing."""
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise ValueError(f"epsilon must be a positive number, a budget of privacy loss, got {self.epsilon}")
        if not 0 < self.delta < 1:
            raise ValueError(
                f"delta must be between 0 and 1, the probability that the promise fails, got {self.delta}: take less "
                "than one over the number of clients, such as 1e-5"
            )
        accounting.accountant_of(accounting.Event(1.0), self.accountant)


class Guarantee(NamedTuple):
    """What holds for a federation after some rounds."""

    unit: str  # "client" or "sample": what is there in one world and not, or changed, in the other
    noise: Noise
    event: accounting.Event  # of one round in which a client can take part
    delta: float
    accountant: str
    worlds: str  # those that can hardly be told apart, in words
    hidden_from: str
    sampling: str  # what is claimed of participation, in words
    apart: int = 1  # a client takes part at most once in so many rounds
    repeats: int = 1  # how often the event happens in a round
    budget: float | None = None
    beside: tuple[str, ...] = ()  # what else is not covered

    def times(self, rounds: int) -> int:
        """How often the event happens in so many rounds, to any one client."""
        return self.repeats * -(-rounds // self.apart)

    def epsilon(self, rounds: int, runs: int = 1) -> float:
        """ε after some rounds, of one run or of several on the same clients."""
        return accounting.epsilon(self.event, runs * self.times(rounds), self.delta, self.accountant)

    def allowed(self, rounds: int) -> int:
        """How many of some rounds the budget allows."""
        if self.budget is None:
            return rounds
        most = self.times(rounds)
        times = accounting.affordable(self.event, most, self.delta, self.accountant, self.budget)
        return rounds if times == most else times // self.repeats * self.apart

    @property
    def protects(self) -> str:
        """What is protected from whom, in a sentence."""
        what = "every client's data" if self.unit == "client" else "every single sample"
        return f"{what} from {self.hidden_from}: the models of all rounds are about as likely {self.worlds}"

    @property
    def not_covered(self) -> list[str]:
        """What the guarantee says nothing about."""
        return [*self.beside, *(OF_CLIENTS if self.unit == "client" else ()), *EVERYWHERE]

    def record(self, rounds: int, runs: int = 1) -> dict[str, Any]:
        """For ``summary.json``."""
        found = {
            "epsilon": self.epsilon(rounds),
            "delta": self.delta,
            "noise_multiplier": self.noise.multiplier,
            "clip": self.noise.bound,
            "noise_at": self.noise.at,
            "unit": self.unit,
            "protects": self.protects,
            "sampling": self.sampling,
            "accountant": self.accountant,
            "not_covered": self.not_covered,
        }
        if self.budget is not None:
            found["budget"] = self.budget
        if runs > 1:  # all of them were made with the same clients' data
            found |= {"runs": runs, "epsilon_of_all_runs": self.epsilon(rounds, runs)}
        return found


def protected(
    algorithm: Algorithm,
    privacy: Privacy | None,
    channel: Stage | None,
    participation: Participation,
    clients: int,
) -> tuple[Stage | None, Guarantee | None]:
    """The channel with the noise that is asked for, and what it guarantees; None where nothing is promised."""
    noisy = channel is not None and channel.noise is not None
    if (privacy is None and not noisy) or numbers_sent(algorithm) == 0:
        return channel, None
    if not noisy and algorithm.traits.sample_noise is not None:  # single samples are hidden: see `of_samples`
        return channel, None
    privacy = Privacy() if privacy is None else privacy
    privacy.check()
    if not noisy:
        if privacy.epsilon is None:
            raise ValueError(
                "privacy without a budget and without noise promises nothing: give epsilon, or a channel with noise, "
                "such as clip:1.0 and gaussian:1.0"
            )
        clipped = adaptive_clip() if channel is None else channel
        channel = noised(clipped, 1.0)
    assert channel is not None
    assert channel.noise is not None
    if not math.isfinite(channel.noise.bound):
        raise ValueError(
            f"noise without clipping hides nobody: in {channel.name!r} nothing bounds what one client sends. Put clip "
            "or adaptive-clip right before the noise (clip:1.0, gaussian:1.0); quantization and sparsification after "
            "clipping change lengths again"
        )
    if privacy.delta >= 1 / clients:
        warnings.warn(
            f"δ = {privacy.delta:g} with {clients:,} clients: a mechanism that gives away one of them whole would be "
            f"allowed. Take less than 1/{clients:,}",
            stacklevel=2,
        )
    if channel.noise.at == "together" and channel.secure is None:
        raise ValueError(
            f"{channel.name}: noise that clients draw together is a small part at each, and hides nobody unless the "
            "server sees the sum alone: put secure-sum after it"
        )
    stateless = algorithm.traits.stateless and not channel.remembers
    terms = (privacy, participation, clients, numbers_sent(algorithm), stateless)
    promised = lambda found: promise(found, *terms)
    guarantee = promised(channel)
    if not noisy:
        rounds = privacy.rounds or 1
        spent = (guarantee.times(rounds), privacy.delta, guarantee.accountant, privacy.epsilon or math.inf)
        multiplier = accounting.calibrated(guarantee.event, *spent) / guarantee.event.multiplier
        channel = noised(clipped, multiplier)
        assert channel.noise is not None
        guarantee = promised(channel)
    if guarantee.allowed(privacy.rounds or 1) == 0:
        raise ValueError(
            f"the first round alone spends ε = {guarantee.epsilon(1):.3g} at δ = {privacy.delta:g}, and the budget is "
            f"{privacy.epsilon:g}: add more noise than {guarantee.noise.multiplier:g}, or take a larger budget"
        )
    return channel, guarantee


def of_samples(
    algorithm: Algorithm, privacy: Privacy | None, participation: Participation, sizes: Sequence[int]
) -> Guarantee | None:
    """What the noise of a local solver guarantees for single samples of clients that have so many of them."""
    found = algorithm.traits.sample_noise
    if found is None:
        return None
    privacy = Privacy() if privacy is None else privacy
    privacy.check()
    if privacy.amplification:
        raise ValueError(
            "amplification is about drawing clients, and this noise hides samples: what is claimed for it is the "
            "drawing of samples, on each client, in every step. Leave amplification out"
        )
    fewest = min((int(size) for size in sizes if size > 0), default=1)
    rate = min(1.0, found.batch_size / fewest)
    event = accounting.Event(found.multiplier, "poisson" if rate < 1 else "none", rate)
    guarantee = Guarantee(
        unit="sample",
        noise=Noise(found.multiplier, "client", found.clip),
        event=event,
        delta=privacy.delta,
        accountant=accounting.accountant_of(event, privacy.accountant),
        worlds="with the sample, and without it",
        hidden_from="everybody, the server included",
        sampling=f"samples: each with probability {rate:.3g} or less in a step; clients: no amplification is claimed",
        apart=participation.apart(len(sizes)),
        repeats=found.steps,
        budget=privacy.epsilon,
        beside=("how many samples each client has", "all samples of one client together, or of one person"),
    )
    if guarantee.allowed(privacy.rounds or 1) == 0:
        raise ValueError(
            f"the first round alone spends ε = {guarantee.epsilon(1):.3g} at δ = {privacy.delta:g}, and the budget is "
            f"{privacy.epsilon:g}: add more noise than {found.multiplier:g}, or take a larger budget"
        )
    return guarantee


def noised(channel: Stage, multiplier: float) -> Stage:
    """A channel with noise at its end: at the server or, where it ends in a secure sum, drawn by all clients."""
    if channel.secure is None:
        return chain(channel, gaussian(multiplier))
    spec, before = channel.secure
    return following(spec, before, multiplier)


@functools.lru_cache(maxsize=64)
def following(spec: Any, before: Stage | None, multiplier: float) -> Stage:
    """A secure sum after noise; the same object for the same arguments."""
    drawn = skellam(multiplier)
    return spec.following(drawn if before is None else chain(before, drawn))


def promise(
    channel: Stage, privacy: Privacy, participation: Participation, clients: int, numbers: int, stateless: bool
) -> Guarantee:
    """What the noise of a channel guarantees for uploads of so many numbers, with a kind of participation."""
    noise = channel.noise
    assert noise is not None
    event, sampling = accounting.Event(noise.multiplier), f"{participation.name}: no amplification is claimed"
    worlds = "with the client's data, and without it"
    hidden = "everybody who sees models, other clients included, but not from the server, which adds the noise"
    scheme = participation.scheme if privacy.amplification is not False else "other"
    kept = scheme == "fixed" and not stateless  # what clients keep tells who took part
    if kept:
        scheme = "other"
        sampling = f"{participation.name}: no amplification is claimed, as clients keep a state between rounds"
    if noise.at == "client":
        event, scheme = accounting.Event(noise.multiplier / 2), "other"
        worlds, hidden = (
            "with the client's data, and with any other data in its place",
            "everybody, the server included",
        )
    if noise.at == "together":
        spec, scheme = channel.secure[0], "other"
        length = noise.bound / spec.step + math.sqrt(numbers)
        l2 = 2 * length
        event = accounting.Event(noise.multiplier / 2, l1=l2 * min(math.sqrt(numbers), l2), l2=l2)
        worlds = "with the client's data, and with any other data in its place"
        hidden = (
            f"everybody, the server included, as long as the secure sum hides single messages and {spec.threshold} of "
            "the clients in a sum draw their noise"
        )
    if privacy.amplification and scheme not in ("poisson", "fixed"):
        why = (
            "the server sees who sends what"
            if noise.at != "server"
            else "of a fixed number of clients, who keep a state between rounds, one's state tells of another's absence"
            if kept
            else f"with participation {participation.name!r} it is no secret, or no theorem covers, who takes part"
        )
        raise ValueError(
            f"amplification by sampling cannot be claimed: {why}. Use participation bernoulli with noise at the "
            "server, or claim none"
        )
    if scheme == "poisson":
        event = event._replace(sampling="poisson", rate=participation.probability(clients))
        sampling = f"{participation.name}: Poisson sampling, amplified; who takes part is the server's secret"
    elif scheme == "fixed":
        rate = participation.probability(clients)
        event = accounting.Event(noise.multiplier / 2, "fixed", rate, clients)
        worlds = "with the client's data, and with another client's in its place"
        sampling = f"{participation.name}: a fixed number, amplified; who takes part is the server's secret"
    return Guarantee(
        unit="client",
        noise=noise,
        event=event,
        delta=privacy.delta,
        accountant=accounting.accountant_of(event, privacy.accountant),
        worlds=worlds,
        hidden_from=hidden,
        sampling=sampling,
        apart=participation.apart(clients),
        budget=privacy.epsilon,
    )
