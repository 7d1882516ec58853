"""Personal models from files: a trained run, a new client's samples, and what to predict with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from majorant.app._samples import read_npz
from majorant.app._text import csv_text
from majorant.app.files import atomic_write_text
from majorant.app.folders import check_file
from majorant.app.saved_model import load_deployment

if TYPE_CHECKING:
    from majorant.data.tabular import Encoding


def personalize_from_files(folder: Path, data: Path, predict: Path | None, out: Path | None) -> dict[str, Any]:
    """Fits a new client's model to its own samples; predictions, if asked for, go to a CSV file."""
    target = None if predict is None else out or folder / f"predictions-{predict.stem}.csv"
    if target is not None and predict is not None:
        check_target(target, folder, [data, predict])
    deployment, encoding = load_deployment(folder)
    x, y = read_samples(data, encoding, labelled=True)
    assert y is not None
    model = deployment.personalize(x, y)
    weights = model.mixture_weights
    result: dict[str, Any] = {
        "samples": len(x),
        "mixture_weights": None if weights is None else [round(float(w), 4) for w in weights],
        "fit": None,
        "predictions": None,
    }
    if len(x):
        if deployment.classes:
            result["fit"] = f"accuracy {np.mean(model.predict(x) == y):.3f} on these samples"
        else:
            result["fit"] = f"RMSE {np.sqrt(np.mean((model.predict(x) - y) ** 2)):.4g} on these samples"
    if target is not None and predict is not None:
        points, _ = read_samples(predict, encoding, labelled=False)
        probabilities = model.predict_proba(points) if deployment.classes else None
        atomic_write_text(target, predictions_csv(model.predict(points), probabilities, deployment.classes))
        result["predictions"] = str(target)
    return result


def check_target(target: Path, folder: Path, inputs: list[Path]) -> None:
    """Predictions go to a new file, or over older predictions: not over what they are made from, nor over a run."""
    for path in inputs:
        if path.exists() and target.exists() and os.path.samefile(path, target):
            raise ValueError(f"predictions would overwrite their own input {path}: choose another --out")
    inside = folder.resolve() in Path(os.path.realpath(target.parent), target.name).parents
    if inside and not (target.parent.resolve() == folder.resolve() and target.name.startswith("predictions-")):
        raise ValueError(f"{target} would be among the run's own files: choose another --out")
    check_file(target, b"prediction", "a file of predictions")


def read_samples(path: Path, encoding: Encoding | None, *, labelled: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Features and label values from a table (encoded as at training) or an ``.npz`` file with ``x`` and ``y``."""
    if path.suffix.lower() == ".npz":
        arrays = read_npz(path, ["x", "y"] if labelled else ["x"])
        return arrays["x"], arrays.get("y")
    if encoding is None:
        raise ValueError("this run was not trained on a table: give new samples as an .npz file with arrays x and y")
    from majorant.data import encode_table

    return encode_table(path, encoding, require_labels=labelled)


def predictions_csv(predicted: np.ndarray, probabilities: np.ndarray | None, classes: tuple[Any, ...]) -> str:
    """A line per sample: the prediction and, for classification, the probability of each class."""
    head = ["prediction", *(f"p_{c}" for c in classes)]
    shares = [[]] * len(predicted) if probabilities is None else [[f"{p:.6g}" for p in row] for row in probabilities]
    return csv_text([head, *([value, *row] for value, row in zip(predicted.tolist(), shares, strict=True))])
