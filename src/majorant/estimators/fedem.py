"""FedEM with linear components as scikit-learn estimators: a classifier and a regressor.

Rows of group t follow a mixture of M linear models that all groups share, in proportions π_t of their own::

    p_t(y | x) = Σ_m π_tm p(y | x, θ_m),     a prediction is Σ_m π_tm p(· | x, θ_m), or Σ_m π_tm (x · w_m + b_m)

See `majorant.methods.fedem` for how they are learned. Training computes in single precision; a fitted estimator is
a few NumPy arrays, and predicts with matrix products in double precision.
"""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from scipy.special import expit, logsumexp, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_scalar
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from majorant._words import some
from majorant.estimators.base import GroupedEstimator, as_names, encode_groups, grouped, seed_of
from majorant.estimators.mixture_training import Plan, train
from majorant.estimators.target_scale import possible_gain, residual_scale
from majorant.math.mixture_weights import fit_groups
from majorant.solvers.smoothness import stable_step

PARAMETERS = """
    Parameters
    ----------
    n_components : int, default 3
        The linear models that groups share.
    max_iter : int, default 100
        The rounds of communication. All are made: the losses of minibatches give no safe rule to stop earlier.
    learning_rate : float or "auto", default "auto"
        The step of local gradient descent. "auto" is 1/L, with L the smoothness of the groups' losses for minibatches
        of this size, and is stable whatever the scale of the features; it is fast where they are standardised.
    local_epochs : int, default 1
        How often a group goes through its own rows in a round.
    batch_size : int or None, default 32
        The rows of a minibatch; None takes all rows of a group at once.
    participation : float, default 1.0
        The share of the groups that takes part in a round, in (0, 1].
    random_state : int, RandomState or None, default None
        Where the components start, the order of rows, and who takes part.
"""


UNFINISHED = 0.1  # of the noise's variance: the mean squared error that a fit may leave undone without a warning


