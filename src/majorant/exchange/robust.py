"""Robust combination: rules in place of the mean, which one hostile or faulty client can move anywhere.

Rules take the displacements of the clients that were heard, x_1, …, x_m (how far each upload is from the point that
all departed from), and give one displacement. f is the number of hostile clients that a rule claims to bear: as long as
there are no more, what it gives stays within a bound that the honest ones set, whatever the others send.

================  ==================================================================================  ==============
rule              displacement                                                                        bears f
================  ==================================================================================  ==============
median            the median, coordinate by coordinate                                                ⌊(m − 1)/2⌋
trimmed_mean      the mean, coordinate by coordinate, without the ⌊βm⌋ smallest and largest           ⌊βm⌋
geometric_median  the point with the least sum of distances to all (RFA, smoothed Weiszfeld steps)    ⌊(m − 1)/2⌋
krum              that x_i with the least sum of squared distances to its m − f − 2 nearest           ⌊βm⌋, m ≥ 2f + 3
multi_krum        the mean of the m − f of them that Krum likes best                                  ⌊βm⌋, m ≥ 2f + 3
centered_clip     v ← v + mean of (x_i − v) · min(1, τ/‖x_i − v‖), from v = 0, some times             ⌊(m − 1)/2⌋
norm_bound        mean of x_i · min(1, τ/‖x_i‖)                                                       ⌊(m − 1)/2⌋
================  ==================================================================================  ==============

τ None is the median of the lengths that it bounds. With a number, centered clipping and norm bounding never move by
more than that, however many are hostile; what they bear is then the number at which hostile clients outvote the others.

**Weights.** A client's weight is its own claim, so every client that is heard counts once in every rule, whatever it
claims. Clients of very different sizes therefore count differently than under the mean.

**Buckets.** Rules take clients that differ for hostile ones. ``bucket=s`` first averages the clients in groups of s,
drawn anew in each round, which brings honest ones closer together; what a rule bears is then that of ⌈m/s⌉ clients.

On a graph there is no server: `self_centered_clip` has every node clip what its neighbours sent around its own value,
x_i + Σ_j w_ij (x_j − x_i) · min(1, τ_i/‖x_j − x_i‖).

Rules that work by coordinates take some columns of all clients at a time. All hold the uploads side by side.

References: Yin et al., *Byzantine-robust distributed learning*, ICML 2018 (median, trimmed mean); Pillutla, Kakade,
Harchaoui, *Robust aggregation for federated learning*, IEEE TSP 2022; Blanchard et al., *Machine learning with
adversaries*, NeurIPS 2017 (Krum); Karimireddy, He, Jaggi, *Learning from history for Byzantine robust optimization*,
ICML 2021 (centered clipping); Karimireddy, He, Jaggi, *Byzantine-robust learning on heterogeneous datasets via
bucketing*, ICLR 2022; Sun et al., *Can you really backdoor federated learning?*, 2019 (norm bounding); He, Karimireddy,
Jaggi, *Byzantine-robust decentralized learning via self-centered clipping*, 2022.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from majorant.core import Key, Tree, beside, squared_norm
from majorant.exchange._combine import Combine, Rule
from majorant.exchange.displacements import (
    borne,
    by_coordinate,
    distances,
    lengths,
    lower_median,
    minority,
    minus,
    part,
    shortened_mean,
    weighted,
)
from majorant.math.checks import check_range, check_whole

SMOOTHING = 1e-6  # of distances, below which Weiszfeld's weights no longer grow (RFA's ν)
BUCKET_STREAM = 0xB0CE7


@functools.cache
def median(*, bucket: int = 1) -> Combine:
    """The median of each coordinate.

    >>> x = jnp.array([[1.0], [2.0], [1e9]])
    >>> float(median().rule(x, jnp.ones(3, bool), jax.random.key(0))[0])
    2.0
    """

    def middle(ordered: jax.Array, count: jax.Array) -> jax.Array:
        take = lambda place: jnp.take(ordered, jnp.maximum(place, 0), axis=0)
        return take((count - 1) // 2) / 2 + take(count // 2) / 2

    return bucketed("median", lambda x, present, key: by_coordinate(middle, x, present), minority, bucket)


@functools.cache
def trimmed_mean(share: float = 0.2, *, bucket: int = 1) -> Combine:
    """The mean of each coordinate without the ``share`` of smallest, and of largest, values.

    >>> trimmed_mean(0.2).tolerates(10), trimmed_mean(0.2, bucket=2).tolerates(10)  # hostile ones of ten
    (2, 1)
    """
    if not 0 < share < 0.5:
        raise ValueError(
            f"trimmed-mean leaves out a share of the clients at either end, which must be in (0, 0.5), got {share}"
        )

    def trimmed(ordered: jax.Array, count: jax.Array) -> jax.Array:
        cut = borne(share, ordered.shape[0])[count]
        place = jnp.arange(ordered.shape[0])[:, None]
        kept = (place >= cut) & (place < count - cut)
        return jnp.where(kept, ordered, 0).sum(axis=0) / jnp.maximum(count - 2 * cut, 1).astype(ordered.dtype)

    rule = lambda x, present, key: by_coordinate(trimmed, x, present)
    return bucketed(f"trimmed-mean:{share:g}", rule, lambda m: part(share, m), bucket)


@functools.cache
def geometric_median(*, iterations: int = 100, bucket: int = 1) -> Combine:
    """The point with the least sum of distances, by smoothed Weiszfeld steps from the coordinates' median.

    >>> geometric_median().tolerates(10)
    4
    """
    check_whole("iterations", iterations)

    def rule(x: Tree, present: jax.Array, key: Key) -> Tree:
        def step(state: Any) -> Any:
            i, v, _ = state
            weight = jnp.where(present, 1 / jnp.maximum(lengths(minus(x, v)), SMOOTHING), 0)
            new = weighted(x, weight / weight.sum())
            moved, size = jnp.sqrt(squared_norm(minus(new, v))), jnp.sqrt(squared_norm(new))
            return i + 1, new, moved > 1e-7 * size

        start = by_coordinate(lower_median, x, present)
        go_on = lambda state: (state[0] < iterations) & state[2]
        return jax.lax.while_loop(go_on, step, (jnp.int32(0), start, jnp.asarray(True)))[1]

    return bucketed("geometric-median", rule, minority, bucket)


@functools.cache
def krum(share: float = 0.2, *, bucket: int = 1) -> Combine:
    """The upload that lies closest to most others; ``share`` is that of hostile clients.

    >>> krum(0.2).tolerates(10)
    2
    """
    return nearest_to_others(f"krum:{share:g}", share, lambda m, f: 1, bucket)


@functools.cache
def multi_krum(share: float = 0.2, *, bucket: int = 1) -> Combine:
    """The mean of the uploads that Krum likes best: of all but the ``share`` of hostile clients.

    >>> multi_krum(0.2).name
    'multi-krum:0.2'
    """
    return nearest_to_others(f"multi-krum:{share:g}", share, lambda m, f: m - f, bucket)


@functools.cache
def centered_clip(radius: float | None = None, *, iterations: int = 3, bucket: int = 1) -> Combine:
    """Steps towards the mean to which no client adds more than ``radius`` (None: the median distance).

    >>> x = jnp.array([[1.0], [2.0], [1e9]])
    >>> float(centered_clip(2.0).rule(x, jnp.ones(3, bool), jax.random.key(0))[0]) <= 3 * 2.0  # three steps
    True
    """
    check_whole("iterations", iterations)
    name = with_radius("centered-clip", radius)

    def rule(x: Tree, present: jax.Array, key: Key) -> Tree:
        v = jax.tree.map(lambda a: jnp.zeros(a.shape[1:], a.dtype), x)
        for _ in range(iterations):
            apart = minus(x, v)
            v = jax.tree.map(jnp.add, v, shortened_mean(apart, present, radius))
        return v

    return bucketed(name, rule, minority, bucket)


@functools.cache
def norm_bound(radius: float | None = None, *, bucket: int = 1) -> Combine:
    """The mean of displacements of at most a length (None: the median length).

    >>> x = jnp.array([[1.0], [2.0], [1e9]])
    >>> norm_bound(2.0).rule(x, jnp.ones(3, bool), jax.random.key(0)).round(3)  # (1 + 2 + 2) / 3
    Array([1.667], dtype=float32)
    """
    name = with_radius("norm-bound", radius)
    return bucketed(name, lambda x, present, key: shortened_mean(x, present, radius), minority, bucket)


@functools.cache
def self_centered_clip(radius: float | None = None) -> Combine:
    """For peers: what neighbours sent, clipped around a node's own value (None: at the median distance).

    >>> self_centered_clip(1.0).name
    'self-centered-clip:1'
    """
    return Combine(with_radius("self-centered-clip", radius), tolerates=minority, peers=True, radius=radius)


def with_radius(name: str, radius: float | None) -> str:
    """A rule's name with its radius, which is checked."""
    if radius is None:
        return name
    check_range("radius", radius, above=0)
    return f"{name}:{radius:g}"


