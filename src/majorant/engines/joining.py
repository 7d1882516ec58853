"""Scores of clients that did not take part in training."""

from __future__ import annotations

import jax
import numpy as np

from majorant.core import Server
from majorant.data.federated import FederatedData
from majorant.engines.client_scores import Scores
from majorant.engines.embedding import embedded
from majorant.engines.memory import chunk_size, default_budget, runs_one_at_a_time
from majorant.engines.population import build_buckets, in_order
from majorant.engines.programs import Layout
from majorant.engines.streamed import Streamed
from majorant.exchange.federation import Federation
from majorant.metrics.scores import metric_name


def evaluate_joining(federation: Federation, server: Server, seed: int, data: FederatedData, first_id: int) -> Scores:
    """The scores of clients that did not take part in training and join with their own samples.

    Their ids are counted from ``first_id`` on, after those of the clients that were there; they have no slots.
    """
    data = embedded(data, federation.algorithm.deployment.model)
    one_at_a_time = runs_one_at_a_time(federation.algorithm, "auto")
    buckets = build_buckets(
        data, np.arange(data.clients), chunk_bytes=chunk_size(default_budget()), one_at_a_time=one_at_a_time
    )
    layout = Layout((), (), tuple(b.chunk for b in buckets), 0, data.clients, len(data.classes), True)
    keys = jax.random.key(seed)[None]
    engine = Streamed(federation, layout, data, [], buckets, keys, {"compile": 0.0}, first_id=first_id)
    engine.restore(jax.tree.map(lambda a: np.asarray(a)[None], server), ())
    values = in_order(buckets, engine.evaluate()[1])
    metric = metric_name(federation.algorithm, len(data.classes))
    return Scores.of({k: v[0] for k, v in values.items()}, data, np.ones(data.clients, bool), metric)
