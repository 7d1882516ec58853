"""Does a surrogate keep its promises? Definition 1 tried on random points, far and near, and on adversarial ones.

Everything is computed in double precision, whatever the run will use. Around several (u⁰, v⁰) on a few clients:

    majorization          f(u, v) − g(u, v) at random u (at scales from 10⁻³ to 10²) and v, and where gradient
                          ascent on f − g arrives from such points
    tangency              g − f and ∇_u(g − f) at (u⁰, v⁰)
    v minimiser           is g(u, minimize_v(u)) beaten by v⁰ or a random v?
    distance              g(u, v⁰) − g(u, v*) against d(v⁰, v*), with v* found at the same u, and at u⁰ (eq. 152)
    u minimiser           does a descent from minimize_u get any lower?
    padding               do f and g change with the rows after a client's samples?

A violation is divided by the size of the values it is a difference of. Passing is evidence, not a proof.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from majorant.core import ClientData, Key, Tree, beside, select, squared_norm
from majorant.core.compilation import jit
from majorant.data.federated import FederatedData
from majorant.math.checks import check_whole
from majorant.solvers import whole
from majorant.surrogates.inputs import check_shapes, pad, samples_of
from majorant.surrogates.linear.checks import check_linear_surrogate
from majorant.surrogates.linear.record import LinearSurrogate
from majorant.surrogates.partial import PartialSurrogate
from majorant.surrogates.report import Condition, SurrogateReport

Function = Callable[..., Any]

SCALES = (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)  # of the noise around u⁰
BASES = 3  # points (u⁰, v⁰) on each client: where a run starts, zero, and a random one
DESCENT_STEPS = 100
PADDING = 3  # rows of zeros after the longest client's samples, as engines have them
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}  # compiled fast, run 9 times
CONDITIONS = (
    "majorization",
    "tangency of the value",
    "tangency of the gradient",
    "v minimiser",
    "distance, v* of the same u",
    "distance, v* of u⁰ (152)",
    "distance of v to itself is 0",
    "distance of others is positive",
    "u minimiser",
    "padding is left out",
)


class Finding(NamedTuple):
    """Violations of one condition at several points."""

    violation: jax.Array  # (k,)
    u: Tree  # (k, ...)
    v: Tree


def check_surrogate(
    surrogate: PartialSurrogate | LinearSurrogate,
    data: FederatedData | ClientData | tuple[Any, Any],
    *,
    points: int = 4,
    clients: int = 3,
    seed: int = 0,
    tolerance: float = 1e-7,
) -> SurrogateReport:
    """Tries the conditions of Definition 1 on a surrogate, numerically, or those of a `LinearSurrogate` (MM-1, MM-2).

    ``data`` is federated data, of which the first few ``clients`` with training samples are taken, or one client's
    ``(x, y)``. ``points`` random points are drawn at every scale around every (u⁰, v⁰).

    >>> import majorant as mj
    >>> data = mj.data.synthetic_mixture(clients=3, dimension=2, seed=0)
    >>> model = mj.models.linear(data)
    >>> mj.surrogates.check_surrogate(mj.surrogates.quadratic_surrogate(model, smoothness=4.0), data).ok
    True
    >>> mj.surrogates.check_surrogate(mj.surrogates.quadratic_surrogate(model, smoothness=0.1), data).worst.name
    'majorization'
    """
    check_whole("points", points, least=2)  # the own v is tried, and random ones
    if isinstance(surrogate, LinearSurrogate):
        return check_linear_surrogate(surrogate, data, points=points, clients=clients, seed=seed, tolerance=tolerance)
    samples = samples_of(data, clients)
    with jax.enable_x64(True):
        longest = max(len(y) for _, y in samples)
        padded = [pad(x, y, longest + PADDING, t) for t, (x, y) in enumerate(samples)]
        u, v = jax.eval_shape(lambda: start_of(surrogate, padded[0], jax.random.key(0)))
        check_shapes(surrogate, u, v, padded[0])
        compiled = jit(lambda *args: examine(surrogate, *args), compiler_options=QUICK)
        dimension = sum(leaf.size for leaf in jax.tree.leaves(u))
        worst: dict[str, Condition] = {}
        smoothness = 0.0
        for t, client in enumerate(padded):
            for j in range(BASES):
                key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), t), j)
                noise = jax.random.normal(key, (points + 3, len(SCALES), dimension))
                start, findings, seen = jax.tree.map(np.asarray, compiled(client, jnp.asarray(j), key, noise))
                smoothness = max(smoothness, float(seen))
                for name, finding in findings.items():
                    found = as_condition(name, finding, start, f"client {t}, start {j}", points)
                    if name not in worst or found.violation > worst[name].violation:
                        worst[name] = found
    count = len(padded) * BASES * (len(SCALES) * (points + 2) + 1)
    return SurrogateReport(
        surrogate.name, tuple(worst[name] for name in CONDITIONS if name in worst), smoothness, tolerance, count
    )


def changed_by_padding(surrogate: PartialSurrogate, u: Tree, v: Tree, data: ClientData) -> jax.Array:
    """How much f and g differ when the rows past the client's samples are other ones."""
    row = lambda a: jnp.where(beside(data.mask, a), a, a[:1])  # its first sample again
    other = data._replace(x=row(data.x), y=row(data.y))
    value = lambda d: (surrogate.objective(u, v, d), surrogate.value(surrogate.majorize(u, v, d), u, v, whole(d)))
    pairs = list(zip(value(data), value(other), strict=True))
    return jnp.stack([jnp.abs(a - b) / safe(jnp.abs(a) + jnp.abs(b)) for a, b in pairs]).max()


