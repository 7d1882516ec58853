"""Synthetic mixtures of linear classifiers: the data of FedEM's experiments, where the true parameters are known.

    π_t ~ Dirichlet(α),  θ_m ~ U[−1, 1]^d,  n_t = min(50 + ⌊LogNormal(4, 2)⌋, 1000)
    x ~ U[−1, 1]^d,  z ~ π_t,  y ~ Bernoulli(sigmoid(⟨x, θ_z⟩ + ε))

Reference: Marfoq et al., "Federated Multi-Task Learning under a Mixture of Distributions", 2021, App. I.1.5 and J.4.

The text and the authors' generator differ, so there are two variants. The paper adds ε ~ N(0, I_d), a vector, to a
number: here ε ~ N(0, 1). It leaves out α, d and M: the defaults are the generator's. The generator itself

- draws how often each component occurs at a client, rather than each sample's component;
- uses noise of scale 0.1 and *rounds* the sigmoid, so a label is the sign of the noisy logit;
- never advances the row at which a component writes its labels: each one overwrites the first rows, and the rows past
  the largest count, about 27 % of them, keep the label 0 whatever their features say;
- trains on all n_t samples, without validation, and draws further test samples for every client.
"""

from __future__ import annotations

import numpy as np

from majorant.data.checks import check_seed
from majorant.data.federated import FederatedData, Ragged
from majorant.data.splitting import draw_unseen, offsets_of, split_counts
from majorant.math.checks import check_whole
from majorant.math.room import refuse_too_large

NOISE = {"paper": 1.0, "released": 0.1}  # the variants, and the scale of ε in each
BLOCK = 65536  # samples whose logits are computed at once


def synthetic_mixture(
    *,
    clients: int = 300,
    components: int = 3,
    dimension: int = 150,
    alpha: float = 0.4,
    variant: str = "paper",
    one_hot: bool = False,
    test_samples: int = 5000,
    noise: float | None = None,
    seed: int = 0,
    unseen: float = 0.0,
) -> FederatedData:
    """Clients whose samples come from one set of linear classifiers, mixed in proportions of their own.

    ``variant="paper"`` follows the text and splits the n_t samples of a client 60/20/20. ``variant="released"`` follows
    the authors' generator, faults included: all n_t samples train, and ``test_samples`` more test; only this variant
    reads that option. ``one_hot`` gives every client a single component, chosen uniformly (App. J.4). ``noise`` is the
    scale of ε, by default 1 ("paper") or 0.1 ("released"). ``unseen`` is the share of clients kept out of training.

    ``truth`` holds ``theta`` (M, d) and ``pi`` (T, M). In the released variant ``pi`` is what the counts are drawn
    from; because components overwrite each other, the labels follow other proportions.

    >>> data = synthetic_mixture(clients=5, dimension=4, seed=1)
    >>> data.clients, data.spec, data.truth["pi"].shape
    (5, Spec(features=(4,), classes=2), (5, 3))
    """
    for name, value in {"clients": clients, "components": components, "dimension": dimension}.items():
        check_whole(name, value)
    if not alpha > 0:
        raise ValueError(f"alpha, the parameter of the Dirichlet distribution, must be positive, got {alpha}")
    if variant not in NOISE:
        raise ValueError(f"variant must be one of {', '.join(map(repr, NOISE))}, got {variant!r}")
    if variant == "released":
        check_whole("test_samples", test_samples)
    scale = NOISE[variant] if noise is None else noise
    if not 0 <= scale < np.inf:
        raise ValueError(f"noise is a standard deviation: it must be finite and at least 0, got {noise}")
    samples = clients * (150 if variant == "paper" else 150 + test_samples)  # about: a client has at least 50
    refuse_too_large(
        f"{clients} clients of {dimension} features",
        4 * samples * dimension + 8 * (components * dimension + clients * components),
        "give fewer clients, features or components",
    )

    rng = np.random.default_rng(check_seed(seed))
    sizes = np.minimum(50 + rng.lognormal(4, 2, clients).astype(np.int64), 1000)
    if one_hot:
        pi = np.eye(components)[rng.integers(components, size=clients)]
    else:
        pi = rng.dirichlet(np.full(components, alpha), clients)
    theta = rng.uniform(-1, 1, (components, dimension)).astype(np.float32)

    if variant == "paper":  # samples are independent, so drawing each part by itself is a random split
        counts = split_counts(sizes, (0.6, 0.2, 0.2), np.arange(clients)).T
        train, validation, test = (draw(rng, n, independent_components(rng, n, pi), theta, scale) for n in counts)
    else:
        counts = np.stack([sizes, np.zeros_like(sizes), np.full_like(sizes, test_samples)])
        train, validation, test = (
            draw(rng, n, overwritten_components(rng, n, pi), theta, scale, rounded=True) for n in counts
        )
    names = tuple(str(t) for t in range(clients))
    away = draw_unseen(clients, unseen, seed)
    truth: dict[str, np.ndarray] = {"theta": theta, "pi": pi}
    return FederatedData(train, validation, test, away, names, (0, 1), f"synthetic-{variant}", truth)


def independent_components(rng: np.random.Generator, sizes: np.ndarray, pi: np.ndarray) -> np.ndarray:
    """The component of every sample, drawn from its client's weights."""
    thresholds = np.repeat(np.cumsum(pi, axis=1)[:, :-1], sizes, axis=0)  # (N, M − 1)
    return (rng.random((len(thresholds), 1)) >= thresholds).sum(axis=1)


def overwritten_components(rng: np.random.Generator, sizes: np.ndarray, pi: np.ndarray) -> np.ndarray:
    """The component whose label survives at every sample in the released generator; −1 where none was written.

    Component m writes rows 0 … count_m − 1, one component after the other: row r keeps the last m with count_m > r.
    """
    counts = rng.multinomial(sizes, pi)  # (T, M)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    row = np.arange(sizes.sum()) - offsets_of(sizes)[owner]
    written = row[:, None] < counts[owner]  # (N, M)
    z = np.where(written, np.arange(pi.shape[1]), -1).max(axis=1)
    return z[np.lexsort((rng.random(len(z)), owner))]  # features are exchangeable: shuffling z shuffles the samples


def draw(
    rng: np.random.Generator,
    sizes: np.ndarray,
    z: np.ndarray,
    theta: np.ndarray,
    scale: float,
    rounded: bool = False,
) -> Ragged:
    """Features, and the labels that each sample's component gives them; z = −1 means label 0."""
    x = np.empty((len(z), theta.shape[1]), np.float32)
    y = np.empty(len(z), np.int32)
    for start in range(0, len(z), BLOCK):  # in place and in blocks: the features exist once
        rows = slice(start, start + BLOCK)
        rng.random(out=x[rows], dtype=np.float32)
        x[rows] *= 2
        x[rows] -= 1
        logits = np.take_along_axis(x[rows] @ theta.T, np.maximum(z[rows], 0)[:, None], axis=1)[:, 0]
        logits = logits + scale * rng.standard_normal(len(logits))
        # u < sigmoid(a) exactly when logit(u) < a; a rounded sigmoid is the case u = 1/2
        threshold = 0.0 if rounded else rng.logistic(size=len(logits))
        y[rows] = (z[rows] >= 0) & (logits > threshold)
    return Ragged(x, y, offsets_of(sizes))
