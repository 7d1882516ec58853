"""A coordinator's criteria by name: ``squared-norm:factor=0.1``, ``distance:run=runs/approved``.

Public samples come from a file: a table encoded as at training where the agents' data is one, else an ``.npz`` file
with arrays ``x``, ``y`` and ``group``. Everything is read and checked before any training.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from majorant.app._samples import read_npz
from majorant.tradeoffs import criteria
from majorant.tradeoffs.criterion import Criterion

if TYPE_CHECKING:
    from majorant.data.tabular import Encoding
    from majorant.models.base import Model

SHOWN = 10  # classes that a complaint names
MANY_GROUPS = 20  # more of them look like a mistake


class Setting(NamedTuple):
    """What a criterion may refer to: the model that is trained and how its data is encoded."""

    model: Model
    features: tuple[int, ...]
    classes: tuple[Any, ...]
    encoding: Encoding | None = None


def squared_norm(setting: Setting, factor: float = 1.0) -> Criterion:
    """Small parameters."""
    return criteria.squared_norm(factor)


def l1(setting: Setting, factor: float = 1.0) -> Criterion:
    """Sparse parameters."""
    return criteria.l1(factor)


def group_lasso(setting: Setting, factor: float = 1.0) -> Criterion:
    """Rows of parameters that vanish together."""
    return criteria.group_lasso(factor)


def distance(setting: Setting, run: str, factor: float = 1.0) -> Criterion:
    """Parameters close to those of a saved run's shared model."""
    from majorant.app.saved_model import load_deployment

    reference = load_deployment(Path(run))[0].server.value
    wanted = jax.eval_shape(setting.model.init, jax.random.key(0))
    shapes = lambda tree: {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree.leaves_with_path(tree)}
    if shapes(wanted) != shapes(reference):
        raise ValueError(
            f"the model in {run} has other parameters than the one to train: distance needs the same model"
        )
    return criteria.distance(jax.tree.map(np.asarray, reference), factor)


def public_loss(setting: Setting, file: str, factor: float = 1.0) -> Criterion:
    """A small loss on public samples."""
    found = public_samples(setting, file, labelled=True)
    return criteria.public_loss(setting.model, found["x"], found["y"], factor=factor)


def demographic_parity(
    setting: Setting, file: str, group: str = "group", label: int | str = 1, factor: float = 1.0
) -> Criterion:
    """The same mean prediction for all groups of public samples."""
    found = public_samples(setting, file, group=group)
    code = code_of(label, setting.classes)
    return criteria.demographic_parity(setting.model, found["x"], found["group"], label=code, factor=factor)


def equalized_odds(
    setting: Setting, file: str, group: str = "group", label: int | str = 1, factor: float = 1.0
) -> Criterion:
    """The same mean prediction for all groups of public samples, within each true class."""
    found = public_samples(setting, file, group=group, labelled=True)
    code = code_of(label, setting.classes)
    return criteria.equalized_odds(setting.model, found["x"], found["y"], found["group"], label=code, factor=factor)


def code_of(label: int | str, classes: tuple[Any, ...]) -> int:
    """The place of a class, which may be said by that place or by name.

    >>> code_of("high", ("low", "high")), code_of(0, ("low", "high"))
    (1, 0)
    """
    names = [str(each) for each in classes]
    if isinstance(label, str) and label in names:
        return names.index(label)
    if classes and (isinstance(label, str) or not 0 <= label < len(classes)):
        places = ", ".join(f"{name!r} ({place})" for place, name in enumerate(names[:SHOWN]))
        more = ", …" if len(names) > SHOWN else ""
        raise ValueError(f"label must be a class, by name or counted from 0: {places}{more}; got {label!r}")
    return int(label) if not isinstance(label, str) else 1


def public_samples(
    setting: Setting, file: str, *, group: str | None = None, labelled: bool = False
) -> dict[str, np.ndarray]:
    """The features ``x`` of a file's samples, the codes ``y`` of their labels, and their ``group``, as asked for."""
    from majorant.data.labels import label_codes
    from majorant.engines.deployment import check_features

    path = Path(file)
    if path.suffix.lower() != ".npz":
        if setting.encoding is None:
            raise ValueError(f"the agents' data is not a table: give public samples as an .npz file, not {file}")
        found = table_samples(setting.encoding, path, group, labelled)
    else:
        needed = ["x", *["y"] * labelled, *([group] if group else [])]
        there = read_npz(path, needed)
        found = {"group" if name == group else name: values for name, values in there.items() if name in needed}
    check_groups(found.get("group"), group)
    found["x"] = check_features(found["x"], setting.features)
    scale = setting.encoding.target_scale if setting.encoding else None
    return found | ({"y": label_codes(found["y"], setting.classes, scale)} if labelled else {})


def table_samples(encoding: Encoding, path: Path, group: str | None, labelled: bool) -> dict[str, np.ndarray]:
    """The samples in a table, with labels as people know them; ``group`` is one of its columns."""
    from majorant.data.tabular.problems import tell
    from majorant.data.tabular.reading import read_source
    from majorant.data.tabular.table import encode_rows, names_in

    table = read_source(path)
    names = names_in(table, group, "group") if group else None
    x, y, rows, notes = encode_rows(table, encoding, require_labels=labelled)
    tell(table.where, notes)
    found = {"x": x} | ({"y": y} if labelled and y is not None else {})
    return found | ({"group": names[rows]} if names is not None else {})


def check_groups(values: np.ndarray | None, name: str | None) -> None:
    """Warns of groups that look like measurements: means over a sample or two say nothing about a group."""
    sizes = np.unique(values, return_counts=True)[1] if values is not None else np.array([])
    if len(sizes) > MANY_GROUPS:
        words = f"{name!r} makes {len(sizes)} groups, the smallest of {sizes.min()} samples: is it a column of groups?"
        warnings.warn(words, stacklevel=2)
