"""Five agents with images, and what is seen of a weighted sum along its rounds: for the multi-objective experiments.

Agents draw their samples from the 60,000 published training images and models are tested on the 10,000 published test
images. "i.i.d." deals all classes out at random; in "two-digits" agent i sees the digits of ``PAIRS[i]`` only. The
paper's text has 8,000 training and 2,000 validation images an agent; the authors' notebooks have 9,600 and 2,400 in the
i.i.d. case, as the last digits of Tables 2 and 3 confirm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import majorant as mj
from majorant.core import Algorithm, Tree, blockwise
from majorant.data.federated import FederatedData, Ragged, offsets_of
from majorant.engines.run import Run
from majorant.models.base import Model

AGENTS, PUBLISHED = 5, 60_000
PAIRS = ((2, 8), (4, 9), (1, 6), (3, 7), (0, 5))
LOADERS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "MNIST": lambda: mj.data.load_mnist(),
    "Fashion-MNIST": lambda: mj.data.load_fashion_mnist(),
}


class Agents(NamedTuple):
    """What agents train on, and what their models are judged by."""

    data: FederatedData  # training samples alone
    validation: tuple[np.ndarray, np.ndarray]  # (agents, n, ...), (agents, n)
    test: tuple[np.ndarray, np.ndarray]  # (n, ...), (n,)


def agents(
    images: tuple[np.ndarray, np.ndarray],
    split: str,
    *,
    train: int,
    validation: int,
    published: int = PUBLISHED,
    test: int | None = None,
    seed: int = 0,
) -> Agents:
    """Five agents with so many samples each; the first ``published`` images are those to train on.

    >>> x, y = np.zeros((400, 2, 2, 1), np.uint8), np.arange(400) % 10
    >>> made = agents((x, y), "two-digits", train=30, validation=10, published=300)
    >>> made.data.train.sizes.tolist(), sorted(set(made.validation[1][0].tolist())), len(made.test[1])
    ([30, 30, 30, 30, 30], [2, 8], 100)
    """
    x, y = images
    rng, labels, wanted = np.random.default_rng([seed, 0x3A]), y[:published], train + validation
    if split == "iid":
        order = rng.permutation(published)
        pools = [order[i * wanted : (i + 1) * wanted] for i in range(AGENTS)]
    elif split == "two-digits":
        pools = [rng.permutation(np.flatnonzero(np.isin(labels, pair)))[:wanted] for pair in PAIRS]
    else:
        raise ValueError(f"split must be 'iid' or 'two-digits', got {split!r}")
    fewest = min(len(pool) for pool in pools)
    if fewest < wanted:
        raise ValueError(f"each agent needs {wanted} images of its own, but one has {fewest}: ask for fewer")
    rows, held = np.concatenate([pool[:train] for pool in pools]), np.stack([pool[train:] for pool in pools])
    empty = Ragged(x[:0], y[:0].astype(np.int32), np.zeros(AGENTS + 1, np.int64))
    own = Ragged(x[rows], y[rows].astype(np.int32), offsets_of(np.full(AGENTS, train)))
    classes = tuple(range(int(y.max()) + 1))
    names = tuple(f"agent {i + 1}" for i in range(AGENTS))
    data = FederatedData(own, empty, empty, np.zeros(AGENTS, bool), names, classes, split)
    last = published + test if test is not None else len(y)
    return Agents(data, (x[held], y[held]), (x[published:last], y[published:last]))


class Path(NamedTuple):
    """Confusion matrices (truth, answer) at some rounds, for every λ and seed; models and rejected updates at the end.

    An update that is infinite or NaN is rejected: a run all of whose updates are stays where it is.
    """

    rounds: np.ndarray  # (points,)
    validation: np.ndarray  # (points, λ, seeds, agents, classes, classes)
    test: np.ndarray  # (points, λ, seeds, classes, classes)
    norm: np.ndarray  # (λ, seeds) of the parameters
    rejected: np.ndarray  # (λ, seeds) share of all updates


def follow(
    algorithm: Algorithm,
    model: Model,
    agents: Agents,
    *,
    lambdas: Sequence[float],
    seeds: Sequence[int],
    rounds: int,
    every: int,
    hyper: dict[str, float] | None = None,
) -> Path:
    """Runs all λ and seeds in one program, with a look after round 1 and every few rounds."""
    looks: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    confusions = answers_of(model, agents)
    options: dict[str, Any] = {
        "rounds": rounds,
        "grid": {"lambda": list(lambdas)},
        "hyper": hyper,
        "seeds": list(seeds),
        "on_evaluation": lambda records, snapshot: looks.update(
            {records[0]["round"]: confusions(snapshot().server.value)}
        ),
    }
    first = mj.simulate(algorithm, agents.data, evaluation=mj.Evaluation(every=1, until="round >= 1"), **options)
    run = mj.simulate(algorithm, agents.data, evaluation=mj.Evaluation(every=every), resume=first.snapshot, **options)
    shape = (len(lambdas), len(seeds))
    together = lambda which: np.stack([look[which].reshape(*shape, *look[which].shape[1:]) for look in looks.values()])
    refused = np.array([sum(line["rejected"] for line in lines) for lines in run.histories])
    return Path(
        np.array(list(looks)),
        together(0),
        together(1),
        norms(run).reshape(shape),
        refused.reshape(shape) / (rounds * AGENTS),
    )


def norms(run: Run) -> np.ndarray:
    """The norm of every run's parameters."""
    leaves = jax.tree.leaves(run.snapshot.server.value)
    return np.sqrt(sum((np.asarray(leaf, np.float64) ** 2).reshape(len(leaf), -1).sum(axis=1) for leaf in leaves))


