"""Basic surrogate optimization: majorize, minimise the majorant, repeat; the objective never increases.

With a surrogate g near (u^{k−1}, v^{k−1}) of f, on samples that lie in one place::

    v^k = argmin_v g(u^{k−1}, v),        u^k = argmin_u g(u, v^k)

so that f(u^k, v^k) ≤ g(u^k, v^k) ≤ g(u^{k−1}, v^{k−1}) = f(u^{k−1}, v^{k−1}).

References: Mairal, *Optimization with first-order surrogate functions*, ICML 2013; Marfoq et al., NeurIPS 2021,
Algorithm 6.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from majorant.core import ClientData, Tree
from majorant.data.federated import FederatedData
from majorant.math.checks import check_whole
from majorant.solvers import whole
from majorant.surrogates.inputs import samples_of
from majorant.surrogates.partial import Coefficients, PartialSurrogate, minimizer


class Minimized(NamedTuple):
    """What centralized surrogate optimization gives: the point, and f before and after every iteration."""

    u: Tree
    v: Tree
    values: jax.Array  # (iterations + 1,)


def minimize_by_surrogates(
    surrogate: PartialSurrogate,
    data: FederatedData | ClientData | tuple[np.ndarray, np.ndarray],
    *,
    iterations: int,
    start: Tree | None = None,
    seed: int = 0,
) -> Minimized:
    """Basic surrogate optimization (Algorithm 6) on pooled samples: majorize, minimise in v, minimise in u, repeat.

    ``data`` is pairs ``(x, y)``, one client, or federated data, whose training samples are pooled. Where the surrogate
    has no exact minimiser in u, L-BFGS finds one. The values never increase.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=5, dimension=3, seed=0)
    >>> found = minimize_by_surrogates(mj.surrogates.logistic_bound(data), data, iterations=20)
    >>> bool(found.values[-1] < found.values[0])
    True
    """
    check_whole("iterations", iterations, least=0)
    samples, key = samples_of(data), jax.random.key(seed)
    x, y = (np.concatenate(parts) for parts in zip(*samples, strict=True))
    pooled = ClientData(jnp.asarray(x), jnp.asarray(y), jnp.asarray(len(y)), jnp.asarray(0))
    u = surrogate.init(key) if start is None else start

    def minimize_u(coefficients: Coefficients, u: Tree, v: Tree) -> Tree:
        if surrogate.minimize_u is not None:
            return surrogate.minimize_u(coefficients, v, pooled)
        return minimizer(lambda u: surrogate.value(coefficients, u, v, whole(pooled)), u)

    def iterate(at: tuple[Tree, Tree], _: None) -> tuple[tuple[Tree, Tree], jax.Array]:
        u, v = at
        coefficients = surrogate.majorize(u, v, pooled)
        v = surrogate.minimize_v(coefficients, u, pooled)
        u = minimize_u(coefficients, u, v)
        return (u, v), surrogate.objective(u, v, pooled)

    def run(u: Tree, v: Tree) -> Minimized:
        (last_u, last_v), values = jax.lax.scan(iterate, (u, v), length=iterations)
        return Minimized(last_u, last_v, jnp.append(surrogate.objective(u, v, pooled), values))

    return jax.jit(run)(u, surrogate.init_v(pooled, key))
