"""The constants of every objective, against the eigenvalues of Hessians of F, of each f_m and of each F_j."""

import jax
import numpy as np
import pytest
import small_problems
from small_problems import Flat, bottom, top

from compiling import quickly
from majorant.core import ClientData
from majorant.objectives import apfl2, fully_personal, mixture, multi_task, residual, traditional, weight_sharing
from majorant.objectives.base_model import client_curvature
from majorant.objectives.losses import least_squares

SLACK = 1e-9
ALPHAS = (0.2, 0.9, 0.6, 0.35)  # the second client is unseen

FAMILIES = {
    "traditional": lambda data, **options: traditional(data, **no_scale(options)),
    "fully_personal": lambda data, **options: fully_personal(data, **no_scale(options)),
    "multi_task": lambda data, **options: multi_task(data, lambda_=0.7, relaxation=2.0, **options),
    "multi_task:small": lambda data, **options: multi_task(data, lambda_=3.0, relaxation=0.1, **options),
    "mixture": lambda data, **options: mixture(data, lambda_=0.7, **options),
    "mixture:steep": lambda data, **options: mixture(data, lambda_=30.0, **options),
    "apfl2": lambda data, **options: apfl2(data, alpha=0.3, relaxation=1.5, **options),
    "apfl2:unequal": lambda data, **options: apfl2(data, alpha=ALPHAS[: data.clients], relaxation=0.5, **options),
    "weight_sharing": lambda data, **options: weight_sharing(data, personal=[0, "bias"], **options),
    "residual": lambda data, **options: residual(data, shared=[0, 1], personal=[1, 2], **options),
}
EXACT_BLOCKS = {
    "traditional",
    "fully_personal",
    "multi_task",
    "multi_task:small",
    "mixture",
    "mixture:steep",
    "residual",
}
every_family = pytest.mark.parametrize("family", FAMILIES)
both_scales = pytest.mark.parametrize("rescale", [True, False], ids=["rescaled", "plain"])


def no_scale(options):
    return {name: value for name, value in options.items() if name != "rescale"}


def measured(objective, data):
    """The flat problem, and Hessians of the f_m: at three points over all samples, then at zero over one sample each.

    Zero is the steepest point of most losses.
    """
    with jax.enable_x64(True):
        flat = Flat(objective, data)
        rng = np.random.default_rng(1)
        points = [np.zeros(flat.size), *(scale * rng.normal(size=flat.size) for scale in (0.3, 3.0))]
        fewest = int(data.train.sizes[~data.unseen].min())
        found = flat.hessians([(point, None) for point in points] + [(points[0], j) for j in range(fewest)])
    return flat, found[:3], found[3:]


def steepest(flat, hessians):
    """The largest eigenvalues of any f_m in w, and in β_m."""
    k = flat.w.size
    every = hessians.reshape(-1, *hessians.shape[-2:])
    return max(top(h[:k, :k]) for h in every), max(top(h[k:, k:]) for h in every)


def assert_bounds(c, flat, whole, single):
    k = flat.w.size
    for h in map(flat.assemble, whole):
        assert bottom(h) >= c.mu - SLACK
        assert top(h[:k, :k]) <= c.smooth_w + SLACK
        assert top(h[k:, k:]) <= c.smooth_beta + SLACK
    for h in map(flat.assemble, single):
        assert top(h[:k, :k]) <= c.sample_smooth_w + SLACK
        assert top(h[k:, k:]) <= c.sample_smooth_beta + SLACK
    most_w, most_beta = steepest(flat, whole)
    assert most_w <= c.smooth_w + SLACK  # Assumption 1: each f_m is L^w-smooth in w …
    assert most_beta <= flat.clients * c.smooth_beta + SLACK  # … and (M L^β)-smooth in β_m


def assert_attained(c, flat, whole, single):
    """At zero some f_m is exactly as steep as the constants say, and so is some sample's."""
    most_w, most_beta = steepest(flat, whole[:1])
    np.testing.assert_allclose([c.smooth_w, c.smooth_beta], [most_w, most_beta / flat.clients], rtol=1e-9)
    most_w, most_beta = steepest(flat, single)
    found = [c.sample_smooth_w, c.sample_smooth_beta]
    np.testing.assert_allclose(found, [most_w, most_beta / flat.clients], rtol=1e-9)


@every_family
@both_scales
def test_least_squares(family, rescale):
    """All bounds hold; smoothness is attained, but for bounds that are taken over several parts."""
    data = small_problems.problem(sizes=(6, 6, 6, 6))
    objective = FAMILIES[family](data, l2=0.05, rescale=rescale)
    found = objective.constants(data), *measured(objective, data)
    assert_bounds(*found)
    if family in EXACT_BLOCKS:
        assert_attained(*found)


@pytest.mark.parametrize("family", [name for name in FAMILIES if ":" not in name])
def test_logistic_bounds(family):
    """Also for clients of different sizes."""
    data = small_problems.problem("classification")
    objective = FAMILIES[family](data, l2=0.05)
    assert_bounds(objective.constants(data), *measured(objective, data))


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared_hinge", "huber"])
def test_other_losses(loss):
    data = small_problems.problem("regression" if loss == "huber" else "classification", sizes=(6, 6, 6, 6))
    objective = FAMILIES["multi_task"](data, loss=loss, l2=0.05)
    found = objective.constants(data), *measured(objective, data)
    assert_bounds(*found)
    if loss != "huber":  # the others are steepest at zero, softmax with two classes
        assert_attained(*found)


