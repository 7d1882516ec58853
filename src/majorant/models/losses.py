"""The losses models are trained by, as functions of a model's outputs z.

* ``cross_entropy``: one output per class, labels 0…K−1; ``log Σ_k exp z_k − z_y``.
* ``logistic``: one output, labels 0 or 1; ``log(1 + exp(−z))`` for label 1 and ``log(1 + exp z)`` for label 0.
* ``squared``: one output, real labels; ``(z − y)² / 2``.

Each is a negative log-likelihood (squared: up to a constant, of a Gaussian of variance one), so ``exp(-loss)`` weighs
samples in a mixture. Outputs of any finite size give finite classification losses and gradients.

>>> cross_entropy.per_sample(jnp.zeros((1, 4)), jnp.array([2])).round(4)
Array([1.3863], dtype=float32)
>>> logistic.per_sample(jnp.array([[1e4], [-1e4]]), jnp.array([1, 1]))
Array([    0., 10000.], dtype=float32)
>>> logistic.predict(jnp.array([[0.0]]))
Array([[0.5, 0.5]], dtype=float32)
>>> squared.per_sample(jnp.array([[3.0]]), jnp.array([1.0]))
Array([2.], dtype=float32)
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.models.base import HasSpec, Loss, Spec, spec_of


def _cross_entropy(outputs: jax.Array, y: jax.Array) -> jax.Array:
    # A mask rather than a gather: its gradient needs no scatter, which is slow inside compiled loops on CPUs.
    chosen = jnp.arange(outputs.shape[-1]) == y[..., None]
    # Shift first: logsumexp(z) − z_y rounds to multiples of ulp(max z), which is 0.001 for outputs of 1e4.
    shifted = outputs - jax.lax.stop_gradient(outputs.max(-1, keepdims=True))
    return jax.nn.logsumexp(shifted, axis=-1) - jnp.where(chosen, shifted, 0).sum(-1)


@jax.custom_jvp
def _softplus(z: jax.Array) -> jax.Array:
    return jax.nn.softplus(z)


# JAX's own derivative costs several exponentials and a logarithm on a CPU.
_softplus.defjvps(lambda change, _, z: change * jax.nn.sigmoid(z))


def _logistic(outputs: jax.Array, y: jax.Array) -> jax.Array:
    z = outputs[..., 0]
    return _softplus(jnp.where(y > 0, -z, z))


def _logistic_predict(outputs: jax.Array) -> jax.Array:
    return jnp.concatenate([jax.nn.sigmoid(-outputs), jax.nn.sigmoid(outputs)], axis=-1)


cross_entropy = Loss(
    name="cross_entropy",
    per_sample=_cross_entropy,
    predict=lambda outputs: jax.nn.softmax(outputs, axis=-1),
    outputs=lambda classes: classes,
)

logistic = Loss(
    name="logistic",
    per_sample=_logistic,
    predict=_logistic_predict,
    outputs=lambda classes: 1,
)

squared = Loss(
    name="squared",
    per_sample=lambda outputs, y: 0.5 * jnp.square(outputs[..., 0] - y),
    predict=lambda outputs: outputs[..., 0],
    outputs=lambda classes: 1,
)

LOSSES: dict[str, Loss] = {loss.name: loss for loss in (cross_entropy, logistic, squared)}


def loss_for(problem: HasSpec | Spec, loss: str | Loss | None = None) -> Loss:
    """The loss for a problem: the natural one, or the one asked for if it fits.

    Regression takes ``squared``, two classes ``logistic``, more classes ``cross_entropy``. A ``Loss`` of your own is
    taken as it is.

    >>> loss_for(Spec((5,), classes=2)).name
    'logistic'
    >>> loss_for(Spec((5,), classes=2), "cross_entropy").name
    'cross_entropy'
    """
    classes = spec_of(problem).classes
    if classes < 0 or classes == 1:
        raise ValueError(f"a problem has 0 classes (regression) or at least 2, not {classes}")
    if isinstance(loss, Loss):
        return loss
    fitting = ["squared"] if classes == 0 else ["logistic", "cross_entropy"] if classes == 2 else ["cross_entropy"]
    name = fitting[0] if loss is None else loss
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}: choose one of {', '.join(LOSSES)}")
    if name not in fitting:
        kind = "a regression problem" if classes == 0 else f"a problem with {classes} classes"
        raise ValueError(f"the {name} loss does not fit {kind}: use {' or '.join(fitting)}")
    return LOSSES[name]


def class_weighted(loss: Loss, weights: Any) -> Loss:
    """A classification loss times the weight of the sample's class: w_y · loss(z, y), with ``weights`` (classes,).

    Where one class has most of the samples, a model learns first to say nothing else; with weights that fall as classes
    become frequent it does not. Predictions are those of the loss, so accuracies count every sample alike. Weights that
    are not 1 on average act like another learning rate. ``exp(-loss)`` is no likelihood any more: a mixture's E-step
    takes the weighted losses as they are.

    >>> loss = class_weighted(cross_entropy, [1.0, 3.0])
    >>> loss.per_sample(jnp.zeros((2, 2)), jnp.array([0, 1])).round(4)  # log 2, 3 log 2
    Array([0.6931, 2.0794], dtype=float32)
    """
    given = np.asarray(weights, np.float64)
    if loss is squared:
        raise ValueError("class_weighted is for classification: the squared loss has no classes")
    if given.ndim != 1 or len(given) < 2 or not (np.isfinite(given).all() and (given > 0).all()):
        raise ValueError(f"class_weighted needs a positive number for each of at least 2 classes, not {weights!r}")

    def outputs(classes: int) -> int:
        if classes != len(given):
            raise ValueError(f"class_weighted has weights for {len(given)} classes, but the problem has {classes}")
        return loss.outputs(classes)

    def per_sample(z: jax.Array, y: jax.Array) -> jax.Array:
        if z.shape[-1] != loss.outputs(len(given)):
            raise ValueError(
                f"class_weighted has weights for {len(given)} classes, but the model gives {z.shape[-1]} outputs"
            )
        return jnp.asarray(given)[jnp.asarray(y, jnp.int32)] * loss.per_sample(z, y)

    return Loss(
        name=f"{loss.name} weighted by class",
        per_sample=per_sample,
        predict=loss.predict,
        outputs=outputs,
    )