def examine(surrogate: PartialSurrogate, data: ClientData, j: jax.Array, key: Key, noise: jax.Array) -> tuple[Any, ...]:
    """Everything about one (u⁰, v⁰) of one client: the start, the findings, and the largest curvature of g − f.

    The first row of ``noise`` (rows, scales, numbers in u) moves u⁰, the last two are for ascents, the others for
    random points. Values are taken of many points at once, since it is compiling that takes time here.
    """
    u0, v0 = base(surrogate, data, j, key, noise[0, 0])
    coefficients = surrogate.majorize(u0, v0, data)
    f = lambda u, v: surrogate.objective(u, v, data)
    g = lambda u, v: surrogate.value(coefficients, u, v, whole(data))
    r = lambda u, v: g(u, v) - f(u, v)

    us, vs = around(u0, noise[1:-2]), alternate(surrogate, v0, jax.random.fold_in(key, 2), len(noise) - 3, data)
    starts, start_vs = around(u0, noise[-2:]), alternate(surrogate, v0, jax.random.fold_in(key, 3), 2, data)
    tops = jax.vmap(lambda u, v: go_down(lambda u: r(u, v), u))(starts, start_vs)
    seen_u, seen_v = join(us, tops), join(vs, start_vs)

    (height_f, grad_f), (height_g, grad_g) = jax.value_and_grad(f)(u0, v0), jax.value_and_grad(g)(u0, v0)
    size = jnp.abs(height_f)
    tilt = norm(optax.tree.sub(grad_g, grad_f)) / safe(norm(grad_f) + norm(grad_g) + size)
    shift = jnp.abs(height_g - height_f) / safe(jnp.abs(height_g) + size)
    here = lambda violation: Finding(violation[None], repeat(u0, 1), repeat(v0, 1))
    findings = {
        "majorization": Finding(jax.vmap(lambda u, v: above(f(u, v), g(u, v), size))(seen_u, seen_v), seen_u, seen_v),
        "tangency of the value": here(shift),
        "tangency of the gradient": here(tilt),
        "padding is left out": here(changed_by_padding(surrogate, u0, v0, data)),
    }
    if jax.tree.leaves(v0):
        minimize_v = lambda u: surrogate.minimize_v(coefficients, u, data)
        findings |= personal(surrogate.distance, minimize_v, g, u0, v0, us, vs)
    if surrogate.minimize_u is not None:
        best = jax.vmap(lambda _, v: surrogate.minimize_u(coefficients, v, data))(starts, start_vs)  # type: ignore[misc]
        lower = jax.vmap(lambda u, v: go_down(lambda u: g(u, v), u))(best, start_vs)
        three = jax.tree.map(lambda *leaves: jnp.stack(leaves), best, lower, repeat(u0, len(SCALES) * 2))
        heights = jax.vmap(jax.vmap(g), in_axes=(0, None))(three, start_vs)
        findings["u minimiser"] = Finding(above(heights[0], heights[1:].min(axis=0), size), best, start_vs)
    return {"u0": u0, "v0": v0}, findings, curvature(jax.grad(r), u0, us, v0, noise[0, 1])


