"""k-means on rows that stay with their groups, with scikit-learn's conventions."""

from __future__ import annotations

import functools
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import ClusterMixin, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from majorant.estimators.base import Grouped, grouped, joined
from majorant.estimators.starts import one_shot_centers
from majorant.estimators.surrogate import FEDERATED, SurrogateEstimator
from majorant.surrogates.linear.kmeans import k_means
from majorant.surrogates.linear.record import LinearSurrogate

RIDGE = 1e-9  # pulls a centre towards the mean of all rows; an empty cluster is there


class FederatedKMeans(TransformerMixin, ClusterMixin, SurrogateEstimator):
    __doc__ = f"""k-means by federated Lloyd iterations: groups send counts and sums of rows, never rows.

    With the defaults it is Lloyd's algorithm on all rows, whatever the groups. A cluster that becomes empty goes to the
    mean of all rows.

    Parameters
    ----------
    n_clusters : int, default 8
    init : "kmeans" or array (n_clusters, n_features), default "kmeans"
        "kmeans": groups cluster their own rows and send centres (`majorant.estimators.starts`); with one group that is
        k-means already, and few iterations are left.
    max_iter : int, default 300
    tol : float, default 1e-4
        Stops when half of the mean squared distance falls by no more, in proportion to the rows' mean variance.
    random_state : int, RandomState or None, default None
{FEDERATED}
    Attributes
    ----------
    cluster_centers_ : array (n_clusters, n_features)
    labels_ : array (n_samples,)
    inertia_ : float, the sum of squared distances
    groups_, n_iter_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> X = np.array([[0.0], [0.2], [5.0], [5.2]])
    >>> model = FederatedKMeans(2, random_state=0).fit(X, groups=["a", "b", "a", "b"])
    >>> np.sort(model.cluster_centers_[:, 0]).round(3).tolist()
    [0.1, 5.1]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "kmeans",
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: Any = None,
        participation: float = 1.0,
        batch_size: int | None = None,
        bits: int | None = None,
        step_size: float | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.participation = participation
        self.batch_size = batch_size
        self.bits = bits
        self.step_size = step_size

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fits to rows X; ``groups`` names the client of each row, None is a single client. There is no y."""
        X = self._checked(X, reset=True)
        self._check_parameters(X)
        middle = X.mean(axis=0)
        data = grouped(X - middle, groups=groups)
        spread = float(X.var(axis=0).mean())
        start = self._start(data, middle)
        found = self._minimise(surrogate_for(X.shape[1], self.n_clusters), data, start, self.tol * spread)
        self.cluster_centers_ = (np.asarray(found.params) + middle).astype(X.dtype)
        self.middle_, self.statistic_, self.n_rows_seen_ = middle, found.statistic, len(X)
        self.n_iter_, self.groups_ = found.iterations, data.names
        return self._look(X)

    def partial_fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """One step of online k-means along new rows; the first call starts from them."""
        first = not hasattr(self, "cluster_centers_")
        X = self._checked(X, reset=first)
        if first:
            self._check_parameters(X)
            self.middle_, self.statistic_, self.n_rows_seen_, self.n_iter_ = X.mean(axis=0), None, 0, 0
            self.cluster_centers_ = self._start(grouped(X - self.middle_, groups=groups), self.middle_) + self.middle_
        self._unchanged(len(self.cluster_centers_), self.n_clusters, "n_clusters")
        at = self.cluster_centers_ - self.middle_
        rows = (X - self.middle_).astype(X.dtype)
        surrogate = surrogate_for(X.shape[1], self.n_clusters)
        params, self.statistic_ = self._approach(surrogate, rows, at, self.statistic_, self.n_rows_seen_)
        self.cluster_centers_ = (params + self.middle_).astype(X.dtype)
        self.n_rows_seen_ += len(X)
        self.n_iter_ += 1
        self.groups_ = joined(None if first else self.groups_, grouped(X, groups=groups).names)
        return self._look(X)

    def predict(self, X: Any) -> np.ndarray:
        """The number of each row's nearest centre."""
        check_is_fitted(self)
        return self._distances(self._checked(X, reset=False)).argmin(axis=1).astype(np.int32)

    def transform(self, X: Any) -> np.ndarray:
        """The distance of each row to each centre, ``(n, n_clusters)``."""
        check_is_fitted(self)
        return self._distances(self._checked(X, reset=False))

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the sum of squared distances to the nearest centres."""
        return -float((self.transform(X).min(axis=1) ** 2).sum())

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that `transform` gives."""
        check_is_fitted(self)
        return np.array([f"federatedkmeans{k}" for k in range(self.n_clusters)], object)

    def _check_parameters(self, X: np.ndarray) -> None:
        self._check_federated()
        check_scalar(self.n_clusters, "n_clusters", Integral, min_val=1)
        if len(X) < self.n_clusters:
            raise ValueError(f"n_clusters={self.n_clusters} needs as many rows, but n_samples = {len(X)}")

    def _start(self, data: Grouped, middle: np.ndarray) -> np.ndarray:
        if isinstance(self.init, str):
            if self.init != "kmeans":
                raise ValueError(f"init must be 'kmeans' or an array of centres, got {self.init!r}")
            return one_shot_centers(data.samples, self.n_clusters, self._random())
        centers = np.asarray(self.init, float)
        shape = (self.n_clusters, data.samples.x.shape[1])
        if centers.shape != shape or not np.isfinite(centers).all():
            raise ValueError(f"init must be finite centres of shape {shape}, got {centers.shape}")
        return centers - middle

    def _look(self, X: np.ndarray) -> Self:
        distances = self._distances(X)
        self.labels_ = distances.argmin(axis=1).astype(np.int32)
        self.inertia_ = float((distances.min(axis=1) ** 2).sum())
        return self

    def _distances(self, X: np.ndarray) -> np.ndarray:
        middle = self.middle_.astype(X.dtype)  # distances around 0 are exact where those far away are not
        return euclidean_distances(X - middle, (self.cluster_centers_ - self.middle_).astype(X.dtype))


@functools.lru_cache(maxsize=32)
def surrogate_for(features: int, clusters: int) -> LinearSurrogate:
    """One object for each set of options, as compiled programs are remembered by it."""
    return k_means(features, clusters, l2=RIDGE)