def nearest_to_others(name: str, share: float, keep: Callable[[Any, Any], Any], bucket: int) -> Combine:
    """Krum, and the mean of several of its choices."""
    if not 0 < share < 0.5:
        raise ValueError(f"{name.partition(':')[0]} needs a share of hostile clients in (0, 0.5), got {share}")

    def rule(x: Tree, present: jax.Array, key: Key) -> Tree:
        n, m = present.shape[0], present.sum()
        f = jnp.minimum(borne(share, n)[m], jnp.maximum((m - 3) // 2, 0))
        away = distances(x, present)
        ordered = jnp.sort(jnp.where(jnp.eye(n, dtype=bool), jnp.inf, away), axis=1)
        counted = jnp.arange(n)[None, :] < jnp.maximum(m - f - 2, 1)
        score = jnp.where(present, jnp.where(counted, ordered, 0).sum(axis=1), jnp.inf)
        rank = jnp.argsort(jnp.argsort(score))  # ties by place
        chosen = (rank < keep(m, f)) & present
        return weighted(x, chosen / jnp.maximum(chosen.sum(), 1))

    def check(m: int) -> None:
        f = part(share, m)
        if m < 2 * f + 3:
            raise ValueError(
                f"{name} with {m} clients and {f} hostile ones: Krum needs at least 2f + 3 = {2 * f + 3} clients"
            )

    return bucketed(name, rule, lambda m: part(share, m), bucket, check)


def bucketed(
    name: str,
    rule: Rule,
    tolerates: Callable[[int], int],
    bucket: int,
    check: Callable[[int], None] = lambda m: None,
) -> Combine:
    """A rule, on the means of random groups of ``bucket`` clients."""
    check_whole("bucket", bucket)
    if bucket == 1:
        return Combine(name, rule=rule, tolerates=tolerates, check=check)
    groups = lambda m: -(-m // bucket)

    def on_means(x: Tree, present: jax.Array, key: Key) -> Tree:
        n = present.shape[0]
        order = jnp.argsort(jnp.where(present, jax.random.uniform(key, (n,)), 2.0))  # those who are there first
        group = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32) // bucket)
        members = jax.ops.segment_sum(present.astype(jnp.float32), group, groups(n))
        share = jnp.where(present, 1 / jnp.maximum(members[group], 1), 0)
        mean = lambda a: jax.ops.segment_sum(beside(share.astype(a.dtype), a) * a, group, groups(n))
        return rule(jax.tree.map(mean, x), members > 0, jax.random.fold_in(key, BUCKET_STREAM))

    return Combine(
        f"{name},bucket={bucket}",
        rule=on_means,
        tolerates=lambda m: tolerates(groups(m)),
        check=lambda m: check(groups(m)),
    )
