"""Arrays: samples in ``.npz`` files for a trained model, and federated data that is made by hand."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
from fuzz_cases import Case, foreseen
from hypothesis import strategies as st

from majorant.data import FederatedData, Ragged

TYPES = [
    "<f4",
    "<f8",
    ">f8",
    "<f2",
    "<i4",
    "<i8",
    "|u1",
    "|b1",
    "<c16",
    "<U3",
    "|S3",
    "<M8[s]",
    "<m8[s]",
    "|V3",
    [("a", "<f4"), ("b", "<i4")],
]
SHAPES = [(), (0,), (1,), (4,), (20,), (20, 4), (20, 1), (20, 5), (0, 4), (2, 2, 2), (20, 4, 1), (1, 4)]


@st.composite
def array(draw: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """An array of some type and shape, with numbers that are not numbers among its values."""
    kind = np.dtype(draw(st.sampled_from(TYPES)) if draw(st.integers(0, 2)) == 0 else "<f8")
    shape = draw(st.sampled_from(SHAPES)) if shape is None or draw(st.integers(0, 3)) == 0 else shape
    values = np.resize(np.array(draw(st.sampled_from([[0.0], [1.0, 2.0, 3.0], [-1.0, 0.5], [0.0, 1.0]]))), shape)
    with np.errstate(all="ignore"):
        found = np.zeros(shape, kind) if kind.kind in "VMm" else values.astype(kind)
    if found.size and kind.kind == "f" and draw(st.integers(0, 3)) == 0:
        found = np.array(found)
        with np.errstate(all="ignore"):
            found.flat[0] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 3e38, 1e30, -3e38, 1e-40]))
    return found


def claims_a_tebibyte() -> bytes:
    """A file whose header says that an array follows which nobody could hold."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (137438953472,), }"
    header += b" " * (117 - len(header)) + b"\n"
    npy = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("x.npy", npy)
        archive.writestr("y.npy", npy)
    return made.getvalue()


@st.composite
def sample_files(draw: Any) -> Case:
    """Samples of a new client for the trained run."""
    rows = 20
    arrays = {"x": draw(array((rows, 4)))}
    names = np.array(["sick", "well"] * (rows // 2))
    arrays["y"] = names if draw(st.booleans()) else draw(array((rows,)))
    if draw(st.integers(0, 5)) == 0:
        arrays = {draw(st.sampled_from(["x", "y", "z", "a/b", "é"])): value for value in arrays.values()}
    made = io.BytesIO()
    (np.savez_compressed if draw(st.booleans()) else np.savez)(made, **arrays)
    data = made.getvalue()
    damage = draw(st.integers(0, 9))
    if damage == 0:
        data = data[: draw(st.integers(0, len(data)))]
    elif damage == 1:
        place = draw(st.integers(0, len(data) - 1))
        data = data[:place] + draw(st.binary(min_size=1, max_size=3)) + data[place + 1 :]
    elif damage == 2:
        data = draw(st.sampled_from([b"", b"PK", b"\x93NUMPY", claims_a_tebibyte(), npy(draw(array()))]))
    line = ["personalize", "run", "--data", "new.npz"]
    if draw(st.integers(0, 3)) == 0:
        line += ["--predict", "new.npz", "--out", "predictions.csv"]
    return Case(line, {"new.npz": data}, "run", ("predictions.csv",))


def npy(value: np.ndarray) -> bytes:
    """One array alone."""
    made = io.BytesIO()
    np.save(made, value)
    return made.getvalue()


@st.composite
def by_hand(draw: Any) -> dict[str, Any]:
    """The arguments of `FederatedData`, or of its `from_arrays`, some of them wrong."""
    rows, clients = 12, 3
    whole, masked = np.array, np.ma.masked_array([0] * rows)
    good: dict[str, Any] = {
        "x": np.ones((rows, 2), np.float32),
        "y": np.arange(rows) % 2,
        "offsets": whole([0, 4, 8, 12]),
        "unseen": np.array([False, False, True]),
        "names": ("a", "b", "c"),
        "classes": ("no", "yes"),
        "clients": np.arange(rows) % clients,
        "split": (0.6, 0.2, 0.2),
        "seed": 0,
    }
    some = st.sampled_from
    wrong = {
        "x": array((rows, 2)),
        "y": array((rows,)) | some([whole([5] * rows), whole([-1] * rows), [None] * rows, masked]),
        "offsets": some(
            [whole(each) for each in ([0, 8, 4, 12], [1, 4, 8, 12], [0, 4, 99, 12], [0.0, 4, 8, 12], [0])] + [[], None]
        ),
        "unseen": some(
            [whole(each) for each in ([0, 1, 0], [True] * 3, [True], ["a", "b", "c"], [np.nan] * 3)] + [None]
        ),
        "names": some([("a", "a", "b"), ("a",), (1, 2, 3), None, "abc", ("", "\0", "[b]")]),
        "classes": some([(), ("no",), ("no", "no"), (0, 1), (None, None), "ab", (np.nan, 1.0)]),
        "clients": array((rows,)) | some([whole([None] * rows), whole([np.nan] * rows), masked, ["a"] * rows]),
        "split": some([(0, 0.5, 0.5), (1, 0, 0), (0.5, 0.5), (np.nan, 0, 1), (-1, 1, 1), "abc", None, (0.1, 0.1, 0.1)]),
        "seed": some([1.5, -1, "1", None, True, 2**70, np.int64(3)]),
    }
    for name in draw(st.lists(st.sampled_from(list(wrong)), max_size=2)):
        good[name] = draw(wrong[name])
    return good


def make_by_hand(given: dict[str, Any]) -> None:
    """Both ways to federated data: right or refused, and what is taken is whole."""

    def built() -> FederatedData:
        part = Ragged(given["x"], given["y"], given["offsets"])
        return FederatedData(part, part, part, given["unseen"], given["names"], given["classes"])

    from_arrays = lambda: FederatedData.from_arrays(
        given["x"], given["y"], given["clients"], split=given["split"], seed=given["seed"]
    )
    for way in (built, from_arrays):
        data, _ = foreseen(way)
        if data is not None:
            check_whole_data(data)


def check_whole_data(data: Any) -> None:
    """What everything else relies on."""
    for part in (data.train, data.validation, data.test):
        assert part.offsets[0] == 0
        assert part.offsets[-1] == len(part.x) == len(part.y)
        assert (np.diff(part.offsets) >= 0).all()
        assert part.x.dtype.kind in "fiub"
        if part.x.dtype.kind == "f":
            assert np.isfinite(part.x).all()
        if data.classes and len(part.y):
            assert 0 <= part.y.min() <= part.y.max() < len(data.classes)
    assert data.unseen.dtype == bool
    assert len(data.unseen) == len(data.names) == data.clients
    assert len(set(data.names)) == data.clients
    assert not data.unseen.all()
