"""The base problem f'_m that every objective is made of: a model's mean loss on client m's samples, with an L2 term.

::

    f'_m(θ) = (1/n_m) Σ_j loss(θ, x_j, y_j) + (l2/2) ‖θ‖²

For a linear model with one of the convex losses of `losses`, whose second derivative in the outputs is at most c,
f'_m is L'-smooth, each of its terms is 𝓛'-smooth, and it is μ'-strongly convex::

    L' = c max_m λ_max(G_m) + l2,     𝓛' = c max_j ‖x_j‖² + l2,     μ' = l2   (least squares: + min_m λ_min(G_m))

where G_m = (1/n_m) Σ_j x_j x_jᵀ and x_j ends with the constant 1 that the bias multiplies, where there is one. Any
other model (a neural network) serves as well, but has no such constants.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from majorant.core import ClientData, Key, Tree, squared_norm
from majorant.data.federated import FederatedData
from majorant.math.checks import check_range
from majorant.models.base import Model, as_float
from majorant.models.layers import dense, dense_init
from majorant.objectives.base import Constants, Objective
from majorant.objectives.losses import BaseLoss, base_loss
from majorant.solvers import Batch

Made = TypeVar("Made", bound=Callable[..., Objective])


class Curvature(NamedTuple):
    """What holds of every f'_m: μ'-strong convexity, L'-smoothness, and 𝓛'-smoothness for single samples."""

    mu: Any
    smooth: Any
    sample_smooth: Any

    def turned(self) -> Curvature:
        """With −μ' for μ': what holds of all clients are then the largest numbers over them, and back again."""
        return self._replace(mu=-self.mu)


class BaseModel(NamedTuple):
    """f' as functions of one model's parameters, for the ``clients`` clients of the data that train."""

    clients: int  # M
    init: Callable[[Key], Tree]
    value: Callable[[Tree, Batch], jax.Array]  # f' over a batch, the L2 term included
    predict: Callable[[Tree, jax.Array], jax.Array]
    curvature: Callable[[FederatedData], Curvature]
    client_curvature: Callable[[ClientData], Curvature] | None  # of one client, turned
    convex: bool
    features: int | None = None  # of a linear model: {"weight": (features, outputs), "bias": (outputs,)}
    bias: bool = True  # whether a linear model has one

    def fields(self, constants: Callable[[Curvature], Constants]) -> dict[str, Any]:
        """What an `Objective` takes from its models, and its ``constants``, given as a function of what holds of f'."""
        return {
            "clients": self.clients,
            "predict": self.predict,
            "constants": lambda data: constants(self.curvature(data)),
            "curvature": self.client_curvature,
            "constants_of": lambda largest: constants(largest.turned()),
            "convex": self.convex,
        }


class BaseOptions(TypedDict, total=False):
    """The options of `base_model`, which every objective takes; their defaults are there."""

    loss: str | BaseLoss | None
    l2: float
    model: Model | None
    start: str | None
    bias: bool


def base_model(
    data: FederatedData,
    *,
    loss: str | BaseLoss | None = None,
    l2: float = 1e-4,
    model: Model | None = None,
    start: str | None = None,
    bias: bool = True,
) -> BaseModel:
    """A linear model with a convex loss, or the model that is given, for the clients of the data that train.

    ``start``: "zeros", or "model" for the model's own random start; by default linear models start at zero. ``bias``
    False: a linear model without one.

    >>> data = FederatedData.from_arrays(np.eye(6), np.arange(6) % 2, clients=np.arange(6) // 3)
    >>> base = base_model(data, l2=0.5)
    >>> {name: leaf.shape for name, leaf in base.init(jax.random.key(0)).items()}
    {'bias': (1,), 'weight': (6, 1)}
    >>> base.curvature(data)
    Curvature(mu=0.5, smooth=1.0, sample_smooth=1.0)
    """
    check_range("l2", l2, least=0)
    if start not in (None, "zeros", "model"):
        raise ValueError(f'start must be "zeros" or "model", got {start!r}')
    if model is None:
        return _linear(data, base_loss(data, loss), l2, zeros=start != "model", bias=bias)
    if not bias:
        raise ValueError(f"bias=False is for the linear model; the model {model.name} has the parameters it has")
    if loss is not None:
        raise ValueError(f"give model or loss, not both: the model {model.name} has its own loss, {model.loss.name}")
    if model.train_apply is not None:
        drawn = (
            f"the model {model.name} draws at random while it trains (dropout, augmentation), and an objective does not"
        )
        kept = f"the model {model.name} averages batch statistics, which are no parameters of an objective"
        raise ValueError(f"{drawn}: set dropout=0" if model.statistics == "" else f"{kept}: use another normalisation")

    def no_constants(data: FederatedData) -> Curvature:
        raise ValueError(f"an objective over the model {model.name} has no constants: give step sizes")

    def value(params: Tree, batch: Batch) -> jax.Array:
        return batch.mean(model.losses(params, batch.x, batch.y)) + l2 / 2 * squared_norm(params)

    init = zeros_like(model.init) if start == "zeros" else model.init
    return BaseModel(count_training(data), init, value, model.predict, no_constants, None, convex=False)


def with_base_options(objective: Made) -> Made:
    """The same function; its signature, which names on the command line follow, shows those options one by one."""
    own, base = (inspect.signature(function, eval_str=True) for function in (objective, base_model))
    named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [p for p in base.parameters.values() if p.kind is p.KEYWORD_ONLY]
    objective.__signature__ = own.replace(parameters=named + options)  # type: ignore[attr-defined]
    return objective


