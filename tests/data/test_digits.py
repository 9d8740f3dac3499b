"""DATA-DIGITS: the digits that ship are the ones stated, and altered ones are refused."""

from __future__ import annotations

import io
from importlib.resources import files

import numpy as np
import pytest

from refflow.data import digits as shipped
from refflow.data import load_digits
from refflow.errors import DataError, RefflowError

RAW = files(shipped.__name__).joinpath("digits.npz").read_bytes()


def packed(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def test_shapes_dtypes_and_split():
    digits = load_digits()
    assert digits.train_images.shape == (1437, 1, 8, 8) and digits.test_images.shape == (360, 1, 8, 8)
    assert digits.train_labels.shape == (1437,) and digits.test_labels.shape == (360,)
    assert digits.train_images.dtype == digits.test_images.dtype == np.float32
    assert digits.train_labels.dtype == digits.test_labels.dtype == np.int64


def test_pixels_are_sixteenths_exactly():
    digits = load_digits()
    images = np.concatenate([digits.train_images, digits.test_images])
    counts = images * np.float32(16)
    assert np.array_equal(counts, counts.astype(np.uint8))
    assert counts.min() == 0 and counts.max() == 16
    assert not np.signbit(images).any()


def test_the_cut_keeps_the_order_of_the_file():
    digits = load_digits()
    counts, classes = shipped._decode(RAW)
    assert np.array_equal(np.concatenate([digits.train_labels, digits.test_labels]), classes)
    assert np.array_equal(np.concatenate([digits.train_images, digits.test_images])[:, 0] * 16, counts)


def test_class_counts_are_the_published_ones():
    digits = load_digits()
    labels = np.concatenate([digits.train_labels, digits.test_labels])
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_first_digit_is_the_zero_of_the_source():
    rows = [
        [0, 0, 5, 13, 9, 1, 0, 0],
        [0, 0, 13, 15, 10, 15, 5, 0],
        [0, 3, 15, 2, 0, 11, 8, 0],
        [0, 4, 12, 0, 0, 8, 8, 0],
        [0, 5, 8, 0, 0, 9, 8, 0],
        [0, 4, 11, 0, 1, 12, 7, 0],
        [0, 2, 14, 5, 10, 12, 0, 0],
        [0, 0, 6, 13, 10, 0, 0, 0],
    ]
    digits = load_digits()
    assert (digits.train_images[0, 0] * 16).tolist() == rows and digits.train_labels[0] == 0


def test_each_call_gives_fresh_arrays():
    load_digits().train_images[:] = 7
    assert load_digits().train_images.max() == 1


def test_a_changed_pixel_is_refused():
    counts, classes = shipped._decode(RAW)
    counts[1796, 7, 7] ^= 1
    with pytest.raises(DataError, match="SHA-256"):
        shipped._decode(packed(images=counts, labels=classes))


def test_equal_bytes_in_another_shape_are_refused():
    counts, classes = shipped._decode(RAW)
    with pytest.raises(DataError, match="images are uint8"):
        shipped._decode(packed(images=counts.reshape(1797, 64), labels=classes))


def test_another_packing_of_the_same_digits_is_accepted():
    counts, classes = shipped._decode(RAW)
    buffer = io.BytesIO()
    np.savez(buffer, labels=classes, images=counts)
    again = shipped._decode(buffer.getvalue())
    assert np.array_equal(again[0], counts) and np.array_equal(again[1], classes)


@pytest.mark.parametrize(
    "raw",
    [b"", b"not an archive", RAW[:20000], RAW[:9000] + bytes(64) + RAW[9064:], packed(images=np.zeros(3))],
    ids=["empty", "text", "truncated", "damaged", "no labels"],
)
def test_a_damaged_file_is_a_typed_error(raw):
    with pytest.raises(DataError, match="reinstall refflow") as caught:
        shipped._decode(raw)
    assert isinstance(caught.value, RefflowError)


def test_attribution_is_shipped_with_the_data():
    text = files(shipped.__name__).joinpath("ATTRIBUTION.md").read_text(encoding="utf-8")
    for part in ("Alpaydin", "Kaynak", "10.24432/C50P49", "CC BY 4.0", "What was changed", shipped.CONTENT_SHA256):
        assert part in text
