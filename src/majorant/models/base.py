"""What a model is: parameters, a map from samples to outputs, and the loss that turns outputs into predictions.

A model is a record of pure functions. ``apply(params, x)`` gives the outputs for a batch of samples. A model with
normalisation statistics says what happens to them by where it keeps them (see ``models.normalisation``): statistics
that are trained and averaged are leaves of ``params``, refreshed by ``train_apply``; all other policies need nothing.
Dropout and augmentation are for ``train_apply`` too, which is handed randomness of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp


class Spec(NamedTuple):
    """The shape of a learning problem: one sample's features, and the number of classes (0 for regression)."""

    features: tuple[int, ...]
    classes: int


class HasSpec(Protocol):
    """Anything that knows the shape of its problem, such as ``FederatedData``."""

    @property
    def spec(self) -> Spec: ...


class Loss(NamedTuple):
    """A loss between outputs and labels, and the prediction that the outputs stand for.

    ``predict`` gives probabilities ``(n, classes)`` for classification and values ``(n,)`` for regression: these are
    what mixtures average, never the raw outputs.
    """

    name: str
    per_sample: Callable[[jax.Array, jax.Array], jax.Array]  # outputs, y -> (n,)
    predict: Callable[[jax.Array], jax.Array]  # outputs -> probabilities or values
    outputs: Callable[[int], int]  # classes -> width of the output layer


class Draw(NamedTuple):
    """What a training pass is handed beside its samples: a key of its own, and which rows are samples.

    The key is derived from the run, the round, the client and the number of the minibatch. Rows that fill up a batch
    come last and have ``real`` 0; what is drawn for a row does not depend on how many follow it.
    """

    key: jax.Array
    real: jax.Array  # (n,) 1 for a sample, 0 for a row that fills the batch


def as_they_are(params: Any) -> Any:
    """Parameters that are not packed."""
    return params