def _linear(data: FederatedData, loss: BaseLoss, l2: float, *, zeros: bool, bias: bool) -> BaseModel:
    features, outputs = math.prod(data.spec.features), loss.loss.outputs(len(data.classes))
    clients = count_training(data)

    def apply(params: Tree, x: jax.Array) -> jax.Array:
        return dense(params, flatten(x)) if bias else flatten(x) @ params["weight"]

    def value(params: Tree, batch: Batch) -> jax.Array:
        losses = loss.loss.per_sample(apply(params, batch.x), batch.y)
        return batch.mean(losses) + l2 / 2 * squared_norm(params)

    def start(key: Key) -> Tree:
        layer = dense_init(key, features, outputs)
        return layer if bias else {"weight": layer["weight"]}

    return BaseModel(
        clients=clients,
        init=zeros_like(start) if zeros else start,
        value=value,
        predict=lambda params, x: loss.loss.predict(apply(params, x)),
        curvature=lambda data: curvature(data, loss, l2, clients, bias=bias),
        client_curvature=None
        if not math.isfinite(loss.curvature)
        else lambda data: client_curvature(data, loss, l2, bias=bias),
        convex=True,
        features=features,
        bias=bias,
    )


def flatten(x: jax.Array) -> jax.Array:
    """Samples as rows of numbers, ``(n, features)``."""
    return as_float(x).reshape(x.shape[0], -1)


def zeros_like(init: Callable[[Key], Tree]) -> Callable[[Key], Tree]:
    """Zeros in the shape of what ``init`` gives."""
    return lambda key: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(init, key))


def count_training(data: FederatedData) -> int:
    """M: how many clients train."""
    return int((~data.unseen).sum())


def curvature(
    data: FederatedData,
    loss: BaseLoss,
    l2: float,
    clients: int,
    columns: Sequence[np.ndarray] | None = None,
    *,
    bias: bool = True,
) -> Curvature:
    """μ', L' and 𝓛' of a linear model on the data of the clients that train.

    ``columns``: features of the parts that a model adds up; None: one part with all of them. ``bias``: whether each
    part has one.
    """
    if count_training(data) != clients:
        raise ValueError(
            f"the objective was made for {clients} clients that train, but the data has {count_training(data)}: "
            "make it anew from this data"
        )
    if not math.isfinite(loss.curvature):
        raise ValueError(
            f"the {loss.name} loss has no constants, as its curvature has no bound: give step sizes, or bound the "
            "outputs, as in loss=losses.poisson(largest=3.0)"
        )
    largest, smallest, longest = 0.0, math.inf, 0.0
    for client in np.flatnonzero(~data.unseen):
        rows = data.train.client(int(client))[0]
        x = np.asarray(rows.reshape(len(rows), -1), np.float64) / (255 if rows.dtype == np.uint8 else 1)
        parts = [x] if columns is None else [x[:, part] for part in columns]
        ones = np.ones((len(x), int(bias)))
        x = np.concatenate([a for part in parts for a in (part, ones)], axis=1)
        low, high = extreme_eigenvalues(x)
        largest, smallest = max(largest, high), min(smallest, low)
        longest = max(longest, np.square(x).sum(axis=1).max(initial=0.0))
    return Curvature(
        mu=float(loss.least_curvature * smallest + l2),
        smooth=float(loss.curvature * largest + l2),
        sample_smooth=float(loss.curvature * longest + l2),
    )


def client_curvature(
    data: ClientData, loss: BaseLoss, l2: float, columns: Sequence[np.ndarray] | None = None, *, bias: bool = True
) -> Curvature:
    """μ', L' and 𝓛' of a linear model on one client's samples, turned; compiled, where `curvature` is for all data."""
    x = flatten(data.x)
    parts = [x] if columns is None else [x[:, part] for part in columns]
    ones = jnp.ones((len(x), int(bias)), x.dtype)
    x = jnp.concatenate([a for part in parts for a in (part, ones)], axis=1) * data.mask[:, None]
    rows, width = x.shape
    gram = (x.T @ x if width <= rows else x @ x.T) / jnp.maximum(data.size, 1)
    values = jnp.linalg.eigvalsh(gram)
    least = values[0] if width <= rows else jnp.zeros_like(values[0])  # fewer real rows than columns: it is 0 as well
    found = Curvature(
        mu=loss.least_curvature * jnp.maximum(least, 0) + l2,
        smooth=loss.curvature * values[-1] + l2,
        sample_smooth=loss.curvature * jnp.square(x).sum(axis=1).max(initial=0) + l2,
    )
    return jax.tree.map(lambda v: jnp.where(data.size > 0, v, -jnp.inf), found.turned())  # nobody else's is larger


def extreme_eigenvalues(x: np.ndarray) -> tuple[float, float]:
    """The least and the largest eigenvalue of (1/n) Σ x xᵀ, from the smaller of the two Gram matrices.

    >>> extreme_eigenvalues(np.array([[2.0, 0.0], [0.0, 4.0]]))
    (2.0, 8.0)
    """
    n, d = x.shape
    if n == 0:
        return 0.0, 0.0
    values = scipy.linalg.eigh(x.T @ x / n if d <= n else x @ x.T / n, eigvals_only=True)
    return max(float(values[0]), 0.0) if d <= n else 0.0, max(float(values[-1]), 0.0)
