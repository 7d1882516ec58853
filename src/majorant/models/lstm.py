"""A stacked character LSTM: the next character from those before it.

With gates i, f, g, o from one product of [x_t, h_{t−1}] each,

    c_t = σ(f) c_{t−1} + σ(i) tanh(g),        h_t = σ(o) tanh(c_t)

and the outputs are a dense layer of the last layer's h after the last character. The products with the inputs of all
positions are made at once; those with h go position by position.

Each character of a sequence is also the label of those before it. With ``every_position`` a sample's loss is the mean
over all its positions, as in the FedEM authors' released code; predictions are still those after the last character.

Reference: the FedEM paper, App. I.1.4 (embedding 8, two layers of 256), after LEAF (Caldas et al. 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.math.checks import check_whole
from majorant.models.base import HasSpec, Loss, Model, Spec, spec_of
from majorant.models.layers import Layer, dense, dense_init
from majorant.models.losses import class_weighted, cross_entropy, loss_for

Params = dict[str, Any]


def lstm(
    problem: HasSpec | Spec,
    *,
    vocabulary: int | None = None,
    embedding: int = 8,
    hidden: int = 256,
    layers: int = 2,
    every_position: bool = False,
    class_weights: Sequence[float] | None = None,
) -> Model:
    """A stacked LSTM over sequences of codes ``(n, length)``, whole numbers from 0 to ``vocabulary`` − 1.

    Without ``vocabulary`` there are as many codes as classes: the next character is one of those that come before.
    ``every_position`` trains on the next character at each position of a sequence, not after the last one alone: a
    sequence of 80 then teaches 80 characters. With ``class_weights``, one for each class, frequent characters may count
    less (`class_weighted`): a language model else says little but "space" for its first rounds.

    >>> model = lstm(Spec((80,), classes=80))
    >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))))
    817872
    """
    spec = spec_of(problem)
    if len(spec.features) != 1:
        raise ValueError(f"lstm needs sequences of one length, samples of shape (length,), not {spec.features}")
    loss = loss_for(spec, cross_entropy.name)
    if class_weights is not None:
        loss = class_weighted(loss, class_weights)
    codes = spec.classes if vocabulary is None else vocabulary
    for name, value in {"vocabulary": codes, "embedding": embedding, "hidden": hidden, "layers": layers}.items():
        check_whole(name, value)
    check_codes(problem, codes)
    if every_position and codes != spec.classes:
        raise ValueError(
            f"every_position needs codes that are classes, but there are {codes} codes, {spec.classes} classes"
        )
    last, width = loss, loss.outputs(spec.classes)  # of the last position
    if every_position:
        loss = with_positions(last, spec.features[0])
    widths = [embedding, *[hidden] * layers]

    def init(key: jax.Array) -> Params:
        keys = jax.random.split(key, layers + 2)
        return {
            "embedding": jax.random.normal(keys[0], (codes, embedding)),
            "layers": [cell_init(k, width, hidden) for k, width in zip(keys[2:], widths[:-1], strict=True)],
            "dense": dense_init(keys[1], hidden, width),
        }

    def apply(params: Params, x: jax.Array) -> jax.Array:
        sequence = states(params, x)
        if not every_position:
            return dense(params["dense"], sequence[:, -1])
        outputs = dense(params["dense"], sequence).astype(jnp.float32)  # (n, length, classes)
        known_next = last.per_sample(outputs[:, :-1], jnp.asarray(x[:, 1:], jnp.int32)).mean(axis=1, keepdims=True)
        return jnp.concatenate([outputs[:, -1], known_next], axis=1)

    return Model(init, apply, loss, spec, "lstm", codes=codes, head="dense")


def states(params: Params, x: jax.Array) -> jax.Array:
    """The last layer's h at every position, ``(n, length, hidden)``, of sequences of codes ``(n, length)``."""
    # A product with one-hot rows, not a gather: its gradient is a product too, and no scatter.
    table = params["embedding"]
    known = jnp.asarray(x, jnp.int32)[..., None] == jnp.arange(len(table))
    sequence = known.astype(table.dtype) @ table  # (n, length, embedding)
    for layer in params["layers"]:
        sequence = run(layer, sequence)
    return sequence


def everywhere(model: Model) -> Model:
    """An `lstm` that predicts at every position, ``(n, length, classes)``: to judge what it says, not to train it."""
    outputs = lambda params, x: dense(params["dense"], states(params, x))
    return model._replace(apply=outputs, loss=cross_entropy)