class Model(NamedTuple):
    """``init(key) -> params`` and ``apply(params, x) -> outputs (n, k)``, with the loss they are trained by.

    ``train_apply(params, x, draw) -> (outputs, params)`` is for models that behave differently in training: they draw
    at random (dropout), or refresh statistics kept in ``params``; the returned tree differs from the given one in those
    leaves alone. ``statistics`` names the entry of ``params`` that holds them ("": there are none; None: they are found
    by tracing). ``block`` is for models whose
    intermediate results are much larger than their input: how many samples of a batch go through at once on a CPU, so
    that these results stay in its cache; the gradients of the blocks are added up. ``convex`` says that every sample's
    loss is a convex function of the parameters, ``normalises_by_batch`` that training uses statistics of the batch,
    which those of a few samples would spoil, ``codes`` that samples are codes, so many, and their bytes no pixels.
    ``head`` is the place of the last layer among the parameters ("weights.dense"; "": `last_layer` looks for it).
    ``layers(params)`` are parameters layer by layer, also where `packed` has put them into vectors, and ``pack`` is its
    inverse. ``features(params, x)``, where a model has it, is what its ``head`` reads, ``(n, width)``: ``apply`` is
    `layers.dense` of these, and whoever replaces ``apply`` replaces both. ``embed(x)`` is what samples become before
    any parameter matters, ``(n, width)``: ``apply`` takes it in place of samples, and engines make it once, before
    round 1 (None: parameters read the samples themselves).
    """

    init: Callable[[jax.Array], Any]
    apply: Callable[[Any, jax.Array], jax.Array]
    loss: Loss
    spec: Spec
    name: str = "model"
    train_apply: Callable[..., tuple[jax.Array, Any]] | None = None
    block: int | None = None
    convex: bool = False
    statistics: str | None = None
    normalises_by_batch: bool = False
    codes: int = 0
    head: str = ""
    layers: Callable[[Any], Any] = as_they_are
    pack: Callable[[Any], Any] = as_they_are
    features: Callable[[Any, jax.Array], jax.Array] | None = None
    embed: Callable[[jax.Array], jax.Array] | None = None

    def losses(self, params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        """The loss of every sample, ``(n,)``."""
        return self.loss.per_sample(self.apply(params, x), y)

    def predict(self, params: Any, x: jax.Array) -> jax.Array:
        """Probabilities ``(n, classes)``, or values ``(n,)`` for regression."""
        return self.loss.predict(self.apply(params, x))

    @property
    def refreshed(self) -> str:
        """The entry of ``params`` that training refreshes from batches and a server must average; "" for none."""
        return (self.statistics or "") if self.normalises_by_batch and self.train_apply is not None else ""

    @property
    def at_once(self) -> int | None:
        """How many samples go through at once on this backend; None: any number. (Batch statistics need them all.)"""
        return self.block if self.train_apply is None and jax.default_backend() == "cpu" else None


def by_place(params: Any) -> list[tuple[str, Any]]:
    """Parameters (or their shapes) by their places in the tree, as in "weights.dense.bias"."""
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return [(name(path), leaf) for path, leaf in jax.tree.leaves_with_path(params)]


def layer_of(name: str) -> str:
    """The place of the layer that a parameter belongs to."""
    return name.rpartition(".")[0]


def last_layer(model: Model) -> str | None:
    """The place of a model's last layer among its parameters; None where nothing says which that is.

    A list's layers are in order. The entries of a dictionary are in that of the alphabet, which says nothing: there the
    last layer is the only one with a matrix to the outputs, and with no array that is not to them.
    """
    if model.head:
        return model.head
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    if isinstance(shapes, list | tuple):
        ends = [place for place, leaf in enumerate(shapes) if jax.tree.leaves(leaf)][-1]
        shapes = {str(ends): shapes[ends]}
    layers: dict[str, list[tuple[int, ...]]] = {}
    for name, leaf in by_place(shapes):
        if not model.statistics or name.split(".")[0] != model.statistics:
            layers.setdefault(layer_of(name), []).append(leaf.shape)
    width = model.loss.outputs(model.spec.classes)
    to_outputs = lambda shape: shape == (width,) or (len(shape) == 2 and width in shape)
    fitting = [
        layer for layer, own in layers.items() if all(map(to_outputs, own)) and any(len(shape) == 2 for shape in own)
    ]
    return next(iter(layers)) if len(layers) == 1 else fitting[0] if len(fitting) == 1 else None


NORMALISES = ({"scale"}, {"scale", "bias"})  # flax's layers, whatever they are called


def normalisations(names: Sequence[str]) -> list[str]:
    """Those parameters that belong to normalisation layers, by their places in the tree.

    >>> normalisations(["weights.project.scale", "weights.dense.bias", "bn.scale", "bn.bias", "norm1.weight"])
    ['weights.project.scale', 'bn.scale', 'bn.bias', 'norm1.weight']
    """
    named = ("batch_stats", "statistics", "scale", "shift")
    layers: dict[str, set[str]] = {}
    for name in names:
        layers.setdefault(layer_of(name), set()).add(name.rpartition(".")[2])
    known = {layer for layer, own in layers.items() if own in NORMALISES or "running_mean" in own}  # the last: torch's
    by_name = lambda name: any("norm" in part.lower() or part in named for part in name.split("."))
    return [name for name in names if by_name(name) or layer_of(name) in known]


def check_no_running_statistics(model: Model, method: str) -> None:
    """Refuses a model whose running statistics a method would not average."""
    if model.refreshed:
        raise ValueError(
            f"{method} does not average what clients send, and the running statistics of {model.name} must be "
            'averaged: use normalisation="group", "batch" or "frozen"'
        )


def spec_of(problem: HasSpec | Spec) -> Spec:
    """The spec of a data set, or the spec itself."""
    return problem if isinstance(problem, Spec) else problem.spec


def as_float(x: jax.Array) -> jax.Array:
    """Samples as floating point numbers: pixels stored as bytes are scaled to [0, 1]."""
    return x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x
