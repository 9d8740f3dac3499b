"""Compiled copies against the reference's, to the bit (ACC-KERNELS, ACC-SCATTER)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refflow_accel.cpu import abi
from refflow_accel.cpu.kernels.movement import contiguous, pieces
from refflow_accel.cpu.registry import NATIVE

from refflow.kernels.reference import KERNELS
from refflow.kernels.reference.movement import windows
from tests.accel.kernels_alike import BY_NAME, assert_alike, laid_out, operands, shapes
from tests.strategies import arbitrary, examples

ALL = tuple(BY_NAME)


@examples(40)
@given(st.data(), shapes(0, 4))
def test_contiguous_is_a_copy(data: Any, shape: tuple[int, ...]) -> None:  # ACC-KERNELS
    x = data.draw(operands(shape, ALL)).transpose(data.draw(st.permutations(range(len(shape)))))
    made = contiguous(abi.CALL, x)
    assert made.flags.c_contiguous
    assert made.tobytes() == np.ascontiguousarray(x).tobytes()


@pytest.mark.parametrize("shape", [(300, 200), (1024, 33), (3, 100, 70), (70, 3, 100), (9000, 2)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int8"])
def test_large_transpositions(shape: tuple[int, ...], dtype: str) -> None:  # ACC-KERNELS
    x = arbitrary(np.random.default_rng(0), shape, np.dtype(dtype)).transpose()
    assert contiguous(abi.CALL, x).tobytes() == x.tobytes()


@examples(40)
@given(st.data(), st.lists(st.sampled_from([0, 1, 2, 3, 5, 9, 40]), min_size=2, max_size=5))
def test_copies_of_short_rows(data: Any, shape: list[int]) -> None:  # ACC-KERNELS
    x = data.draw(operands((*shape, data.draw(st.integers(2, 7))), ALL))
    for view in (x.transpose(data.draw(st.permutations(range(x.ndim)))), x[..., :-1]):
        assert contiguous(abi.CALL, view).tobytes() == view.tobytes()


@pytest.mark.parametrize("shape, taps", [((8, 5, 16, 12), (2, 2)), ((3, 40, 9, 9), (3, 3)), ((300, 2, 5, 7), (2, 3))])
def test_copies_of_windows(shape: tuple[int, ...], taps: tuple[int, int]) -> None:  # ACC-KERNELS
    x = arbitrary(np.random.default_rng(0), shape, np.dtype(np.float32))
    for stride in ((1, 1), taps, (3, 1)):
        attrs = {"kernel": taps, "stride": stride, "padding": (0, 0), "dilation": (1, 1), "value": 0}
        made = NATIVE["unfold2d"](abi.CALL, x, **attrs)
        assert contiguous(abi.CALL, made).tobytes() == KERNELS["unfold2d"](x, **attrs).tobytes()


@examples(40)
@given(st.data(), shapes(0, 4))
def test_slices_borders_joins_and_mirrors(data: Any, shape: tuple[int, ...]) -> None:  # ACC-KERNELS
    x = data.draw(operands(shape, ALL))
    assert_alike("reshape", x, shape=(1, x.size))
    assert_alike("flip", x, dims=tuple(range(data.draw(st.integers(0, len(shape))))))
    few = st.integers(0, 2)
    low, high = ([data.draw(few) for _ in shape] for _ in range(2))
    assert_alike("pad", x, low=low, high=high, value=data.draw(st.sampled_from([0, 3, 1])))
    starts = [data.draw(st.integers(0, n)) for n in shape]
    stops = [data.draw(st.one_of(st.none(), st.integers(a, n))) for a, n in zip(starts, shape)]
    steps = [data.draw(st.integers(1, 3)) for _ in shape]
    cut = tuple(slice(None) if b is None else slice(a, b, s) for a, b, s in zip(starts, stops, steps))
    value = data.draw(operands(x[cut].shape, (x.dtype.name,)))
    assert_alike("slice_update", x, value, starts=starts, stops=stops, steps=steps)
    if shape:
        dim = data.draw(st.integers(-len(shape), len(shape) - 1))
        assert_alike("cat", x, x[:0] if dim in (0, -len(shape)) else x, x, dim=dim)


@examples(25)
@given(st.data(), shapes(2, 3), st.integers(-5, 5), st.booleans())
def test_triangles_of_shards(data: Any, shape: tuple[int, ...], diagonal: int, lower: bool) -> None:  # ACC-KERNELS
    top, left = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))
    at = {"m": (top, top + shape[-2], 99), "n": (left, left + shape[-1], 99)}
    x = data.draw(operands(shape, ALL))
    assert_alike("tril" if lower else "triu", x, diagonal=diagonal, at=data.draw(st.sampled_from([at, {}])))


@examples(25)
@given(st.data())
def test_windows(data: Any) -> None:  # ACC-SCATTER
    def pair(low: int, high: int) -> tuple[int, int]:
        return data.draw(st.integers(low, high)), data.draw(st.integers(low, high))

    size, kernel, stride, padding, dilation = pair(1, 8), pair(1, 3), pair(1, 3), pair(0, 2), pair(1, 2)
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    n, c = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 3))
    assert_alike("unfold2d", data.draw(operands((n, c, *size))), **attrs, value=data.draw(st.sampled_from([0, 7])))
    counts = [windows(*along) for along in zip(size, kernel, stride, padding, dilation)]
    assert_alike("fold2d", data.draw(operands((n, c, *counts, *kernel))), size=size, **attrs)


APART = [  # kernel, stride, padding, dilation: no two windows share a place
    ((2, 2), (2, 2), (0, 0), (1, 1)),
    ((2, 3), (3, 4), (0, 0), (1, 1)),
    ((2, 3), (2, 3), (1, 1), (1, 1)),
    ((3, 2), (4, 2), (1, 0), (1, 1)),
    ((1, 1), (2, 3), (2, 2), (3, 2)),
    ((1, 2), (1, 5), (0, 1), (2, 1)),
]


@pytest.mark.parametrize("kernel, stride, padding, dilation", APART)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_windows_apart_are_copied_back(dtype: str, kernel: Any, stride: Any, padding: Any, dilation: Any) -> None:
    """ACC-SCATTER: a lone term is the sum, NaN and -0.0 too; a place in no window is -0.0."""
    attrs = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    for size in ((1, 1), (4, 6), (7, 5), (8, 13)):
        counts = [windows(*along) for along in zip(size, kernel, stride, padding, dilation)]
        g = arbitrary(np.random.default_rng(size[1]), (3, 2, *counts, *kernel), BY_NAME[dtype], 0.3)
        for how in range(4):
            assert_alike("fold2d", laid_out(g, how), size=size, **attrs)
        assert_alike("fold2d", g, size=(size[0] + 3, size[1] + 1), **attrs)  # fewer windows than fit
        assert_alike("fold2d", g, size=(max(size[0] - 2, 0), size[1] - 1), **attrs)  # and more


def test_which_copies_are_of_short_rows() -> None:  # ACC-KERNELS
    assert pieces((64, 4, 4, 2, 2), (64, 16, 4, 2, 1), (64, 16, 2, 8, 1))[0]  # windows of 2 x 2
    assert not pieces((64, 64), (64, 1), (1, 64))[0]
    assert not pieces((3, 4), (4, 1), (8, 1))[0]  # nothing is long