def with_positions(last: Loss, length: int) -> Loss:
    """The mean over all positions: the outputs are those of the last, and the mean loss of the others beside them.

    >>> every = with_positions(cross_entropy, 4)
    >>> every.per_sample(jnp.array([[0.0, 0.0, 2.0]]), jnp.array([1])).round(2)  # (3 · 2 + log 2) / 4
    Array([1.67], dtype=float32)
    """
    mean = lambda outputs, y: ((length - 1) * outputs[..., -1] + last.per_sample(outputs[..., :-1], y)) / length
    return Loss(
        name=f"{last.name} at every position",
        per_sample=mean,
        predict=lambda outputs: last.predict(outputs[..., :-1]),
        outputs=lambda classes: last.outputs(classes) + 1,
    )


def check_codes(problem: HasSpec | Spec, vocabulary: int) -> None:
    """Refuses data with codes that are no whole numbers below the vocabulary's size, where there is data to look at."""
    for part in ("train", "validation", "test"):
        x = getattr(getattr(problem, part, None), "x", None)
        if x is not None:
            check_sequences(x, vocabulary, f"the {part} samples", "give vocabulary={} or more")


def check_sequences(
    x: np.ndarray, vocabulary: int, what: str = "the samples", advice: str = "training knew no others"
) -> None:
    """Refuses samples that are no codes of a vocabulary."""
    if x.size == 0:
        return
    if not (np.issubdtype(x.dtype, np.integer) or np.array_equal(x, np.floor(x))):
        raise ValueError(f"lstm needs sequences of codes, but some of {what} are no whole numbers")
    least, most = int(x.min()), int(x.max())
    if least < 0 or most >= vocabulary:
        raise ValueError(
            f"{what} have codes from {least} to {most}, which do not fit a vocabulary of {vocabulary}: "
            + (advice.format(most + 1) if least >= 0 else "codes begin at 0")
        )


def cell_init(key: jax.Array, channels: int, hidden: int) -> Layer:
    """Weights of the four gates, uniform in ±1/√hidden, as PyTorch starts them, with one bias."""
    keys, bound = jax.random.split(key, 3), 1 / math.sqrt(hidden)
    draw = lambda key, *shape: jax.random.uniform(key, shape, minval=-bound, maxval=bound)
    return {
        "input": draw(keys[0], channels, 4 * hidden),
        "state": draw(keys[1], hidden, 4 * hidden),
        "bias": draw(keys[2], 4 * hidden),
    }


def run(layer: Layer, sequence: jax.Array) -> jax.Array:
    """One layer over sequences ``(n, length, channels)``: its h at every position, ``(n, length, hidden)``."""
    given = sequence @ layer["input"] + layer["bias"]  # (n, length, 4 · hidden)
    return jnp.moveaxis(recurrence(jnp.moveaxis(given, 1, 0), layer["state"]), 0, 1)


@jax.custom_vjp
def recurrence(given: jax.Array, weights: jax.Array) -> jax.Array:
    """h at every position ``(length, n, hidden)``, from what the inputs give to the gates ``(length, n, 4 · hidden)``.

    Its gradient is written out: the one of the weights is then a single product over all positions. Left to the
    compiler it is added up position by position, and so often read from memory and written back.
    """
    return forward(given, weights)[0]


def forward(given: jax.Array, weights: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """h at every position, and what the gradient needs: gates, c and h at every position, and the weights."""
    nothing = jnp.zeros((given.shape[1], weights.shape[0]), given.dtype)

    def step(carry: tuple[jax.Array, jax.Array], now: jax.Array) -> tuple[tuple[jax.Array, jax.Array], Any]:
        h, c = carry
        i, f, g, o = jnp.split(now + h @ weights, 4, axis=-1)
        gates = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        c = gates[1] * c + gates[0] * gates[2]
        h = gates[3] * jnp.tanh(c)
        return (h, c), (gates, c, h)

    _, (gates, c, h) = jax.lax.scan(step, (nothing, nothing), given)
    return h, (gates, c, h, weights)


def backward(kept: tuple[Any, ...], of_h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gradients with respect to ``given`` and the weights, from those with respect to h at every position."""
    gates, c, h, weights = kept
    before = lambda values: jnp.concatenate([jnp.zeros_like(values[:1]), values[:-1]])

    def step(carry: tuple[jax.Array, jax.Array], now: Any) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        of_h_later, of_c = carry
        of_h, (i, f, g, o), c, c_before = now
        of_h, out = of_h + of_h_later, jnp.tanh(c)
        of_c = of_c + of_h * o * (1 - out * out)
        of_gates = jnp.concatenate(
            [
                of_c * g * i * (1 - i),
                of_c * c_before * f * (1 - f),
                of_c * i * (1 - g * g),
                of_h * out * o * (1 - o),
            ],
            axis=-1,
        )
        return (of_gates @ weights.T, of_c * f), of_gates

    nothing = jnp.zeros_like(c[0])
    _, of_given = jax.lax.scan(step, (nothing, nothing), (of_h, gates, c, before(c)), reverse=True)
    return of_given, jnp.einsum("tnh,tng->hg", before(h), of_given)


recurrence.defvjp(forward, backward)