def answers_of(model: Model, agents: Agents) -> Callable[[Tree], tuple[np.ndarray, np.ndarray]]:
    """A function from models side by side to their confusion matrices: on every agent's validation, and on the test."""
    classes, (held, held_y), (test, test_y) = len(agents.data.classes), agents.validation, agents.test
    x = jnp.asarray(np.concatenate([held.reshape(-1, *held.shape[2:]), test]))
    spots = np.concatenate([np.repeat(np.arange(AGENTS), held_y.shape[1]), np.full(len(test_y), AGENTS)])
    cells = jnp.asarray(spots * classes + np.concatenate([held_y.ravel(), test_y]))

    @jax.jit
    def count(params: Tree, x: jax.Array, cells: jax.Array) -> jax.Array:
        def one(params: Tree) -> jax.Array:
            said = blockwise(lambda x: model.predict(params, x).argmax(axis=1), x)
            return jnp.zeros((AGENTS + 1) * classes**2, jnp.int32).at[cells * classes + said].add(1)

        return jax.lax.map(one, params)

    def confusions(params: Tree) -> tuple[np.ndarray, np.ndarray]:
        found = np.asarray(count(params, x, cells)).reshape(-1, AGENTS + 1, classes, classes)
        return found[:, :AGENTS], found[:, AGENTS]

    return confusions


def accuracy(confusion: np.ndarray) -> np.ndarray:
    """The share of right answers, from confusion matrices ``(..., truth, answer)``.

    >>> float(accuracy(np.array([[3, 1], [0, 4]])))
    0.875
    """
    return np.trace(confusion, axis1=-2, axis2=-1) / confusion.sum(axis=(-2, -1))


def macro_f1(confusion: np.ndarray) -> np.ndarray:
    """The mean F1 score over the labels that are present in truth or answers.

    >>> float(macro_f1(np.array([[0, 0, 0], [0, 479, 0], [0, 521, 0]])).round(4))  # Table 6, agent 1 in round 1
    0.3239
    """
    right = np.diagonal(confusion, axis1=-2, axis2=-1)
    either = confusion.sum(axis=-1) + confusion.sum(axis=-2)
    score = 2 * right / np.maximum(either, 1)
    return score.sum(axis=-1) / np.maximum((either > 0).sum(axis=-1), 1)
