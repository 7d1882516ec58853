"""Optimal transport maps onto a public reference, learnt from rows that stay with their groups."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_scalar
from sklearn.utils.validation import check_is_fitted

from majorant.core import blockwise
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData
from majorant.engines.options import Evaluation
from majorant.engines.simulator import simulate
from majorant.estimators.barycentre import Barycentre, gaussian_barycentre
from majorant.estimators.base import Grouped, GroupedEstimator, grouped, seed_of
from majorant.exchange.channel import quantized
from majorant.exchange.participation import full, uniform
from majorant.methods.transport import transport
from majorant.models.convex import Potential, dense_icnn
from majorant.surrogates.transport import LOSSES, check_reference, in_gaussian_coordinates

RIDGE = 1e-6  # of the mean variance, so that constant columns do no harm
DIRECTIONS = 128  # of the sliced distance
TINY = float(np.finfo(np.float32).tiny)
KEPT = 5_000  # reference rows that are kept for scores
ENOUGH = 30  # held-out rows on either side; with fewer, nothing is held out


class HeldOut(NamedTuple):
    """Distances as in `score`, on rows that no network was learnt from; both maps know the moments of all rows."""

    rows: int
    network: float
    gaussian: float

    @property
    def words(self) -> str:
        """Which map is better there."""
        both = f"{self.network:.4g} by the networks, {self.gaussian:.4g} by the Gaussian map alone"
        better = ", which is better: take that, or more rounds" if self.gaussian < self.network else ""
        return f"on {self.rows} rows that were held out: {both}{better}"


class FederatedTransport(TransformerMixin, GroupedEstimator):
    """One map that carries the rows of all groups together onto a public reference; rows never leave their group.

    First the groups send counts, sums and products of their rows: the Gaussian map follows from them, which is exact
    for Gaussians. Then, unless ``method`` is "gaussian", FedMM-OT learns what is left in the coordinates of that map,
    by convex networks (`majorant.methods.transport`).

    Parameters
    ----------
    method : "network" or "gaussian", default "network"
    loss : "max-min" or "cycle", default "max-min"
    cycle : float, default 1.0
        The weight λ of the round trip in the "cycle" loss, at least 0.
    max_iter : int, default 500
        Rounds.
    learning_rate : float, default 2e-3
    batch_size : int, default 256
    inner_steps : int, default 10
        Steps that the server takes on the inverse map in a round.
    participation : float, default 1.0
        The share of the groups that takes part in a round, in (0, 1].
    bits : int or None, default None
        The bits a number takes on its way to the server, from 2 to 16; None: nothing is compressed.
    hidden : tuple of int or None, default None
        The widths of the dense convex network; None: those of the Wasserstein-2 benchmark.
    validation_fraction : float, default 0.1
        The share of every group's rows, and of the reference, that networks are not learnt from but compared on with
        the Gaussian map; where that is better, a ``ConvergenceWarning`` says so. 0: nothing is held out or compared.
    random_state : int, RandomState or None, default None

    Attributes
    ----------
    mean_, covariance_ : of all groups' rows together, as the server knows them
    coordinates_ : those of the Gaussian map
    barycentre_ : mean, covariance and rounds of the groups' barycentre where that is the reference, or None
    potentials_ : (parameters of f, parameters of its conjugate), or None for the Gaussian map alone
    held_out_ : `HeldOut`, the distances that both maps leave on rows that were held out; None where none were
    bytes_up_ : int, what all groups have sent in the rounds
    groups_, n_iter_, n_features_in_, feature_names_in_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(200, 2)), rng.normal(size=(300, 2)) @ [[2.0, 0.5], [0.5, 1.0]] + 3.0
    >>> model = FederatedTransport(method="gaussian").fit(X, groups=np.arange(200) % 4, reference=Y)
    >>> bool(np.allclose(model.transform(X).mean(axis=0), Y.mean(axis=0), atol=1e-3))
    True
    """

    def __init__(
        self,
        *,
        method: str = "network",
        loss: str = "max-min",
        cycle: float = 1.0,
        max_iter: int = 500,
        learning_rate: float = 2e-3,
        batch_size: int = 256,
        inner_steps: int = 10,
        participation: float = 1.0,
        bits: int | None = None,
        hidden: tuple[int, int, int] | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.loss = loss
        self.cycle = cycle
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.inner_steps = inner_steps
        self.participation = participation
        self.bits = bits
        self.hidden = hidden
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, groups: Any = None, *, reference: Any = None) -> Self:
        """Learns the map from rows X to the rows ``reference``; ``groups`` names the client of each row of X.

        Where no rows are public, "barycentre" is a reference that the groups make: the Gaussian nearest to all of them
        (`majorant.estimators.barycentre`), from which rows are drawn.
        """
        X = self._checked(X, reset=True, ensure_min_samples=2)
        self._check_parameters()
        self.barycentre_ = None
        if not isinstance(reference, str):
            reference = self._check_reference(reference)
        data = grouped(X, groups=groups)
        if isinstance(reference, str):
            self.barycentre_ = barycentre_of(data, reference)
            reference = self.barycentre_.sample(max(KEPT, 10 * X.shape[1]))
        self.groups_, self.bytes_up_, self.n_iter_ = data.names, 0, 1
        self.mean_, self.covariance_ = moments(data.samples.x, data.samples.offsets)
        target, spread = moments(reference, np.array([0, len(reference)]))
        ridge = RIDGE * np.eye(X.shape[1])
        size = lambda covariance: max(float(np.trace(covariance)) / len(covariance), TINY)
        self.coordinates_ = in_gaussian_coordinates(
            self.mean_, self.covariance_ + size(self.covariance_) * ridge, target, spread + size(spread) * ridge
        )
        kept = np.random.default_rng(0).permutation(len(reference))[:KEPT]
        self.reference_, self.reference_variance_ = reference[kept], max(float(np.trace(spread)), 1e-300)
        self.potentials_: tuple[Any, ...] | None = None
        self.held_out_: HeldOut | None = None
        if self.method == "network":
            self._learn_and_compare(data, reference)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Rows carried onto the reference."""
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        inside = self.coordinates_.into(X)
        return self.coordinates_.out(self._moved(inside, 0)).astype(X.dtype)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Rows of the reference carried back."""
        check_is_fitted(self)
        X = check_array(X, dtype=(np.float64, np.float32))
        if X.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {X.shape[1]} features, and the map is for {self.n_features_in_}")
        inside = self.coordinates_.reference_into(X)
        return self.coordinates_.source_out(self._moved(inside, 1)).astype(X.dtype)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the squared sliced Wasserstein-2 distance between transported rows and reference, over its variance.

        0 is best. The reference is the one of ``fit``; the directions are always the same.
        """
        return -sliced_distance(self.transform(X), self.reference_) / self.reference_variance_

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that `transform` gives: those of X."""
        check_is_fitted(self)
        own = getattr(self, "feature_names_in_", None)
        return np.array([f"x{i}" for i in range(self.n_features_in_)], object) if own is None else own

    @property
    def _network(self) -> Potential:
        return dense_icnn(self.n_features_in_, hidden=self.hidden)

    def _learn_and_compare(self, data: Grouped, reference: np.ndarray) -> None:
        """Learns networks from most rows, and says how they do on the others beside the map that they start from."""
        x, owner = data.samples.x, np.repeat(np.arange(data.clients), data.samples.sizes)
        out, out_y = (held_out(n, self.validation_fraction) for n in (data.samples.sizes, [len(reference)]))
        if min(out.sum(), out_y.sum()) < ENOUGH:
            out, out_y = np.zeros_like(out), np.zeros_like(out_y)
        self._learn(x[~out], owner[~out], reference[~out_y])
        if not out.any():
            return
        far = lambda inside: sliced_distance(self.coordinates_.out(inside), reference[out_y]) / self.reference_variance_
        inside = self.coordinates_.into(x[out])
        self.held_out_ = HeldOut(int(out.sum()), far(self._moved(inside, 0)), far(inside))
        if self.held_out_.gaussian < self.held_out_.network:
            warnings.warn(self.held_out_.words, ConvergenceWarning, stacklevel=3)

    def _learn(self, x: np.ndarray, owner: np.ndarray, reference: np.ndarray) -> None:
        inside = self.coordinates_.into(x).astype(np.float32)
        data = FederatedData.unlabelled(inside, clients=owner)
        algorithm = transport(
            data,
            self.coordinates_.reference_into(reference).astype(np.float32),
            network=self._network,
            loss=self.loss,
            cycle=self.cycle,
            lr=self.learning_rate,
            inner_steps=self.inner_steps,
            alpha=0.1 if self.participation < 1 else 0.0,
            batch_size=self.batch_size,
        )
        with jax.enable_x64(False):
            run = simulate(
                algorithm,
                data,
                rounds=self.max_iter,
                seed=seed_of(self.random_state),
                participation=full() if self.participation == 1 else uniform(self.participation),
                channel=None if self.bits is None else quantized(self.bits),
                evaluation=Evaluation(every=self.max_iter),
            )
        self.potentials_ = tuple(jax.tree.map(np.asarray, part) for part in run.server.value)
        self.n_iter_, self.bytes_up_ = self.max_iter, run.communication[0]["bytes_up"]
        self._check_potentials()

    def _moved(self, inside: np.ndarray, which: int) -> np.ndarray:
        """The gradient of f (0) or of its conjugate (1) at rows in the map's coordinates."""
        if self.potentials_ is None:
            return inside
        params, hidden = self.potentials_[which], None if self.hidden is None else tuple(self.hidden)
        with jax.enable_x64(False):
            return np.asarray(gradients(self.n_features_in_, hidden)(params, inside.astype(np.float32)), float)

    def _check_potentials(self) -> None:
        """Refuses parameters that are not finite or not those of convex networks: after training and after loading."""
        for params in self.potentials_ or ():
            self._network.check(params)

    def _check_parameters(self) -> None:
        if self.method not in ("network", "gaussian"):
            raise ValueError(f"method must be 'network' or 'gaussian', got {self.method!r}")
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")
        for name in (
            "cycle",
            "learning_rate",
            "participation",
            "validation_fraction",
        ):  # not a number is neither below a bound nor above
            check_scalar(getattr(self, name), name, Real)
            if not np.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, got {getattr(self, name)}")
        check_scalar(self.cycle, "cycle", Real, min_val=0)
        for name in ("max_iter", "batch_size", "inner_steps"):
            check_scalar(getattr(self, name), name, Integral, min_val=1)
        check_scalar(self.learning_rate, "learning_rate", Real, min_val=0, include_boundaries="neither")
        check_scalar(self.participation, "participation", Real, min_val=0, max_val=1, include_boundaries="right")
        check_scalar(
            self.validation_fraction, "validation_fraction", Real, min_val=0, max_val=1, include_boundaries="left"
        )
        if self.bits is not None:
            check_scalar(self.bits, "bits", Integral, min_val=2, max_val=16)
        _ = self._network  # refuses widths that it cannot have

    def _check_reference(self, reference: Any) -> np.ndarray:
        if reference is None:
            raise ValueError(
                "a transport map needs where to: give reference, public rows with the columns of X, or 'barycentre'"
            )
        rows = np.asarray(reference)
        check_reference(rows, self.n_features_in_)
        return rows.astype(np.float64)


