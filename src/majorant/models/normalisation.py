"""Normalisation of feature maps, with an explicit policy for what federated averaging does with its statistics.

* ``"batch"``: every pass, at training and at evaluation, uses the statistics of its own batch; none are kept. In
  training the rows that fill up a batch do not count; elsewhere a prediction depends on all samples given with it.
* ``"frozen"``: the statistics of initialisation (mean 0 and variance 1, or those of pretrained weights) are used for
  ever, so that the layer is a learned scale and shift.
* ``"averaged"``: training normalises by the batch and refreshes running statistics, which are leaves of the parameters
  and which evaluation uses; the server averages them like weights.
* ``"group"``: every sample by itself, over two groups of channels: there are no statistics to disagree about, which
  federated work prefers.

Mean and variance come from one pass over the values, Σx and Σx² in float32, whatever the type of the values. A batch
of a few samples has statistics that say little, and steps by them are large and wrong: a network with "batch" or
"averaged" takes none on what an epoch leaves over (`local_sgd`'s ``drop_last``).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp

from majorant.models.layers import Layer
from majorant.models.maps import ChannelsLast, Layout

Normalisation = Literal["batch", "frozen", "averaged", "group"]
POLICIES = ("batch", "frozen", "averaged", "group")
GROUPS = 2  # as in Reddi et al., *Adaptive federated optimization*, ICLR 2021, App. C
KEPT = 0.9  # share of a running statistic that a batch leaves


def check_policy(normalisation: str) -> None:
    """Refuses an unknown policy."""
    if normalisation not in POLICIES:
        raise ValueError(f"normalisation is one of {', '.join(POLICIES)}, not {normalisation!r}")


def keeps_statistics(normalisation: str) -> bool:
    """Whether a policy has statistics among the parameters."""
    return normalisation in ("averaged", "frozen")


def uses_the_batch(normalisation: str) -> bool:
    """Whether training normalises by statistics of the batch."""
    return normalisation in ("averaged", "batch")


def norm_init(channels: int) -> Layer:
    """A scale of 1 and a shift of 0 for each channel."""
    return {"scale": jnp.ones(channels), "shift": jnp.zeros(channels)}


def statistics_init(channels: int) -> Layer:
    """Mean 0 and variance 1 for each channel."""
    return {"mean": jnp.zeros(channels), "variance": jnp.ones(channels)}


class Norms:
    """The normalisations of one pass through a network, one after the other; collects refreshed statistics.

    ``statistics`` has an entry for each normalisation, in the order of the pass, where the policy keeps any. In
    training, ``real`` (n,) says which rows are samples. Maps lie in memory as ``maps`` says.
    """

    def __init__(
        self,
        policy: str,
        statistics: list[Layer] | None,
        real: jax.Array | None,
        epsilon: float,
        maps: Layout = ChannelsLast,
    ) -> None:
        self.policy, self.real, self.epsilon, self.maps = policy, real, epsilon, maps
        self.given = jax.lax.stop_gradient(statistics or [])
        self.refreshed: list[Layer] = []

    def __call__(self, layer: Layer, x: jax.Array) -> jax.Array:
        """Normalises maps ``x`` and applies the layer's scale and shift."""
        # One conversion: the derivative's large parts cancel in small batches, and must be added up in float32.
        values = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        if self.policy == "group":
            mean, variance = by_group(values, self.maps)
        elif self.policy == "batch" or (self.policy == "averaged" and self.real is not None):
            mean, variance = over_batch(values, self.real, self.maps)
        else:
            mean, variance = (self.given[len(self.refreshed)][name] for name in ("mean", "variance"))
            variance = jnp.maximum(variance, 0)  # a channel's noise, or a server's optimizer, may have moved it below
        self._refresh(mean, variance)
        each = lambda a: self.maps.by_channel(a.astype(values.dtype))
        scale = each(layer["scale"]) * jax.lax.rsqrt(each(variance) + self.epsilon)
        return (values * scale + (each(layer["shift"]) - each(mean) * scale)).astype(x.dtype)

    def _refresh(self, mean: jax.Array, variance: jax.Array) -> None:
        if not keeps_statistics(self.policy):
            return
        before = self.given[len(self.refreshed)]
        if self.policy == "averaged" and self.real is not None:
            found = {"mean": mean, "variance": variance}
            blend = lambda old, new: KEPT * old + (1 - KEPT) * jax.lax.stop_gradient(new).astype(old.dtype)
            before = jax.tree.map(blend, before, found)
        self.refreshed.append(before)


def over_batch(x: jax.Array, real: jax.Array | None = None, maps: Layout = ChannelsLast) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of each channel over all positions of the samples that are real, ``(c,)``, in x's type.

    >>> mean, variance = over_batch(jnp.array([1.0, 3.0, 9.0]).reshape(3, 1, 1, 1), jnp.array([1.0, 1.0, 0.0]))
    >>> float(mean[0]), float(variance[0])
    (2.0, 1.0)
    """
    axes = tuple(axis for axis in range(x.ndim) if axis != maps.channel)
    positions = math.prod(x.shape[axis] for axis in axes if axis != maps.sample)
    if real is None:
        count: Any = x.shape[maps.sample] * positions
        weighed = x
    else:
        weight = real.astype(x.dtype)
        count = jnp.maximum(weight.sum(), 1) * positions
        weighed = x * maps.by_sample(weight)
    mean = weighed.sum(axes) / count
    square = (weighed * x).sum(axes) / count
    return mean, jnp.maximum(square - jnp.square(mean), 0)


def by_group(x: jax.Array, maps: Layout = ChannelsLast) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of every sample over positions and groups of channels, for each channel."""
    n, h, w, c = (images := maps.as_images(x)).shape
    size = c // math.gcd(c, GROUPS)
    groups = images.reshape(n, h * w, c // size, size)
    mean = groups.mean((1, 3))
    variance = jnp.maximum(jnp.square(groups).mean((1, 3)) - jnp.square(mean), 0)
    each = lambda a: maps.of_images(jnp.repeat(a, size, axis=1)[:, None, None, :])
    return each(mean), each(variance)
