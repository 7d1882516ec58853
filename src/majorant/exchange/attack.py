"""Attacks: clients that send what they should not, to see what a federation bears.

A share of the clients that train, drawn by the attack's own seed (whatever the seed of the training), is hostile. They
train as the others do, and then send another displacement x̃ in place of their own x. An attack is put in after the
channel: nobody can make a hostile client clip or round. What arrives of it is checked as all uploads are (numbers that
are not finite, or too large, are rejected by whoever combines), weighted by the client's honest weight, and combined.

==================  ======================================================================  ==========================
name                x̃                                                                       knows
==================  ======================================================================  ==========================
sign_flip           −scale · x                                                              itself
scaling             scale · x                                                               itself
noise               x + scale · ‖x‖/√d · standard Gaussian numbers                          itself
label_flip          x of training on labels turned around: c becomes C − 1 − c              itself
model_replacement   (m/f) · x of training on such labels, so that the mean moves by x       m and f
not_a_number        NaN                                                                     itself
huge                ``size`` in every coordinate, with the sign of x turned around          itself
stale               what it would have sent ``delay`` rounds ago                            itself
alie                honest mean − z · honest standard deviation, by coordinates             the honest uploads
inner_product       −scale · honest mean                                                    the honest uploads
==================  ======================================================================  ==========================

m clients are heard, f of them hostile. Those who know the honest uploads of the round send one and the same x̃. The z of
"a little is enough" is the largest for which enough honest clients lie further out than the hostile ones:
z = Φ⁻¹((m − s)/m) over m honest clients, with s = ⌊n/2 + 1⌋ − f of all n.

Scores of a run under attack are those of its honest clients.

References: Blanchard et al., NeurIPS 2017; Bagdasaryan et al., *How to backdoor federated learning*, AISTATS 2020
(model replacement); Baruch, Baruch, Goldberg, *A little is enough*, NeurIPS 2019; Xie, Koyejo, Gupta, *Fall of
empires*, UAI 2019 (inner products); Tolpegin et al., *Data poisoning attacks against federated learning systems*,
ESORICS 2020 (labels).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from majorant.core import Key, Tree, beside
from majorant.exchange.displacements import lengths, part, weighted
from majorant.math.checks import check_range, check_whole

ATTACK_STREAM = 0xA77AC


class Seen(NamedTuple):
    """What an attack may look at: displacements of all clients (slots, …), who is honest and heard, and hostile."""

    moved: Tree
    honest: jax.Array
    hostile: jax.Array


class Attack(NamedTuple):
    """What hostile clients do. ``forge(key, seen)`` gives displacements (slots, …), of which theirs are sent."""

    name: str
    share: float
    forge: Callable[[Key, Seen], Tree] | None = None
    flips_labels: bool = False
    delay: int = 0  # rounds by which messages are old
    seed: int = 0
    strict: bool = False  # whether more hostile clients than the rule bears are refused, and not warned of

    def among(self, training: np.ndarray) -> Hostile:
        """The attack by some of the clients in these slots."""
        count = max(1, part(self.share, len(training)))
        if count >= len(training):
            raise ValueError(f"{self.name}: all of {len(training)} clients would be hostile")
        key = jax.random.fold_in(jax.random.key(self.seed), ATTACK_STREAM)
        drawn = np.asarray(jax.random.permutation(key, len(training)))[:count]
        return Hostile(self, tuple(sorted(int(slot) for slot in training[drawn])))


class Hostile(NamedTuple):
    """An attack by the clients in some slots."""

    attack: Attack
    slots: tuple[int, ...]

    def among(self, slots: np.ndarray) -> np.ndarray:
        """Who is hostile, of the clients in some slots."""
        return np.isin(slots, self.slots)

    def mask(self, clients: int) -> np.ndarray:
        """Who is hostile, of all clients."""
        return self.among(np.arange(clients))

    def told(self, names: Sequence[str]) -> dict[str, Any]:
        """For the summary of a run."""
        return {
            "name": self.attack.name,
            "hostile": [names[slot] for slot in self.slots],
            "scores_of": "honest clients",
        }


def forging(name: str, share: float, forge: Callable[[Key, Seen], Tree] | None, *, seed: int, **options: Any) -> Attack:
    """An attack with checked options."""
    if not 0 < share < 1:
        raise ValueError(f"the share of hostile clients must be in (0, 1), got {share}")
    check_whole("seed", seed, least=0)
    return Attack(f"{name}:{share:g}", share, forge, seed=seed, **options)


@functools.cache
def sign_flip(share: float = 0.2, *, scale: float = 1.0, seed: int = 0, strict: bool = False) -> Attack:
    """Displacements in the opposite direction."""
    check_range("scale", scale, above=0)
    turned = lambda key, seen: jax.tree.map(lambda a: -scale * a, seen.moved)
    return forging("sign-flip", share, turned, seed=seed, strict=strict)


@functools.cache
def scaling(share: float = 0.2, *, scale: float = 10.0, seed: int = 0, strict: bool = False) -> Attack:
    """Displacements that are too long."""
    check_range("scale", scale, above=0)
    longer = lambda key, seen: jax.tree.map(lambda a: scale * a, seen.moved)
    return forging("scaling", share, longer, seed=seed, strict=strict)


@functools.cache
def noise(share: float = 0.2, *, scale: float = 10.0, seed: int = 0, strict: bool = False) -> Attack:
    """Gaussian noise, ``scale`` times as long as the displacement that it is added to."""
    check_range("scale", scale, above=0)

    def forge(key: Key, seen: Seen) -> Tree:
        leaves, structure = jax.tree.flatten(seen.moved)
        numbers = sum(leaf[0].size for leaf in leaves)
        size = scale * lengths(seen.moved) / jnp.sqrt(jnp.asarray(float(max(numbers, 1))))
        draw = lambda i, a: jax.random.normal(jax.random.fold_in(key, i), a.shape, a.dtype)
        add = lambda i, a: a + beside(size.astype(a.dtype), a) * draw(i, a)
        return jax.tree.unflatten(structure, [add(i, a) for i, a in enumerate(leaves)])

    return forging("noise", share, forge, seed=seed, strict=strict)


@functools.cache
def label_flip(share: float = 0.2, *, seed: int = 0, strict: bool = False) -> Attack:
    """Honest training on labels that are turned around."""
    return forging("label-flip", share, None, seed=seed, strict=strict, flips_labels=True)


@functools.cache
def model_replacement(share: float = 0.2, *, seed: int = 0, strict: bool = False) -> Attack:
    """Training on labels that are turned around, boosted so that the mean of all uploads becomes that model."""

    def forge(key: Key, seen: Seen) -> Tree:
        hostile = seen.hostile.sum()
        boost = (hostile + seen.honest.sum()) / jnp.maximum(hostile, 1)
        return jax.tree.map(lambda a: boost.astype(a.dtype) * a, seen.moved)

    return forging("model-replacement", share, forge, seed=seed, strict=strict, flips_labels=True)


@functools.cache
def not_a_number(share: float = 0.2, *, seed: int = 0, strict: bool = False) -> Attack:
    """NaN in every coordinate."""
    nan = lambda key, seen: jax.tree.map(lambda a: jnp.full_like(a, jnp.nan), seen.moved)
    return forging("not-a-number", share, nan, seed=seed, strict=strict)


@functools.cache
def huge(share: float = 0.2, *, size: float = 1e15, seed: int = 0, strict: bool = False) -> Attack:
    """Numbers of a size that no model has; those above about 1e19 are rejected as not finite ones are."""
    check_range("size", size, above=0)
    away = lambda key, seen: jax.tree.map(lambda a: jnp.where(a > 0, -size, size).astype(a.dtype), seen.moved)
    return forging("huge", share, away, seed=seed, strict=strict)


@functools.cache
def stale(share: float = 0.2, *, delay: int = 5, seed: int = 0, strict: bool = False) -> Attack:
    """Stragglers: what they would have sent some rounds ago, and before that the point at the start."""
    check_whole("delay", delay)
    return forging("stale", share, None, seed=seed, strict=strict, delay=int(delay))


@functools.cache
def alie(share: float = 0.2, *, z: float | None = None, seed: int = 0, strict: bool = False) -> Attack:
    """A little is enough: the honest mean, less some standard deviations; None: as many as go unnoticed."""
    if z is not None:
        check_range("z", z, least=0)

    def forge(key: Key, seen: Seen) -> Tree:
        honest = seen.honest.sum()
        weight = seen.honest / jnp.maximum(honest, 1)
        mean = weighted(seen.moved, weight)
        apart = jax.tree.map(lambda a, m: jnp.square(a - m), seen.moved, mean)
        spread_out = jax.tree.map(jnp.sqrt, weighted(apart, weight))
        supporters = (honest + seen.hostile.sum()) // 2 + 1 - seen.hostile.sum()
        reached = norm.ppf(jnp.clip((honest - supporters) / jnp.maximum(honest, 1), 0.5, 0.999))
        far = reached if z is None else jnp.asarray(z)
        target = jax.tree.map(lambda m, s: m - far.astype(m.dtype) * s, mean, spread_out)
        return for_all(target, seen.moved)

    return forging("alie", share, forge, seed=seed, strict=strict)


@functools.cache
def inner_product(share: float = 0.2, *, scale: float = 1.0, seed: int = 0, strict: bool = False) -> Attack:
    """The honest mean, turned around."""
    check_range("scale", scale, above=0)

    def forge(key: Key, seen: Seen) -> Tree:
        mean = weighted(seen.moved, seen.honest / jnp.maximum(seen.honest.sum(), 1))
        return for_all(jax.tree.map(lambda m: -scale * m, mean), seen.moved)

    return forging("inner-product", share, forge, seed=seed, strict=strict)


def for_all(one: Tree, moved: Tree) -> Tree:
    """The same displacement for every slot."""
    return jax.tree.map(lambda v, a: jnp.broadcast_to(v, a.shape), one, moved)