@functools.lru_cache(maxsize=8)
def gradients(dimension: int, hidden: tuple[int, ...] | None) -> Callable[..., jax.Array]:
    """The program that takes parameters of a network, and rows, to the network's gradients at these."""
    network = dense_icnn(dimension, hidden=hidden)
    return jit(lambda params, rows: blockwise(lambda x: network.gradient(params, x), rows))


def barycentre_of(data: Grouped, word: str) -> Barycentre:
    """The barycentre of the groups, each with a Gaussian of its own rows."""
    if word != "barycentre":
        raise ValueError(f"reference must be rows or the word 'barycentre', got {word!r}")
    parts = [moments(x, np.array([0, len(x)])) for x in np.split(data.samples.x, data.samples.offsets[1:-1])]
    d = data.samples.x.shape[1]
    ridge = RIDGE * max(sum(float(np.trace(c)) for _, c in parts) / (d * len(parts)), TINY) * np.eye(d)
    return gaussian_barycentre(
        np.stack([mean for mean, _ in parts]), np.stack([c + ridge for _, c in parts]), data.samples.sizes
    )


def held_out(sizes: Sequence[int] | np.ndarray, share: float) -> np.ndarray:
    """A mask over the rows of groups of these sizes: of each group a share, rounded down, drawn always in one way.

    >>> held_out([4, 1, 5], 0.5).sum()
    np.int64(4)
    """
    rng = np.random.default_rng(0)
    return np.concatenate([rng.permutation(np.arange(size) < int(share * size)) for size in sizes])


def moments(x: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all groups' rows from what each sends: its count, the sum and the products of its rows.

    Products are taken around the mean, which is known after the sums: two short messages, and no digit is lost.
    """
    count, d = int(offsets[-1]), x.shape[1]
    x = x.astype(np.float64)
    parts = [x[a:b] for a, b in itertools.pairwise(offsets)]
    mean = sum((part.sum(axis=0) for part in parts), np.zeros(d)) / count
    products = sum(((part - mean).T @ (part - mean) for part in parts), np.zeros((d, d)))
    return mean, products / count


def sliced_distance(x: np.ndarray, y: np.ndarray) -> float:
    """The mean squared Wasserstein-2 distance of projections onto lines, times the number of features.

    >>> sliced_distance(np.zeros((3, 1)), np.full((5, 1), 2.0))
    4.0
    """
    d = x.shape[1]
    directions = np.random.default_rng(0).normal(size=(d, DIRECTIONS))
    directions /= np.linalg.norm(directions, axis=0)
    levels = (np.arange(512) + 0.5) / 512
    a, b = (np.quantile(rows.astype(float) @ directions, levels, axis=0) for rows in (x, y))
    return d * float(((a - b) ** 2).mean())
