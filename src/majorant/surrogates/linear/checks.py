"""Does a linearly parameterized surrogate keep its promises? MM-1 and MM-2 tried at points far and near.

Everything is computed in double precision. Around several τ (where a run starts, its first step, and a random place),
with s = the mean statistic at τ of one client's samples, and points θ = T(s + noise) at scales from 10⁻³ to 10, which
are always in Θ:

    majorization    f(θ) against f(τ) + ψ(θ) − ψ(τ) − ⟨s, φ(θ) − φ(τ)⟩
    tangency        ∇f(τ) against ∇ψ(τ) − J_φ(τ) s
    minimiser       is T(s) beaten by any θ, or by τ?
    descent         W(T(s)) against W(τ)
    statistics      does s lie in 𝒮? is the mean over parts of the samples the statistic of all of them?
    projection      of wild points: is it in 𝒮, is it the closest point of 𝒮, and is T finite there?
    padding         do the statistic and f change with the rows after a client's samples?

The first three need ψ and φ. A violation is divided by the size of the values it is a difference of.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from majorant.core import ClientData, Key, Tree, all_finite, beside
from majorant.core.compilation import jit
from majorant.solvers import Batch, whole
from majorant.surrogates.inputs import expect, pad, samples_of
from majorant.surrogates.linear.record import LinearSurrogate
from majorant.surrogates.report import Condition, SurrogateReport

SCALES = (1e-3, 1e-2, 0.1, 1.0, 10.0)  # of the noise, relative to the size of each array of the statistic
BASES = 3
PADDING = 3
TINY = 1e-200
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Finding(NamedTuple):
    """Violations of one condition at several points."""

    violation: jax.Array  # (k,)
    theta: Tree  # (k, ...)


def check_linear_surrogate(
    surrogate: LinearSurrogate, data: Any, *, points: int, clients: int, seed: int, tolerance: float
) -> SurrogateReport:
    """Tries the promises of a `LinearSurrogate`; `check_surrogate` calls this."""
    samples = samples_of(data, clients)
    for x, y in samples:
        if surrogate.check is not None:
            surrogate.check(x, y)
    with jax.enable_x64(True):
        longest = max(len(y) for _, y in samples)
        padded = [pad(x, y, longest + PADDING, t) for t, (x, y) in enumerate(samples)]
        check_shapes(surrogate, padded[0])
        compiled = jit(lambda *args: examine(surrogate, points, *args), compiler_options=QUICK)
        worst: dict[str, Condition] = {}
        for t, client in enumerate(padded):
            for j in range(BASES):
                key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), t), j)
                tau, findings = jax.tree.map(np.asarray, compiled(client, jnp.asarray(j), key))
                for name, finding in findings.items():
                    found = as_condition(name, finding, tau, f"client {t}, start {j}")
                    if name not in worst or found.violation > worst[name].violation:
                        worst[name] = found
    count = len(padded) * BASES * (len(SCALES) * points + 2)
    return SurrogateReport(surrogate.name, tuple(worst.values()), None, tolerance, count)


def check_shapes(surrogate: LinearSurrogate, data: ClientData) -> None:
    """Traces the functions without computing anything, and refuses results of the wrong shape."""
    if (surrogate.psi is None) != (surrogate.phi is None):
        raise ValueError("give psi and phi both, or neither: majorization is checked with the two")
    params = expect("init", None, surrogate.init, jax.random.key(0))
    batch = jax.eval_shape(whole, data)
    statistic = expect("statistic", None, surrogate.statistic, params, batch)
    scalar = jax.ShapeDtypeStruct((), jnp.float64)
    expect("minimize", params, surrogate.minimize, statistic)
    expect("project", statistic, surrogate.project, statistic)
    expect("losses", data.y, surrogate.losses, params, data.x, data.y)
    expect("penalty", scalar, surrogate.penalty, params)
    if surrogate.psi is not None and surrogate.phi is not None:
        expect("psi", scalar, surrogate.psi, params)
        expect("phi", statistic, surrogate.phi, params)


def examine(
    surrogate: LinearSurrogate, points: int, data: ClientData, j: jax.Array, key: Key
) -> tuple[Tree, dict[str, Any]]:
    """Everything about one τ of one client: the point, and what was found."""
    keys = jax.random.split(key, 4)
    batch = whole(data)
    to_minimiser = lambda s: surrogate.minimize(surrogate.project(s))
    start = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), surrogate.init(keys[0]))
    first = surrogate.statistic(start, batch)
    moved = noisy(first, jax.random.normal(keys[1], flat(first).shape))
    tau = jax.tree.map(
        lambda *leaves: jnp.stack(leaves)[j], start, to_minimiser(surrogate.project(first)), to_minimiser(moved)
    )

    s = surrogate.statistic(tau, batch)
    noise = jax.random.normal(keys[2], (points, len(SCALES), flat(s).size)) * jnp.asarray(SCALES)[:, None]
    wild = jax.vmap(lambda n: noisy(s, n))(noise.reshape(-1, flat(s).size))
    inside = jax.vmap(surrogate.project)(wild)
    thetas = jax.vmap(surrogate.minimize)(inside)
    best = to_minimiser(s)
    f = lambda params: batch.mean(surrogate.losses(params, batch.x, batch.y))
    one = lambda violation, theta: Finding(jnp.reshape(violation, 1), jax.tree.map(lambda a: a[None], theta))
    size = jnp.abs(f(tau)) + jnp.abs(surrogate.penalty(tau))

    found: dict[str, Finding] = {}
    if surrogate.psi is not None and surrogate.phi is not None:
        psi, phi = surrogate.psi, surrogate.phi
        rise = lambda p: psi(p) - psi(tau) - optax.tree.vdot(s, optax.tree.sub(phi(p), phi(tau)))
        found["majorization"] = Finding(jax.vmap(lambda p: above(f(p), f(tau) + rise(p), size))(thetas), thetas)
        slope, wanted = flat(jax.grad(f)(tau)), flat(jax.grad(rise)(tau))
        tilt = norm(slope - wanted) / (norm(slope) + norm(wanted) + size + TINY)
        found["tangency of the gradient"] = one(tilt, tau)
        height = lambda p: surrogate.height(s, p)
        beaten = lambda p: above(height(best), height(p), size)
        found["minimiser"] = join(Finding(jax.vmap(beaten)(thetas), thetas), one(beaten(tau), tau))
    found["descent"] = one(above(surrogate.objective(best, batch), surrogate.objective(tau, batch), 0.0), best)
    found["statistics are in 𝒮"] = one(apart(surrogate.project(s), s), tau)
    found["means of statistics"] = one(apart(in_two_parts(surrogate, tau, data), s), tau)
    again = jax.vmap(lambda p: apart(surrogate.project(p), p))(inside)
    finite = jax.vmap(lambda p, q: jnp.where(all_finite((p, q)), 0.0, jnp.inf))(inside, thetas)
    found["projection: in 𝒮"] = Finding(again, thetas)
    found["projection: T is finite"] = Finding(finite, thetas)
    found["projection: closest point"] = Finding(jax.vmap(lambda w, p: obtuse(w, p, s, inside))(wild, inside), thetas)
    found["padding is left out"] = one(changed_by_padding(surrogate, tau, data), tau)
    return tau, found


def in_two_parts(surrogate: LinearSurrogate, params: Tree, data: ClientData) -> Tree:
    """The statistic of all samples as the mean of those of the first third and of the rest."""
    row = jnp.arange(data.y.shape[0])
    cut = data.size // 3
    parts = [(row < cut, cut), ((row >= cut) & data.mask, data.size - cut)]
    statistics = [
        jax.tree.map(
            lambda a, n=count: a * n / data.size,
            surrogate.statistic(params, Batch(data.x, data.y, real.astype(jnp.float64), count)),
        )
        for real, count in parts
    ]
    return optax.tree.add(*statistics)


def changed_by_padding(surrogate: LinearSurrogate, params: Tree, data: ClientData) -> jax.Array:
    """How much the statistic and f differ when the rows past the client's samples are other ones."""
    row = lambda a: jnp.where(beside(data.mask, a), a, a[:1])
    other = whole(data._replace(x=row(data.x), y=row(data.y)))
    f = lambda batch: batch.mean(surrogate.losses(params, batch.x, batch.y))
    values = lambda batch: (surrogate.statistic(params, batch), f(batch))
    return apart(values(whole(data)), values(other))


