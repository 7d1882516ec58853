"""Deployment: a trained server gives a personal model to any client, known or new."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import (
    Algorithm,
    ClientData,
    Key,
    Server,
    Tree,
)
from majorant.core.compilation import jit
from majorant.data.checks import in_bytes
from majorant.data.federated import tidy
from majorant.data.labels import TargetScale, label_codes, label_values
from majorant.data.tabular import Encoding, encode_table
from majorant.engines.evaluation import deployed_model, released_view
from majorant.exchange.federation import Federation
from majorant.metrics.regression import r2
from majorant.models.lstm import check_sequences


class PersonalModel(NamedTuple):
    """The model that one client deploys.

    Samples are arrays or, where the model knows the columns of a table (``encoding``), a file or a data frame with
    these columns.
    """

    algorithm: Algorithm
    model: Tree
    classes: tuple[Any, ...]
    features: tuple[int, ...]
    target_scale: TargetScale | None = None  # regression: predictions are in original units
    encoding: Encoding | None = None  # of a table
    origin: Mapping[str, Any] = MappingProxyType({})  # where it is from, for `save`

    def __repr__(self) -> str:
        whose = f" of client {self.origin['client']!r}" if self.origin.get("client") else ""
        what = f"{len(self.classes)} classes" if self.classes else "regression"
        shape = "×".join(map(str, self.features))
        weights = self.mixture_weights
        mixed = "" if weights is None else f", mixture weights {' '.join(f'{w:.2f}' for w in weights)}"
        return f"<PersonalModel{whose} by {self.algorithm.name}: {shape} features, {what}{mixed}>"

    @property
    def mixture_weights(self) -> np.ndarray | None:
        """The client's weights over the shared components, where the method has some."""
        with precision_of(self.model):
            mixture = self.algorithm.deployment.mixture
            return None if mixture is None else np.asarray(mixture(self.model))

    def predict_proba(self, x: Any) -> np.ndarray:
        """The probability of each class, ``(n, classes)``."""
        if not self.classes:
            raise ValueError("a regression model has no class probabilities: use predict")
        return self._outputs(self._samples(x)[0])

    def predict(self, x: Any) -> np.ndarray:
        """The most probable label of each sample, or its predicted value."""
        return self._labels(self._samples(x)[0])

    def score(self, x: Any, y: Any = None) -> float:
        """Accuracy, or for regression R² (NaN where all labels are the same), on labelled samples.

        A table brings its labels itself.

        Of a model without labels, minus the mean loss: the mean log-likelihood of a mixture.
        """
        losses = self.algorithm.deployment.losses
        if losses is not None:
            with precision_of(self.model):
                rows = default_float(self._samples(x)[0])
                return -float(losses(self.model, rows, jnp.zeros(len(rows))).mean())
        x, found = self._samples(x, labelled=y is None)
        truth = np.asarray(found if y is None else y)
        if len(x) == 0 or truth.shape != (len(x),):
            raise ValueError(
                f"a score needs samples with a label each, got {len(x)} samples and labels of shape {truth.shape}"
            )
        predicted = self._labels(x)
        if self.classes:
            return float(np.mean(predicted == truth))
        return r2(truth, predicted)

    def save(self, folder: str | Path) -> None:
        """Writes the model into a folder, which `majorant.load_model` and ``majorant predict`` read."""
        from majorant import save_model  # by the front door: files are made in a layer above this one

        save_model(self, folder)

    def export(self, path: str | Path) -> None:
        """Writes the model for other programs: coefficients (.json), ONNX (.onnx) or StableHLO (.stablehlo)."""
        from majorant import export_model

        export_model(self, path)

    def _samples(self, x: Any, *, labelled: bool = False) -> tuple[np.ndarray, np.ndarray | None]:
        if self.encoding is not None and (isinstance(x, str | Path) or hasattr(x, "__arrow_c_stream__")):
            x, y = encode_table(x, self.encoding, require_labels=labelled)
            return self.checked(x), y
        if isinstance(x, str | Path):
            raise ValueError("this model was not trained on a table: give samples as an array")
        if labelled:
            raise ValueError("a score needs labels: give them as well as the samples")
        return self.checked(x), None

    def checked(self, x: Any) -> np.ndarray:
        """Samples in the simulator's types, where the model can read them."""
        return check_features(
            x,
            self.features,
            bytes_before=bool(self.origin.get("in_bytes")),
            model=self.algorithm.deployment.model,
        )

    def _labels(self, x: np.ndarray) -> np.ndarray:
        outputs = self._outputs(x)
        return label_values(outputs.argmax(axis=1) if self.classes else outputs, self.classes, self.target_scale)

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        with precision_of(self.model):
            return np.asarray(self.algorithm.deployment.predict(self.model, default_float(x)))


