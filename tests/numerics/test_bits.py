"""NUM-NAN and NUM-DIGEST."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from refflow.errors import DtypeError, ShapeError
from refflow.numerics import DTYPES, canonical, cast, digest, digest_many, first_difference, same_bits


def sample() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array([[0.0, -0.0, 1.0], [np.inf, np.nan, 2.0**-149]], np.float32)


def test_all_nans_are_one() -> None:
    x = np.array([0x7FC00000, 0xFFC00001, 0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    y = np.array([0xFFFFFFFF, 0x7F800002, 0x7FC00000, 0x3F800000], np.uint32).view(np.float32)
    assert same_bits(x, y) and first_difference(x, y) is None and digest(x) == digest(y)
    assert canonical(x).view(np.uint32).tolist() == [0x7FC00000] * 3 + [0x3F800000]
    plain = np.ones(3, np.float32)
    assert canonical(plain) is plain
    for dtype in DTYPES[5:]:
        one = canonical(cast(np.array([np.nan]), dtype))
        assert one.dtype == dtype and np.isnan(one.astype(np.float64)).all() and same_bits(one, -one)


def test_signs_shapes_and_dtypes_count() -> None:
    x = sample()
    y = x.copy()
    y[0, 1] = 0.0
    assert not same_bits(x, y) and first_difference(x, y) == (0, 1)
    y[0, 0] = -0.0
    assert first_difference(x, y) == (0, 0)
    assert not same_bits(x, x.reshape(-1)) and not same_bits(x, x.astype(np.float64))
    assert same_bits(x.T, np.ascontiguousarray(x.T)) and same_bits(x[:, ::2], x[:, ::2].copy())
    assert first_difference(x[:0], x[:0]) is None and first_difference(x[0, 0], y[0, 0]) == ()
    with pytest.raises(ShapeError):
        first_difference(x, x[0])
    with pytest.raises(DtypeError):
        first_difference(x, x.astype(np.float64))


def test_digest_layout() -> None:
    raw = b"refflow-arith-1\0float32\0" + struct.pack("<qqq", 2, 2, 3)
    raw += struct.pack("<6I", 0, 0x80000000, 0x3F800000, 0x7F800000, 0x7FC00000, 1)
    assert digest(sample()) == hashlib.sha256(raw).hexdigest()
    assert digest(sample()) == "e021937c690344727457150f10b1d37d8b05427e4cd1333cad5e26a388c53a31"
    assert digest(np.asfortranarray(sample())) == digest(sample()) == digest(sample().astype(">f4").astype("=f4"))


def test_digest_tells_shape_and_dtype() -> None:
    arrays = [np.zeros(s, d) for s in ((), (1,), (0,), (2, 0), (0, 2)) for d in DTYPES]
    assert len({digest(a) for a in arrays}) == len(arrays)


def test_digest_many() -> None:
    a, b = sample(), np.arange(3)
    raw = b"refflow-arith-1\0" + b"a\0" + bytes.fromhex(digest(a)) + b"b\0" + bytes.fromhex(digest(b))
    assert digest_many({"b": b, "a": a}) == hashlib.sha256(raw).hexdigest()
    assert digest_many({"a": b, "b": a}) != digest_many({"a": a, "b": b})
