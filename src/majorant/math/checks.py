"""Checks of numbers that people give: errors say what was wrong and what would be right."""

from __future__ import annotations

import numpy as np


def check_range(
    name: str,
    value: float,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> None:
    """Raises a ValueError that names a hyperparameter outside its range.

    >>> check_range("lr", -1, above=0)
    Traceback (most recent call last):
    ValueError: lr must be a finite number greater than 0, got -1
    """
    if value is None or isinstance(value, str) or np.ndim(value) > 0:
        raise ValueError(f"{name} must be a number, got {value!r}")
    bounds = {"at least": least, "greater than": above, "less than": below, "at most": most}
    wanted = " and".join(f" {word} {bound}" for word, bound in bounds.items() if bound is not None)
    fine = (
        abs(value) < float("inf")
        and (least is None or value >= least)
        and (above is None or value > above)
        and (most is None or value <= most)
        and (below is None or value < below)
    )
    if not fine:
        raise ValueError(f"{name} must be a finite number{wanted}, got {value}")


def check_whole(
    name: str, value: float | None, *, least: int = 1, most: int | None = None, optional: bool = False
) -> None:
    """Raises a ValueError unless a number is whole and within its bounds; 3.0 is, True and "3" are not.

    ``optional`` says that it may be None as well.

    >>> check_whole("epochs", 2.5)
    Traceback (most recent call last):
    ValueError: epochs must be a positive whole number, got 2.5
    """
    if value is None and optional:
        return
    number = np.asarray(value)
    whole = number.ndim == 0 and number.dtype.kind in "iuf" and number == np.floor(number) and np.isfinite(number)
    if not whole or not least <= number <= (np.inf if most is None else most):
        bounds = f", at least {least}" if most is None else f" from {least} to {most}"
        kind = "a positive whole number" if (least, most) == (1, None) else f"a whole number{bounds}"
        raise ValueError(f"{name} must be {'None or ' if optional else ''}{kind}, got {value!r}")
