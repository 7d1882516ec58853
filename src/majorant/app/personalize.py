"""Personal models from files: a trained run, a new client's samples, and what to predict with them."""

from __future__ import annotations

import csv
import itertools
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from majorant._words import some
from majorant.app._samples import read_npz
from majorant.app._text import cell, csv_text
from majorant.app.files import DamagedFile, atomic_write_text
from majorant.app.folders import check_file, slug
from majorant.app.names import nearest
from majorant.app.personal_model import check_model_folder, load_model, save_model
from majorant.app.saved_model import load_deployment
from majorant.app.trees import load_meta
from majorant.app.worth import FOLDS, worth

if TYPE_CHECKING:
    from majorant.data.tabular import Encoding
    from majorant.engines.deployment import PersonalModel


class Samples(NamedTuple):
    """Rows of a file: features, label values where there are some, and the clients whose they are, where it says so."""

    x: np.ndarray
    y: np.ndarray | None
    clients: tuple[str, ...] = ()


def personalize_from_files(
    folder: Path,
    data: Path,
    predict: Path | None = None,
    out: Path | None = None,
    *,
    client: str | None = None,
    save: Path | None = None,
    folds: int = FOLDS,
) -> dict[str, Any]:
    """Fits a new client's model to its own samples, saves it, and scores it out of sample.

    A file with rows of several clients is refused unless ``client`` names one. The model goes to ``save`` (default: a
    folder in ``personal/`` of the run), predictions, if asked for, to a CSV file. ``folds`` is for cross-validation on
    the client's own samples; 0 does without.
    """
    target = None if predict is None else out or folder / f"predictions-{predict.stem}.csv"
    if target is not None and predict is not None:
        check_target(target, folder, [data, predict])
    deployment, encoding = load_deployment(folder)
    x, y, clients = read_samples(data, encoding, labelled=True, client=client)
    assert y is not None
    name = client or (clients[0] if clients else data.name.partition(".")[0])
    place = save or own_place(folder / "personal", name)
    check_place(place, folder)
    asked = None if predict is None else read_samples(predict, encoding, labelled=False).x
    model = deployment.personalize(x, y)
    if asked is not None:
        asked = model.checked(asked)  # before anything is written
    model = model._replace(origin=dict(model.origin) | {"client": name, "samples": len(x)})
    save_model(model, place)
    weights = model.mixture_weights
    result: dict[str, Any] = {
        "client": name,
        "samples": len(x),
        "took_part": took_part(folder, name) if clients else None,
        "mixture_weights": None if weights is None else [round(float(w), 4) for w in weights],
        "fit": fit_in_words(model, x, y) if len(x) else None,
        "out_of_sample": worth(deployment, x, y, folds) if folds else None,
        "model": str(place),
        "predictions": None,
    }
    if target is not None and asked is not None:
        write_predictions(model, asked, target)
        result["predictions"] = str(target)
    return result


def took_part(folder: Path, name: str) -> bool | None:
    """Whether a run trained on a client of this name; None where the run does not say who trained."""
    path = folder / "clients.csv"
    if not path.is_file():
        return None
    lines = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return any(line.get("name") == cell(name) and line.get("unseen") == "0" for line in lines)


def predict_from_files(folder: Path, data: Path, out: Path | None) -> dict[str, Any]:
    """Predictions of a saved personal model, or of what a run gives to a client without samples, as a CSV file."""
    model = load_model(folder)
    target = out or data.with_name(f"predictions-{data.name.partition('.')[0]}.csv")
    check_target(target, folder, [data])
    samples = read_samples(data, model.encoding, labelled=False)
    write_predictions(model, samples.x, target)
    own = model.origin.get("client")
    others = [name for name in samples.clients if name != own] if own else []
    return {"client": own, "samples": len(samples.x), "predictions": str(target), "rows_of_others": others}


def fit_in_words(model: PersonalModel, x: np.ndarray, y: np.ndarray) -> str:
    """How well a model fits the samples that it was made from."""
    if model.algorithm.deployment.losses is not None:
        return f"objective {-model.score(x):.6g} on these samples"
    if model.classes:
        return f"accuracy {np.mean(model.predict(x) == y):.3f} on these samples"
    return f"RMSE {np.sqrt(np.mean((model.predict(x) - y) ** 2)):.4g} on these samples"


