"""What a surrogate is tried on: a few clients' samples; they and its shapes are refused before any compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import ClientData, Tree
from majorant.data.federated import FederatedData
from majorant.solvers import whole
from majorant.surrogates.partial import Coefficients, PartialSurrogate


def samples_of(data: Any, clients: int | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """The samples of a few clients (None: of all), with labels 0 where there are none; refused where not numbers."""
    if isinstance(data, FederatedData):
        chosen = np.flatnonzero(data.train.sizes > 0)[:clients]
        samples = [data.train.client(int(t)) for t in chosen]
    elif isinstance(data, ClientData):
        samples = [(np.asarray(data.x)[: int(data.size)], np.asarray(data.y)[: int(data.size)])]
    elif isinstance(data, tuple):
        samples = [(np.asarray(data[0]), np.asarray(data[1]))]
    else:  # without labels
        samples = [(np.asarray(data), np.zeros(len(data), np.float32))]
    if not samples or any(len(y) == 0 for _, y in samples):
        raise ValueError("there are no samples")
    for x, y in samples:
        if y.ndim != 1 or len(x) != len(y):
            raise ValueError(f"samples x must be (n, ...) and labels y (n,); got {x.shape} and {y.shape}")
        if not all(np.isfinite(a).all() for a in (x, y) if np.issubdtype(a.dtype, np.floating)):
            raise ValueError("samples or labels are NaN or infinite")
    return samples


def pad(x: np.ndarray, y: np.ndarray, length: int, id: int) -> ClientData:
    """A client's samples in double precision, with zeros up to a common length: one program for all."""
    wide = [np.pad(a, [(0, length - len(a))] + [(0, 0)] * (a.ndim - 1)) for a in (x, y)]
    double = [a.astype(np.float64) if np.issubdtype(a.dtype, np.floating) else a for a in wide]
    return ClientData(jnp.asarray(double[0]), jnp.asarray(double[1]), jnp.asarray(len(y)), jnp.asarray(id))


def check_shapes(surrogate: PartialSurrogate, u: Tree, v: Tree, data: ClientData) -> None:
    """Traces the functions without computing anything, and refuses results of the wrong shape."""
    coefficients = expect("majorize", None, surrogate.majorize, u, v, data)
    if not isinstance(coefficients, Coefficients):
        raise ValueError(f"majorize must give Coefficients(sample, shared), not {type(coefficients).__name__}")
    n = data.y.shape[0]
    if any(a.ndim == 0 or a.shape[0] != n for a in jax.tree.leaves(coefficients.sample)):
        shapes = [a.shape for a in jax.tree.leaves(coefficients.sample)]
        raise ValueError(f"coefficients.sample must have a row for each of {n} samples; its arrays are {shapes}")
    scalar = jax.ShapeDtypeStruct((), jnp.float64)
    expect("objective", scalar, surrogate.objective, u, v, data)
    expect("value", scalar, lambda c, u, v, data: surrogate.value(c, u, v, whole(data)), coefficients, u, v, data)
    expect("minimize_v", v, surrogate.minimize_v, coefficients, u, data)
    expect("distance", scalar, surrogate.distance, v, v)
    if jax.tree.leaves(v) and surrogate.random_v is None:
        raise ValueError("the surrogate has a personal part: give random_v(key, data), some v to try its conditions on")
    expect("a random v", v, surrogate.draw_v, jax.random.key(0), data)
    if surrogate.minimize_u is not None:
        expect("minimize_u", u, surrogate.minimize_u, coefficients, v, data)


def expect(name: str, like: Tree, function: Callable[..., Tree], *args: Any) -> Tree:
    """The shapes that a function gives, which must be those of ``like`` (None: any)."""
    try:
        given = jax.eval_shape(function, *args)
    except Exception as error:
        raise ValueError(f"{name} of the surrogate cannot be computed: {error}") from error
    shapes = lambda tree: jax.tree.map(lambda a: jnp.shape(a), tree)
    if like is not None and shapes(given) != shapes(like):
        raise ValueError(f"{name} of the surrogate gives {shapes(given)}; it must give {shapes(like)}")
    return given
