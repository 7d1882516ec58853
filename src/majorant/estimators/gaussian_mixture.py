"""Gaussian mixtures of rows that stay with their groups, with scikit-learn's conventions."""

from __future__ import annotations

import functools
import warnings
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp, softmax
from sklearn.base import DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from majorant.estimators.base import Grouped, grouped, joined
from majorant.estimators.starts import one_shot_centers
from majorant.estimators.surrogate import FEDERATED, SurrogateEstimator
from majorant.math.mixture_weights import fit_groups
from majorant.surrogates.linear.gaussian_mixture import gaussian_mixture, mixture_parameters
from majorant.surrogates.linear.record import LinearSurrogate

MARGIN = 1e-12  # of the surrogate: smaller variances than this are made up
SINGULAR = "a component's covariance is singular, or nearly: raise reg_covar, use fewer components, or scale X"
KINDS = {"full": "full", "diag": "diagonal", "spherical": "spherical"}


class FederatedGaussianMixture(DensityMixin, SurrogateEstimator):
    __doc__ = f"""A Gaussian mixture by federated EM: groups send expected moments, never rows.

    With the defaults, and whatever the groups, it is EM on all rows: with one group it equals
    ``sklearn.mixture.GaussianMixture``.

    Parameters
    ----------
    n_components : int, default 1
    covariance_type : "full", "diag" or "spherical", default "full"
    tol : float, default 1e-3
        Stops when the mean log-likelihood of a row rises by no more.
    reg_covar : float, default 1e-6
        Added to the variances; in units of each feature's own where groups are absent, or send batches or few bits.
    max_iter : int, default 100
    init_params : "kmeans" or "random", default "kmeans"
        "kmeans": groups cluster their own rows and send centres (`majorant.estimators.starts`); "random":
        responsibilities are drawn at random.
    weights_init, means_init, precisions_init : arrays or None
        Where to start instead; precisions as in scikit-learn.
    random_state : int, RandomState or None, default None
{FEDERATED}
    Attributes
    ----------
    weights_, means_, covariances_, precisions_cholesky_ : as in scikit-learn
    group_weights_ : array (n_groups, n_components), each group's own shares of the components
    groups_ : array (n_groups,)
    converged_, n_iter_, lower_bound_, lower_bounds_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> X = np.concatenate([np.random.default_rng(0).normal(m, 1.0, (50, 2)) for m in (-3, 3)])
    >>> model = FederatedGaussianMixture(2, random_state=0).fit(X, groups=np.repeat(["a", "b"], 50))
    >>> model.group_weights_.round(2).max(axis=1)
    array([1., 1.])
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        init_params: str = "kmeans",
        weights_init: Any = None,
        means_init: Any = None,
        precisions_init: Any = None,
        random_state: Any = None,
        participation: float = 1.0,
        batch_size: int | None = None,
        bits: int | None = None,
        step_size: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.participation = participation
        self.batch_size = batch_size
        self.bits = bits
        self.step_size = step_size

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fits to rows X; ``groups`` names the client of each row, None is a single client. There is no y."""
        X = self._checked(X, reset=True, ensure_min_samples=2)
        self._check_parameters(X)
        self.middle_, self.scale_ = X.mean(axis=0), self._units(X)
        data = grouped(self._inner(X), groups=groups)
        found = self._minimise(self._surrogate(X.shape[1]), data, self._start(data), self.tol)
        self._keep(found.params)
        self.statistic_, self.n_rows_seen_ = found.statistic, len(X)
        self.converged_, self.n_iter_ = found.converged, found.iterations
        self.lower_bounds_ = (-found.values - np.log(self.scale_).sum()).tolist()
        self.lower_bound_ = self.lower_bounds_[-1]
        self.groups_ = data.names
        self.group_weights_ = self._own_weights(data)
        if self._exact and not found.converged and self.tol > 0:
            warnings.warn(
                f"EM did not converge in {self.max_iter} iterations: raise max_iter or tol, or look at the data",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def partial_fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """One step of online EM along new rows; the first call starts from them."""
        first = not hasattr(self, "means_")
        X = self._checked(X, reset=first)
        if first:
            self._check_parameters(X)
            self.middle_, self.scale_ = X.mean(axis=0), np.ones(X.shape[1])
            self._keep(self._start(grouped(self._inner(X), groups=groups)))
            self.statistic_, self.n_rows_seen_, self.n_iter_, self.converged_ = None, 0, 0, False
        self._unchanged(len(self.weights_), self.n_components, "n_components")
        at = {
            "weights": self.weights_,
            "means": self._inner(self.means_),
            "covariances": self._rescaled(self.covariances_, 1 / self.scale_),
        }
        rows, surrogate = self._inner(X), self._surrogate(X.shape[1])
        params, self.statistic_ = self._approach(surrogate, rows, at, self.statistic_, self.n_rows_seen_)
        self._keep(params)
        self.n_rows_seen_ += len(X)
        self.n_iter_ += 1
        data = grouped(rows, groups=groups)
        names = joined(None if first else self.groups_, data.names)
        weights = np.zeros((len(names), self.n_components))
        if not first:
            weights[: len(self.groups_)] = self.group_weights_
        self.groups_ = names
        weights[self._clients_of(data.names, len(data.names))] = self._own_weights(data)
        self.group_weights_ = weights
        self.lower_bound_ = float(self.score(X))
        return self

    def fit_predict(self, X: Any, y: Any = None, groups: Any = None) -> np.ndarray:
        """``fit(X, groups=groups).predict(X, groups)``."""
        return self.fit(X, y, groups=groups).predict(X, groups)

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """The most probable component of each row."""
        return self.predict_proba(X, groups).argmax(axis=1)

    def predict_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        """The probability of each component, ``(n, n_components)``; rows of a known group with its own weights."""
        check_is_fitted(self)
        return softmax(self._joint(self._checked(X, reset=False), groups), axis=1)

    def score_samples(self, X: Any, groups: Any = None) -> np.ndarray:
        """The log-likelihood of each row, of a known group with its own weights."""
        check_is_fitted(self)
        return logsumexp(self._joint(self._checked(X, reset=False), groups), axis=1)

    def score(self, X: Any, y: Any = None, groups: Any = None) -> float:
        """The mean log-likelihood of a row."""
        return float(self.score_samples(X, groups).mean())

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draws rows and their components."""
        return self._scikit_learns().sample(n_samples)

    def aic(self, X: Any) -> float:
        """Akaike's information criterion."""
        return float(self._scikit_learns().aic(X))

    def bic(self, X: Any) -> float:
        """The Bayesian information criterion."""
        return float(self._scikit_learns().bic(X))

    def _check_parameters(self, X: np.ndarray) -> None:
        self._check_federated()
        check_scalar(self.n_components, "n_components", Integral, min_val=1)
        check_scalar(self.reg_covar, "reg_covar", Real, min_val=0)
        if self.covariance_type not in KINDS:
            raise ValueError(f"covariance_type must be one of {', '.join(KINDS)}, got {self.covariance_type!r}")
        if self.init_params not in ("kmeans", "random"):
            raise ValueError(f"init_params must be 'kmeans' or 'random', got {self.init_params!r}")
        if len(X) < self.n_components:
            raise ValueError(f"n_components={self.n_components} needs as many rows, but n_samples = {len(X)}")

    def _surrogate(self, features: int) -> LinearSurrogate:
        kind = KINDS[self.covariance_type]
        return surrogate_for(features, self.n_components, kind, float(self.reg_covar))

    def _units(self, X: np.ndarray) -> np.ndarray:
        """What each feature is divided by: 1, or its deviation (the mean one, for spheres) where messages are noisy.

        Errors of compression are in proportion to the largest numbers of a message: features must be of one size.
        """
        if self._exact:
            return np.ones(X.shape[1])
        spread = X.std(axis=0, dtype=np.float64)
        spread = (
            np.full_like(spread, np.sqrt(np.square(spread).mean())) if self.covariance_type == "spherical" else spread
        )
        return np.where(spread > 0, spread, 1.0)

    def _rescaled(self, covariances: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Covariances of features that were multiplied by some numbers."""
        factors = {"full": units[:, None] * units, "diag": units**2, "spherical": units[0] ** 2}
        return (covariances * factors[self.covariance_type]).astype(covariances.dtype)

    def _inner(self, X: np.ndarray) -> np.ndarray:
        """Rows as they are computed with: around 0, where squares lose nothing."""
        return ((X - self.middle_) / self.scale_).astype(X.dtype)

    def _start(self, data: Grouped) -> dict[str, np.ndarray]:
        """Parameters to start from; nobody is asked for centres where all of them are given."""
        components, features = self.n_components, data.samples.x.shape[1]
        covariances = {"full": (components, features, features), "diag": (components, features)}
        shapes = {"weights": (components,), "means": (components, features)}
        given = self._given(shapes | {"covariances": covariances.get(self.covariance_type, (components,))})
        if "means" in given:
            given["means"] = self._inner(given["means"])
        if "covariances" in given:
            given["covariances"] = self._rescaled(given["covariances"], 1 / self.scale_)
        start = given if len(given) == 3 else self._found_start(data) | given
        if not positive(start["covariances"], self.covariance_type):
            raise ValueError(SINGULAR)
        return start

    def _found_start(self, data: Grouped) -> dict[str, np.ndarray]:
        """Parameters from random responsibilities, or from one-shot k-means."""
        x, random = data.samples.x.astype(np.float64), self._random()
        if self.init_params == "random":
            responsibilities = random.uniform(size=(len(x), self.n_components))
            responsibilities /= responsibilities.sum(axis=1, keepdims=True)
        else:
            centers = one_shot_centers(data.samples, self.n_components, random)
            responsibilities = np.eye(self.n_components)[nearest(x, centers)]
        kind = KINDS[self.covariance_type]
        return mixture_parameters(x, responsibilities, covariance=kind, reg_covar=self.reg_covar, margin=MARGIN)

    def _given(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        """The parameters that were given to start from, refused where they cannot be."""
        given = {"weights": self.weights_init, "means": self.means_init, "covariances": self.precisions_init}
        names = {"weights": "weights_init", "means": "means_init", "covariances": "precisions_init"}
        found = {name: np.asarray(value, float) for name, value in given.items() if value is not None}
        for name, array in found.items():
            if array.shape != shapes[name]:
                raise ValueError(f"{names[name]} must be of shape {shapes[name]}, got {array.shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{names[name]} has NaN or infinite numbers")
        if "weights" in found and (found["weights"].min() < 0 or abs(found["weights"].sum() - 1) > 1e-6):
            raise ValueError(f"weights_init must be at least 0 and sum to 1, got {found['weights'].tolist()}")
        if "covariances" in found:
            found["covariances"] = inverse(found["covariances"], self.covariance_type)
        return found

    def _keep(self, params: dict[str, np.ndarray]) -> None:
        """Parameters in the rows' own units; a singular covariance is refused."""
        weights, means, covariances = (np.asarray(params[name]) for name in ("weights", "means", "covariances"))
        variances = np.diagonal(covariances, axis1=1, axis2=2) if self.covariance_type == "full" else covariances
        limit = np.finfo(covariances.dtype).eps * np.square(means).max(axis=0)
        limit = limit if self.covariance_type != "spherical" else limit.max()
        made_up = 5 * MARGIN / weights if self.reg_covar == 0 else 0 * weights
        flat = variances.reshape(len(weights), -1)
        if (flat <= np.maximum(limit, made_up[:, None])).any() or not positive(covariances, self.covariance_type):
            raise ValueError(SINGULAR)
        self.weights_, self.means_ = weights, (means * self.scale_ + self.middle_).astype(means.dtype)
        self.covariances_ = self._rescaled(covariances, self.scale_)
        self.precisions_cholesky_ = precisions_cholesky(self.covariances_, self.covariance_type)

    def _own_weights(self, data: Grouped) -> np.ndarray:
        """Each group's own shares of the components: EM on them alone, until they hardly move."""
        if data.clients == 1:
            return self.weights_[None].astype(np.float64)
        x = data.samples.x * self.scale_ + self.middle_
        densities = log_densities(x, self.means_, self.precisions_cholesky_, self.covariance_type)
        return fit_groups(-densities, data.samples.sizes, self.weights_, steps=100, tolerance=1e-4)

    def _joint(self, X: np.ndarray, groups: Any) -> np.ndarray:
        """log of weight times density, ``(n, K)``."""
        weights = self.weights_[None]
        if groups is not None:
            weights = np.vstack([self.group_weights_, self.weights_])[self._clients_of(groups, len(X))]
        with np.errstate(divide="ignore"):
            return log_densities(X, self.means_, self.precisions_cholesky_, self.covariance_type) + np.log(weights)

    def _scikit_learns(self) -> GaussianMixture:
        """The same mixture as scikit-learn has it."""
        check_is_fitted(self)
        same = GaussianMixture(self.n_components, covariance_type=self.covariance_type, random_state=self.random_state)
        for name in ("weights_", "means_", "covariances_", "precisions_cholesky_", "n_features_in_"):
            setattr(same, name, getattr(self, name))
        return same


@functools.lru_cache(maxsize=32)
def surrogate_for(features: int, components: int, kind: str, reg_covar: float) -> LinearSurrogate:
    """One object for each set of options, as compiled programs are remembered by it."""
    return gaussian_mixture(features, components, covariance=kind, reg_covar=reg_covar, margin=MARGIN)


def positive(covariances: np.ndarray, kind: str) -> bool:
    """Whether all covariances are positive definite."""
    if kind != "full":
        return bool((covariances > 0).all())
    try:
        np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        return False
    return True


def nearest(x: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The number of each row's nearest centre."""
    return ((centers**2).sum(axis=1) - 2 * x @ centers.T).argmin(axis=1)


def precisions_cholesky(covariances: np.ndarray, covariance_type: str) -> np.ndarray:
    """Factors of the precisions, as scikit-learn keeps them."""
    if covariance_type != "full":
        return 1 / np.sqrt(covariances)
    identity = np.eye(covariances.shape[1])
    factors = [solve_triangular(np.linalg.cholesky(c), identity, lower=True).T for c in covariances]
    return np.stack(factors).astype(covariances.dtype)


def inverse(precisions: np.ndarray, covariance_type: str) -> np.ndarray:
    """Covariances from precisions, which must be positive definite."""
    symmetric = covariance_type != "full" or np.allclose(precisions, np.swapaxes(precisions, 1, 2))
    if not symmetric or not positive(precisions, covariance_type):
        raise ValueError("precisions_init must be positive definite, and symmetric: one of them is singular or is not")
    return np.linalg.inv(precisions) if covariance_type == "full" else 1 / precisions


def log_densities(X: np.ndarray, means: np.ndarray, factors: np.ndarray, covariance_type: str) -> np.ndarray:
    """The log-density of each component at each row, ``(n, K)``."""
    features = X.shape[1]
    if covariance_type == "full":
        half_log_det = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        squares = np.stack([(((X - m) @ f) ** 2).sum(axis=1) for m, f in zip(means, factors, strict=True)], axis=1)
    else:
        scale = factors if covariance_type == "diag" else np.repeat(factors[:, None], features, axis=1)
        half_log_det = np.log(scale).sum(axis=1)
        squares = np.stack([(((X - m) * f) ** 2).sum(axis=1) for m, f in zip(means, scale, strict=True)], axis=1)
    return -0.5 * (features * np.log(2 * np.pi) + squares) + half_log_det
