"""The folder of a personal model: its parameters, how a table becomes its features, and where it is from.

It holds ``arrays.safetensors`` and ``manifest.json``, as every saved tree. A model of a run folder is read back by its
settings alone; one whose method was made in Python needs that method to be given again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from majorant.app.files import DamagedFile
from majorant.app.records import Whole, checked
from majorant.app.saved_model import ModelMeta, federation_of, load_deployment, read_config, read_encoding, server_shape
from majorant.app.trees import MANIFEST, load_meta, load_tree, save_tree, tree_exists
from majorant.core import Algorithm, ClientData
from majorant.data.labels import TargetScale
from majorant.engines.deployment import PersonalModel, deploying, precision_of
from majorant.exchange.federation import Federation, federation

KIND = "personal model"


class PersonalMeta(ModelMeta):
    """What is saved beside the parameters."""

    kind: Literal["personal model"]
    config: str = ""  # empty where the method was made in Python
    method: str
    client: str | None = None
    samples: Whole | None = None  # that it was fitted to


def save_model(model: PersonalModel, folder: str | Path) -> None:
    """Writes a personal model into a folder, in place of a personal model that was there."""
    check_model_folder(Path(folder))
    scale = None if model.target_scale is None else list(model.target_scale)
    meta = {
        "seed": 0,
        "clients": 1,
        **model.origin,
        "kind": KIND,
        "method": model.algorithm.name,
        "spec": [list(model.features), len(model.classes)],
        "classes": list(model.classes),
        "target_scale": scale,
        "encoding": model.encoding.to_dict() if model.encoding else None,
    }
    save_tree(folder, model.model, meta)


def load_model(folder: str | Path, algorithm: Algorithm | None = None) -> PersonalModel:
    """The personal model in a folder, or the model that a run folder gives to a client without samples.

    ``algorithm`` is needed for a model whose method was made in Python rather than by name.
    """
    folder = Path(folder)
    if (folder / "config.toml").exists() or not tree_exists(folder) or any(folder.glob("*/config.toml")):
        trained, _ = load_deployment(folder)
        return shared_model(trained)
    manifest = folder / MANIFEST
    raw = load_meta(folder)
    if raw.get("kind") != KIND:
        raise ValueError(f"{folder} is not a personal model: give a folder that majorant personalize has saved")
    meta = checked(PersonalMeta, raw, manifest)
    encoding = read_encoding(meta, manifest)
    together = trained_by(meta, manifest, algorithm)
    arrays, _ = load_tree(folder)
    with precision_of(arrays):
        tree, _ = load_tree(folder, model_shape(together, meta))
    scale = TargetScale(*meta.target_scale) if meta.target_scale else None
    shape = (tuple(meta.classes), tuple(meta.spec[0]), scale)
    return PersonalModel(together.algorithm, tree, *shape, encoding, meta.model_dump())


def shared_model(trained: Any) -> PersonalModel:
    """The model of a client without samples."""
    nothing = np.asarray(trained.classes)[:0] if trained.classes else np.zeros(0)
    return trained.personalize(np.zeros((0, *trained.features), np.float32), nothing)


def trained_by(meta: PersonalMeta, manifest: Path, algorithm: Algorithm | None) -> Federation:
    """The method of a saved model, by its settings or as given."""
    if algorithm is not None:
        if algorithm.name != meta.method:
            raise ValueError(f"{manifest.parent} is a model of {meta.method}, not of {algorithm.name}")
        return federation(algorithm, training=np.arange(meta.nodes or meta.clients))
    if not meta.config:
        raise ValueError(
            f"{manifest.parent} was made in Python, by {meta.method}: give the method that made it, as in"
            " load_model(folder, algorithm)"
        )
    config = read_config(meta, manifest)
    with config.arithmetic():
        return federation_of(config, meta)


def model_shape(together: Federation, meta: PersonalMeta) -> Any:
    """The structure of a personal model, found without computing anything."""
    kind = jnp.int32 if meta.classes else jnp.result_type(float)
    number = np.zeros((), np.int32)
    sample = np.zeros((1, *meta.spec[0]), jnp.result_type(float))
    data: Any = ClientData(sample, np.zeros(1, kind), number, number, number)  # type: ignore[arg-type]
    return jax.eval_shape(deploying(together), jax.random.key(0), server_shape(together), data, None)


def check_model_folder(folder: Path) -> None:
    """Refuses to write over anything but a personal model."""
    if not (folder / MANIFEST).exists():
        return  # a folder with something else in it is refused when the tree is saved
    try:
        kind = load_meta(folder).get("kind")
    except DamagedFile:
        kind = None
    if kind != KIND:
        raise FileExistsError(f"{folder} is not written: it holds something else than a personal model")
