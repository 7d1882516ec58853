"""How much privacy a run spends: Google's dp-accounting, asked with the right events.

An *event* is what dp-accounting is told of one round: Gaussian noise of some multiplier, on everybody or on a sample of
the clients that was drawn in a way that a theorem covers. Nothing is derived here: ε comes from its accountants, by
privacy loss distributions ("pld") or by Rényi divergences ("rdp"), as does the multiplier that a budget allows.

One event it does not know: Skellam noise on whole numbers. Its divergence is a bound by theorem, for sensitivities Δ₁
and Δ₂, variance μ = (multiplier · Δ₂)² and whole orders α; between them (α − 1) D_α is convex, and below the chord.
dp-accounting makes ε of it.

    D_α ≤ α Δ₂²/(2μ) + min( ((2α − 1) Δ₂² + 6 Δ₁)/(4μ²), 3 Δ₁/(2μ) )

Reference: Agarwal, Kairouz, Liu, *The Skellam mechanism for differentially private federated learning*, NeurIPS 2021,
Corollary 3.6.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from majorant._extras import require

ORDERS = (*(2 + 0.25 * i for i in range(24)), *range(8, 64), 72, 80, 96, 128, 192, 256, 512, 1024)
SMALLEST, LARGEST = 1e-2, 1e6  # noise multipliers that are tried
FINEST, COARSEST = 1e-4, 4e-3  # steps of discretized privacy losses; an upper bound at any step


class Event(NamedTuple):
    """What one round spends: Gaussian noise ``multiplier`` on a sample of the clients."""

    multiplier: float  # standard deviation over sensitivity
    sampling: str = "none"  # "poisson": each with ``rate``; "fixed": ``rate`` of them, without replacement; "none": all
    rate: float = 1.0
    clients: int = 0  # for "fixed"
    l1: float = 0.0  # sensitivities of whole numbers, where the noise is Skellam's
    l2: float = 0.0


def library() -> Any:
    """dp-accounting, or an error that says how to install it."""
    return require("dp_accounting", "privacy", "accounting for privacy")


def accountant_of(event: Event, wanted: str | None = None) -> str:
    """The tighter accountant that knows the event; another one where it is wanted."""
    if wanted not in (None, "pld", "rdp"):
        raise ValueError(f"accountant must be 'pld' or 'rdp', got {wanted!r}")
    if event.sampling == "fixed" and wanted == "pld":
        raise ValueError(
            "participation of a fixed number of clients is accounted for by Rényi divergences alone: leave accountant "
            "out, or use participation bernoulli"
        )
    if event.l2 and wanted == "pld":
        raise ValueError("noise on whole numbers is accounted for by Rényi divergences alone: leave accountant out")
    return "rdp" if event.sampling == "fixed" or event.l2 else wanted or "pld"


def as_dp_event(event: Event) -> Any:
    """An event in dp-accounting's words."""
    dp = library()
    noise = dp.GaussianDpEvent(event.multiplier)
    if event.sampling == "poisson":
        return dp.PoissonSampledDpEvent(event.rate, noise)
    if event.sampling == "fixed":
        return dp.SampledWithoutReplacementDpEvent(event.clients, round(event.rate * event.clients), noise)
    return noise


@functools.lru_cache(maxsize=4096)
def epsilon(event: Event, times: int, delta: float, accountant: str) -> float:
    """ε(δ) after an event that happened so many times.

    >>> round(epsilon(Event(5.0), 1, 1e-5, "pld"), 2)  # the Gaussian mechanism's own formula gives 0.7255
    0.73
    """
    if times == 0:
        return 0.0
    dp = library()
    if accountant == "rdp":
        return float(dp.rdp.compute_epsilon(ORDERS, times * divergences(event), delta)[0])
    if event.sampling == "none":  # so many Gaussians are one, and its ε is known exactly
        return float(dp.get_epsilon_gaussian(event.multiplier / math.sqrt(times), delta))
    return float(losses(event).self_compose(times).get_epsilon_for_delta(delta))


@functools.lru_cache(maxsize=256)
def divergences(event: Event) -> Any:
    """The Rényi divergences of one event, by order."""
    if event.l2:
        orders = np.array(ORDERS, float)
        low, high = np.floor(orders), np.ceil(orders)
        below, above = ((whole - 1) * skellam_divergence(event, whole) for whole in (low, high))
        return (below + (orders - low) * (above - below)) / (orders - 1)
    dp = library()
    from dp_accounting import rdp

    fixed = event.sampling == "fixed"
    relation = dp.NeighboringRelation.REPLACE_ONE if fixed else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    counting = rdp.RdpAccountant(ORDERS, relation)
    counting.compose(as_dp_event(event))
    return counting.rdp


def skellam_divergence(event: Event, order: Any) -> Any:
    """A bound on the Rényi divergence of Skellam noise, at whole orders."""
    variance = (event.multiplier * event.l2) ** 2
    more = ((2 * order - 1) * event.l2**2 + 6 * event.l1) / (4 * variance**2)
    return order * event.l2**2 / (2 * variance) + np.minimum(more, 3 * event.l1 / (2 * variance))


@functools.lru_cache(maxsize=64)
def losses(event: Event) -> Any:
    """The privacy loss distribution of one event."""
    library()
    from dp_accounting.pld import privacy_loss_distribution

    spread = event.rate * math.sqrt(math.expm1(min(1 / event.multiplier**2, 50.0)))
    return privacy_loss_distribution.from_gaussian_mechanism(
        event.multiplier,
        value_discretization_interval=min(max(spread / 4, FINEST), COARSEST),
        sampling_prob=event.rate if event.sampling == "poisson" else 1.0,
    )


def calibrated(event: Event, times: int, delta: float, accountant: str, budget: float) -> float:
    """The least noise multiplier with which an event can happen so many times within a budget, to four digits."""
    within = lambda multiplier, by: epsilon(event._replace(multiplier=multiplier), times, delta, by) <= budget
    high = 1.0
    while not within(high, "rdp"):  # quick, and never less than what the other accountant needs
        high *= 2
        if high > LARGEST:
            raise ValueError(
                f"no noise up to {LARGEST:g} times the clipping radius keeps ε within {budget:g} over {times:,} "
                "rounds: take fewer rounds, or a larger budget"
            )
    low = high / 2
    while within(low, accountant):
        low, high = low / 2, low
        if low < SMALLEST:
            return high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle, accountant) else (middle, high)
    digits = 10.0 ** (3 - math.floor(math.log10(high)))
    return math.ceil(high * digits - 1e-9) / digits  # rounded up: more noise, never less


def affordable(event: Event, most: int, delta: float, accountant: str, budget: float) -> int:
    """How many times an event can happen, ``most`` at most, before the budget is passed."""
    if epsilon(event, most, delta, accountant) <= budget:
        return most
    low, high = 0, most  # the first is within the budget, the second is not
    while high - low > 1:
        middle = (low + high) // 2
        if epsilon(event, middle, delta, accountant) <= budget:
            low = middle
        else:
            high = middle
    return low
