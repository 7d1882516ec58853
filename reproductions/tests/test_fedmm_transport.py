"""Figure 3's parts: cells of equal size that make up P, errors that are 0 at the truth, files that are kept, tables."""

import json
import time

import jax
import numpy as np
import pytest
from majorant_reproductions.fedmm import transport as t
from majorant_reproductions.fedmm import w2
from majorant_reproductions.fedmm.transport_variants import grid_of

from majorant.models.convex import dense_icnn


@pytest.fixture(scope="module")
def benchmark():
    """A pair like the benchmark's, in two dimensions and with an affine T*, whose files are not needed."""
    rng = np.random.default_rng(0)
    arrays = {"means": rng.normal(size=(3, 2)).astype(np.float32), "factors": np.stack([0.4 * np.eye(2)] * 3)}
    return w2.Benchmark(2, arrays, lambda x: 2 * x + 1, 2.0, 8.0)


def test_cells_have_equal_sizes_and_hold_samples_that_are_near_each_other(benchmark):
    x = w2.draw(benchmark, np.random.default_rng(0), 2002)
    owner = w2.cells(x, 4)
    assert sorted(np.bincount(owner)) == [500, 500, 501, 501]
    inside = sum(x[owner == k].var(axis=0).sum() for k in range(4)) / 4
    assert inside < x.var(axis=0).sum() / 2
    costs = np.array([[0.0, 5.0], [1.0, 1.5], [0.0, 9.0], [0.0, 1.0]])
    assert w2.balanced(costs).tolist() == [0, 1, 0, 1]  # the two who would lose most elsewhere stay


def test_clients_together_have_a_sample_of_p_whatever_the_share(benchmark):
    """The same rows are split in another way, so that nobody learns a distribution with cells of other weights."""
    splits = {share: w2.clients_of(benchmark, clients=4, samples=200, share=share).train for share in (0.0, 0.5, 1.0)}
    rows = [np.sort(split.x.view("f4,f4"), axis=0) for split in splits.values()]
    assert all((own == rows[0]).all() for own in rows[1:])
    assert all((split.sizes == 200).all() for split in splits.values())
    apart = {
        share: np.var([part.mean(axis=0) for part in np.split(s.x, 4)], axis=0).sum() for share, s in splits.items()
    }
    assert apart[1.0] > 2 * apart[0.5] > 4 * apart[0.0]


def test_errors_are_zero_at_the_truth_and_exact_for_an_affine_map(benchmark):
    x = benchmark.source(jax.random.key(0), 500)
    assert float(w2.uvp(benchmark.truth(x), benchmark.truth(x), benchmark.q_var)) == 0
    data = w2.clients_of(benchmark, clients=4, samples=500)
    reference = np.asarray(benchmark.truth(data.train.x), np.float64)
    forward, inverse = w2.gaussian_errors(benchmark, data, reference)
    assert max(forward, inverse) < 1e-3


def test_errors_of_networks_at_their_start(benchmark):
    """The identity instead of 2x + 1: the error is E‖x + 1‖²/Var Q, up to how near the start is to the identity."""
    start = jax.tree.map(lambda a: np.asarray(a)[None], jax.jit(dense_icnn(2).init)(jax.random.key(0)))
    x = np.asarray(benchmark.source(jax.random.key(1_000_003), 256))
    forward, _ = w2.errors_of(benchmark, points=256)(start, start)
    np.testing.assert_allclose(forward[0], 100 * ((x + 1) ** 2).sum(axis=1).mean() / 8.0, rtol=0.05)


def test_pieces_are_files_and_files_are_tables(tmp_path, benchmark):
    study = t.Study(benchmark, None, 8, 2, 4, tmp_path, time.monotonic() + 60, lambda text: None)
    found = {"rounds": [2, 4], "forward": [[9.0, 5.0], [8.0, np.nan]], "inverse": [[1.0, 1.0], [1.0, 3.0]]}
    t.save(study, t.MAIN, found | {"chosen": {"server_scale": 2.0}, "bytes_up": [1e6, 2e6]}, time.monotonic())
    t.save(study, "Gaussian map", {"rounds": [1], "forward": [[6.0]], "inverse": [[2.0]]}, time.monotonic())
    assert json.loads(t.file_of(tmp_path, 2, t.MAIN).read_text())["forward"] == [[9.0, 5.0], [8.0, None]]
    whole, result = t.results_of(tmp_path)
    assert [row[0] for row in result.rows] == ["Gaussian map", t.MAIN]  # a run that diverged counts as infinite
    assert result.rows[1][1:7] == ["inf", "5.0 to inf", "2.0", 4, "2", "1 (round 2)"]
    assert {tuple(row) for row in whole.rows} == {(t.MAIN, "diverged", "2.0 ± 1.4"), ("Gaussian map", "6.0", "2.0")}
    assert list(whole.curves) == [f"d = 2 | {t.MAIN}"]
    assert t.pieces(study, None, False)[0][0] == t.MAIN


def test_grids_have_a_point_for_every_seed():
    assert len(grid_of("max-min", "server_scale")) == len(grid_of("cycle", "server_scale")) == len(t.TUNING_SEEDS)
    assert {"server_scale", "cycle"} == set(grid_of("cycle", "server_scale")[0])
