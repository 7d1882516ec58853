"""Runs that will not recover: what is raised, what is warned of, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from majorant.engines.extremes import Largest

if TYPE_CHECKING:
    from majorant.engines.tally import Tally
    from majorant.exchange.federation import Federation


class Diverged(RuntimeError):
    """The updates of most clients, or their models, have become infinite, NaN or too large to go on with."""


class Unopened(Diverged):
    """Too few clients were left in a round for a secure sum of theirs to be opened."""


class OutlierWarning(RuntimeWarning):
    """One client has sent numbers of another order than all others."""


def remedy(outlier: Largest | None, names: Sequence[str], hyper: Mapping[str, Any]) -> str:
    """What may have made a run diverge, and what to do about it."""
    if outlier is not None:
        name, first, second = names[int(outlier.slot)], outlier.first, outlier.second
        return (
            f"Client {name!r} had sent numbers of up to {first:.2g}, where the others' were at most {second:.2g}: "
            "look at its samples, leave it out, or bound what clients send (a channel with clip)."
        )
    used = ", ".join(f"{k}={float(np.max(v)):g}" for k, v in hyper.items() if "lr" in k)
    now = f" (now {used})" if used else ""
    return (
        f"Lower the learning rate{now}, for example tenfold, or check the scale of the features; a model of your own "
        "may also give NaN from the start."
    )


def stop_if_unopened(federation: Federation, done: int, tally: Tally) -> None:
    """A secure sum of too few clients is not opened, and those who sent something cannot take it back."""
    if not np.asarray(tally.unopened).any():
        return
    spec = federation.way.secure[0]
    raise Unopened(
        f"{federation.name} stopped: in {int(np.max(tally.unopened))} of the rounds up to round {done} fewer than "
        f"{spec.threshold} clients' messages arrived, and a secure sum of so few is not opened. "
        + (
            f"Numbers that are not finite, or beyond the range of {spec.range:g}, are not sent: give a larger range, "
            "or clip before it"
            if np.asarray(tally.rejected).any()
            else "Let more clients take part"
        )
    )
