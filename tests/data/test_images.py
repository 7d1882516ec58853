"""Readers against bytes made by hand, damaged files, and the offline folder."""

import gzip
import hashlib
import io
import json
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from majorant.data import image_files, images
from majorant.data.femnist import load_femnist
from majorant.data.image_files import read_cifar, read_idx
from majorant.data.images import (
    Source,
    load_cifar10,
    load_digits,
    load_emnist,
    load_fashion_mnist,
    load_mnist,
    rotated,
)

HEADER = bytes([0, 0, 8, 3]) + struct.pack(">III", 2, 2, 3)  # unsigned bytes, three dimensions: 2 × 2 × 3
IDX = HEADER + bytes(range(12))


def test_read_idx_by_hand(tmp_path):
    plain, packed = tmp_path / "plain", tmp_path / "packed.gz"
    plain.write_bytes(IDX)
    packed.write_bytes(gzip.compress(IDX))
    expected = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    for path in (plain, packed):
        array = read_idx(path, hashlib.sha256(IDX).hexdigest())
        assert array.dtype == np.uint8
        assert (array == expected).all()


def test_read_idx_is_big_endian(tmp_path):
    (tmp_path / "ints").write_bytes(bytes([0, 0, 12, 1]) + struct.pack(">I", 2) + struct.pack(">ii", 1, -70000))
    assert read_idx(tmp_path / "ints").tolist() == [1, -70000]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", r"broken is not an idx file: it begins with the bytes \(none\)"),
        (b"\x01" + IDX[1:], "broken is not an idx file: it begins with the bytes 01000803"),
        (bytes([0, 0, 7, 1]) + IDX[4:], "broken is not an idx file"),
        (IDX[:-1], r"broken is damaged: 27 bytes, its header announces 28 for shape \(2, 2, 3\)"),
        (IDX + b"\0", "broken is damaged: 29 bytes"),
        (IDX[:9], "broken is damaged: 9 bytes"),
        (gzip.compress(IDX, mtime=0)[:-9], "broken is damaged, its compressed data cannot be read"),
        (gzip.compress(IDX, mtime=0)[:12] + b"\xff" * 20, "broken is damaged, its compressed data cannot be read"),
    ],
    ids=["empty", "first byte", "type", "short", "long", "no data", "cut off", "garbled"],
)
def test_damaged_idx_files_are_named(tmp_path, raw, message):
    (tmp_path / "broken").write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        read_idx(tmp_path / "broken")


def test_well_formed_but_other_content_is_refused(tmp_path):
    (tmp_path / "other").write_bytes(IDX)
    with pytest.raises(ValueError, match="other is not the published file"):
        read_idx(tmp_path / "other", "0" * 64)


