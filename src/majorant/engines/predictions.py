"""What the clients' own models predict for each of their samples, at the end of a run."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from majorant.core import ClientData, Key, Server, Tree, blockwise
from majorant.data.federated import FederatedData, Ragged
from majorant.engines import evaluation
from majorant.engines.deployment import default_float, precision_of
from majorant.engines.embedding import embedded
from majorant.engines.memory import default_budget, most_side_by_side, runs_one_at_a_time
from majorant.engines.population import stack
from majorant.engines.programs import Program
from majorant.engines.run import Run
from majorant.exchange.federation import Federation

READ_AT_ONCE = 1 << 25  # bytes of training samples
Predicted = dict[str, np.ndarray]  # of a part: (samples, classes) probabilities, or (samples,) in original units


def predictions(run: Run, parts: tuple[str, ...] = ("validation", "test")) -> list[Predicted]:
    """For each run and part, the predictions for the samples of all clients that trained, client after client.

    Rows go with ``run.data_sets[i].test`` and the like; those of unseen clients are NaN. Parts without samples are left
    out.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=4, dimension=3, seed=0)
    >>> run = mj.simulate(mj.local(mj.models.linear(data)), data, rounds=2)
    >>> predictions(run)[0]["test"].shape == (len(data.test.y), 2)
    True
    """
    if run.algorithm.deployment.losses is not None:
        raise ValueError(f"{run.federation.name} has losses of its own, and predicts no labels")
    with precision_of(run.server):
        return [of_one_run(run, number, parts) for number in range(len(run))]


def of_one_run(run: Run, number: int, parts: tuple[str, ...]) -> Predicted:
    """The predictions of one of a run's runs."""
    federation = run.federation
    data = embedded(run.data_sets[number], federation.algorithm.deployment.model)
    parts = tuple(part for part in parts if len(getattr(data, part).y))
    pick = lambda tree: jax.tree.map(lambda a: a[number], tree)
    server, states = pick(run.snapshot.server), pick(run.snapshot.clients)
    key = jax.random.key(run.settings[number]["seed"])
    trained = np.flatnonzero(~data.unseen)
    longest = {part: max(1, int(getattr(data, part).sizes[trained].max())) for part in ("train", *parts)}
    budget = default_budget()
    chunk = min(len(trained), most_side_by_side(federation.algorithm, data, budget, 1))
    if runs_one_at_a_time(federation.algorithm, "auto"):
        chunk = 1
    else:
        sample = int(np.prod(data.train.x.shape[1:])) * data.train.x.itemsize
        most = min(READ_AT_ONCE, budget // 8)  # samples are read once or twice: more than a cache may hold
        chunk = int(np.clip(most // max(1, sample * longest["train"]), 1, chunk))
    chunk = -(-len(trained) // -(-len(trained) // chunk))  # even chunks, fewer fillers
    found = {part: empty_like(data, part) for part in parts}
    one = jax.tree.map(lambda a: a[0], states)
    read = parts if ignores_samples(federation, server, key, one, data, longest["train"]) else ("train", *parts)
    for begin in range(0, len(trained), chunk):
        places = np.resize(np.arange(begin, min(begin + chunk, len(trained))), chunk)  # the last chunk repeats some
        ids = trained[places]
        mine = jax.tree.map(lambda a, places=places: a[places], states)
        samples = {part: on_device(stack(getattr(data, part), ids, longest[part])) for part in read}
        train = samples.pop("train") if "train" in read else unread(data.train, ids, longest["train"])
        program = predicting(federation, parts)
        outputs = jax.tree.map(np.asarray, program({"compile": 0.0}, server, key, mine, train, samples))
        for part in parts:
            fill(found[part], getattr(data, part), ids, outputs[part])
    scale = data.target_scale
    return {part: scale.original(p) if scale is not None else p.astype(np.float64) for part, p in found.items()}


def ignores_samples(
    federation: Federation, server: Server, key: Key, state: Tree, data: FederatedData, length: int
) -> bool:
    """Whether a client's model is made without its training samples: most methods tune nothing between two rounds."""

    def deployed(x: jax.Array, y: jax.Array, client: ClientData, server: Server, key: Key, state: Tree) -> Tree:
        view, own = evaluation.released_view(federation, server, key)
        return evaluation.deployed_model(federation, view, own, state, client._replace(x=x, y=y), unseen=False)

    one = jax.tree.map(lambda a: a[0], unread(data.train, np.zeros(1, int), length))
    jaxpr = jax.make_jaxpr(deployed)(one.x, one.y, one, server, key, state).jaxpr
    looked_at = [*jaxpr.outvars, *(var for equation in jaxpr.eqns for var in equation.invars)]
    return not any(var is own for var in looked_at for own in jaxpr.invars[:2])


def unread(part: Ragged, ids: np.ndarray, length: int) -> ClientData:
    """What has the shape of some clients' samples, for a program that drops them: one zero, seen many times."""
    zeros = lambda array: np.broadcast_to(np.zeros((), array.dtype), (len(ids), length, *array.shape[1:]))
    whole: Any = (part.sizes[ids].astype(np.int32), ids.astype(np.int32), ids.astype(np.int32))  # as `stack` has them
    return ClientData(zeros(part.x), zeros(part.y), *whole)  # type: ignore[arg-type]


def empty_like(data: FederatedData, part: str) -> np.ndarray:
    """Room for the predictions of a part."""
    count = len(getattr(data, part).y)
    return np.full((count, len(data.classes)) if data.classes else count, np.nan, np.float32)


def on_device(samples: ClientData) -> ClientData:
    """Samples in the precision that is switched on."""
    return samples._replace(x=default_float(np.asarray(samples.x)), y=default_float(np.asarray(samples.y)))


def fill(found: np.ndarray, part: Ragged, ids: np.ndarray, outputs: np.ndarray) -> None:
    """Puts the padded predictions of some clients where their samples are."""
    for each, client in zip(outputs, ids, strict=True):
        begin, end = part.offsets[client], part.offsets[client + 1]
        found[begin:end] = each[: end - begin].reshape(found[begin:end].shape)


@functools.lru_cache(maxsize=32)
def predicting(federation: Federation, parts: tuple[str, ...]) -> Program:
    """The program that predicts for a chunk of clients."""

    def predict(server: Server, run_key: Key, states: Tree, train: ClientData, samples: dict[str, ClientData]) -> Any:
        view, key = evaluation.released_view(federation, server, run_key)

        def one(state: Tree, train: ClientData, samples: dict[str, ClientData]) -> Any:
            model = evaluation.deployed_model(federation, view, key, state, train, unseen=False)
            predict = functools.partial(federation.algorithm.deployment.predict, model)
            return {part: blockwise(predict, data.x) for part, data in samples.items()}

        return jax.vmap(one)(states, train, samples)

    return Program(predict)
