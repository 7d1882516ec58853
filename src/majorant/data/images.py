"""Image data sets: readers for the published file formats, a folder they are kept in, and rotated clusters.

Files are looked for under ``$MAJORANT_DATA`` (by default ``~/.cache/majorant``), so that machines without a network
work once the files are there:

    mnist/, fashion-mnist/             {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz   (or the same without .gz)
    emnist/                            emnist-byclass-{train,test}-{images-idx3,labels-idx1}-ubyte.gz      (likewise)
    cifar10/cifar-10-batches-bin/      data_batch_1.bin … data_batch_5.bin, test_batch.bin
    cifar100/cifar-100-binary/         train.bin, test.bin

What is missing is downloaded once, where that is possible. Files are checked by the SHA-256 of their *decoded* content,
because the same idx file exists under many compressions; downloads also by the publishers' own checksums.
"""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from majorant.data.allocation import stream
from majorant.data.image_files import data_folder, download, read_cifar, read_idx


class Source(NamedTuple):
    """A published file: the checksum of the download, and the SHA-256 of what is in it."""

    download: str
    content: str


MNIST = {
    "train-images-idx3-ubyte": Source(
        "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    ),
    "train-labels-idx1-ubyte": Source(
        "md5:d53e105ee54ea40749a09fcbcd1e9432", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
    ),
    "t10k-images-idx3-ubyte": Source(
        "md5:9fb629c4189551a2d022fa330f9573f3", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    ),
    "t10k-labels-idx1-ubyte": Source(
        "md5:ec29112dd5afa0611ce80d1b7f02629c", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
    ),
}
FASHION_MNIST = {
    "train-images-idx3-ubyte": Source(
        "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
    ),
    "train-labels-idx1-ubyte": Source(
        "md5:25c81989df183df01b3e8a0aad5dffbe", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
    ),
    "t10k-images-idx3-ubyte": Source(
        "md5:bef4ecab320f06d8554ea6380940ec79", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
    ),
    "t10k-labels-idx1-ubyte": Source(
        "md5:bb300cfdad3c16e7a12a480ee83cd310", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
    ),
}
CIFAR10 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_MNIST_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_DOWNLOAD = "md5:c32a1d4ab5d03f1284b67883e8d87530"


EMNIST = {  # of "by class": how many there are of each; NIST publishes a checksum of its archive alone
    "emnist-byclass-train-images-idx3-ubyte": 697_932,
    "emnist-byclass-train-labels-idx1-ubyte": 697_932,
    "emnist-byclass-test-images-idx3-ubyte": 116_323,
    "emnist-byclass-test-labels-idx1-ubyte": 116_323,
}
EMNIST_URL = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
EMNIST_DOWNLOAD = "md5:58c8d27c78d21e728a6bc7b3cc06412e"
CIFAR100 = {
    "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
    "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
}
CIFAR100_URL = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
CIFAR100_DOWNLOAD = "md5:03b5dce01913d631647c71ecec9e9cb8"
CIFAR100_COARSE = (  # the superclass of each of the 100 classes
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10,
    12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16,
    12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14,
    13,
)  # fmt: skip


def load_mnist() -> tuple[np.ndarray, np.ndarray]:
    """All 70,000 digits: images ``(N, 28, 28, 1)`` as bytes and labels; the 60,000 training ones first, then the test.

    The published split is not kept: federated data is split at each client.
    """
    return load_idx("mnist", MNIST, MNIST_URL)


def load_fashion_mnist() -> tuple[np.ndarray, np.ndarray]:
    """All 70,000 pieces of clothing, as ``load_mnist``: ``(N, 28, 28, 1)`` bytes, training first, then test."""
    return load_idx("fashion-mnist", FASHION_MNIST, FASHION_MNIST_URL)


def load_emnist() -> tuple[np.ndarray, np.ndarray]:
    """All 814,255 handwritten characters of EMNIST "by class", in 62 classes: digits, capital letters, small letters.

    As ``load_mnist``: ``(N, 28, 28, 1)`` bytes, training first, then test; upright, where the files have them lying.
    """
    folder, arrays = data_folder() / "emnist", []
    stored = lambda file: next((p for p in (folder / f"{file}.gz", folder / file) if p.exists()), None)
    if any(stored(file) is None for file in EMNIST):
        archive = download(EMNIST_URL, EMNIST_DOWNLOAD, folder / "gzip.zip", folder)
        with zipfile.ZipFile(archive) as packed:
            for file in EMNIST:
                with packed.open(f"gzip/{file}.gz") as source:
                    put(source, folder / f"{file}.gz")
        archive.unlink()
    for file, count in EMNIST.items():
        path = stored(file)
        assert path is not None
        arrays.append(read_idx(path))
        if arrays[-1].shape != ((count, 28, 28) if "images" in file else (count,)):
            raise ValueError(f"{path} is not the published file: it has {arrays[-1].shape}, not {count} of them")
    train, train_y, test, test_y = arrays
    x = np.concatenate([train, test]).transpose(0, 2, 1)
    return np.ascontiguousarray(x)[..., None], np.concatenate([train_y, test_y]).astype(np.int32)


def load_cifar10() -> tuple[np.ndarray, np.ndarray]:
    """All 60,000 colour images ``(N, 32, 32, 3)`` as bytes and their labels; 50,000 training ones first, then test."""
    folder = data_folder() / "cifar10" / "cifar-10-batches-bin"
    return load_cifar(folder, CIFAR10, CIFAR10_URL, CIFAR10_DOWNLOAD, labels=1, classes=10)


def load_cifar100() -> tuple[np.ndarray, np.ndarray]:
    """All 60,000 colour images ``(N, 32, 32, 3)`` as bytes and their 100 fine labels; training first, then test.

    ``images.CIFAR100_COARSE[fine]`` is the superclass, one of 20.
    """
    folder = data_folder() / "cifar100" / "cifar-100-binary"
    return load_cifar(folder, CIFAR100, CIFAR100_URL, CIFAR100_DOWNLOAD, labels=2, classes=100)


def load_cifar(
    folder: Path, files: dict[str, str], url: str, checksum: str, *, labels: int, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """The batches of a CIFAR set as one array of images and one of labels."""
    if not all((folder / name).exists() for name in files):
        archive = download(url, checksum, folder.parent / url.rsplit("/", 1)[1], folder)
        unpack(archive, folder, files)
        archive.unlink()
    batches = [read_cifar(folder / name, content, labels=labels, classes=classes) for name, content in files.items()]
    return np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])


