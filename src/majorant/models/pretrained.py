"""Pretrained weights from safetensors files, with every name and shape checked.

The file is in PyTorch's layout, as EfficientNet-Lite0's published weights are: convolutions (out, in, k, k), depthwise
ones (channels, 1, k, k), dense layers (out, in), and for each batch normalisation weight, bias, running mean and
running variance; ``_conv_stem``, ``_blocks.i._expand_conv``, …, ``_conv_head``, ``_fc``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from majorant.models.base import Model

Arrays = Mapping[str, np.ndarray]
DENSE = "_fc."


def pretrained(model: Model, path: str | Path) -> Model:
    """The model, an `efficientnet_lite0`, that starts from the weights in a safetensors file.

    The last layer is the file's where it has as many outputs as the problem, else it starts anew and is the only part
    that depends on the seed. Statistics start from the file's where the policy keeps any; with "frozen" they stay.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"there is no file {path} with pretrained weights: docs/how-to/deep-models.md says how to get them"
        )
    shapes = jax.eval_shape(lambda key: model.layers(model.init(key)), jax.random.key(0))
    if not isinstance(shapes, dict) or "blocks" not in shapes.get("weights", {}):
        raise ValueError(
            f"{model.name} is no network of inverted residuals: pretrained weights are efficientnet_lite0's"
        )
    weights, statistics = fitted(arrays_in(path), shapes["weights"], str(path))

    def init(key: jax.Array) -> Any:
        fresh = model.layers(model.init(key))
        params = {**fresh, "weights": {**fresh["weights"], **jax.tree.map(jnp.asarray, weights)}}
        kept = {"statistics": jax.tree.map(jnp.asarray, statistics)} if "statistics" in fresh else {}
        return model.pack({**params, **kept})

    return model._replace(init=init)


def arrays_in(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays in a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(str(path))
    except (SafetensorError, OSError, KeyError) as error:  # a type that NumPy has not is a KeyError
        raise ValueError(f"{path} is damaged, or no safetensors file ({error}): fetch or convert it again") from error


def places(blocks: list[Any]) -> Iterator[tuple[tuple[Any, ...], str, str]]:
    """Each convolution in the order of the pass: our place, and the file's names of it and of its normalisation."""
    yield ("stem",), "_conv_stem.", "_bn0."
    for i, block in enumerate(blocks):
        for kind, norm in (("expand", "_bn0."), ("depthwise", "_bn1."), ("project", "_bn2.")):
            if kind in block:
                yield ("blocks", i, kind), f"_blocks.{i}._{kind}_conv.", f"_blocks.{i}.{norm}"
    yield ("last",), "_conv_head.", "_bn1."


def fitted(arrays: Arrays, shapes: Any, source: str) -> tuple[dict[str, Any], list[Any]]:
    """Weights in the structure of ``shapes``, and statistics in the order of the pass; or what differs, in an error.

    The dense layer is left out where the file's has another number of outputs.
    """
    used, problems = set(), []

    def take(name: str, shape: tuple[int, ...]) -> np.ndarray:
        used.add(name)
        found = np.asarray(arrays[name], np.float32) if name in arrays else None
        if found is not None and found.ndim == 4:
            found = found.transpose(2, 3, 1, 0)
            found = found[:, :, 0] if len(shape) == 3 and found.shape[2] == 1 else found
        elif found is not None and found.ndim == 2:
            found = found.T
        if found is None or found.shape != shape:
            problems.append(f"{name} is missing" if found is None else f"{name} has shape {arrays[name].shape}")
            return np.zeros(shape, np.float32)
        if not jnp.issubdtype(arrays[name].dtype, jnp.floating):
            problems.append(f"{name} has numbers of type {arrays[name].dtype}")
        elif not np.isfinite(found).all():
            problems.append(f"{name} has numbers that are NaN or infinite")
        elif name.endswith("running_var") and (found < 0).any():
            problems.append(f"{name} has negative variances")
        return found

    weights: dict[str, Any] = {"blocks": [{} for _ in shapes["blocks"]]}
    statistics = []
    for place, conv, norm in places(shapes["blocks"]):
        wanted, target = shapes, weights
        for part in place[:-1]:
            wanted, target = wanted[part], target[part]
        wanted = wanted[place[-1]]
        channels = wanted["scale"].shape
        target[place[-1]] = {
            "kernel": take(conv + "weight", wanted["kernel"].shape),
            "scale": take(norm + "weight", channels),
            "shift": take(norm + "bias", channels),
        }
        statistics.append(
            {"mean": take(norm + "running_mean", channels), "variance": take(norm + "running_var", channels)}
        )
    dense = {name: shapes["dense"][name].shape for name in ("weight", "bias")}
    if DENSE + "bias" in arrays and arrays[DENSE + "bias"].shape == dense["bias"]:
        weights["dense"] = {name: take(DENSE + name, shape) for name, shape in dense.items()}
    ignored = {DENSE + "weight", DENSE + "bias"} | {name for name in arrays if name.endswith("num_batches_tracked")}
    problems += [f"{name} belongs to no layer" for name in sorted(set(arrays) - used - ignored)]
    if problems:
        raise ValueError(f"{source} does not fit the network: {'; '.join(problems[:4])} ({len(problems)} in all)")
    return weights, statistics
