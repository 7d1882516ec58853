"""Eigenvalues that say how fast weights mix: exact for small networks, iterative for large ones.

Expanders have a wide gap, which Lanczos' method finds in a few steps. Rings and grids have a tiny one, which it would
take for ever to resolve; but there a sparse factorisation is cheap, and inverse iteration finds it to full accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy

SMALL = 1000  # up to so many nodes, matrices are dense and results exact
NARROW = 1e-3  # gaps below this are computed by inverse iteration
RESTARTS = 12  # of Lanczos' method, about 20 products each: gaps that are not narrow need fewer
FILL = 60  # entries per node up to which the product of a period is made explicitly


def spectral_gap(weights: scipy.sparse.csr_array, symmetric: bool) -> float:
    """1 − |λ₂|, where λ₂ is the eigenvalue of W that is second in modulus."""
    nodes = weights.shape[0]
    if nodes == 1:
        return 1.0
    if symmetric:
        return distance(weights)
    if nodes <= SMALL:
        return float(1 - np.abs(np.linalg.eigvals(weights.toarray() - 1 / nodes)).max())
    operator = scipy.sparse.linalg.LinearOperator((nodes, nodes), matvec=lambda x: weights @ x - x.mean(), dtype=float)
    try:
        found = scipy.sparse.linalg.eigs(operator, k=1, v0=start(nodes), return_eigenvectors=False)
        return float(1 - np.abs(found).max())
    except scipy.sparse.linalg.ArpackNoConvergence:
        return float("nan")


def contraction(periods: Sequence[Sequence[scipy.sparse.csr_array]], symmetric: bool, gap: float) -> float:
    """1 − ‖E[PᵀP] − 11ᵀ/n‖₂, where P is the product of a period's weights and the mean is over the periods.

    ``gap`` is the spectral gap of the mean of all weights.
    """
    nodes = periods[0][0].shape[0]
    if nodes == 1:
        return 1.0
    if symmetric and len(periods) == len(periods[0]) == 1:  # then it is 1 − ρ², which a tiny gap 1 − ρ gives exactly
        return gap * (2 - gap)
    if nodes <= SMALL:
        mean = np.zeros((nodes, nodes))
        for period in periods:
            product = np.eye(nodes)
            for weights in period:
                product = weights @ product
            mean += product.T @ product / len(periods)
        return float(1 - np.abs(np.linalg.eigvalsh(mean - 1 / nodes)).max())

    square = explicit_square(periods)
    if square is not None:
        return distance(square)

    def apply(x: np.ndarray) -> np.ndarray:
        out = np.zeros(nodes)
        for period in periods:
            y = x.ravel()
            for weights in period:
                y = weights @ y
            for weights in reversed(period):
                y = weights.T @ y
            out += y / len(periods)
        return out

    found = lanczos(apply, nodes)
    return float("nan") if found is None else found


def explicit_square(periods: Sequence[Sequence[scipy.sparse.csr_array]]) -> scipy.sparse.csr_array | None:
    """E[PᵀP] as a sparse matrix, or None where it is not sparse."""
    nodes = periods[0][0].shape[0]
    total = scipy.sparse.csr_array((nodes, nodes))
    for period in periods:
        product = period[0]
        for weights in period[1:]:
            product = weights @ product
            if product.nnz > FILL * nodes:
                return None
        if np.square(np.diff(product.indptr), dtype=float).sum() > 20 * FILL * nodes:  # the work to multiply
            return None
        total = total + product.T @ product / len(periods)
        if total.nnz > FILL * nodes:
            return None
    return scipy.sparse.csr_array(total)


def distance(matrix: scipy.sparse.csr_array) -> float:
    """1 − ‖S − 11ᵀ/n‖₂ of a symmetric S with rows that sum to 1."""
    nodes = matrix.shape[0]
    if nodes <= SMALL:
        return float(1 - np.abs(np.linalg.eigvalsh(matrix.toarray() - 1 / nodes)).max())
    gap = lanczos(lambda x: matrix @ x, nodes)
    if gap is not None and gap > NARROW:
        return gap
    identity = scipy.sparse.eye_array(nodes, format="csr")
    upper = smallest(identity - matrix, skip=1)
    lower = 2 * matrix.diagonal().min()  # Gershgorin: no eigenvalue is further below 0 than this is above -1
    return upper if lower >= upper else min(upper, smallest(identity + matrix, skip=0))


def lanczos(apply: Callable[[np.ndarray], np.ndarray], nodes: int) -> float | None:
    """1 − ‖S − 11ᵀ/n‖₂ from what S does to a vector, or None where that takes too long."""
    operator = scipy.sparse.linalg.LinearOperator((nodes, nodes), matvec=lambda x: apply(x) - x.mean(), dtype=float)
    try:
        found = scipy.sparse.linalg.eigsh(
            operator, k=1, tol=1e-9, maxiter=RESTARTS, v0=start(nodes), return_eigenvectors=False
        )
    except scipy.sparse.linalg.ArpackNoConvergence:
        return None
    return float(1 - np.abs(found).max())


def smallest(matrix: scipy.sparse.csr_array, skip: int) -> float:
    """The smallest eigenvalue of a positive semidefinite matrix after ``skip`` that are known to be 0."""
    shift = 1e-10  # just below 0, where the matrix may be singular
    found = scipy.sparse.linalg.eigsh(
        scipy.sparse.csc_array(matrix), k=skip + 1, sigma=-shift, v0=start(matrix.shape[0]), return_eigenvectors=False
    )
    return float(np.clip(np.sort(found)[skip], 0, 1))


def start(nodes: int) -> np.ndarray:
    """A fixed start for iterations, so that the same network gives the same numbers."""
    return np.random.default_rng(0).standard_normal(nodes)
