"""A personal model as a file for other programs; the file's suffix says of which kind.

Features have the names that the encoding of the table gives them. In coefficients and ONNX, numbers and parts of dates
are in original units; StableHLO takes features as training sees them (`majorant.data.encode_table`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from majorant._extras import require
from majorant.app.files import atomic_write_bytes, atomic_write_text, strict_json
from majorant.app.folders import what_is
from majorant.core.compilation import staged
from majorant.engines.deployment import PersonalModel, precision_of

KINDS = {
    ".json": "coefficients of a linear model",
    ".onnx": "ONNX",
    ".stablehlo": "StableHLO, as jax.export serializes it",
}


def check_suffix(path: str | Path) -> str:
    """The kind of file that a suffix stands for; the file must not be there yet."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in KINDS:
        kinds = ", ".join(f"{end} ({what})" for end, what in KINDS.items())
        raise ValueError(f"a model is exported to a file that ends with one of {kinds}, got {path.name!r}")
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} is not written: {what_is(path)}, and exports go to new files")
    return suffix


def export_model(model: PersonalModel, path: str | Path) -> dict[str, Any]:
    """Writes a model for other programs, and says what was written.

    ``.json``: the coefficients of a linear model, by the names of the features. ``.onnx`` and ``.stablehlo``: any model
    of JAX functions; they need the extra ``majorant[export]``.
    """
    suffix = check_suffix(path)
    if suffix == ".json":
        from majorant.app.export.coefficients import coefficients

        atomic_write_text(path, strict_json(coefficients(model), indent=1) + "\n")
    elif suffix == ".onnx":
        from majorant.app.export.onnx_model import onnx_model

        atomic_write_bytes(path, onnx_model(model))
    else:
        atomic_write_bytes(path, stablehlo(model))
    return {"what": KINDS[suffix], "path": str(path), "classes": list(model.classes), "method": model.algorithm.name}


def outputs(model: PersonalModel, x: jax.Array) -> jax.Array:
    """Probabilities, or predicted values in original units."""
    found = model.algorithm.deployment.predict(model.model, x)
    scale = model.target_scale
    return found if scale is None else found * scale.scale + scale.mean


def stablehlo(model: PersonalModel) -> bytes:
    """The program for any number of samples, for CPUs and GPUs; ``jax.export.deserialize`` reads it."""
    from jax import export

    require("flatbuffers", "export", "StableHLO files need flatbuffers")
    with precision_of(model.model):
        (n,) = export.symbolic_shape("n")
        samples = jax.ShapeDtypeStruct((n, *model.features), jnp.result_type(float))
        program = export.export(staged(lambda x: outputs(model, x)), platforms=("cpu", "cuda"))(samples)
    return bytes(program.serialize())
