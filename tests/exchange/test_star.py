"""The star: a combination of one's own in place of the weighted mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import majorant as mj
import zoo
from majorant.exchange.star import Combine, star

MEAN = Combine(
    "mean by hand",
    lambda values, weights: jax.tree.map(lambda v: jnp.tensordot(weights / weights.sum(), v, axes=1), values),
)


@pytest.mark.parametrize("name", ["fedavg", "fedavg:adam", "fedem", "lsgd", "fedmm"])
def test_a_weighted_mean_of_uploads_side_by_side_is_that_of_their_sum(name):
    options = {"rounds": 3, "participation": mj.participation.bernoulli(0.7)}
    runs = [mj.simulate(zoo.algorithm(name), zoo.training(), exchange=e, **options) for e in (star(MEAN), star())]
    for one, two in zip(*(jax.tree.leaves(run.snapshot[:2]) for run in runs), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    assert runs[0].summary()["algorithm"] == f"{runs[1].summary()['algorithm']}, mean by hand"
    assert runs[0].communication == runs[1].communication


def test_a_method_that_reads_each_upload_is_given_no_combination():
    with pytest.raises(ValueError, match="reads each upload by itself"):
        mj.simulate(zoo.algorithm("clustered"), zoo.training(), rounds=1, exchange=star(MEAN))
