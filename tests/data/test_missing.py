"""Data of factorizations: matrices with missing entries, sparse combinations of atoms, ratings."""

import numpy as np
import pytest

from majorant.data import movielens_100k, sparse_codes, with_missing
from majorant.data.ratings import most_rated, read_ratings


def test_values_and_mask():
    x = np.array([[1.5, np.nan, -2.0], [np.nan, np.nan, np.nan]])
    samples = with_missing(x)
    assert samples.dtype == np.float32
    np.testing.assert_array_equal(samples[:, 0], [[1.5, 0, -2], [0, 0, 0]])
    np.testing.assert_array_equal(samples[:, 1], [[1, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(with_missing(np.nan_to_num(x, nan=-1), missing=-1), samples)


@pytest.mark.parametrize(
    ("x", "missing", "words"),
    [
        ([[1.0, np.inf]], np.nan, "infinite .* row 0, column 1"),
        ([[1.0, 0.0], [np.nan, 0.0]], 0.0, "row 1, column 0"),
        ([1.0, 2.0], np.nan, "shape"),
        ([["a", "b"]], np.nan, "numbers"),
    ],
)
def test_other_matrices_are_refused(x, missing, words):
    with pytest.raises(ValueError, match=words):
        with_missing(x, missing)


def test_sparse_codes_of_equal_clients():
    data = sparse_codes(clients=3, atoms=10, features=12, samples=40, seed=1)
    x, _ = data.train.client(1)
    assert (data.train.x == np.tile(x, (3, 1))).all()
    assert data.classes == ()
    assert data.test.x.shape == (0, 12)
    codes = np.linalg.lstsq(data.truth["theta"], x.T, rcond=None)[0]  # 12 equations, 10 unknowns
    np.testing.assert_array_equal((np.abs(codes) > 1e-4).sum(axis=0), 2)  # 20 %


def test_sparse_codes_of_different_clients_are_clusters_of_equal_size():
    data = sparse_codes(clients=4, atoms=5, features=6, samples=20, heterogeneous=True)
    assert data.train.sizes.tolist() == [20] * 4
    means = np.stack([data.train.client(c)[0].mean(axis=0) for c in range(4)])
    between = ((means - means.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert between > 3 * data.train.x.var(axis=0).sum() / 20  # clusters of random samples would have 1


@pytest.mark.parametrize("options", [{"atoms": 0}, {"features": 1.5}, {"density": 0.0}, {"samples": 0}])
def test_sparse_codes_refuse(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        sparse_codes(**options)


def test_ratings_are_read_and_the_most_rated_chosen(tmp_path):
    path = tmp_path / "u.data"
    path.write_text("1\t2\t5\t881250949\n3\t1\t4\t881250949\n2\t2\t1\t881250949\n")
    ratings = read_ratings(path)
    np.testing.assert_array_equal(ratings, [[0, 5], [0, 1], [4, 0]])
    np.testing.assert_array_equal(most_rated(ratings, 1), [[5], [1], [0]])
    path.write_text("0 1 2\n")
    with pytest.raises(ValueError, match="from 1 on"):
        read_ratings(path)


def test_ratings_with_a_mask_are_those_without_on_the_same_clients(tmp_path, monkeypatch):
    """Users of two tastes, in turns: clients of like users have them in another order than the file."""
    likes = np.array([[5, 4, 0, 1], [1, 0, 4, 5]])[np.arange(8) % 2]
    lines = [f"{user + 1}\t{film + 1}\t{likes[user, film]}\t0" for user, film in zip(*likes.nonzero(), strict=True)]
    (tmp_path / "movielens-100k").mkdir()
    (tmp_path / "movielens-100k" / "u.data").write_text("\n".join(lines))
    monkeypatch.setenv("MAJORANT_DATA", str(tmp_path))
    monkeypatch.setattr("majorant.data.ratings.check_content", lambda *given: None)
    plain, masked = (movielens_100k(items=4, clients=2, missing=missing) for missing in ("zero", "mask"))
    for client in range(2):
        (rows, _), (both, _) = (data.train.client(client) for data in (plain, masked))
        assert len(np.unique(rows, axis=0)) == 1
        np.testing.assert_array_equal(both, np.stack([rows, rows > 0], axis=1))


def test_movielens_refuses_what_it_cannot_give(tmp_path, monkeypatch):
    for options in ({"items": 0}, {"items": 1683}, {"missing": "mean"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            movielens_100k(**options)
    (tmp_path / "movielens-100k").mkdir()
    (tmp_path / "movielens-100k" / "u.data").write_text("1\t1\t5\t0\n")
    monkeypatch.setenv("MAJORANT_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="not the published file"):
        movielens_100k()
