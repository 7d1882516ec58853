"""Runs that will not recover: what is raised, what is warned of, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from majorant.engines.extremes import Largest


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
    return f"Lower the learning rate{now}, for example tenfold, or check the scale of the features."
