"""The surrogate of expectation-maximization: a mixture of shared components, in proportions of the client's own.

u = Θ holds M components, v = π the client's weights; l is a loss that is a negative log-likelihood::

    f(Θ, π) = −(1/n_t) Σ_i log Σ_m π_m exp(−l(θ_m; s_i))
    q_im    ∝ π⁰_m exp(−l(θ⁰_m; s_i))                                               the coefficients, one row a sample
    g(Θ, π) = (1/n_t) Σ_i Σ_m q_im (l(θ_m; s_i) − log π_m + log q_im)

g − f is the mean of KL(q_i ‖ posterior at (Θ, π)), so g majorizes f and touches it at (Θ⁰, π⁰). The minimiser in π is
π*_m = (1/n_t) Σ_i q_im, at every Θ, and g(Θ, π⁰) − g(Θ, π*) = Σ_m π*_m log(π*_m / π⁰_m): the distance of condition 3 is
d(v, v') = KL(v' ‖ v), in this order. (The paper writes d_V = KL with either order; App. H's d(v^k, v^{k−1}) is
d(v^{k−1}, v^k) here.)

Reference: Marfoq et al., NeurIPS 2021, Lemmas G.3 to G.6.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import entr, xlogy

from majorant.core import ClientData, Key, Tree, masked_mean
from majorant.math.checks import check_whole
from majorant.math.mixture_weights import fit_weights
from majorant.models.base import Model
from majorant.solvers import Batch
from majorant.surrogates.partial import Coefficients, PartialSurrogate, sample_losses, without_statistics


def em_surrogate(model: Model, components: int = 3) -> PartialSurrogate:
    """The surrogate by which `surrogate_optimization` is FedEM.

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    >>> mj.surrogates.check_surrogate(mj.surrogates.em_surrogate(mj.models.linear(data), 2), data).ok
    True
    """
    check_whole("components", components)
    model = without_statistics(model)
    each = jax.vmap if model.at_once is None else lambda f: lambda a: jax.lax.map(f, a)

    def component_losses(theta: Tree, data: ClientData) -> jax.Array:
        return each(lambda theta_m: sample_losses(model, theta_m, data))(theta).T  # (n, M)

    def objective(theta: Tree, pi: jax.Array, data: ClientData) -> jax.Array:
        return -masked_mean(jax.nn.logsumexp(jnp.log(pi) - component_losses(theta, data), axis=1), data)

    def majorize(theta: Tree, pi: jax.Array, data: ClientData) -> Coefficients:
        return Coefficients(sample=jax.nn.softmax(jnp.log(pi) - component_losses(theta, data), axis=1))

    def value(coefficients: Coefficients, theta: Tree, pi: jax.Array, batch: Batch) -> jax.Array:
        q = coefficients.sample  # (batch, M)
        losses = jax.vmap(lambda theta_m: model.losses(theta_m, batch.x, batch.y))(theta).T
        return batch.mean((q * losses - xlogy(q, pi) - entr(q)).sum(axis=1))

    def uniform(data: ClientData, key: Key) -> jax.Array:
        return jnp.full(components, 1 / components)

    def random_weights(key: Key, data: ClientData) -> jax.Array:
        parts = jax.random.exponential(key, (components,))  # uniform on the simplex, once they add up to 1
        return parts / parts.sum()

    def onboard(theta: Tree, data: ClientData, key: Key) -> jax.Array:
        return fit_weights(component_losses(theta, data), data)

    def predict(theta: Tree, pi: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tensordot(pi, jax.vmap(lambda theta_m: model.predict(theta_m, x))(theta), axes=1)

    return PartialSurrogate(
        name="em",
        init=lambda key: jax.vmap(model.init)(jax.random.split(key, components)),
        objective=objective,
        majorize=majorize,
        value=value,
        predict=predict,
        init_v=uniform,
        minimize_v=lambda coefficients, theta, data: masked_mean(coefficients.sample, data),
        distance=lambda pi, other: (xlogy(other, other) - xlogy(other, pi)).sum(),
        random_v=random_weights,
        onboard=onboard,
        mixture=lambda pi: pi,
    )
