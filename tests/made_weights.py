"""Files of pretrained weights that are made up: PyTorch's names and layout, for networks of any width."""

from __future__ import annotations

from typing import Any

import numpy as np

from majorant.models.pretrained import places


def made_file(shapes: Any, classes: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random arrays for a network of inverted residuals whose weights have these shapes."""
    found = {}
    for place, conv, norm in places(shapes["blocks"]):
        layer = shapes
        for part in place:
            layer = layer[part]
        kernel = layer["kernel"].shape
        turned = (kernel[3], kernel[2], *kernel[:2]) if len(kernel) == 4 else (kernel[2], 1, *kernel[:2])
        found[conv + "weight"] = rng.normal(size=turned) / np.sqrt(np.prod(turned[1:]))
        for name in ("weight", "bias", "running_mean"):
            found[norm + name] = rng.normal(1.0, 0.1, layer["scale"].shape)
        found[norm + "running_var"] = rng.uniform(0.5, 2.0, layer["scale"].shape)
    width = shapes["dense"]["weight"].shape[0]
    found["_fc.weight"], found["_fc.bias"] = rng.normal(size=(classes, width)) / 4, rng.normal(size=classes)
    return {name: array.astype(np.float32) for name, array in found.items()}
