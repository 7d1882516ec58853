"""Scores of personalized models, each on its own client's samples, and what they say about all clients together."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import Algorithm, ClientData, masked_mean

METRICS = {"accuracy": True, "rmse": False, "objective": False}  # name: whether larger is better


def metric_name(algorithm: Algorithm, classes: int) -> str:
    """What is reported: accuracy for classification, root mean squared error for regression, else the objective."""
    return "objective" if algorithm.deployment.losses is not None else "accuracy" if classes else "rmse"


def sample_scores(prediction: jax.Array, y: jax.Array, classes: int) -> jax.Array:
    """Each sample's loss and score, ``(n, 2)``: −log p(y) and whether it is right, or half the squared error, twice."""
    if classes:
        probability = jnp.take_along_axis(prediction, y[:, None], axis=1)[:, 0]
        loss = -jnp.log(jnp.maximum(probability, 1e-12))
        right = (prediction.argmax(axis=1) == y).astype(loss.dtype)
        known = jnp.where(jnp.isnan(loss), jnp.nan, right)  # the largest of NaNs is no prediction
        return jnp.stack([loss, known], axis=1)
    half = (prediction - y) ** 2 / 2
    return jnp.stack([half, half], axis=1)


def client_scores(samples: jax.Array, data: ClientData, classes: int) -> tuple[jax.Array, jax.Array]:
    """Mean loss and score of a client, from those of its samples: accuracy, or the root of the mean squared error."""
    loss, score = masked_mean(samples, data)
    return loss, score if classes else jnp.sqrt(2 * score)


def bottom_decile(scores: np.ndarray, *, larger_is_better: bool = True) -> float:
    """The (T/10)-th worst of T clients' scores, not interpolated, as in the FedEM paper.

    >>> bottom_decile(np.arange(300) / 300) == 29 / 300
    True
    """
    if len(scores) == 0:
        return float("nan")
    ordered = np.sort(scores if larger_is_better else -scores)
    worst = float(ordered[max(1, len(scores) // 10) - 1])
    return worst if larger_is_better else -worst


def across_clients(scores: np.ndarray, samples: np.ndarray, metric: str) -> dict[str, float]:
    """Mean weighted by samples, bottom decile and standard deviation over the clients that have samples."""
    scores, samples = scores[samples > 0], samples[samples > 0]
    if len(scores) == 0:
        return {"mean": float("nan"), "bottom_decile": float("nan"), "std": float("nan")}
    with np.errstate(all="ignore"):  # a diverging model's scores may be infinite, and then so is what is made of them
        power = 2 if metric == "rmse" else 1
        mean = float(np.average(scores.astype(np.float64) ** power, weights=samples) ** (1 / power))
        spread = float(np.std(scores, dtype=np.float64))
    return {"mean": mean, "bottom_decile": bottom_decile(scores, larger_is_better=METRICS[metric]), "std": spread}
