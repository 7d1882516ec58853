"""Arrays as bytes: what comes back is what was sent, in the bits that the channel counts; all else is refused."""

import jax
import numpy as np
import pytest

from majorant.engines.remote.wire import Leaf, Raw, Refused, decode, encode
from majorant.exchange.channel import natural, quantized, top_k


def travelled(stage, length=1000):
    x = jax.random.normal(jax.random.key(0), (length,))
    message, _ = stage.encode(jax.random.key(1), x, stage.memory(length))
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(message)]
    widths = (*stage.widths(length), *(None,) * len(arrays))
    leaves = [Leaf(a.dtype, a.shape, w, place == 0) for place, (a, w) in enumerate(zip(arrays, widths, strict=False))]
    raws = encode(arrays, leaves)
    back = decode(raws, leaves, "a message")
    assert all(np.array_equal(a, b) for a, b in zip(arrays, back, strict=True))
    return sum(len(raw.data) for raw in raws)


@pytest.mark.parametrize("stage", [quantized(8), quantized(3), natural(), top_k(0.1)], ids=lambda stage: stage.name)
def test_a_message_takes_the_bytes_that_are_counted(stage):
    assert travelled(stage) == -(-stage.bits(1000) // 8)


def test_what_does_not_fit_its_few_bits_travels_whole():
    leaf = Leaf(np.dtype("int16"), (2,), 4, True)
    for values in ([7, -8], [8, 0]):
        assert decode(encode([values], [leaf]), [leaf], "x")[0].tolist() == values
    assert len(encode([[8, 0]], [leaf])[0].data) == 4


def test_a_part_that_is_known_to_be_zero_does_not_travel():
    leaf = Leaf(np.dtype("float32"), (3,), may_be_zero=True)
    assert encode([np.zeros(3)], [leaf])[0].data == b""
    assert decode([Raw("float32", (3,), b"")], [leaf], "x")[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (Raw("float64", (2,), bytes(16)), "is float64 of shape"),
        (Raw("float32", (3,), bytes(12)), "expected float32 of shape \\(2,\\)"),
        (Raw("float32", (2,), bytes(9)), "has 9 bytes, expected 8"),
        (Raw("float32", (2,), b""), "has 0 bytes"),
        (Raw("object", (2,), bytes(16)), "is object"),
        (Raw("float32", (2,), np.array([1, np.inf], np.float32).tobytes()), "infinite or NaN"),
    ],
)
def test_what_was_not_expected_is_refused(raw, words):
    leaf = Leaf(np.dtype("float32"), (2,))
    with pytest.raises(Refused, match=words):
        decode([raw], [leaf], "an upload", finite=True)
    with pytest.raises(Refused, match="2 arrays, expected 1"):
        decode([raw, raw], [leaf], "an upload")
