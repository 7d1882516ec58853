"""Attacks by samples: hostile clients that train on labels that are turned around."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from majorant.data.federated import FederatedData
from majorant.exchange.attack import Hostile


def poisoned(hostile: Hostile, data: FederatedData) -> FederatedData:
    """The data with the hostile clients' training labels turned around, where the attack does that.

    Class c of C becomes C − 1 − c; a number is mirrored at the mean of its client's.
    """
    if not hostile.attack.flips_labels:
        return data
    owner = np.repeat(np.arange(data.clients), data.train.sizes)
    theirs, y = np.isin(owner, hostile.slots), data.train.y
    if data.classes:
        turned = len(data.classes) - 1 - y
    else:
        total = np.bincount(owner, weights=y, minlength=data.clients)
        turned = 2 * (total / np.maximum(data.train.sizes, 1))[owner] - y
    return replace(data, train=data.train._replace(y=np.where(theirs, turned, y).astype(y.dtype)))