def own_place(personal: Path, name: str) -> Path:
    """Where a client's model goes: names that differ in odd letters alone have different folders."""
    numbered = (slug(name) if n == 1 else f"{slug(name)}-{n}" for n in itertools.count(1))
    return next(place for place in map(personal.joinpath, numbered) if client_of(place) in (None, name))


def client_of(place: Path) -> str | None:
    """The client whose model is in a folder; None where there is no such model."""
    try:
        return load_meta(place).get("client")
    except (DamagedFile, OSError):
        return None


def check_place(place: Path, folder: Path) -> None:
    """A model goes to a new folder or over an older personal model: not among the run's own files."""
    real, run = Path(os.path.realpath(place)), folder.resolve()
    if real == run or (run in real.parents and run / "personal" not in real.parents):
        raise ValueError(f"{place} would be among the run's own files: choose another --save")
    check_model_folder(place)


def check_target(target: Path, folder: Path, inputs: list[Path]) -> None:
    """Predictions go to a new file, or over older predictions: not over what they are made from, nor over a run."""
    for path in inputs:
        if path.exists() and target.exists() and os.path.samefile(path, target):
            raise ValueError(f"predictions would overwrite their own input {path}: choose another --out")
    inside = folder.resolve() in Path(os.path.realpath(target.parent), target.name).parents
    if inside and not (target.parent.resolve() == folder.resolve() and target.name.startswith("predictions-")):
        raise ValueError(f"{target} would be among the run's own files: choose another --out")
    check_file(target, b"prediction", "a file of predictions")


def read_samples(path: Path, encoding: Encoding | None, *, labelled: bool, client: str | None = None) -> Samples:
    """Samples from a table (encoded as at training) or an ``.npz`` file with ``x`` and ``y``.

    Labelled samples are one client's: of a table that names several, ``client`` must say whose.
    """
    if path.suffix.lower() == ".npz":
        if client is not None:
            raise ValueError("an .npz file holds the samples of one client: leave --client out")
        arrays = read_npz(path, ["x", "y"] if labelled else ["x"])
        return Samples(arrays["x"], arrays.get("y"))
    if encoding is None:
        raise ValueError("this run was not trained on a table: give new samples as an .npz file with arrays x and y")
    from majorant.data.tabular.problems import tell
    from majorant.data.tabular.reading import read_source
    from majorant.data.tabular.table import encode_rows, names_in, names_there

    table = read_source(path)
    encoded = encode_rows(table, encoding, require_labels=labelled)
    tell(table.where, encoded.notes)
    column = encoding.client_column
    if column is None or column not in table.names or not len(encoded.rows):
        if client is not None:
            raise ValueError(f"{path} does not say whose its rows are: leave --client out")
        return Samples(encoded.x, encoded.y)
    if not labelled:  # whose they are need not be known
        return Samples(encoded.x, encoded.y, names_there(table, column))
    owners = names_in(table, column, "client")[encoded.rows]
    clients = tuple(dict.fromkeys(owners.tolist()))
    if client is None and len(clients) > 1:
        raise ValueError(
            f"{path} has rows of several clients ({some(clients, show=str)}), and a personal model belongs to one: "
            f"name it, as in --client {shlex.quote(clients[0])}"
        )
    if client is not None and client not in clients:
        raise ValueError(f"{path} has no rows of client {client!r}{nearest(client, clients)}")
    mine = owners == (client or clients[0])
    return Samples(encoded.x[mine], None if encoded.y is None else encoded.y[mine], (client or clients[0],))


def write_predictions(model: PersonalModel, x: np.ndarray, target: Path) -> None:
    """A line per sample: the prediction and, for classification, the probability of each class."""
    if model.classes:
        probabilities = model.predict_proba(x)
        predicted = np.asarray(model.classes)[probabilities.argmax(axis=1)]
        shares = [[f"{p:.6g}" for p in row] for row in probabilities]
    else:
        predicted = model.predict(x)
        shares = [[]] * len(x)
    head = ["prediction", *(f"p_{c}" for c in model.classes)]
    if predicted.ndim == 2:  # what a method without labels says of a row: shares of components, codes, factors
        head = [f"prediction_{k}" for k in range(predicted.shape[1])]
        predicted, shares = predicted[:, 0], predicted[:, 1:].tolist()
    rows = ([value, *row] for value, row in zip(predicted.tolist(), shares, strict=True))
    atomic_write_text(target, csv_text([head, *rows]))
