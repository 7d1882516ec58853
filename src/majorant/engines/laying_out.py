"""Who is where: the clients of a simulation in buckets, dealt over devices, and whether they fit these.

Runs are dealt over devices first, as far as every device can hold the clients of its runs (`mesh`); those that share
runs divide the clients. Peers go to devices in neighbourhoods.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from majorant.data.federated import FederatedData
from majorant.engines.memory import (
    chunk_size,
    clients_that_saturate,
    fewer,
    most_held,
    refuse_too_large_stack,
    runs_in_turn,
    runs_one_at_a_time,
)
from majorant.engines.mesh import rectangle
from majorant.engines.messages import Bill, bill_of
from majorant.engines.options import Resources
from majorant.engines.population import Bucket, build_buckets, neighbourhoods, padded_bytes
from majorant.engines.programs import Layout
from majorant.engines.replicas import refuse_too_many
from majorant.exchange.federation import Federation
from majorant.exchange.gossip import Peers


class Plan(NamedTuple):
    """Clients laid out on devices."""

    federation: Federation  # whose peers, where there are some, know their devices
    layout: Layout
    buckets: list[Bucket]  # of the clients that train
    unseen: list[Bucket]
    bill: Bill
    fits: bool  # whether samples and states can stay on the devices

    def clients_here(self) -> np.ndarray:
        """The clients, unseen ones included, that are on devices of this process."""
        every = [bucket.ids[rows_here(bucket, self.layout)] for bucket in self.buckets + self.unseen]
        ids = np.concatenate(every)
        return np.sort(ids[ids >= 0])


def rows_here(bucket: Bucket, layout: Layout) -> np.ndarray:
    """Which rows of a bucket are, for some run, on a device of this process."""
    if layout.mesh is None:
        return np.ones(len(bucket.ids), bool)
    mine = [any(d.process_index == jax.process_index() for d in column) for column in layout.mesh.devices.T]
    return np.repeat(mine, bucket.rows)


def laid_out(
    federation: Federation,
    given: list[FederatedData],
    devices: list[Any],
    share: int,
    *,
    runs: int,
    seeds: int,
    budget: int,
    most: int,
    held: int | None,
    resources: Resources,
    diagnostics: bool,
) -> Plan:
    """Clients of which at most ``most`` make steps side by side, on devices that have a ``share`` of the ``runs`` each.

    A chunk of clients in lanes has the models of at most ``held``; None: as many as should fit.
    """
    data, algorithm, together = given[0], federation.algorithm, federation
    training = np.flatnonzero(~data.unseen)
    across, runs = len(devices) // share, runs // share  # devices that divide the clients; runs of each
    in_turn = runs_in_turn(algorithm)
    taking_part = federation.participation.probability(len(training))
    how: dict[str, Any] = {
        "devices": across,
        "chunk_bytes": chunk_size(budget, 1 if in_turn else min(runs, seeds)),
        "most": most,
        "one_at_a_time": runs_one_at_a_time(algorithm, resources.clients),
        "extra_padding": resources.extra_padding,
        "saturating": clients_that_saturate(algorithm, data, runs),
        "most_held": held or most_held(algorithm, budget, runs),
        "share": taking_part,
    }
    mesh, homes = rectangle(devices, share), None
    if mesh is not None and isinstance(federation.exchange, Peers) and federation.can_be_dealt:
        homes = np.zeros(data.clients, np.int64)
        homes[training] = neighbourhoods(data.train.sizes[training], across)
        federation = federation._replace(exchange=federation.exchange.dealt(homes[training], across))
    buckets = build_buckets(data, training, homes=homes, **how)
    unseen = build_buckets(data, np.flatnonzero(data.unseen), **how | {"share": 1.0})
    everyone = taking_part == 1
    layout = Layout(
        chunks=tuple(b.chunk for b in buckets),
        pass_chunks=tuple(b.chunk if everyone else fewer(b, taking_part) for b in buckets),
        unseen_chunks=tuple(b.chunk for b in unseen),
        training=len(training),
        clients=data.clients,
        classes=len(data.classes),
        everyone=everyone,
        seeds=min(runs, seeds),
        diagnostics=diagnostics,
        replicated=len(given) > 1,
        in_turn=in_turn,
        lanes=next((b.lanes for b in buckets + unseen if b.lanes is not None), None),
        mesh=mesh,
    )
    one = buckets[0].one(data)
    bill = bill_of(federation, one)
    refuse_too_large_stack(together, data.clients, one, runs, budget)
    sets = len(given) // share if len(given) > 1 else 1
    needed = sets * padded_bytes(data, buckets + unseen) // across
    needed += 2 * runs * len(training) * bill.state // across
    if share == 1:
        refuse_too_many(given, needed, budget)
    fits = needed <= budget and resources.state_folder is None
    return Plan(federation, layout, buckets, unseen, bill, fits)