def personal(
    distance: Function, minimize_v: Function, g: Function, u0: Tree, v0: Tree, us: Tree, vs: Tree
) -> dict[str, Finding]:
    """Condition 3: the minimiser in v and the distance."""
    best = jax.vmap(minimize_v)(us)  # v* of every u
    count = jax.tree.leaves(us)[0].shape[0]
    first = repeat(minimize_v(u0), count)  # v* of u⁰, at every u
    one = lambda tree: jax.tree.map(lambda a: a[None], tree)
    table = jax.vmap(lambda u, own, other: jax.vmap(lambda v: g(u, v))(join(one(v0), one(own), one(other), vs)))(
        us, best, first
    )  # g(u, ·) at v⁰, v* of u, v* of u⁰, and the random ones

    def identity(column: int, stars: Tree) -> jax.Array:
        gain, d = table[:, 0] - table[:, column], jax.vmap(lambda v: distance(v0, v))(stars)
        return jnp.abs(gain - d) / safe(jnp.abs(table[:, 0]) + jnp.abs(d))

    others = jax.tree.map(lambda a: jnp.roll(a, 1, axis=0), vs)
    gap = jax.vmap(lambda v, w: norm(optax.tree.sub(v, w)) / safe(norm(v) + norm(w)))(vs, others)
    between = jax.vmap(distance)(vs, others)
    wrong_sign = jnp.where(between < 0, -between, jnp.where((gap > 1e-6) & (between < 1e-14), gap, 0))
    return {
        "v minimiser": Finding(jax.vmap(lambda row: above(row[1], row.min(), 0.0))(table), us, best),
        "distance, v* of the same u": Finding(identity(1, best), us, best),
        "distance, v* of u⁰ (152)": Finding(identity(2, first), us, first),
        "distance of v to itself is 0": Finding(jnp.abs(jax.vmap(distance)(vs, vs)), us, vs),
        "distance of others is positive": Finding(wrong_sign, us, vs),
    }


def start_of(surrogate: PartialSurrogate, data: ClientData, key: Key) -> tuple[Tree, Tree]:
    """Where a run starts, in double precision."""
    start = surrogate.init(key), surrogate.init_v(data, key)
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), start)


def base(surrogate: PartialSurrogate, data: ClientData, j: jax.Array, key: Key, noise: jax.Array) -> tuple[Tree, Tree]:
    """(u⁰, v⁰): where a run starts, zero (where many losses are most curved), or a random point."""
    u, v = start_of(surrogate, data, jax.random.fold_in(key, 0))
    flat, unravel = ravel_pytree(u)
    drawn = surrogate.draw_v(jax.random.fold_in(key, 1), data)
    return unravel(jnp.stack([flat, 0 * flat, flat + noise])[j]), select(j == 0, v, drawn)


def around(u0: Tree, noise: jax.Array) -> Tree:
    """Points around u⁰, the scales in turn: ``(rows · scales, ...)``."""
    flat, unravel = ravel_pytree(u0)
    return jax.vmap(unravel)(flat + (noise * jnp.asarray(SCALES)[:, None]).reshape(-1, flat.size))


def alternate(surrogate: PartialSurrogate, v0: Tree, key: Key, points: int, data: ClientData) -> Tree:
    """The v for the points that `around` gives: v⁰ for the first of each scale, random for the second, and so on."""
    k = len(SCALES) * points
    drawn = jax.vmap(lambda key: surrogate.draw_v(key, data))(jax.random.split(key, k))
    own = (jnp.arange(k) // len(SCALES)) % 2 == 0
    return jax.tree.map(lambda a, b: jnp.where(own.reshape(-1, *[1] * a.ndim), a, b), v0, drawn)


def repeat(tree: Tree, count: int) -> Tree:
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (count, *a.shape)), tree)