def obtuse(wild: Tree, projected: Tree, statistic: Tree, inside: Tree) -> jax.Array:
    """By how much a projection misses ⟨w − Π(w), z − Π(w)⟩ ≤ 0, for points z of 𝒮."""
    away = flat(wild) - flat(projected)
    others = jnp.concatenate([flat(statistic)[None], jax.vmap(flat)(inside)]) - flat(projected)
    scale = norm(away) * jnp.sqrt((others**2).sum(axis=1)) + TINY
    moved = norm(away) > 1e-9 * (norm(flat(wild)) + TINY)  # else the angle is one of rounding errors
    return jnp.where(moved, jnp.maximum((others @ away / scale).max(), 0), 0.0)


def noisy(statistic: Tree, noise: jax.Array) -> Tree:
    """A statistic with noise in proportion to the root mean square of each of its arrays."""
    scale = jax.tree.map(lambda a: jnp.full(a.shape, jnp.sqrt(jnp.mean(a**2)) + 1e-3), statistic)
    point, unravel = ravel_pytree(statistic)
    return unravel(point + flat(scale) * noise)


def apart(tree: Tree, other: Tree) -> jax.Array:
    """The distance of two trees, relative to their size."""
    a, b = flat(tree), flat(other)
    return norm(a - b) / (norm(a) + norm(b) + TINY)


def above(low: jax.Array, high: jax.Array, size: jax.Array | float) -> jax.Array:
    """By how much a value that should be the lower one exceeds the other, relative to both."""
    relative = jnp.maximum(low - high, 0) / (jnp.abs(low) + jnp.abs(high) + size + TINY)
    return jnp.where(jnp.isnan(relative), jnp.where(high == jnp.inf, 0.0, jnp.inf), relative)


def join(a: Finding, b: Finding) -> Finding:
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), a, b)


def flat(tree: Tree) -> jax.Array:
    return ravel_pytree(tree)[0]


def norm(vector: jax.Array) -> jax.Array:
    return jnp.sqrt((vector**2).sum())


def as_condition(name: str, finding: Finding, tau: Tree, whose: str) -> Condition:
    """The worst of a condition's points, with words for where it is."""
    violation = np.where(np.isnan(finding.violation), np.inf, finding.violation)
    k = int(np.argmax(violation))
    spread = len(violation) > 1 and k < len(violation) // len(SCALES) * len(SCALES)
    where = f"T(s + {SCALES[k % len(SCALES)]:g} · noise)" if spread else "τ"
    point = {"tau": tau, "theta": jax.tree.map(lambda a: a[k], finding.theta)}
    return Condition(name, float(violation[k]), f"{whose}: {where}", point)
