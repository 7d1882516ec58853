"""Dictionaries and non-negative factors of rows that stay with their groups, with scikit-learn's conventions."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted, check_non_negative

from majorant.core.compilation import jit
from majorant.estimators.base import Grouped, grouped, joined
from majorant.estimators.starts import principal_directions
from majorant.estimators.surrogate import FEDERATED, SurrogateEstimator, pooled
from majorant.surrogates.linear.dictionary import dictionary_learning
from majorant.surrogates.linear.nonnegative import nonnegative_factorization
from majorant.surrogates.linear.record import LinearSurrogate

TOLERANCE = 1e-8  # of codes in double precision, relative


class Factorization(TransformerMixin, SurrogateEstimator, ABC):
    """What both share: rows are codes times components."""

    n_components: int | None
    alpha: float

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Fits to rows X; ``groups`` names the client of each row, None is a single client. There is no y."""
        X = self._rows(X, reset=True)
        count = self._check_parameters(X)
        self.scale_ = self._scale(X)
        data = grouped(X / X.dtype.type(self.scale_), groups=groups)
        size = 0.5 * float(np.square(data.samples.x).sum(axis=1).mean())
        surrogate = self._surrogate(X.shape[1], count, X.dtype == np.float64)
        found = self._minimise(surrogate, data, self._start(data, count), self.tol * size)
        self.components_ = np.asarray(found.params).T * self.scale_
        self.statistic_, self.n_rows_seen_ = found.statistic, len(X)
        self.error_ = (found.values * self.scale_**2).tolist()
        self.n_iter_, self.groups_ = found.iterations, data.names
        return self._finish(X)

    def partial_fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """One step along new rows; the first call starts from them."""
        first = not hasattr(self, "components_")
        X = self._rows(X, reset=first)
        if first:
            count = self._check_parameters(X)
            self.scale_ = self._scale(X)
            self.components_ = self._start(grouped(X / self.scale_, groups=groups), count).T * self.scale_
            self.statistic_, self.n_rows_seen_, self.n_iter_ = None, 0, 0
        self._unchanged(len(self.components_), self.n_components or X.shape[1], "n_components")
        rows, at = X / X.dtype.type(self.scale_), self.components_.T / self.scale_
        surrogate = self._surrogate(at.shape[0], at.shape[1], X.dtype == np.float64)
        params, self.statistic_ = self._approach(surrogate, rows, at, self.statistic_, self.n_rows_seen_)
        self.components_ = params.T * self.scale_
        self.n_rows_seen_ += len(X)
        self.n_iter_ += 1
        self.groups_ = joined(None if first else self.groups_, grouped(X, groups=groups).names)
        return self._finish(X)

    def transform(self, X: Any) -> np.ndarray:
        """The codes of each row, ``(n, n_components)``."""
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        params = self.components_.T / self.scale_
        surrogate = self._surrogate(params.shape[0], params.shape[1], X.dtype == np.float64)
        with jax.enable_x64(X.dtype == np.float64):
            rows = pooled(X / X.dtype.type(self.scale_)).x
            return np.asarray(codes_of(surrogate, jnp.asarray(params, jnp.result_type(float)), rows))[: len(X)]

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Rows from codes."""
        check_is_fitted(self)
        return np.asarray(X) @ self.components_

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None) -> np.ndarray:
        """``fit(X, groups=groups).transform(X)``."""
        return self.fit(X, y, groups=groups).transform(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the mean over rows of half the squared error."""
        X = self._rows(X, reset=False)
        return -float(0.5 * ((X - self.inverse_transform(self.transform(X))) ** 2).sum(axis=1).mean())

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that `transform` gives."""
        check_is_fitted(self)
        return np.array([f"{type(self).__name__.lower()}{k}" for k in range(self._n_features_out)], object)

    def _check_parameters(self, X: np.ndarray) -> int:
        """The number of components."""
        self._check_federated()
        check_scalar(self.alpha, "alpha", Real, min_val=0, include_boundaries="neither")
        if self.n_components is None:
            return X.shape[1]
        check_scalar(self.n_components, "n_components", Integral, min_val=1)
        if self.n_components > len(X):
            raise ValueError(f"n_components={self.n_components} needs as many rows, but n_samples = {len(X)}")
        return int(self.n_components)

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        return self._checked(X, reset=reset)

    def _scale(self, X: np.ndarray) -> float:
        """What rows are divided by before they are factorized."""
        return 1.0

    @abstractmethod
    def _start(self, data: Grouped, count: int) -> np.ndarray:
        """Components to start from, ``(p, count)``."""

    @abstractmethod
    def _surrogate(self, features: int, count: int, double: bool) -> LinearSurrogate:
        """What is minimised."""

    def _finish(self, X: np.ndarray) -> Self:
        return self


class FederatedDictionaryLearning(Factorization):
    __doc__ = f"""Sparse coding with a dictionary that groups learn together: they send Gram matrices of codes, no rows.

    Minimises the mean over rows of ½ ‖x − h · components_‖² + alpha ‖h‖₁ with components of norm at most 1.

    Parameters
    ----------
    n_components : int or None, default None
        The atoms; None: as many as features.
    alpha : float, default 1.0
    max_iter : int, default 200
    tol : float, default 1e-6
        Stops when the objective falls by no more, in proportion to half of the rows' mean squared norm.
    positive_code, positive_dict : bool, default False
    random_state : int, RandomState or None, default None
        For atoms beyond the principal directions, which are the start.
{FEDERATED}
    Attributes
    ----------
    components_ : array (n_components, n_features)
    error_ : list, the objective as training went on
    groups_, n_iter_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> model = FederatedDictionaryLearning(2, alpha=0.1, random_state=0).fit(X, groups=np.arange(40) % 4)
    >>> model.transform(X).shape, bool(np.diff(model.error_).max() < 1e-9)
    ((40, 2), True)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 1.0,
        max_iter: int = 200,
        tol: float = 1e-6,
        positive_code: bool = False,
        positive_dict: bool = False,
        random_state: Any = None,
        participation: float = 1.0,
        batch_size: int | None = None,
        bits: int | None = None,
        step_size: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.positive_code = positive_code
        self.positive_dict = positive_dict
        self.random_state = random_state
        self.participation = participation
        self.batch_size = batch_size
        self.bits = bits
        self.step_size = step_size

    def _surrogate(self, features: int, count: int, double: bool) -> LinearSurrogate:
        return dictionary_for(features, count, float(self.alpha), self.positive_code, self.positive_dict, double)

    def _start(self, data: Grouped, count: int) -> np.ndarray:
        start = principal_directions(data.samples.x, count, self._random())
        return np.abs(start) if self.positive_dict else start