def join(*trees: Tree) -> Tree:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)


def go_down(function: Callable[[Tree], jax.Array], start: Tree) -> Tree:
    """Gradient descent whose steps grow while they succeed and shrink when they do not."""

    def step(state: tuple[Tree, jax.Array, Tree, jax.Array], _: None) -> tuple[tuple[Any, ...], None]:
        u, value, gradient, length = state
        new = jax.tree.map(lambda a, d: a - length * d, u, gradient)
        new_value, new_gradient = jax.value_and_grad(function)(new)
        lower = new_value < value
        u, value, gradient = select(lower, (new, new_value, new_gradient), (u, value, gradient))
        return (u, value, gradient, length * jnp.where(lower, 2.0, 0.25)), None

    unknown = jnp.asarray(jnp.inf), optax.tree.zeros_like(start)  # so that the first step stays and looks
    return jax.lax.scan(step, (start, *unknown, jnp.ones(())), length=DESCENT_STEPS)[0][0]


def curvature(gradient: Function, u0: Tree, us: Tree, v: Tree, direction: jax.Array) -> jax.Array:
    """The largest curvature of r that is seen: power iteration at a few points, and quotients of gradient differences.

    Hessian-vector products are central differences, so that an objective need be differentiable once only.
    """
    _, unravel = ravel_pytree(u0)
    slopes = jax.vmap(lambda a: ravel_pytree(gradient(unravel(a), v))[0])
    places = jax.vmap(lambda u: ravel_pytree(u)[0])(join(repeat(u0, 1), us))

    def power(at: jax.Array) -> jax.Array:
        def step(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            d = state[0]
            ahead, behind = slopes(jnp.stack([at + 1e-4 * d, at - 1e-4 * d]))
            h = (ahead - behind) / 2e-4
            return jnp.where(norm(h) > 0, h / safe(norm(h)), d), norm(h)

        return jax.lax.fori_loop(0, 50, step, (direction / norm(direction), jnp.zeros(())))[1]

    at = slopes(places)
    quotients = jax.vmap(lambda a, b: norm(a - at[0]) / safe(norm(b - places[0])))(at[1:], places[1:])
    return jnp.maximum(jax.vmap(power)(places[: 1 + len(SCALES)]).max(), quotients.max())


def above(f: jax.Array, g: jax.Array, size: jax.Array | float) -> jax.Array:
    """By how much f exceeds g, relative to both; where both are too large for a number, nothing can be said."""
    relative = jnp.maximum(f - g, 0) / safe(jnp.abs(f) + jnp.abs(g) + size)
    overflow = (g == jnp.inf) | (jnp.isinf(f) & jnp.isnan(g))
    return jnp.where(jnp.isfinite(f) & jnp.isfinite(g), relative, jnp.where(overflow, 0, jnp.inf))


def norm(tree: Tree) -> jax.Array:
    return jnp.sqrt(squared_norm(tree))


def safe(a: jax.Array) -> jax.Array:
    return jnp.maximum(a, 1e-200)


def as_condition(name: str, finding: Finding, start: dict[str, Tree], whose: str, points: int) -> Condition:
    """The worst of a condition's points, with words for where it is."""
    violation = np.where(np.isnan(finding.violation), np.inf, finding.violation)
    k = int(np.argmax(violation))
    if len(violation) == 1:
        where = "(u⁰, v⁰)"
    elif name == "u minimiser":
        where = f"minimize_u at {'v⁰' if k < len(SCALES) else 'a random v'}"
    else:
        noise = f"u⁰ + {SCALES[k % len(SCALES)]:g} · noise"
        where = noise if k < points * len(SCALES) else f"the end of an ascent of f − g from {noise}"
    at = lambda tree: jax.tree.map(lambda a: a[k], tree)
    return Condition(name, float(violation[k]), f"{whose}: {where}", start | {"u": at(finding.u), "v": at(finding.v)})