def test_read_cifar_by_hand(tmp_path):
    image = np.random.default_rng(0).integers(256, size=(2, 32, 32, 3), dtype=np.uint8)
    records = b"".join(bytes([label]) + image[i].transpose(2, 0, 1).tobytes() for i, label in enumerate((3, 9)))
    (tmp_path / "batch.bin").write_bytes(records)
    x, y = read_cifar(tmp_path / "batch.bin")
    assert (x == image).all()
    assert y.tolist() == [3, 9]
    (tmp_path / "short.bin").write_bytes(records[:-1])
    with pytest.raises(ValueError, match=r"short.bin is damaged: 6145 bytes are not a whole number of 3073-byte"):
        read_cifar(tmp_path / "short.bin")
    (tmp_path / "empty.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"empty.bin is damaged: 0 bytes"):
        read_cifar(tmp_path / "empty.bin")
    (tmp_path / "label.bin").write_bytes(b"\x0a" + records[1:])
    with pytest.raises(ValueError, match="has the label 10, above 9"):
        read_cifar(tmp_path / "label.bin")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MAJORANT_DATA", str(tmp_path))
    return tmp_path


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize(
    ("load", "name", "table"), [(load_mnist, "mnist", "MNIST"), (load_fashion_mnist, "fashion-mnist", "FASHION_MNIST")]
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_load_idx_sets_from_the_folder_training_first(folder, monkeypatch, load, name, table, suffix):
    train, test = np.full((3, 28, 28), 1, np.uint8), np.full((2, 28, 28), 2, np.uint8)
    arrays = [train, np.array([5, 6, 7], np.uint8), test, np.array([8, 9], np.uint8)]
    (folder / name).mkdir()
    published = {}
    for file, array in zip(getattr(images, table), arrays, strict=True):
        raw = idx(array)
        (folder / name / (file + suffix)).write_bytes(gzip.compress(raw) if suffix else raw)
        published[file] = Source("", hashlib.sha256(raw).hexdigest())
    with pytest.raises(ValueError, match=r"train-images.* is not the published file"):
        load()
    monkeypatch.setattr(images, table, published)
    x, y = load()
    assert (x.shape, x.dtype, y.dtype) == ((5, 28, 28, 1), np.uint8, np.int32)
    assert x[:, 0, 0, 0].tolist() == [1, 1, 1, 2, 2]
    assert y.tolist() == [5, 6, 7, 8, 9]


def test_load_cifar10_from_the_folder_training_first(folder, monkeypatch):
    path = folder / "cifar10" / "cifar-10-batches-bin"
    path.mkdir(parents=True)
    published = {}
    for i, file in enumerate(images.CIFAR10):
        raw = bytes([i]) + bytes([10 * i]) * 3072
        (path / file).write_bytes(raw)
        published[file] = hashlib.sha256(raw).hexdigest()
    monkeypatch.setattr(images, "CIFAR10", published)
    x, y = load_cifar10()
    assert (x.shape, x.dtype) == ((6, 32, 32, 3), np.uint8)
    assert y.tolist() == [0, 1, 2, 3, 4, 5]
    assert x[:, 0, 0, 0].tolist() == [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize("load", [load_mnist, load_fashion_mnist, load_cifar10])
def test_without_file_and_network_the_folder_is_named(folder, monkeypatch, load):
    import pooch

    def no_network(*args, **kwargs):
        raise OSError("name resolution failed")

    monkeypatch.setattr(pooch, "retrieve", no_network)
    with pytest.raises(FileNotFoundError, match=f"in the folder {folder}.*name resolution failed.*MAJORANT_DATA"):
        load()


def test_without_pooch_the_extra_is_named(folder, monkeypatch):
    def missing(module):
        raise ModuleNotFoundError(module)

    monkeypatch.setattr("majorant._extras.import_module", missing)
    with pytest.raises(ImportError, match=rf"{folder}/mnist has no such data set.*pip install 'majorant\[images\]'"):
        load_mnist()


def test_download_goes_into_the_layout(folder, monkeypatch):
    import pooch

    asked = []

    def retrieve(url, known_hash, fname, path):
        asked.append((url, known_hash))
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes(gzip.compress(IDX))

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    target = folder / "mnist" / "a-ubyte.gz"
    assert image_files.download("https://example.org/a", "md5:0", target, folder / "mnist") == target
    assert asked == [("https://example.org/a", "md5:0")]
    assert (read_idx(target) == np.arange(12).reshape(2, 2, 3)).all()


def test_cifar10_archive_is_unpacked_into_the_layout(folder, monkeypatch):
    import pooch

    raw = bytes([4]) + bytes(3072)

    def retrieve(url, known_hash, fname, path):
        path.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path / fname, "w:gz") as tar:
            for file in (*images.CIFAR10, "../../stray.txt", "readme.html"):
                member = tarfile.TarInfo(f"cifar-10-batches-bin/{file}")
                member.size = len(raw)
                tar.addfile(member, io.BytesIO(raw))

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    monkeypatch.setattr(images, "CIFAR10", dict.fromkeys(images.CIFAR10, hashlib.sha256(raw).hexdigest()))
    x, y = load_cifar10()
    assert x.shape == (6, 32, 32, 3)
    assert y.tolist() == [4] * 6
    assert [p.name for p in folder.iterdir()] == ["cifar10"]
    assert [p.name for p in (folder / "cifar10").iterdir()] == ["cifar-10-batches-bin"]
    assert sorted(p.name for p in (folder / "cifar10" / "cifar-10-batches-bin").iterdir()) == sorted(images.CIFAR10)


def test_emnist_is_unpacked_and_stands_upright(folder, monkeypatch):
    import pooch

    lying = np.arange(2 * 28 * 28, dtype=np.int64).reshape(2, 28, 28).astype(np.uint8)
    arrays = [lying, np.array([60, 61], np.uint8), lying[:1], np.array([5], np.uint8)]

    def retrieve(url, known_hash, fname, path):
        assert known_hash == "md5:58c8d27c78d21e728a6bc7b3cc06412e"
        path.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path / fname, "w") as packed:
            for file, array in zip(images.EMNIST, arrays, strict=True):
                packed.writestr(f"gzip/{file}.gz", gzip.compress(idx(array)))
            packed.writestr("gzip/emnist-letters-mapping.txt", "")

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    with pytest.raises(ValueError, match=r"train-images.* is not the published file: it has \(2, 28, 28\), not 697932"):
        load_emnist()
    monkeypatch.setattr(images, "EMNIST", dict(zip(images.EMNIST, [2, 2, 1, 1], strict=True)))
    x, y = load_emnist()
    assert (x.shape, x.dtype, y.tolist()) == ((3, 28, 28, 1), np.uint8, [60, 61, 5])
    np.testing.assert_array_equal(x[0, :, :, 0], lying[0].T)
    assert sorted(p.name for p in (folder / "emnist").iterdir()) == sorted(f"{file}.gz" for file in images.EMNIST)


def test_femnist_has_a_client_for_each_writer(folder):
    with pytest.raises(FileNotFoundError, match=r"has no JSON files of FEMNIST: make them by LEAF's script"):
        load_femnist()
    place = folder / "femnist"
    write = lambda name, users: (
        (place / name).parent.mkdir(parents=True, exist_ok=True),
        (place / name).write_text(json.dumps({"users": list(users), "user_data": users})),
    )
    writer = lambda shade, *labels: {"x": [[round(shade / 255, 3)] * 784] * len(labels), "y": list(labels)}
    write("train/all_data_0.json", {"f0001": writer(51, 3, 4, 61, 5), "f0002": writer(127, 7, 7, 7)})
    write("test/all_data_0.json", {"f0001": writer(52, 9), "f0003": writer(1, 0)})
    data = load_femnist()
    assert data.names == ("f0001", "f0002")  # the third has too few samples
    assert (data.train.sizes + data.test.sizes).tolist() == [5, 3]
    pixels = np.concatenate([data.train.x, data.test.x])
    assert (pixels.dtype, pixels.shape[1:], sorted(set(pixels.ravel().tolist()))) == (
        np.uint8,
        (28, 28, 1),
        [51, 52, 127],
    )
    assert load_femnist(writers=1).clients == 1
    for users, message in [
        ({"f1": {"x": [[0.0] * 7], "y": [1]}}, "images of writer f1 must be 784 numbers"),
        ({"f1": {"x": [[2.0] * 784], "y": [1]}}, r"784 numbers in \[0, 1\]"),
        ({"f1": writer(1, 62)}, "labels of writer f1 must be whole numbers from 0 to 61"),
        ({"f1": {"x": [[0.0] * 784]}}, "is not a LEAF file"),
    ]:
        write("test/all_data_0.json", users)
        with pytest.raises(ValueError, match=message):
            load_femnist()
    nobody = {"f0004": {"x": [], "y": []}, "f0001": writer(52, 9)}  # LEAF's test files have writers without samples
    write("test/all_data_0.json", nobody)
    assert load_femnist().names == ("f0001", "f0002")
    (place / "test" / "all_data_0.json").write_text(json.dumps({"users": ["f0001"] * 2, "user_data": nobody}))
    with pytest.raises(ValueError, match=r"all_data_0.json has user 'f0001' twice"):
        load_femnist()
    write("all_data.json", nobody)
    with pytest.raises(
        ValueError, match="JSON files beside its folders train and test: their samples would count twice"
    ):
        load_femnist()


def test_the_seed_draws_writers_their_samples_and_who_joins_later(folder):
    writer = lambda number: {"x": [[(10 * number + i) / 255] * 784 for i in range(5)], "y": [0] * 5}
    users = {f"f{number}": writer(number) for number in range(9)}
    (folder / "femnist").mkdir()
    (folder / "femnist" / "all.json").write_text(json.dumps({"users": list(users), "user_data": users}))
    some = [load_femnist(writers=2, seed=seed).names for seed in range(6)]
    assert set(map(len, some)) == {2}
    assert len(set().union(*some)) > 3
    every = [load_femnist(unseen=0.2, seed=seed) for seed in range(6)]
    assert np.any([data.unseen for data in every], axis=0).sum() > 3
    tested = {tuple(data.test.x[:, 0, 0, 0].tolist()) for data in every}
    assert len(tested) == 6


def test_digits_are_scaled():
    x, y = load_digits()
    assert (x.min(), x.max()) == (0.0, 1.0)
    assert sorted(set(y.tolist())) == list(range(10))


def test_rotated_turns_each_client_by_its_cluster_and_keeps_every_sample():
    x = np.arange(40 * 9, dtype=np.float32).reshape(40, 3, 3, 1)
    turned = rotated(x, np.arange(40), clients=6, seed=1)
    assert turned.cluster.tolist() == [0, 1, 2, 3, 0, 1]
    assert sorted(np.bincount(turned.owner)) == [6, 6, 7, 7, 7, 7]
    for i in range(40):
        assert (turned.x[i] == np.rot90(x[i], turned.cluster[turned.owner[i]])).all()
    assert turned.y.tolist() == list(range(40))
    assert (rotated(x, np.arange(40), clients=6, seed=2).owner != turned.owner).any()
    with pytest.raises(ValueError, match=r"square images .* got \(40, 3, 2, 1\)"):
        rotated(x[:, :, :2], np.arange(40), clients=4)
    with pytest.raises(ValueError, match=r"at least 4 clients and at most one per sample \(40\), got 3"):
        rotated(x, np.arange(40), clients=3)
