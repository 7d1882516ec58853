"""Best responses: tangency and majorization on a client, and that the check can tell when they fail."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from majorant.models import dense_icnn
from majorant.models.convex import Potential
from majorant.surrogates import BestResponse, Pair, check_best_response, gaussian_map, transport_potentials
from majorant.surrogates.linear.gaussian_map import map_matrix
from majorant.surrogates.transport import in_gaussian_coordinates


def ridge() -> BestResponse:
    """A learnt prior: W_i = ½ E (y − ⟨x, ω⟩)² + ½ ‖ω − θ‖², and θ is pulled to public rows."""
    return BestResponse(
        name="prior",
        init=lambda key: Pair(jax.random.normal(key, (2,)), jnp.zeros(2)),
        losses=lambda omega, theta, x, y: (y - x @ omega) ** 2 / 2,
        draw=lambda key: jnp.ones((4, 2)),
        public=lambda omega, theta, rows, hyper: ((omega - theta) ** 2).sum() / 2 + 0.1 * (rows @ theta) ** 2,
    )


def samples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    return x, x @ [1.0, -1.0] + 0.1 * rng.normal(size=30)


def small_network() -> BestResponse:
    """The same with a network of two hidden units in the place of the line; the pull makes its best response unique."""
    predict = lambda omega, x: jnp.tanh(x @ omega["in"]) @ omega["out"]
    shapes = {"in": (2, 2), "out": (2,)}

    def start(key):
        keys = dict(zip(shapes, jax.random.split(key), strict=True))
        return {name: 0.3 * jax.random.normal(keys[name], shape) for name, shape in shapes.items()}

    def pull(omega, theta, rows, hyper):
        return jnp.ones(4) * sum(((omega[name] - theta[name]) ** 2).sum() for name in shapes)

    return BestResponse(
        name="network",
        init=lambda key: Pair(start(key), start(jax.random.fold_in(key, 1))),
        losses=lambda omega, theta, x, y: (y - predict(omega, x)) ** 2 / 2,
        draw=lambda key: jnp.ones((4, 2)),
        public=pull,
    )


def scalings() -> BestResponse:
    """Transport with the cycle loss by maps x ↦ a x, whose best response has a formula."""
    init = lambda key: {"a": 1 + jax.random.uniform(key)}
    family = Potential("scaling", 2, init, lambda p, x: p["a"] / 2 * (x**2).sum(axis=1), {"a": 1e-3})
    return transport_potentials(family, 2 * np.random.default_rng(1).normal(size=(50, 2)), loss="cycle", batch=32)


@pytest.mark.parametrize("problem", [ridge(), small_network(), scalings()], ids=lambda problem: problem.name)
def test_a_best_response_touches_and_majorizes(problem):
    report = check_best_response(problem, *samples(), points=5)
    assert report.holds(1e-4)
    assert report.largest_gap > 1e-2  # θ was moved to where the surrogate is no longer tight


def test_the_check_sees_a_surrogate_that_does_not():
    """Something that drifts between two looks at it: the answers of two solves cannot agree."""
    rough = ridge()._replace(
        public=lambda omega, theta, rows, hyper: (
            ((omega - theta) ** 2).sum() / 2 + jnp.where(omega[0] > omega[1], 5.0, 0.0)
        )
    )
    starts = iter([Pair(jnp.array([9.0, -9.0]), jnp.zeros(2)), Pair(jnp.array([-9.0, 9.0]), jnp.zeros(2))])
    assert not check_best_response(rough._replace(init=lambda key: next(starts)), *samples(), points=2, steps=3).holds()


def test_affine_potentials_have_the_conjugate_of_the_formula():
    """f(x) = x² + x, whose map is 2x + 1, and its conjugate (y − 1)²/4, at its inverse; elsewhere less, by formula."""
    init = lambda key: {"a": jnp.ones(()), "b": jnp.zeros(())}
    family = Potential("affine", 1, init, lambda p, x: (p["a"] / 2 * x**2 + p["b"] * x).sum(axis=1), {})
    y = jnp.array([[0.0], [1.0], [-3.0]])
    play, cycle = (transport_potentials(family, np.asarray(y), loss=loss) for loss in ("max-min", "cycle"))
    at, right, wrong = ({"a": a, "b": b} for a, b in ((2.0, 1.0), (0.5, -0.5), (0.5, 0.0)))
    best = (y[:, 0] - 1) ** 2 / 4
    np.testing.assert_allclose(play.public(at, right, y, {}), best, atol=1e-6)
    np.testing.assert_allclose(play.public(at, wrong, y, {}), best - 0.25, atol=1e-6)  # at y/2 instead of (y − 1)/2
    np.testing.assert_allclose(cycle.response(at, wrong, y, {}), np.ones(3), atol=1e-6)  # the round trip ends at y + 1
    np.testing.assert_allclose(cycle.response(at, right, y, {}), np.zeros(3), atol=1e-6)


@pytest.mark.parametrize(("slope", "least"), [(0.75, True), (0.25, False)])
def test_the_printed_objective_has_its_least_at_the_inverse_only_where_maps_do_not_shrink_much(slope, least):
    """(32) over θ, f = a x²/2 and T = b y: (b − ab²/2 + λ(ab − 1)²) y², at b = 1/a a minimum where 2λa > 1."""
    family = Potential("scaling", 1, lambda key: {"a": jnp.ones(())}, lambda p, x: (p["a"] / 2 * x**2).sum(axis=1), {})
    y = jnp.array([[0.5], [1.0], [-3.0]])
    printed = transport_potentials(family, np.asarray(y), loss="cycle").public
    near, at, far = (printed({"a": slope}, {"a": b / slope}, y, {"cycle": 1.0}).mean() for b in (0.9, 1.0, 10.0))
    assert (at < near) == least
    assert (at < far) == least


def test_theta_goes_up_where_the_paper_prints_down():
    """The conjugate is a supremum: at the right inverse, MMv2's public part is largest, and its response least."""
    network = dense_icnn(2, hidden=(4, 4, 4))
    rows = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    problem, cycle = (transport_potentials(network, rows, loss=loss, batch=32) for loss in ("max-min", "cycle"))

    @jax.jit
    def found(omega, theta):
        y, hyper = rows[:32], {"cycle": 2.0}
        return {
            "public": problem.public(omega, theta, y, {}),
            "more": cycle.public(omega, theta, y, hyper) - problem.public(omega, theta, y, {}),
            "round trip": ((network.gradient(omega, network.gradient(theta, y)) - y) ** 2).sum(axis=1),
            "max-min": problem.server_objective(omega, theta, y, {}),
            "cycle": cycle.server_objective(omega, theta, y, hyper),
        }

    omega = jax.jit(network.init)(jax.random.key(0))
    half = omega | {"u": omega["u"] / 2}  # maps y to y/2, where omega's inverse is about y
    right, wrong = found(omega, omega), found(omega, half)
    assert right["public"].mean() > wrong["public"].mean()
    assert right["max-min"] < wrong["max-min"]
    assert right["cycle"] < 0.1 * wrong["cycle"]
    np.testing.assert_allclose(wrong["more"], 2 * wrong["round trip"], rtol=1e-4)


