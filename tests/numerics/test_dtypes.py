"""NUM-PROMOTE, NUM-CAST, NUM-IDENTITY."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refflow.errors import DtypeError, NumericsError
from refflow.numerics import (
    DTYPES,
    bfloat16,
    bool_,
    cast,
    float16,
    float32,
    float64,
    identity,
    int8,
    int32,
    int64,
    is_bool,
    is_float,
    is_half,
    is_integer,
    maximum,
    minimum,
    promote,
    promote_scalar,
    same_bits,
    uint8,
)

from .exact import BFLOAT16, BINARY16, BINARY32, patterns, round_once

# What torch.promote_types answers (uint8 with int8 is int16 there, which refflow does not have: the next wider type).
TORCH = """
bool uint8 uint8; bool int8 int8; bool int32 int32; bool int64 int64; bool float16 float16; bool bfloat16 bfloat16
bool float32 float32; bool float64 float64; uint8 int8 int32; uint8 int32 int32; uint8 int64 int64
uint8 float16 float16; uint8 bfloat16 bfloat16; uint8 float32 float32; uint8 float64 float64; int8 int32 int32
int8 int64 int64; int8 float16 float16; int8 bfloat16 bfloat16; int8 float32 float32; int8 float64 float64
int32 int64 int64; int32 float16 float16; int32 bfloat16 bfloat16; int32 float32 float32; int32 float64 float64
int64 float16 float16; int64 bfloat16 bfloat16; int64 float32 float32; int64 float64 float64
float16 bfloat16 float32; float16 float32 float32; float16 float64 float64
bfloat16 float32 float32; bfloat16 float64 float64; float32 float64 float64
"""


def test_promotion_is_torchs() -> None:
    by_name = {dtype.name: dtype for dtype in DTYPES}
    rows = [line.split() for line in TORCH.replace("\n", ";").split(";") if line.strip()]
    assert len(rows) == len(DTYPES) * (len(DTYPES) - 1) // 2
    for a, b, wanted in rows:
        assert promote(by_name[a], by_name[b]) == promote(by_name[b], by_name[a]) == by_name[wanted], (a, b)
    for dtype in DTYPES:
        assert promote(dtype, dtype) == dtype
    with pytest.raises(DtypeError):
        promote(np.complex64, float32)


def test_promotion_is_an_upper_bound() -> None:
    for a, b in itertools.product(DTYPES, repeat=2):
        assert promote(a, promote(a, b)) == promote(a, b)


def test_scalars_are_weak() -> None:
    for dtype in DTYPES:
        assert promote_scalar(dtype, True) == dtype
        assert promote_scalar(dtype, 7) == (int64 if dtype == bool_ else dtype)
        assert promote_scalar(dtype, 0.5) == (dtype if is_float(dtype) else float32)
    with pytest.raises(DtypeError):
        promote_scalar(float32, 1j)


def test_categories_are_disjoint() -> None:
    for dtype in DTYPES:
        assert is_float(dtype) + is_integer(dtype) + is_bool(dtype) == 1
    assert [d for d in DTYPES if is_half(d)] == [float16, bfloat16]


# --- cast


def exact_cast(v: float | int, shape: tuple[int, int, int]) -> float:
    if isinstance(v, float) and not math.isfinite(v):
        return v
    return math.copysign(round_once(Fraction(v), shape), v)


NARROW = [(float16, BINARY16), (bfloat16, BFLOAT16), (float32, BINARY32)]


def check_cast(x: Any) -> None:
    for dtype, shape in NARROW:
        wanted = np.array([exact_cast(v, shape) for v in x.tolist()], np.float64)
        found = cast(x, dtype)
        assert found.dtype == dtype
        with np.errstate(all="ignore"):
            assert same_bits(found.astype(np.float64), wanted), (dtype, x)


@given(st.floats())
@example(1 + 2.0**-8 + 2.0**-40)
@example(1 + 2.0**-11 + 2.0**-40)
@example(65519.999999)
@example(65520.0)
@example(2.0**-25 + 2.0**-60)
@example(2.0**-134 + 2.0**-160)
@example(3.4028235677973366e38)
def test_floats_round_once(v: float) -> None:
    check_cast(np.array([v, -v]))


def test_float64_near_every_kind_of_midpoint() -> None:
    rng = np.random.default_rng(0)
    for digits, low in ((8, -140), (11, -30), (24, -155)):
        x = np.ldexp(rng.integers(2**digits, 2 ** (digits + 1), 300) * 2.0 + 1, rng.integers(low - digits, 20, 300))
        check_cast(np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf)]))


def test_float32_to_halves() -> None:
    x = patterns(1, 2000)
    for dtype, shape in NARROW[:2]:
        wanted = np.array([exact_cast(v, shape) for v in x.tolist()], np.float64)
        with np.errstate(all="ignore"):
            assert same_bits(cast(x, dtype).astype(np.float64), wanted)
            assert same_bits(cast(cast(x, dtype), float32), wanted.astype(np.float32))


def test_half_to_half_rounds_once() -> None:
    bits = np.arange(0, 2**16, 7, dtype=np.uint16)
    with np.errstate(all="ignore"):
        for a, b in ((float16, bfloat16), (bfloat16, float16)):
            x = bits.view(a)
            assert same_bits(cast(x, b), x.astype(np.float32).astype(b))


@given(st.integers(-(2**63), 2**63 - 1))
@example(2**63 - 1)
@example(-(2**63))
@example(2**62 + 2**54 + 1)  # a bfloat16 midpoint and a little, lost in binary64
@example(2**24 + 1)
@example(65519)
@example(65520)
def test_integers_round_once(v: int) -> None:
    check_cast(np.array([v]))
    assert cast(np.array([v]), float64).item() == float(v)


@given(st.floats(), st.sampled_from([int8, int32, int64, uint8]))
@example(math.nan, int64)
@example(2.0**63, int64)
@example(-(2.0**63), int64)
@example(-0.9, uint8)
def test_floats_truncate_and_saturate(v: float, to: Any) -> None:
    info = np.iinfo(to)
    wanted = 0 if math.isnan(v) else max(info.min, min(info.max, math.trunc(v) if math.isfinite(v) else v))
    assert cast(np.array([v]), to).item() == int(wanted)
    assert cast(np.array([v]), to).dtype == to


def test_other_casts() -> None:
    x = np.array([0, 1, 255, 256, -1])
    assert cast(x, uint8).tolist() == [0, 1, 255, 0, 255] and cast(x, int8).tolist() == [0, 1, -1, 0, -1]
    assert cast(x, bool_).tolist() == [False, True, True, True, True]
    floats = np.array([0.0, -0.0, math.nan, 2.0**-149], np.float32)
    assert cast(floats, bool_).tolist() == [False, False, True, True]
    for dtype in DTYPES:
        assert cast(np.array([True, False]), dtype).tolist() == [1, 0]
        for to in DTYPES:
            found = cast(np.zeros((), dtype), to)
            assert found.shape == () and found.dtype == to and isinstance(found, np.ndarray)
            assert cast(np.zeros((2, 0, 3), dtype)[:, :, ::2], to).shape == (2, 0, 2)
            assert cast(np.ones((4, 3), dtype).T[::2], to).tolist() == [[1] * 4] * 2
    same = np.ones(3, np.float32)
    assert cast(same, float32) is same
    with pytest.raises(DtypeError):
        cast(same, np.complex64)


# --- identity


def test_identities_are_neutral() -> None:
    x = np.array([0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan], np.float32)
    combine: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": maximum, "min": minimum}
    for dtype, (kind, f) in itertools.product(DTYPES, combine.items()):
        values = cast(x, dtype)
        e = identity(kind, dtype)
        assert np.asarray(e).dtype == dtype
        with np.errstate(all="ignore"):
            assert same_bits(np.asarray(f(values, np.full(values.shape, e, dtype))), values), (dtype, kind)
    assert math.copysign(1, identity("sum", float32)) == -1
    with pytest.raises(NumericsError):
        identity("mean", float32)
    with pytest.raises(DtypeError):
        identity("sum", np.complex64)