@functools.lru_cache(maxsize=32)
def deploying(federation: Federation) -> Any:
    """The program that makes a client's model; compiled once for clients of one shape."""

    def deploy(run_key: Key, server: Server, data: ClientData, state: tuple[Tree] | None) -> Tree:
        view, key = released_view(federation, server, run_key)
        return deployed_model(federation, view, key, () if state is None else state[0], data, state is None)

    return jit(deploy)


class Trained(NamedTuple):
    """A trained server, and what is needed to turn a client's samples into its model."""

    federation: Federation
    server: Server
    seed: int
    classes: tuple[Any, ...]
    features: tuple[int, ...]
    clients: int  # those of training: a new client's id comes after theirs
    target_scale: TargetScale | None = None
    encoding: Encoding | None = None
    origin: Mapping[str, Any] = MappingProxyType({})

    def personalize(self, x: np.ndarray, y: np.ndarray, id: int | None = None, *, room: int = 0) -> PersonalModel:
        """A model for a client that did not take part in training, from its own samples alone (none are fine, too).

        Fewer samples than ``room`` are padded to so many: clients with the same room share one program.
        """
        x, y = np.asarray(x), np.asarray(y)
        x = self.checked(x.reshape((0, *self.features)) if x.shape[:1] == (0,) else x)
        codes = label_codes(y, self.classes, self.target_scale)
        if len(codes) != len(x):
            raise ValueError(f"{len(x)} samples but {len(codes)} labels")
        return self._deploy(x, codes, self.clients if id is None else id, None, room)

    def checked(self, x: Any) -> np.ndarray:
        """Samples in the simulator's types, where the models can read them."""
        model = self.federation.algorithm.deployment.model
        return check_features(x, self.features, bytes_before=bool(self.origin.get("in_bytes")), model=model)

    def known(self, client: Tree, x: np.ndarray, codes: np.ndarray, id: int) -> PersonalModel:
        """The model of a client that took part in training, from its private state and its samples."""
        return self._deploy(x, codes, id, (client,))

    def _deploy(
        self, x: np.ndarray, codes: np.ndarray, id: int, state: tuple[Tree] | None, room: int = 0
    ) -> PersonalModel:
        size = len(x)
        more = max(size, room, 1) - size  # at least a row of padding, so that no program sees an empty array
        x = np.concatenate([x, np.zeros((more, *self.features), x.dtype)])
        codes = np.concatenate([codes, np.zeros(more, codes.dtype)])
        with precision_of(self.server):
            slot = jnp.int32(id if id < self.clients else -1)
            data = ClientData(default_float(x), default_float(codes), jnp.int32(size), jnp.int32(id), slot)
            server = jax.tree.map(jnp.asarray, self.server)
            model = deploying(self.federation)(jax.random.key(self.seed), server, data, state)
        shape = (self.classes, self.features, self.target_scale, self.encoding, self.origin)
        return PersonalModel(self.federation.algorithm, model, *shape)


def precision_of(tree: Tree) -> contextlib.AbstractContextManager[Any]:
    """Double precision for the time of a ``with`` block, where a tree of arrays has it."""
    double = any(leaf.dtype == np.float64 for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype"))
    return jax.enable_x64(True) if double else contextlib.nullcontext()


def default_float(array: np.ndarray) -> jax.Array:
    """An array on the device, floating-point numbers in the precision that is switched on."""
    return jnp.asarray(array, jnp.result_type(float) if np.issubdtype(array.dtype, np.floating) else None)


def check_features(
    x: np.ndarray, features: tuple[int, ...], *, bytes_before: bool = False, model: Any = None
) -> np.ndarray:
    """Samples in the simulator's types, or an error that says how they differ from what the model was trained on.

    ``bytes_before`` says that these were bytes; ``model`` is the `Model` that will read them, where that is known.
    """
    x = np.asarray(x)
    x = tidy(in_bytes(x) if bytes_before else x)
    if x.ndim == 0 or x.shape[1:] != features:
        raise ValueError(f"samples must have shape (n, {', '.join(map(str, features))}), got {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"{int((~np.isfinite(x)).sum())} feature values are NaN or infinite: remove or impute them")
    if model is not None and model.codes:
        check_sequences(x, model.codes)
    return x