@every_family
@both_scales
def test_strong_convexity_is_attained(family, rescale):
    """Where the Hessian of f' is a multiple of the identity, μ is the least eigenvalue of F's Hessian."""
    data = small_problems.round_problem()
    objective = FAMILIES[family](data, l2=0.5, rescale=rescale)
    c = objective.constants(data)
    with jax.enable_x64(True):
        flat = Flat(objective, data)
        least = bottom(flat.assemble(flat.hessians([(np.zeros(flat.size), None)])[0]))
    if family == "apfl2:unequal":  # unequal forms: a bound
        assert 0.5 * least <= c.mu <= least + 1e-12
    elif family == "residual" and not rescale:  # what the parts share lies in a direction of both
        assert c.mu <= least + 1e-12
    else:
        np.testing.assert_allclose(c.mu, least, rtol=1e-9)


def test_the_assembled_hessian_is_that_of_f():
    data = small_problems.problem("classification")
    objective = FAMILIES["apfl2:unequal"](data)
    with jax.enable_x64(True):
        flat = Flat(objective, data)
        point = np.random.default_rng(0).normal(size=flat.size)
        direct = quickly(jax.hessian(flat.total))(point)
        np.testing.assert_allclose(direct, flat.assemble(flat.hessians([(point, None)])[0]), atol=1e-12)


@both_scales
def test_the_formulas_of_the_table(rescale):
    """The values written out, for μ' = L' = 1.5."""
    data, m = small_problems.round_problem(clients=3), 3
    r2 = 1 if rescale else m
    c = multi_task(data, lambda_=0.7, relaxation=2.0, l2=0.5, rescale=rescale).constants(data)
    np.testing.assert_allclose(c.smooth_w, r2 * (2.0 * 1.5 + 0.7) / m)
    np.testing.assert_allclose(c.smooth_beta, (1.5 + 0.7) / m)
    np.testing.assert_allclose(c.sample_smooth_w, r2 * (2.0 * 4.5 + 0.7) / m)
    c = mixture(data, lambda_=0.7, l2=0.5, rescale=rescale).constants(data)
    np.testing.assert_allclose([c.smooth_w, c.sample_smooth_w], r2 * 0.7 / m)
    np.testing.assert_allclose(c.sample_smooth_beta, (4.5 + 0.7) / m)
    c = apfl2(data, alpha=[0.2, 0.5, 0.4], relaxation=2.0, l2=0.5, rescale=rescale).constants(data)
    np.testing.assert_allclose(c.smooth_w, r2 * (2.0 + 0.25) * 1.5 / m)
    np.testing.assert_allclose(c.smooth_beta, 0.8**2 * 1.5 / m)
    if rescale:
        c = weight_sharing(data, personal=["bias"], l2=0.5).constants(data)
        np.testing.assert_allclose(c, [0.5, 0.5, 0.5, 1.5, 1.5])


def test_the_papers_side_conditions_are_not_needed():
    """Lemma 1's μ = λ/2M fails for small Λ, where the exact μ is smaller; Lemma 2's μ'/3M is below the exact one."""
    data = small_problems.round_problem()
    assert multi_task(data, lambda_=3.0, relaxation=0.1, l2=0.0).constants(data).mu < 3.0 / (2 * 3)
    assert mixture(data, lambda_=2.0, l2=0.0).constants(data).mu > 1 / (3 * 3)


def test_alphas_of_unseen_clients_do_not_count():
    data = small_problems.problem()
    changed = (0.2, 0.01, 0.6, 0.35)
    assert apfl2(data, alpha=ALPHAS).constants(data) == apfl2(data, alpha=changed).constants(data)


@pytest.mark.parametrize("family", ["mixture", "residual"])
def test_what_clients_answer_makes_the_constants_of_all_data(family):
    """The largest of their numbers, of which μ' is turned: no client tells more."""
    data = small_problems.problem(sizes=(6, 6, 6, 6))
    objective = FAMILIES[family](data, l2=0.05)
    train = [data.train.client(t) for t in np.flatnonzero(~data.unseen)]
    answers = [objective.curvature(ClientData(x, y, len(y), t)) for t, (x, y) in enumerate(train)]
    largest = jax.tree.map(lambda *each: np.max(each), *answers)
    np.testing.assert_allclose(objective.constants_of(largest), objective.constants(data), rtol=1e-5)


def test_rows_that_fill_up_do_not_count_in_a_clients_constants():
    x = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    filled = np.concatenate([x, 100 + x[:3]])
    curvature = quickly(lambda x: client_curvature(ClientData(x, x[:, 0], 6, 0), least_squares, l2=0.1))
    np.testing.assert_allclose(curvature(filled), curvature(x), rtol=1e-5)


def test_a_client_without_samples_has_no_say_in_the_constants():
    """Its answer to the question for the largest numbers is smaller than anybody's, −μ' included."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    answer = quickly(lambda size: client_curvature(ClientData(x, x[:, 0], size, 0), least_squares, l2=0.1))
    with_rows, without = (np.asarray(answer(size)) for size in (3, 0))
    assert np.isfinite(with_rows).all()
    assert (without < with_rows).all()
