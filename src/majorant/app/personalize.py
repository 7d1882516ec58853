"""Personal models from files: a trained run, a new client's samples, and what to predict with them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from majorant.app.execute import load_deployment
from majorant.app.storage import atomic_write_text
from majorant.data.labels import label_values

if TYPE_CHECKING:
    from majorant.data.tabular import Encoding


def personalize_from_files(folder: Path, data: Path, predict: Path | None, out: Path | None) -> dict[str, Any]:
    """Fits a new client's model to its own samples; predictions, if asked for, go to a CSV file."""
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
    if predict is not None:
        points, _ = read_samples(predict, encoding, labelled=False)
        target = out or folder / f"predictions-{predict.stem}.csv"
        probabilities = model.predict_proba(points) if deployment.classes else None
        atomic_write_text(target, predictions_csv(model.predict(points), probabilities, deployment.classes))
        result["predictions"] = str(target)
    return result


def read_samples(path: Path, encoding: Encoding | None, *, labelled: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Features and label values from a table (encoded as at training) or an ``.npz`` file with ``x`` and ``y``."""
    if path.suffix.lower() == ".npz":
        try:
            with np.load(path, allow_pickle=False) as arrays:
                if "x" not in arrays or (labelled and "y" not in arrays):
                    raise ValueError(f"{path} must hold arrays x{' and y' if labelled else ''}; it has {list(arrays)}")
                return arrays["x"], arrays.get("y")
        except (OSError, EOFError) as error:
            if isinstance(error, FileNotFoundError):
                raise ValueError(f"there is no file {path}") from None
            raise ValueError(f"{path} is not a readable .npz file: {error}") from None
    if encoding is None:
        raise ValueError("this run was not trained on a table: give new samples as an .npz file with arrays x and y")
    from majorant.data import encode_table

    x, codes = encode_table(path, encoding, require_labels=labelled)
    return x, None if codes is None else label_values(codes, encoding.classes, encoding.target_scale)


def predictions_csv(predicted: np.ndarray, probabilities: np.ndarray | None, classes: tuple[Any, ...]) -> str:
    """A line per sample: the prediction and, for classification, the probability of each class."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["prediction", *(f"p_{c}" for c in classes)])
    for row, value in enumerate(predicted.tolist()):
        writer.writerow([value, *([] if probabilities is None else [f"{p:.6g}" for p in probabilities[row]])])
    return text.getvalue()
