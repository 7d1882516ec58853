"""What clients say beside their uploads, as numbers that a secure sum can add up: answers before round 1, evaluations.

A sum has no largest: the largest weight of any client, which bounds what each adds to the rounds' sums, is found from
how many clients' weights lie below each power of two. What is not finite is counted in a place of its own, as zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Answer, Tree

POWERS = range(-64, 64)  # a weight is at most 2^p
PARTS = ("train", "validation", "test")
Own = tuple[int, float | None, float | None]  # of a part of samples: how many, sums of losses and scores


def answer_numbers(answer: Answer) -> list[Any]:
    """A client's answer: which power of two its uploads' weight is below, the answer's weight, weight · value."""
    _, upload_weight = answer.largest
    values = [np.asarray(leaf, np.float64).reshape(-1) for leaf in jax.tree.leaves(answer.value)]
    flat, weight, own = np.concatenate([*values, np.zeros(0)]), float(answer.weight), float(upload_weight)
    sound = bool(np.isfinite([*flat, weight, own]).all())
    power = math.ceil(math.log2(own)) if sound and own > 0 else None
    places = [int(p == power) for p in POWERS]
    if not sound:
        flat, weight = np.zeros_like(flat), 0.0
    return [*places, weight, *(Fraction(weight) * Fraction(value) for value in flat)]


def summed_answer(total: Sequence[Fraction], like: Answer) -> Answer:
    """All clients' answers together, from the sum of their numbers."""
    heaviest = max((p for p, count in zip(POWERS, total, strict=False) if count), default=0)
    weight, *rest = map(float, total[len(POWERS) :])
    plain, upload_weight = like.largest
    largest = plain, np.asarray(2.0**heaviest, upload_weight.dtype)
    return Answer(filled(like.value, rest), jnp.asarray(weight, like.weight.dtype), largest)


def answer_size(like: Answer) -> int:
    """How many numbers an answer has."""
    return len(POWERS) + 1 + sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(like.value))


def evaluation_numbers(sums: Mapping[str, Own], measured: Tree) -> list[Any]:
    """A client's evaluation: of each part of its samples counts and sums, and what its method measures."""
    found: list[Any] = []
    for part in PARTS:
        count, *pair = sums.get(part, (0, 0.0, 0.0))
        found += [part in sums, count]
        found += [number for value in pair for number in ((0, 1) if value is None else (value, 0))]
    flat = np.concatenate([*[np.asarray(v, np.float64).reshape(-1) for v in jax.tree.leaves(measured)], np.zeros(0)])
    sound = bool(np.isfinite(flat).all())
    return [*found, int(not sound), *(flat if sound else np.zeros_like(flat))]


def evaluation_size(measured: Tree) -> int:
    """How many numbers an evaluation has."""
    return 6 * len(PARTS) + 1 + sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(measured))


def summed_evaluation(total: Sequence[Fraction], measured: Tree) -> tuple[dict[str, Own], int, Tree]:
    """All clients' evaluations together: sums by part, how many models gave NaN in training, what was measured."""
    sums: dict[str, Own] = {}
    lost = 0
    for place, part in enumerate(PARTS):
        told, count, loss, no_loss, score, no_score = total[6 * place : 6 * place + 6]
        lost = int(no_loss) if part == "train" else lost
        if told:
            number = lambda value, missing: None if missing else float(value)
            sums[part] = (int(count), number(loss, no_loss), number(score, no_score))
    missing, *rest = map(float, total[6 * len(PARTS) :])
    return sums, lost, filled(measured, [math.nan] * len(rest) if missing else rest)


def filled(like: Tree, values: Sequence[float]) -> Tree:
    """A tree of arrays like these, with the values one after the other."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves], dtype=int)
    parts = np.split(np.asarray(values, np.float64), ends[:-1]) if leaves else []
    return jax.tree.unflatten(
        structure, [part.astype(leaf.dtype).reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    )
