"""Synthetic logistic regressions with a level of heterogeneity: the data of the unified framework's simulations.

Every client m has its own coefficients, around a level μ_m ~ N(0, σ²) that it draws for itself; labels are
y ~ Bernoulli(sigmoid(⟨x, coefficients⟩)).

    personal  w* ~ U[0.49, 0.51]^d,  β_m* = w* + U[μ_m − 0.01, μ_m + 0.01]^d,  x ~ U[0.2, 0.5]^d           (Section 5.1)
    shared    w* ~ N(0, 1)^g,        β_m* ~ U[μ_m − 0.01, μ_m + 0.01]^l,       x ~ U[0, 0.1]^{g+l}         (Section 5.2)

In the first the whole vector of coefficients is personal; in the second its first ``shared`` entries are everybody's.
The paper prints P(y = 1) = 1/(1 + exp(+…)); here data and model have one sign.

Reference: Hanzely, Zhao, Kolar, *Personalized federated learning: a unified framework and universal optimization
techniques*, TMLR 2023, Section 5.
"""

from __future__ import annotations

import numpy as np

from majorant.data.checks import check_seed
from majorant.data.federated import FederatedData, Ragged
from majorant.data.splitting import draw_unseen, offsets_of
from majorant.math.checks import check_whole
from majorant.math.room import refuse_too_large


def heterogeneous_logistic(
    *,
    sigma: float = 0.3,
    clients: int = 20,
    samples: int = 1000,
    test_samples: int = 200,
    dimension: int = 15,
    shared: int = 0,
    seed: int = 0,
    unseen: float = 0.0,
) -> FederatedData:
    """Clients with logistic regressions that differ by ``sigma``; ``shared`` of the coefficients are the same for all.

    ``truth`` holds ``w``, the shared coefficients (or, with ``shared`` = 0, those around which all clients lie), and
    ``beta`` (clients, …), the personal ones.

    >>> data = heterogeneous_logistic(clients=3, samples=10, dimension=4, shared=1)
    >>> data.train.x.shape, data.truth["w"].shape, data.truth["beta"].shape
    ((30, 4), (1,), (3, 3))
    """
    counts = {"clients": clients, "samples": samples, "dimension": dimension, "test_samples": test_samples}
    for name, value in counts.items():
        check_whole(name, value)
    if not 0 <= sigma < np.inf:
        raise ValueError(f"sigma is a standard deviation: it must be finite and at least 0, got {sigma}")
    if not 0 <= shared < dimension:
        raise ValueError(f"shared must be at least 0 and less than the dimension, {dimension}, got {shared}")
    refuse_too_large(
        f"{clients} clients with {samples} and {test_samples} samples of {dimension} features",
        12 * clients * (samples + test_samples) * dimension,  # drawn in double precision, kept in single
        "give fewer clients, samples or features",
    )
    rng = np.random.default_rng(check_seed(seed))
    level = rng.normal(0, sigma, (clients, 1))
    beta = level + rng.uniform(-0.01, 0.01, (clients, dimension - shared))
    if shared:
        w = rng.normal(size=shared)
        coefficients, low, high = np.concatenate([np.tile(w, (clients, 1)), beta], axis=1), 0.0, 0.1
    else:
        w = rng.uniform(0.49, 0.51, dimension)
        coefficients = beta = w + beta
        low, high = 0.2, 0.5

    def draw(count: int) -> Ragged:
        x = rng.uniform(low, high, (clients, count, dimension)).astype(np.float32)
        score = np.einsum("mnd,md->mn", x, coefficients)
        y = (score > rng.logistic(size=score.shape)).astype(np.int32)  # u < sigmoid(a) exactly when logit(u) < a
        return Ragged(x.reshape(-1, dimension), y.ravel(), offsets_of(np.full(clients, count)))

    train, test = draw(samples), draw(test_samples)
    empty = Ragged(train.x[:0], train.y[:0], np.zeros(clients + 1, np.int64))
    names = tuple(str(m) for m in range(clients))
    away, truth = draw_unseen(clients, unseen, seed), {"w": w, "beta": beta}
    return FederatedData(train, empty, test, away, names, (0, 1), "logistic", truth)
