"""Movement kernels: each element is the one its definition names; fold2d is the transpose of unfold2d."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from refflow.kernels.reference import KERNELS
from refflow.numerics.dtypes import bfloat16, cast

from . import naive
from .naive import Array, assert_bits, seeds

FLOAT32 = np.dtype(np.float32)


@given(seed=seeds, shape=naive.shapes, data=st.data())
def test_transpose_flip_and_reshape(seed: int, shape: tuple[int, ...], data: st.DataObject) -> None:
    x = naive.draw(seed, shape, special=0.3)
    perm = data.draw(st.permutations(range(x.ndim)))
    moved = naive.build(
        [shape[p] for p in perm], FLOAT32, lambda *at: x[tuple(at[perm.index(d)] for d in range(x.ndim))]
    )
    assert_bits(KERNELS["transpose"](x, perm=tuple(perm)), moved)
    dims = data.draw(st.sets(st.integers(0, x.ndim - 1))) if x.ndim else set()
    mirrored = naive.build(
        shape, FLOAT32, lambda *at: x[tuple(shape[d] - 1 - i if d in dims else i for d, i in enumerate(at))]
    )
    assert_bits(KERNELS["flip"](x, dims=tuple(dims)), mirrored)
    assert_bits(KERNELS["reshape"](x, shape=(x.size,)), np.array([x[at] for at in naive.positions(shape)], FLOAT32))


def test_expand_and_cat() -> None:
    x = naive.draw(1, (3, 1), special=0.3)
    assert_bits(KERNELS["expand"](x, shape=(2, 3, 4)), naive.build((2, 3, 4), FLOAT32, lambda a, b, c: x[b, 0]))
    assert_bits(KERNELS["expand"](x[:0], shape=(0, 5)), np.empty((0, 5), np.float32))
    assert_bits(KERNELS["expand"](x[0, 0].reshape(()), shape=(2,)), np.full(2, x[0, 0]))
    parts = [naive.draw(k, (2, n)) for k, n in enumerate((3, 0, 1))]
    assert_bits(KERNELS["cat"](*parts, dim=1), np.array([[*parts[0][r], *parts[2][r]] for r in range(2)], FLOAT32))


@given(seed=seeds, shape=st.tuples(st.integers(0, 6), st.integers(1, 6)), data=st.data())
def test_slice_and_slice_update(seed: int, shape: tuple[int, int], data: st.DataObject) -> None:
    x = naive.draw(seed, shape, special=0.3)
    starts: list[int] = []
    stops: list[int | None] = []
    steps: list[int] = []
    for n in shape:
        start = data.draw(st.integers(0, n))
        starts.append(start)
        stops.append(data.draw(st.integers(start, n)))
        steps.append(data.draw(st.integers(1, 3)))
    if data.draw(st.booleans()):  # this dimension stays whole, whatever its local size
        starts[0], stops[0], steps[0] = 0, None, 1
    rows, columns = (
        list(range(*slice(*bounds).indices(n))) for n, *bounds in zip(shape, starts, stops, steps, strict=True)
    )
    attributes = {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}
    part = naive.build((len(rows), len(columns)), FLOAT32, lambda r, c: x[rows[r], columns[c]])
    assert_bits(KERNELS["slice"](x, **attributes), part)
    value, before = naive.draw(seed + 1, part.shape), x.copy()
    expected = naive.build(
        shape,
        FLOAT32,
        lambda r, c: value[rows.index(r), columns.index(c)] if r in rows and c in columns else x[r, c],
    )
    assert_bits(KERNELS["slice_update"](x, value, **attributes), expected)
    assert_bits(x, before)
    point: dict[str, Any] = {"starts": (), "stops": (), "steps": ()}
    assert_bits(KERNELS["slice"](np.array(-0.0), **point), np.array(-0.0))
    assert_bits(KERNELS["slice_update"](np.array(1.0), np.array(-0.0), **point), np.array(-0.0))


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), bfloat16, np.dtype(np.int32), np.dtype(bool)], ids=str)
def test_pad(dtype: np.dtype[Any]) -> None:
    x = naive.draw(2, (2, 3), dtype)
    fill = cast(np.array(-np.inf if dtype == FLOAT32 else 1), dtype)
    padded = KERNELS["pad"](x, low=(1, 0), high=(2, 3), value=fill.item())
    assert_bits(padded, naive.build((5, 6), dtype, lambda r, c: x[r - 1, c] if 1 <= r < 3 and c < 3 else fill))
    assert_bits(KERNELS["pad"](x[:0], low=(0, 0), high=(1, 0), value=0), np.zeros((1, 3), dtype))


@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("diagonal", [-7, -2, 0, 1, 9])
@pytest.mark.parametrize("parts", [(1, 1), (2, 3), (4, 8)])
def test_triangle_shards_are_parts_of_the_whole(name: str, diagonal: int, parts: tuple[int, int]) -> None:
    x = naive.draw(3, (2, 5, 6), special=0.2)

    def element(b: int, r: int, c: int) -> Any:
        kept = c - r <= diagonal if name == "tril" else c - r >= diagonal
        return x[b, r, c] if kept else np.float32(0)

    whole = naive.build(x.shape, FLOAT32, element)
    assert_bits(KERNELS[name](x, diagonal=diagonal), whole)
    for top, bottom in naive.cuts(5, parts[0]):
        for left, right in naive.cuts(6, parts[1]):
            at = {"m": (top, bottom, 5), "n": (left, right, 6)}
            shard = KERNELS[name](x[:, top:bottom, left:right], diagonal=diagonal, at=at)
            assert_bits(shard, whole[:, top:bottom, left:right].copy())


def pair(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@example(1, (7, 7), (3, 3), (1, 1), (0, 0), (1, 1))  # 5 x 5 windows: the tree splits within a row of them
@given(seeds, pair(1, 6), pair(1, 3), pair(1, 3), pair(0, 2), pair(1, 2))
def test_unfold_and_fold(
    seed: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> None:
    p, q = (
        (y + 2 * pad - d * (i - 1) - 1) // s + 1
        for y, i, s, pad, d in zip(size, kernel, stride, padding, dilation, strict=True)
    )
    assume(p > 0 and q > 0)
    x = naive.draw(seed, (2, 2, *size), special=0.2)
    attributes: dict[str, Any] = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}

    def reads(p: int, q: int, i: int, j: int) -> tuple[int, int] | None:
        y, x = (w * s + t * d - pad for w, s, t, d, pad in zip((p, q), stride, (i, j), dilation, padding, strict=True))
        return (y, x) if 0 <= y < size[0] and 0 <= x < size[1] else None

    def read(n: int, c: int, *tap: int) -> Any:
        at = reads(*tap)
        return np.float32(-np.inf) if at is None else x[n, c, *at]

    windows = naive.build((2, 2, p, q, *kernel), FLOAT32, read)
    assert_bits(KERNELS["unfold2d"](x, value=-np.inf, **attributes), windows)

    readers: dict[tuple[int, int] | None, dict[int, tuple[int, ...]]] = {}
    for tap in naive.positions((p, q, *kernel)):
        readers.setdefault(reads(*tap), {})[tap[0] * q + tap[1]] = tap
    g = naive.draw(seed + 1, windows.shape, special=0.1)

    def gathered(n: int, c: int, *at: int) -> Any:
        by_window = readers.get((at[0], at[1]), {})
        return naive.total([g[n, c, *by_window[k]] if k in by_window else None for k in range(p * q)], np.float32(-0.0))

    with np.errstate(all="ignore"):
        folded = naive.build(x.shape, FLOAT32, gathered)
        assert_bits(KERNELS["fold2d"](g, size=size, **attributes), folded)


def test_fold_of_halves_is_rounded_once_and_of_nothing_negative_zero() -> None:
    attributes: dict[str, Any] = {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}
    g = naive.draw(1, (1, 2, 4, 4, 3, 3), bfloat16)
    wide: Array = KERNELS["fold2d"](cast(g, FLOAT32), size=(4, 4), **attributes)
    assert_bits(KERNELS["fold2d"](g, size=(4, 4), **attributes), cast(wide, bfloat16))
    nothing = KERNELS["fold2d"](np.ones((1, 1, 0, 0, 3, 3), np.float32), size=(2, 2), **attributes)
    assert_bits(nothing, np.full((1, 1, 2, 2), -0.0, np.float32))
    assert KERNELS["unfold2d"](np.ones((0, 1, 4, 4), np.float32), value=0, **attributes).shape == (0, 1, 4, 4, 3, 3)