class FederatedNMF(Factorization):
    __doc__ = f"""Non-negative factors that groups learn together: they send Gram matrices of weights, never rows.

    Minimises the mean over rows of ½ ‖x − h · components_‖² + (alpha/2) ‖h‖², and alpha ‖components_‖², where all
    numbers are at least 0, after X was divided by its root mean square (``scale_``).

    Parameters
    ----------
    n_components : int or None, default None
        The factors; None: as many as features.
    alpha : float, default 1e-4
        A ridge on both, which makes them unique up to their order; small.
    max_iter : int, default 200
    tol : float, default 1e-6
        Stops when the objective falls by no more, in proportion to half of the rows' mean squared norm.
    random_state : int, RandomState or None, default None
        For the start.
{FEDERATED}
    Attributes
    ----------
    components_ : array (n_components, n_features)
    reconstruction_err_ : float, the Frobenius norm of the last rows' error
    error_ : list, the objective as training went on
    groups_, n_iter_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> X = np.random.default_rng(0).random((30, 2)) @ np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])
    >>> model = FederatedNMF(2, random_state=0).fit(X, groups=np.arange(30) % 3)
    >>> bool((model.components_ >= 0).all()), model.reconstruction_err_ < 0.1
    (True, True)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        alpha: float = 1e-4,
        max_iter: int = 200,
        tol: float = 1e-6,
        random_state: Any = None,
        participation: float = 1.0,
        batch_size: int | None = None,
        bits: int | None = None,
        step_size: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.participation = participation
        self.batch_size = batch_size
        self.bits = bits
        self.step_size = step_size

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _surrogate(self, features: int, count: int, double: bool) -> LinearSurrogate:
        return factors_for(features, count, float(self.alpha), double)

    def _scale(self, X: np.ndarray) -> float:
        return float(np.sqrt(np.square(X.astype(np.float64)).mean())) or 1.0

    def _start(self, data: Grouped, count: int) -> np.ndarray:
        size = np.sqrt(data.samples.x.mean() / count)
        return size * np.abs(self._random().normal(size=(data.samples.x.shape[1], count)))

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        X = self._checked(X, reset=reset)
        check_non_negative(X, "FederatedNMF")
        return X

    def _finish(self, X: np.ndarray) -> Self:
        self.reconstruction_err_ = float(np.linalg.norm(X - self.inverse_transform(self.transform(X))))
        return self


@functools.partial(jit, static_argnums=0)
def codes_of(surrogate: LinearSurrogate, params: jax.Array, x: jax.Array) -> jax.Array:
    """The codes of rows."""
    assert surrogate.predict is not None
    return surrogate.predict(params, x)


@functools.lru_cache(maxsize=32)
def dictionary_for(
    features: int, atoms: int, alpha: float, codes: bool, dictionary: bool, double: bool
) -> LinearSurrogate:
    """One object for each set of options, as compiled programs are remembered by it."""
    return dictionary_learning(
        features,
        atoms,
        sparsity=alpha,
        constraint="unit-ball",
        positive_codes=bool(codes),
        positive_dictionary=bool(dictionary),
        tolerance=TOLERANCE if double else None,
    )


@functools.lru_cache(maxsize=32)
def factors_for(features: int, atoms: int, alpha: float, double: bool) -> LinearSurrogate:
    """The same for non-negative factors."""
    return nonnegative_factorization(features, atoms, l2=alpha, code_l2=alpha, tolerance=TOLERANCE if double else None)