def unpack(archive: Path, folder: Path, files: Iterable[str]) -> None:
    """Puts some files of an archive, which has them in a folder of the same name, into a folder, and nothing else.

    ``extractall`` with a filter is not in every Python 3.11.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        for name in files:
            source = tar.extractfile(f"{folder.name}/{name}")
            assert source is not None, f"{name} is no file in {archive}"
            with source:
                put(source, folder / name)


def put(source: IO[bytes], path: Path) -> None:
    """Writes a file that is there whole or not at all."""
    unfinished = path.with_name(f"{path.name}.part")
    with unfinished.open("wb") as target:
        shutil.copyfileobj(source, target)
    unfinished.replace(path)


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's 1,797 small digits, which need no file: ``(N, 8, 8, 1)`` float32 in [0, 1], and labels.

    >>> x, y = load_digits()
    >>> x.shape, x.dtype.name, float(x.max())
    ((1797, 8, 8, 1), 'float32', 1.0)
    """
    from sklearn import datasets

    digits = datasets.load_digits()
    return (digits.images[..., None] / 16).astype(np.float32), digits.target.astype(np.int32)


class Rotated(NamedTuple):
    """Images turned by their client's angle: samples, labels, whose each is, and each client's quarter turns."""

    x: np.ndarray  # (N, H, H, C)
    y: np.ndarray  # (N,)
    owner: np.ndarray  # (N,)
    cluster: np.ndarray  # (clients,) 0 … 3


def rotated(x: np.ndarray, y: np.ndarray, *, clients: int, seed: int = 0) -> Rotated:
    """Four hidden clusters: samples are spread evenly at random over clients, client c sees its own turned by
    90° · (c mod 4). Every sample is used once.

    >>> turned = rotated(*load_digits(), clients=8)
    >>> turned.cluster.tolist(), sorted(set(np.bincount(turned.owner).tolist()))
    ([0, 1, 2, 3, 0, 1, 2, 3], [224, 225])
    """
    if x.ndim != 4 or x.shape[1] != x.shape[2]:
        raise ValueError(f"rotation by 90° needs square images of shape (N, H, H, C), got {x.shape}")
    if not 4 <= clients <= len(x):
        raise ValueError(f"four rotations need at least 4 clients and at most one per sample ({len(x)}), got {clients}")
    owner = stream(seed).permutation(np.arange(len(x)) % clients)
    cluster = np.arange(clients) % 4
    out = x.copy()
    for turns in range(1, 4):
        rows = cluster[owner] == turns
        out[rows] = np.rot90(x[rows], turns, axes=(1, 2))
    return Rotated(out, np.asarray(y), owner, cluster)


def load_idx(name: str, files: dict[str, Source], url: str) -> tuple[np.ndarray, np.ndarray]:
    """The four idx files of a data set as one array of images and one of labels, training samples first."""
    folder = data_folder() / name
    arrays = {}
    for file, source in files.items():
        path = next((p for p in (folder / f"{file}.gz", folder / file) if p.exists()), None)
        if path is None:
            path = download(f"{url}{file}.gz", source.download, folder / f"{file}.gz", folder)
        arrays[file] = read_idx(path, source.content)
    train, train_y, test, test_y = arrays.values()
    return np.concatenate([train, test])[..., None], np.concatenate([train_y, test_y]).astype(np.int32)
