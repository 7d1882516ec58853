"""Methods for samples without labels, by name: mixtures, clusters, dictionaries and factorizations by FedMM.

The score of a run is its objective on held-out rows, with the penalty where there is one: the mean negative
log-likelihood of a mixture, half the mean squared distance to the nearest centre, the mean cost of coding a row. It is
in the units of the features that training sees, standardised ones for a table. Centres and mixtures start from one-shot
federated k-means (`majorant.estimators.starts`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from majorant.core import Algorithm
from majorant.data.federated import FederatedData, Ragged
from majorant.estimators.starts import one_shot_centers
from majorant.methods import fedmm
from majorant.models.base import Spec, spec_of
from majorant.surrogates import linear
from majorant.surrogates.linear.gaussian_mixture import mixture_parameters


def gaussian_mixture(
    data: FederatedData | Spec,
    *,
    components: int = 3,
    covariance: str = "full",
    reg_covar: float = 1e-6,
    step: float = 1.0,
    batch_size: int = 0,
    seed: int = 0,
) -> Algorithm:
    """A mixture of Gaussians; ``covariance`` is full, diagonal or spherical. ``predict`` numbers the components."""
    start = None
    if isinstance(data, FederatedData):
        rows = rows_of(data)
        centers = one_shot_centers(rows, components, np.random.RandomState(seed))
        nearest = np.argmin((centers**2).sum(axis=1) / 2 - rows.x @ centers.T, axis=1)
        start = mixture_parameters(rows.x, np.eye(components)[nearest], covariance=covariance, reg_covar=reg_covar)
    surrogate = linear.gaussian_mixture(
        features_of(data), components, covariance=covariance, reg_covar=reg_covar, start=start
    )
    return fedmm(surrogate, data, step=step, batch_size=batch_size or None)._replace(name="gaussian-mixture")


def k_means(
    data: FederatedData | Spec, *, clusters: int = 3, step: float = 1.0, batch_size: int = 0, seed: int = 0
) -> Algorithm:
    """Centres of clusters; ``predict`` numbers the nearest one."""
    start = None
    if isinstance(data, FederatedData):
        start = one_shot_centers(rows_of(data), clusters, np.random.RandomState(seed))
    surrogate = linear.k_means(features_of(data), clusters, start=start)
    return fedmm(surrogate, data, step=step, batch_size=batch_size or None)._replace(name="k-means")


def dictionary(
    data: FederatedData | Spec,
    *,
    atoms: int = 5,
    sparsity: float = 0.1,
    l2: float = 1e-3,
    step: float = 1.0,
    batch_size: int = 0,
) -> Algorithm:
    """Atoms of which few make up a row: ½ ‖x − θ h‖² + sparsity · ‖h‖₁, and l2 · ‖θ‖²."""
    surrogate = linear.dictionary_learning(features_of(data), atoms, sparsity=sparsity, l2=l2)
    return fedmm(surrogate, data, step=step, batch_size=batch_size or None)._replace(name="dictionary")


def factorization(
    data: FederatedData | Spec,
    *,
    rank: int = 2,
    code_l2: float = 0.1,
    l2: float = 1e-3,
    step: float = 1.0,
    batch_size: int = 0,
) -> Algorithm:
    """Factors of a matrix of all rows: ½ ‖x − θ h‖² + ½ · code_l2 · ‖h‖², and l2 · ‖θ‖²."""
    inner = linear.matrix_factorization(features_of(data), rank, code_l2=code_l2, l2=l2)
    whole_rows = inner.predict
    assert whole_rows is not None
    surrogate = inner._replace(
        statistic=lambda params, batch: inner.statistic(params, batch._replace(x=complete(batch.x))),
        losses=lambda params, x, y: inner.losses(params, complete(x), y),
        predict=lambda params, x: whole_rows(params, complete(x)),
        check=None,
    )
    return fedmm(surrogate, data, step=step, batch_size=batch_size or None)._replace(name="factorization")


def complete(x: Any) -> Any:
    """Rows all of whose entries were observed, ``(n, 2, p)``."""
    import jax.numpy as jnp

    return jnp.stack([x, jnp.ones_like(x)], axis=1)


def features_of(data: FederatedData | Spec) -> int:
    """How many features a row has."""
    return math.prod(spec_of(data).features)


def rows_of(data: FederatedData) -> Ragged:
    """The training rows of the clients that train, flat and in double precision."""
    part = data.train.take(np.flatnonzero(~data.unseen))
    return part._replace(x=part.x.reshape(len(part.x), -1).astype(np.float64))