@pytest.mark.parametrize(
    ("reference", "options", "message"),
    [
        (np.zeros((9, 3)), {}, "reference has 3 features and the clients' samples have 2"),
        (np.zeros((2, 2)), {}, "2 reference samples are too few in 2 dimensions: give at least 3"),
        (np.array([[0.0, 1.0], [np.nan, 0.0], [1.0, 1.0]]), {}, "NaN or infinite numbers, first in row 1"),
        (np.zeros(9), {}, r"shape \(samples, features\)"),
        (np.full((9, 2), "a"), {}, r"must be numbers of shape \(samples, features\)"),
        (lambda key: jnp.zeros((9, 3)), {}, r"draws samples of shape \(9, 3\), and \(batch, 2\) is needed"),
        (np.zeros((9, 2)), {"loss": "cycle", "cycle": np.nan}, "cycle must be a finite number at least 0, got nan"),
        (np.zeros((9, 2)), {"batch": 0}, "batch must be a positive whole number"),
        (np.zeros((9, 2)), {"loss": "cycle", "cycle": -1.0}, "cycle must be a finite number at least 0, got -1"),
        (np.zeros((9, 2)), {"loss": "minimax"}, "loss must be one of max-min, cycle"),
    ],
)
def test_bad_references_and_options_are_refused(reference, options, message):
    with pytest.raises(ValueError, match=message):
        transport_potentials(dense_icnn(2, hidden=(4, 4, 4)), reference, **options)


def test_the_map_between_gaussians():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(3, 3)) for _ in range(2))
    source, target = a @ a.T + np.eye(3), b @ b.T + np.eye(3)
    matrix = np.asarray(map_matrix(jnp.asarray(source), jnp.asarray(target)), np.float64)
    np.testing.assert_allclose(matrix @ source @ matrix, target, rtol=1e-3, atol=1e-3)
    assert np.linalg.eigvalsh(matrix).min() > 0
    change = in_gaussian_coordinates(np.ones(3), source, -np.ones(3), target)
    x = rng.normal(size=(5, 3))
    np.testing.assert_allclose(change.out(change.into(x)), -1 + (x - 1) @ matrix, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(change.source_out(change.reference_into(change.out(change.into(x)))), x)
    inside = change.scale**2 * change.root @ source @ change.root
    np.testing.assert_allclose(np.trace(inside), 3)
    np.testing.assert_allclose(inside, change.scale**2 * change.back @ target @ change.back, rtol=1e-6, atol=1e-6)
    change.check(3)
    for bad, words in (
        (change._replace(root=np.full((3, 3), np.nan)), "root of the coordinates must be finite"),
        (change._replace(back=2 * change.back), "cannot be undone"),
        (change._replace(scale=0.0), "cannot be undone"),
    ):
        with pytest.raises(ValueError, match=words):
            bad.check(3)
    with pytest.raises(ValueError, match="must agree"):
        gaussian_map(np.zeros(2), np.eye(3))