class FedEM(GroupedEstimator, ABC):
    """What the classifier and the regressor share: training, mixture weights, new groups."""

    def __init__(
        self,
        n_components: int = 3,
        *,
        max_iter: int = 100,
        learning_rate: float | str = "auto",
        local_epochs: int = 1,
        batch_size: int | None = 32,
        participation: float = 1.0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.local_epochs = local_epochs
        self.batch_size = batch_size
        self.participation = participation
        self.random_state = random_state

    def _train(self, X: np.ndarray, codes: np.ndarray, groups: Any, classes: int) -> Self:
        """Trains the mixture and keeps it; ``codes`` are class numbers, or values for regression (0 classes)."""
        self._check_parameters()
        data = grouped(single_precision(X, "X"), codes, groups)
        automatic = isinstance(self.learning_rate, str)
        curvature = {0: 1.0, 2: 0.25}.get(classes, 0.5)  # the largest second derivative of the loss in its outputs
        lr = stable_step(data.samples, curvature, self.batch_size) if automatic else float(self.learning_rate)
        seed = seed_of(self.random_state)
        plan = Plan(self.n_components, self.max_iter, lr, self.local_epochs, self.batch_size, self.participation, seed)
        found = train(data, classes, plan)
        self.component_coef_ = found.weight.transpose(0, 2, 1)
        self.component_intercept_ = found.bias
        self.groups_ = data.names
        self.mixture_weights_ = found.pi
        self.average_weights_ = np.average(found.pi, axis=0, weights=data.samples.sizes)
        self.learning_rate_ = lr
        self.history_ = found.history
        self.n_iter_ = self.max_iter
        return self

    def _check_parameters(self) -> None:
        for name in ("n_components", "max_iter", "local_epochs", "batch_size"):
            if name != "batch_size" or self.batch_size is not None:
                check_scalar(getattr(self, name), name, Integral, min_val=1)
        check_scalar(self.participation, "participation", Real, min_val=0, max_val=1, include_boundaries="right")
        if isinstance(self.learning_rate, str):
            if self.learning_rate != "auto":
                raise ValueError(f'learning_rate must be "auto" or a positive number, got {self.learning_rate!r}')
        else:
            check_scalar(self.learning_rate, "learning_rate", Real, min_val=0, include_boundaries="neither")

    def _outputs(self, X: np.ndarray) -> np.ndarray:
        """What each component says of each row, ``(M, n, k)``."""
        coefficients = self.component_coef_.transpose(0, 2, 1)
        return X.astype(np.float64, copy=False) @ coefficients + self.component_intercept_[:, None]

    def _weights(self, groups: Any, rows: int) -> np.ndarray:
        """The mixture weights of each row's group, ``(n, M)``; their average where the group is not known."""
        return np.vstack([self.mixture_weights_, self.average_weights_])[self._clients_of(groups, rows)]

    def _mixed(self, X: Any, groups: Any) -> np.ndarray:
        """The mixture's prediction of each row, ``(n, ...)``."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        predictions = self._predictions(self._outputs(X))  # (M, n, ...)
        return np.einsum("nm,mn...->n...", self._weights(groups, len(X)), predictions)

    @abstractmethod
    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        """What components' outputs ``(M, n, k)`` predict."""

    @abstractmethod
    def _losses(self, outputs: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The loss of each component at each row, ``(M, n)``."""

    def _codes(self, y: np.ndarray) -> np.ndarray:
        return y

    def _new_weights(self, X: Any, y: Any) -> np.ndarray:
        """The weights that maximise the likelihood of new rows, ``(M,)``: EM, to convergence, as it is concave."""
        check_is_fitted(self)
        X, y = self._checked(X, y, reset=False)
        losses = self._losses(self._outputs(X), self._codes(y)).T
        return fit_groups(losses, np.array([len(losses)]), np.full(losses.shape[1], 1 / losses.shape[1]))[0]

    def personalize(self, X: Any, y: Any) -> Self:
        """An estimator for a client that did not take part in training, from its own rows alone.

        The components stay as they are, and so does this estimator: the new one differs in the weights with which it
        mixes them, for all rows that it predicts.
        """
        weights = self._new_weights(X, y)
        own = copy.copy(self)
        own.groups_, own.mixture_weights_, own.average_weights_ = np.zeros(1, int), weights[None], weights
        return own

    def add_group(self, group: Any, X: Any, y: Any) -> Self:
        """Gives a client that did not take part in training a name, and weights fitted to its own rows.

        A group that is known already gets new weights. The average that rows of unknown groups use stays that of
        training.
        """
        encode_groups([group], 1)
        weights = self._new_weights(X, y)
        known = self.groups_.tolist()
        if group in known:
            self.mixture_weights_ = self.mixture_weights_.copy()
            self.mixture_weights_[known.index(group)] = weights
        else:
            self.groups_ = as_names([*known, group])
            self.mixture_weights_ = np.vstack([self.mixture_weights_, weights])
        return self


class FedEMClassifier(ClassifierMixin, FedEM):
    __doc__ = f"""A mixture of logistic (softmax) regressions, with weights of its own for each group, by FedEM.

    Where max_iter rounds were too few, as for features that are not standardised, a ``ConvergenceWarning`` says so.
{PARAMETERS}
    Attributes
    ----------
    classes_ : array (n_classes,)
    groups_ : array (n_groups,), the groups of training, sorted
    mixture_weights_ : array (n_groups, n_components)
    average_weights_ : array (n_components,), their average, weighted by the groups' rows
    component_coef_ : array (n_components, 1 or n_classes, n_features); for two classes, the log-odds of the second
    component_intercept_ : array (n_components, 1 or n_classes)
    learning_rate_, n_iter_, n_features_in_, feature_names_in_
    history_ : list of dictionaries with ``round`` and ``loss``, the mean negative log-likelihood of the last rounds

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> groups = np.repeat(["a", "b"], 100)
    >>> y = (X[:, 0] > 0) ^ (groups == "b")  # what is true of one group is false of the other
    >>> model = FedEMClassifier(2, random_state=0).fit(X, y, groups)
    >>> model.score(X, y, groups=groups) > 0.95
    True
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Trains on rows X with labels y; ``groups`` names the client of each row, None is a single client."""
        X, y = self._checked(X, y, reset=True)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs at least 2 classes, but y has one class only: {self.classes_[0]!r}")
        self._train(X, codes.astype(np.int32), groups, len(self.classes_))
        self._warn_if_unfinished(
            X, codes, np.zeros(len(X), int) if groups is None else encode_groups(groups, len(X))[1]
        )
        return self

    def _warn_if_unfinished(self, X: np.ndarray, y: np.ndarray, codes: np.ndarray) -> None:
        """Warns where the features say much about errors that are left: of components, or of their mixture.

        The second derivative of the loss in the outputs is at most 1/4 (1/2 with several), so that a least squares fit
        to the errors lowers the loss by at least what it explains over twice that, whatever the features' scale.
        """
        outputs = self._outputs(X)
        joint = np.log(np.maximum(self.mixture_weights_[codes], 1e-300)) - self._losses(outputs, y).T  # (n, M)
        likely, truth = self._predictions(outputs), np.eye(len(self.classes_))[y]
        mixed = np.einsum("nm,mnk->nk", self.mixture_weights_[codes], likely)
        bound, asked = (0.25, [1]) if len(self.classes_) == 2 else (0.5, range(len(self.classes_)))
        left = lambda errors, shares: sum(possible_gain(X, errors[..., k], shares) for k in asked) / (2 * bound)
        gain = max(left(truth - likely, softmax(joint, axis=1)), left((truth - mixed)[None], np.ones((len(X), 1))))
        if gain > UNFINISHED / 2:
            words = (
                f"FedEMClassifier has not converged after {self.max_iter} rounds: a least squares fit to its errors"
                f" would lower its mean loss by {gain:.2g} or more. Standardise the features, or increase max_iter"
            )
            warnings.warn(words, ConvergenceWarning, stacklevel=3)

    def predict_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        """The probability of each class, ``(n, n_classes)``.

        Rows of a group that is known are predicted with that group's own weights. Rows of other groups, and all rows
        where no groups are given after training on several, use the average of the weights over the rows of training.
        """
        return self._mixed(X, groups)

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """The most probable class of each row; see `predict_proba` for what groups do."""
        most_probable = self._mixed(X, groups).argmax(axis=1)
        return self.classes_[most_probable]

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """The accuracy, with the groups' own models where they are given."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        if outputs.shape[-1] > 1:
            return softmax(outputs, axis=-1)
        return np.concatenate([expit(-outputs), expit(outputs)], axis=-1)

    def _losses(self, outputs: np.ndarray, codes: np.ndarray) -> np.ndarray:
        if outputs.shape[-1] == 1:
            return np.logaddexp(0, np.where(codes > 0, -outputs[..., 0], outputs[..., 0]))
        return logsumexp(outputs, axis=-1) - outputs[:, np.arange(len(codes)), codes]

    def _codes(self, y: np.ndarray) -> np.ndarray:
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        unknown = np.unique(y[self.classes_[codes] != y])
        if len(unknown):
            raise ValueError(
                f"labels [{some(unknown.tolist())}] were not in the training data: classes_ has the known ones"
            )
        return codes


class FedEMRegressor(RegressorMixin, FedEM):
    __doc__ = f"""A mixture of linear regressions, with weights of its own for each group, by FedEM.

    Components are Gaussian. Training is on y less its mean, in units of their standard deviation ``noise``; what is
    learned, and predicted, is in the units of y. Where max_iter rounds were too few, a ``ConvergenceWarning`` says so.
{PARAMETERS}    noise : float or "auto", default "auto"
        The standard deviation of the components, in the units of y. A larger one makes the components alike, a smaller
        one makes rows choose one. "auto" is that of the residuals of the groups' own least squares fits.
    Attributes
    ----------
    groups_ : array (n_groups,), the groups of training, sorted
    mixture_weights_ : array (n_groups, n_components)
    average_weights_ : array (n_components,), their average, weighted by the groups' rows
    component_coef_ : array (n_components, 1, n_features)
    component_intercept_ : array (n_components, 1)
    noise_ : float
    learning_rate_, n_iter_, n_features_in_, feature_names_in_
    history_ : list of dictionaries with ``round`` and ``loss``, the mean negative log-likelihood of the last rounds

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> groups = np.repeat(["a", "b"], 100)
    >>> y = 5 * np.where(groups == "a", X[:, 0], -X[:, 0])
    >>> model = FedEMRegressor(2, random_state=0).fit(X, y, groups)
    >>> model.score(X, y, groups=groups) > 0.9
    True
    """

    def __init__(
        self,
        n_components: int = 3,
        *,
        max_iter: int = 100,
        learning_rate: float | str = "auto",
        local_epochs: int = 1,
        batch_size: int | None = 32,
        participation: float = 1.0,
        noise: float | str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            n_components,
            max_iter=max_iter,
            learning_rate=learning_rate,
            local_epochs=local_epochs,
            batch_size=batch_size,
            participation=participation,
            random_state=random_state,
        )
        self.noise = noise

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Trains on rows X with values y; ``groups`` names the client of each row, None is a single client."""
        X, y = self._checked(X, y, reset=True, y_numeric=True)
        self._check_parameters()
        y = y.astype(np.float64)
        single_precision(y, "y")
        codes = np.zeros(len(X), int) if groups is None else encode_groups(groups, len(X))[1]
        middle = y.mean()
        self.noise_ = residual_scale(X, y, codes) if isinstance(self.noise, str) else float(self.noise)
        self._train(X, single_precision((y - middle) / self.noise_, "y, in units of the noise"), groups, 0)
        self.component_coef_ = self.component_coef_ * self.noise_
        self.component_intercept_ = self.component_intercept_ * self.noise_ + middle
        self._warn_if_unfinished(X, y, codes)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.noise, str):
            if self.noise != "auto":
                raise ValueError(f'noise must be "auto" or a positive number, got {self.noise!r}')
        else:
            check_scalar(self.noise, "noise", Real, min_val=0, include_boundaries="neither")

    def _warn_if_unfinished(self, X: np.ndarray, y: np.ndarray, codes: np.ndarray) -> None:
        """Warns where least squares fits with the rows' final shares in the components would be much better."""
        outputs = self._outputs(X)
        joint = np.log(np.maximum(self.mixture_weights_[codes], 1e-300)) - self._losses(outputs, y).T  # (n, M)
        shares = softmax(joint, axis=1)
        gain = possible_gain(X, (y - outputs[..., 0]) / self.noise_, shares)
        if gain > UNFINISHED:
            words = (
                f"FedEMRegressor has not converged after {self.max_iter} rounds: least squares would lower its mean "
                f"squared error by {gain:.2g} times the noise's variance. Standardise the features, or increase "
                "max_iter"
            )
            warnings.warn(words, ConvergenceWarning, stacklevel=3)

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """The predicted value of each row.

        Rows of a group that is known are predicted with that group's own weights. Rows of other groups, and all rows
        where no groups are given after training on several, use the average of the weights over the rows of training.
        """
        return self._mixed(X, groups)

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """The coefficient of determination R², with the groups' own models where they are given."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        return outputs[..., 0]

    def _losses(self, outputs: np.ndarray, codes: np.ndarray) -> np.ndarray:
        return 0.5 * np.square((outputs[..., 0] - codes) / self.noise_)


def single_precision(values: np.ndarray, name: str) -> np.ndarray:
    """Numbers as float32, or an error where they are too large for it."""
    if np.abs(values).max(initial=0) > np.finfo(np.float32).max:
        raise ValueError(f"{name} has values above 3.4e38, too large for single precision: scale it")
    return values.astype(np.float32, copy=False)
