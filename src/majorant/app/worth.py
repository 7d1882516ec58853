"""What a personal model is worth to a new client: out of sample, beside training alone and the shared model.

The client's samples are dealt into folds. For each fold a model is fitted to the others and predicts this one, so that
every sample is predicted by models that have not seen it. Training alone runs the method ``local`` with the run's own
settings, all folds side by side in one program. The shared model is what a client without samples is given.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import numpy as np

from majorant.app.build import build_algorithm, in_precision
from majorant.app.config import make_config
from majorant.app.personal_model import shared_model
from majorant.data.federated import FederatedData, Ragged
from majorant.data.labels import label_codes
from majorant.engines.options import Evaluation
from majorant.engines.simulator import simulate
from majorant.metrics.classification import auc

if TYPE_CHECKING:
    from majorant.engines.deployment import PersonalModel, Trained

FOLDS = 5


def worth(trained: Trained, x: np.ndarray, y: np.ndarray, folds: int = FOLDS) -> dict[str, Any] | None:
    """Scores of the four models on samples that they have not seen; None for fewer than two samples, or without labels.

    ``gain`` is that over training alone, with its standard error over samples. Classes also have the ``auc`` of the
    three that give probabilities, where it is defined: accuracy tells little where one class is rare.
    """
    if len(x) < 2 or trained.federation.algorithm.deployment.losses is not None:
        return None
    x = trained.checked(x)
    codes = label_codes(y, trained.classes, trained.target_scale)
    fold = dealt(codes, min(folds, len(x)))
    parts = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(fold.max() + 1)]
    kind = np.asarray(trained.classes).dtype if trained.classes else np.float64  # `y` may be short words, or counts
    predicted = {name: np.empty(len(y), kind) for name in ("personal", "alone", "shared", "trivial")}
    chances = {name: np.empty((len(x), len(trained.classes))) for name in ("personal", "alone", "shared")}
    shared = shared_model(trained)
    for (rest, own), single in zip(parts, alone(trained, x, y, parts), strict=True):
        personal = trained.personalize(x[rest], y[rest], room=len(x))
        for name, model in (("personal", personal), ("alone", single), ("shared", shared)):
            predicted[name][own] = model.predict(x[own])
            if trained.classes:
                chances[name][own] = model.predict_proba(x[own])
        predicted["trivial"][own] = trivial(y[rest], bool(trained.classes))
    errors = {name: errors_of(values, y, bool(trained.classes)) for name, values in predicted.items()}
    metric = "accuracy" if trained.classes else "rmse"
    found: dict[str, Any] = {"metric": metric, "folds": len(parts), "samples": len(x)}
    if trained.classes:
        areas = {name: auc(codes, p) for name, p in chances.items()}
        found["auc"] = None if np.isnan(list(areas.values())).any() else areas
    return found | compared(errors, classes=bool(trained.classes))


def dealt(codes: np.ndarray, folds: int) -> np.ndarray:
    """A fold for every sample: at random, each with about the same labels.

    >>> sorted(dealt(np.array([0, 0, 1, 1]), 2)[:2].tolist())
    [0, 1]
    """
    order = np.random.default_rng(0).permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    fold = np.empty(len(codes), int)
    fold[order] = np.arange(len(codes)) % folds
    return fold


def trivial(y: np.ndarray, classes: bool) -> Any:
    """The most frequent label, or the mean target."""
    if not classes:
        return y.mean()
    values, counts = np.unique(y, return_counts=True)
    return values[counts.argmax()]


def alone(
    trained: Trained, x: np.ndarray, y: np.ndarray, parts: list[tuple[np.ndarray, np.ndarray]]
) -> list[PersonalModel]:
    """A model for each fold that the client trains without anybody, by the run's own settings; folds are clients."""
    settings = {"algorithm": "local", "objective": None, "topology": None, "channel": (), "participation": "full"}
    config = make_config(tomllib.loads(trained.origin["config"])).model_copy(update=settings)
    codes = label_codes(y, trained.classes, trained.target_scale)

    def ragged(rows: list[np.ndarray]) -> Ragged:
        flat = np.concatenate(rows)
        return Ragged(x[flat], codes[flat], np.cumsum([0, *map(len, rows)]))

    rests, owns = [rest for rest, _ in parts], [own for _, own in parts]
    names, seen = tuple(map(str, range(len(parts)))), np.zeros(len(parts), bool)
    nothing = ragged([np.arange(0)] * len(parts))
    data = FederatedData(
        ragged(rests), nothing, ragged(owns), seen, names, trained.classes, target_scale=trained.target_scale
    )
    with config.arithmetic():
        data = in_precision(data, config.precision)
        _, algorithm = build_algorithm(config, data, data)
        evaluation = Evaluation(every=config.rounds)
        run = simulate(algorithm, data, rounds=config.rounds, seed=config.seed, evaluation=evaluation)
    return [run.model(k) for k in range(len(parts))]


def errors_of(predicted: np.ndarray, y: np.ndarray, classes: bool) -> np.ndarray:
    """Of each sample: whether it is predicted wrongly, or the squared error."""
    return (predicted != y).astype(float) if classes else (predicted - y) ** 2


def compared(errors: dict[str, np.ndarray], *, classes: bool) -> dict[str, Any]:
    """Scores, and the gain over training alone with its standard error (for RMSE by the delta method).

    >>> compared({"personal": np.array([0, 0, 0, 1.0]), "alone": np.array([0, 1, 0, 1.0])}, classes=True)
    {'personal': 0.75, 'alone': 0.5, 'gain': 0.25, 'standard_error': 0.25}
    """
    score = lambda error: float(1 - error.mean()) if classes else float(np.sqrt(error.mean()))
    found = {name: score(error) for name, error in errors.items()}
    gain = found["personal"] - found["alone"] if classes else found["alone"] - found["personal"]
    slope = {name: 1.0 if classes else 0.5 / max(score(errors[name]), 1e-30) for name in ("alone", "personal")}
    change = slope["alone"] * errors["alone"] - slope["personal"] * errors["personal"]
    return found | {"gain": gain, "standard_error": float(change.std(ddof=1) / np.sqrt(len(change)))}
