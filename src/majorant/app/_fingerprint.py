"""Digests of what a run depends on: a run is resumed with the settings, data and network that it was started with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from majorant._once import once_for_each
from majorant.app import catalogue
from majorant.app.config import WHERE, RunConfig, flat
from majorant.app.files import strict_json
from majorant.data.lazy import holding

if TYPE_CHECKING:
    from majorant.data.federated import FederatedData
    from majorant.data.tabular import Encoding
    from majorant.exchange.federation import Federation


OF_A_FILE = "weights"  # the option of models that begin with what a file holds
DIVIDED = "divided:"  # begins digests that are made in stretches of clients
STRETCHES = 256


def settings_digest(config: RunConfig) -> str:
    """A digest of all settings that make a difference, those at their defaults included."""
    return digest([flat(config.model_dump(exclude=WHERE))])


def data_digest(data: FederatedData, encoding: Encoding | None) -> str:
    """A digest of the samples and whose they are, and for a table of its columns and how they became features."""
    parts = [array for part in (data.train, data.validation, data.test) for array in (part.offsets, part.y, part.x)]
    about = [data.names, data.classes, data.target_scale, encoding.to_dict() if encoding else None]
    return digest([*about, data.unseen, *parts])


def divided_digest(data: FederatedData, encoding: Encoding | None) -> str:
    """The same from digests of stretches of clients: of several processes each makes those of its share."""
    about = [data.names, data.classes, data.target_scale, encoding.to_dict() if encoding else None]
    offsets = [part.offsets for part in (data.train, data.validation, data.test)]
    return DIVIDED + digest([*about, data.unseen, *offsets, digests_of_stretches(data)])


@once_for_each
def digests_of_stretches(data: FederatedData) -> np.ndarray:
    """The digests of the samples of some clients after the other, ``(stretches, 32)``."""
    from majorant.engines.hosts import of_all, share

    stretches = np.array_split(np.arange(data.clients), min(data.clients, STRETCHES))
    mine = [stretches[i] for i in share(len(stretches))]
    held = holding(data, np.concatenate([*mine, np.zeros(0, np.int64)]))

    def arrays(clients: np.ndarray) -> Iterator[np.ndarray]:
        for part in (held.train, held.validation, held.test):
            rows = slice(part.offsets[clients[0]], part.offsets[clients[-1] + 1])
            yield from (part.x[rows], part.y[rows])

    each = "".join(digest(arrays(clients)) for clients in mine)
    return of_all(np.frombuffer(bytes.fromhex(each), np.uint8).reshape(len(mine), 32), len(stretches))


def same_data(known: str, data: FederatedData, encoding: Encoding | None, now: str) -> bool:
    """Whether a digest is that of the data, whose `divided_digest` is ``now``; older ones are of all samples."""
    return known == (now if known.startswith(DIVIDED) else data_digest(data, encoding))


def network_digest(federation: Federation) -> str | None:
    """A digest of a network's links and first weights, where there is one: a file of links may change."""
    import jax

    network = federation.exchange.network
    if network is None:
        return None
    return digest([network.edges, *jax.tree.leaves(network.draw(jax.random.key(0), 1))])


def weights_digest(config: RunConfig) -> str | None:
    """A digest of the file of pretrained weights that a model begins with, where there is one: it may change."""
    path = catalogue.models.given(config.model).get(OF_A_FILE)
    if path is None or not Path(path).is_file():
        return None  # building the model complains
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(parts: Iterable[Any]) -> str:
    """A digest of arrays, with their types and shapes, and of anything else that JSON can say."""
    found = hashlib.sha256()
    for part in parts:
        if hasattr(part, "__array__"):
            array = np.ascontiguousarray(part)
            found.update(f"{array.dtype} {array.shape}\n".encode())
            found.update(array.data if array.size else b"")
        else:
            found.update(strict_json(part).encode(errors="surrogatepass") + b"\n")
    return found.hexdigest()
