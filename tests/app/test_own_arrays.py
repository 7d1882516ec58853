"""Arrays of one's own by name: what the file says is what the clients hold."""

import numpy as np
import pytest

from majorant.app import catalogue
from majorant.app.build import check_names
from majorant.app.config import make_config
from majorant.data.federated import PARTS
from majorant.engines.tuning import folds_for


@pytest.fixture
def file(tmp_path):
    """Writes arrays, some of them other ones than usual, and gives the file's name."""
    rng = np.random.default_rng(0)
    usual = {
        "x": rng.integers(0, 256, (12, 4, 4, 3), dtype=np.uint8),
        "y": np.array(["cat", "dog"] * 6),
        "client": np.repeat(["Köln", "Ulm"], 6),
    }

    def write(**others):
        arrays = {name: values for name, values in (usual | others).items() if values is not None}
        np.savez(tmp_path / "own.npz", **arrays)
        return str(tmp_path / "own.npz"), arrays

    return write


def test_every_sample_is_once_with_its_client_and_label(file):
    name, arrays = file()
    data = catalogue.datasets.make(f"arrays:{name},split=0.5+0+0.5")
    assert data.names == ("Köln", "Ulm")
    assert data.name == "own"
    assert data.train.x.dtype == np.uint8  # pixels stay bytes
    assert data.train.sizes.tolist() == [3, 3]
    assert data.test.sizes.tolist() == [3, 3]
    seen = []
    for part in (data.train, data.test):
        owner = np.repeat(data.names, part.sizes)
        for x, y, client, row in zip(part.x, part.y, owner, part.rows, strict=True):
            np.testing.assert_array_equal(x, arrays["x"][row])
            assert (data.classes[y], client) == (arrays["y"][row], arrays["client"][row])
        seen += part.rows.tolist()
    assert sorted(seen) == list(range(12))


def test_parts_are_as_the_file_says(file):
    part = np.array(["train", "test", "train", "Val", "test", "train"] * 2)
    name, _ = file(part=part)
    data = catalogue.datasets.make(f"arrays:{name},seed=3")
    for wanted, numbers in zip(("train", "Val", "test"), (getattr(data, p).rows for p in PARTS), strict=True):
        assert sorted(numbers) == np.flatnonzero(part == wanted).tolist()
    assert folds_for(data) == 0  # tuning keeps to them
    with pytest.raises(ValueError, match="'part' says which samples are for training"):
        data.redrawn(1)


def test_a_split_that_would_not_be_heeded_is_refused(file):
    name, _ = file(part=np.array(["train", "test"] * 6))
    with pytest.raises(ValueError, match=r"own\.npz says by its array part what each sample is for: leave split out"):
        catalogue.datasets.make(f"arrays:{name},split=0.8+0+0.2")


def test_unseen_clients_and_another_split(file):
    name, _ = file()
    one, two = (catalogue.datasets.make(f"arrays:{name},unseen=0.5,seed={seed}") for seed in (0, 1))
    assert one.unseen.sum() == two.unseen.sum() == 1
    assert one.train.rows.tolist() != two.train.rows.tolist()


@pytest.mark.parametrize(
    ("others", "complaint"),
    [
        ({"client": None}, "has no array 'client': it needs x, y, client, and it has x, y"),
        ({"y": np.arange(5)}, "x, y and clients must have one entry per sample; got 12, 5, 12"),
        ({"part": np.array(["train", "exam"] * 6)}, "train, validation or test for a sample, not 'exam'"),
        ({"part": np.array(["test"] * 6 + ["train"] * 6)}, "client 'Köln' has no training samples"),
        ({"part": np.array(["train"])}, "one entry for each of 12 samples"),
        ({"x": np.full((12, 2), np.nan)}, "NaN"),
        ({"y": np.array([{}] * 12, object)}, "is not a readable .npz file"),
    ],
)
def test_what_cannot_be_right_is_refused_with_the_name_of_the_file(file, others, complaint):
    name, _ = file(**others)
    with pytest.raises(ValueError, match=r"own\.npz.*") as error:
        catalogue.datasets.make(f"arrays:{name}")
    assert complaint in str(error.value)


def test_a_file_that_is_given_without_the_name_is_explained(file):
    name, _ = file()
    with pytest.raises(ValueError, match=r"holds arrays: give it as arrays:.*own\.npz$"):
        check_names(make_config({"algorithm": "fedavg", "data": name}))
