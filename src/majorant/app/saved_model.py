"""The folder ``model/`` of a run: the trained server, and what a new client needs beside it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from majorant.app._fingerprint import weights_digest
from majorant.app.build import build_algorithm, build_exchange, federated
from majorant.app.config import RunConfig, make_config, to_toml
from majorant.app.files import DamagedFile
from majorant.app.folders import check_run_folder
from majorant.app.records import Count, Label, Record, checked
from majorant.app.trees import MANIFEST, load_meta, load_tree, tree_exists
from majorant.data.labels import TargetScale
from majorant.data.tabular import Encoding
from majorant.engines.deployment import Trained
from majorant.engines.set_up import start_server
from majorant.models.base import Spec

if TYPE_CHECKING:
    from majorant.data.federated import FederatedData
    from majorant.exchange.federation import Federation


class ModelMeta(Record):
    """What is saved beside a server so that `load_deployment` can use it without the data."""

    config: str
    spec: Annotated[tuple[list[Count], Annotated[int, Field(ge=0, lt=1 << 31)]], Field(strict=False)]
    classes: list[Label]
    clients: Count
    nodes: Count | None = None  # those that trained
    in_bytes: bool = False  # whether samples were bytes, which models scale
    weights: str | None = None  # the digest of a file that the model begins with
    seed: int = Field(ge=0, lt=1 << 32)
    target_scale: Annotated[tuple[float, float], Field(strict=False)] | None = None  # of regression: mean and scale
    encoding: dict[str, Any] | None = None  # of a table

    @model_validator(mode="after")
    def consistent(self) -> ModelMeta:
        """The parts fit together."""
        if len(self.classes) != self.spec[1]:
            raise ValueError("the classes are not those of the model")
        if self.nodes is not None and self.nodes > self.clients:
            raise ValueError("more clients trained than there are")
        if self.target_scale is not None and (self.classes or self.target_scale[1] <= 0):
            raise ValueError("the scale of the targets is that of no regression")
        return self


def model_meta(config: RunConfig, data: FederatedData, encoding: Encoding | None, seed: int) -> dict[str, Any]:
    """The `ModelMeta` of a trained model, as it is saved."""
    return {
        "config": to_toml(config),
        "spec": [list(data.spec.features), data.spec.classes],
        "classes": list(data.classes),
        "clients": data.clients,
        "nodes": int((~data.unseen).sum()),
        "in_bytes": data.train.x.dtype == np.uint8,
        "weights": weights_digest(config),
        "seed": seed,
        "target_scale": data.target_scale,
        "encoding": encoding.to_dict() if encoding else None,
    }


def load_deployment(folder: Path) -> tuple[Trained, Encoding | None]:
    """The trained server of a run folder, ready to give models to clients."""
    check_run_folder(folder)
    place = folder / "model"
    if not tree_exists(place):
        raise ValueError(f"{folder} has no model: the run has not finished (resume it with --resume)")
    manifest = place / MANIFEST
    meta = checked(ModelMeta, load_meta(place), manifest)
    encoding = read_encoding(meta, manifest)
    config = read_config(meta, manifest)
    spec, clients = Spec(tuple(meta.spec[0]), meta.spec[1]), meta.clients
    with config.arithmetic():
        federation = federation_of(config, meta)
        server, _ = load_tree(place, server_shape(federation))
    classes, target = tuple(meta.classes), TargetScale(*meta.target_scale) if meta.target_scale else None
    more = (target, encoding, meta.model_dump())
    return Trained(federation, server, meta.seed, classes, spec.features, clients, *more), encoding


def read_config(meta: ModelMeta, manifest: Path) -> RunConfig:
    """The settings that a model was trained with."""
    try:
        return make_config(tomllib.loads(meta.config))
    except ValueError as error:
        raise DamagedFile(f"{manifest} has settings that this version does not know: {error}") from None


def federation_of(config: RunConfig, meta: ModelMeta) -> Federation:
    """The method of a saved model among clients whose number alone is known."""
    if meta.weights not in (None, found := weights_digest(config)) and found is not None:
        raise ValueError(
            f"the file of pretrained weights in {config.model} is not the one that this model was trained from, of "
            f"which it is a part: put that one back (SHA-256 {str(meta.weights)[:16]}…)"
        )
    _, algorithm = build_algorithm(config, Spec(tuple(meta.spec[0]), meta.spec[1]), meta.clients)
    # A saved model is used without its network: newcomers need to know how many nodes there are, no more.
    # Its channel, with what it promised, is no part of a model.
    exchange = build_exchange(config, "ring") | {"channel": None, "privacy": None}
    return federated(algorithm, exchange, np.arange(meta.nodes or meta.clients))


def server_shape(federation: Federation) -> Any:
    """The structure of a trained server."""
    start = lambda key: start_server(federation, 1, key, {}, jnp.int32(1))
    return jax.eval_shape(start, jax.random.key(0))


def read_encoding(meta: ModelMeta, manifest: Path) -> Encoding | None:
    """How the columns of a table became the features of a model, where it was trained on one."""
    if meta.encoding is None:
        return None
    try:
        encoding = Encoding.from_dict(meta.encoding)
    except ValueError as error:
        raise DamagedFile(f"{manifest} was altered, or is not ours: {error}") from None
    found = (list(encoding.classes), [len(encoding.features)], encoding.target_scale)
    if found != (meta.classes, meta.spec[0], meta.target_scale):
        raise DamagedFile(f"{manifest} was altered: the columns of the table are not those of the model")
    return encoding
