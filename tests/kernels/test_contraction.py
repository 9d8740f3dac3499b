"""Matmul, convolution and its gradients against loops over scalars in the stated order (NUM-CONTRACT, NUM-CONV)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refflow.kernels.reference import KERNELS
from refflow.numerics.dtypes import bfloat16, cast

from . import naive
from .naive import Array, Term, assert_bits, seeds

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def naive_matmul(x: Array, y: Array) -> Array:
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = np.broadcast_to(x, (*batch, *x.shape[-2:])), np.broadcast_to(y, (*batch, *y.shape[-2:]))

    def element(*at: int) -> Any:
        lead, m, n = at[:-2], at[-2], at[-1]
        return naive.contraction([(x[*lead, m, k], y[*lead, k, n]) for k in range(x.shape[-1])], x.dtype)

    return naive.build((*batch, x.shape[-2], y.shape[-1]), x.dtype, element)


@pytest.mark.parametrize("k", [0, 1, 5, 16, 17, 37, 67])
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("special", [0.0, 0.1])
def test_matmul_is_the_canonical_contraction(k: int, dtype: np.dtype[Any], special: float) -> None:
    x, y = naive.draw(k, (3, k), dtype, special), naive.draw(k + 1, (k, 4), dtype, special)
    assert_bits(KERNELS["matmul"](x, y), naive_matmul(x, y))


def test_matmul_broadcasts_batches_and_takes_empty_sides() -> None:
    x, y = naive.draw(1, (2, 1, 3, 18)), naive.draw(2, (3, 18, 2))
    assert_bits(KERNELS["matmul"](x, y), naive_matmul(x, y))
    assert_bits(KERNELS["matmul"](x[:, :, :0], y), np.empty((2, 3, 0, 2), np.float32))
    assert_bits(KERNELS["matmul"](x.swapaxes(-1, -2)[..., :2, :], x), naive_matmul(x.swapaxes(-1, -2)[..., :2, :], x))


def test_matmul_of_half_is_the_rounded_float32_matmul_and_integers_wrap() -> None:
    x, y = naive.draw(3, (4, 20)), naive.draw(4, (20, 3))
    for dtype in (bfloat16, np.dtype(np.float16)):
        a, b = cast(x, dtype), cast(y, dtype)
        assert_bits(KERNELS["matmul"](a, b), cast(naive_matmul(cast(a, FLOAT32), cast(b, FLOAT32)), dtype))
    i, j = naive.draw(5, (3, 9), np.int32), naive.draw(6, (9, 2), np.int32)
    expected = [[sum(int(i[m, k]) * int(j[k, n]) for k in range(9)) % 2**32 for n in range(2)] for m in range(3)]
    assert_bits(KERNELS["matmul"](i, j), np.array(expected, np.uint32).view(np.int32))


@dataclass(frozen=True)
class Case:
    """A convolution: sizes of every letter, and its attributes."""

    n: int
    groups: int
    c: int
    o: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def out(self) -> tuple[int, int]:
        p, q = (
            (y + 2 * pad - d * (i - 1) - 1) // s + 1
            for y, i, s, pad, d in zip(self.size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )
        return p, q

    @property
    def attributes(self) -> dict[str, Any]:
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}

    def reads(self, p: int, q: int, i: int, j: int) -> tuple[int, int] | None:
        """Return the input element window (p, q) reads by tap (i, j), None on padding."""
        y = p * self.stride[0] + i * self.dilation[0] - self.padding[0]
        x = q * self.stride[1] + j * self.dilation[1] - self.padding[1]
        return (y, x) if 0 <= y < self.size[0] and 0 <= x < self.size[1] else None

    def data(self, seed: int, dtype: np.dtype[Any], special: float) -> tuple[Array, Array, Array]:
        """Return x, w and the gradient of the output."""
        shapes = (
            (self.n, self.groups * self.c, *self.size),
            (self.groups * self.o, self.c, *self.kernel),
            (self.n, self.groups * self.o, *self.out),
        )
        x, w, g = (naive.draw(seed + k, shape, dtype, special) for k, shape in enumerate(shapes))
        return x, w, g


def naive_conv2d(case: Case, x: Array, w: Array) -> Array:
    def element(n: int, o: int, p: int, q: int) -> Any:
        terms: list[Term] = []
        for c, i, j in naive.positions((case.c, *case.kernel)):
            at = case.reads(p, q, i, j)
            terms.append(at and (x[n, o // case.o * case.c + c, *at], w[o, c, i, j]))
        return naive.contraction(terms, x.dtype)

    return naive.build((case.n, case.groups * case.o, *case.out), x.dtype, element)


def naive_conv2d_input(case: Case, g: Array, w: Array) -> Array:
    window = {}
    for p, q, i, j in naive.positions((*case.out, *case.kernel)):
        window[case.reads(p, q, i, j), i, j] = (p, q)

    def element(n: int, c: int, y: int, x: int) -> Any:
        terms: list[Term] = []
        for o, i, j in naive.positions((case.o, *case.kernel)):
            at, channel = window.get(((y, x), i, j)), c // case.c * case.o + o
            terms.append(at and (g[n, channel, *at], w[channel, c % case.c, i, j]))
        return naive.contraction(terms, g.dtype)

    return naive.build((case.n, case.groups * case.c, *case.size), g.dtype, element)


def naive_conv2d_filter(case: Case, x: Array, g: Array) -> Array:
    def element(o: int, c: int, i: int, j: int) -> Any:
        terms: list[Term] = []
        for n, p, q in naive.positions((case.n, *case.out)):
            at = case.reads(p, q, i, j)
            terms.append(at and (x[n, o // case.o * case.c + c, *at], g[n, o, p, q]))
        return naive.contraction(terms, x.dtype)

    return naive.build((case.groups * case.o, case.c, *case.kernel), x.dtype, element)


def check(case: Case, seed: int, dtype: np.dtype[Any], special: float) -> None:
    x, w, g = case.data(seed, dtype, special)
    with np.errstate(all="ignore"):
        found = (
            KERNELS["conv2d"](x, w, **case.attributes),
            KERNELS["conv2d_input"](g, w, size=case.size, **case.attributes),
            KERNELS["conv2d_filter"](x, g, size=case.kernel, **case.attributes),
        )
        expected = naive_conv2d(case, x, w), naive_conv2d_input(case, g, w), naive_conv2d_filter(case, x, g)
    for one, other in zip(found, expected, strict=True):
        assert_bits(one, other)


def pair(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


small = st.integers(1, 2)
cases = st.builds(
    Case, n=small, groups=small, c=small, o=small, size=pair(1, 5), kernel=pair(1, 3), stride=pair(1, 3),
    padding=pair(0, 2), dilation=pair(1, 2),
).filter(lambda case: min(case.out) > 0)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(cases, seeds, st.sampled_from([FLOAT32, FLOAT64]), st.sampled_from([0.0, 0.1]))
def test_convolution_and_gradients_are_loops(case: Case, seed: int, dtype: np.dtype[Any], special: float) -> None:
    check(case, seed, dtype, special)


@pytest.mark.parametrize(
    "case",
    [
        Case(2, 1, 3, 2, (5, 4), (3, 3), (1, 1), (1, 1), (1, 1)),  # several leaves in every contraction
        Case(1, 2, 2, 3, (4, 5), (3, 2), (2, 1), (0, 2), (1, 2)),
        Case(3, 1, 1, 5, (6, 6), (2, 2), (3, 3), (0, 0), (1, 1)),  # elements no window reads
        Case(0, 1, 2, 2, (3, 3), (2, 2), (1, 1), (0, 0), (1, 1)),
        Case(2, 1, 0, 2, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
        Case(2, 1, 2, 0, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
        Case(1, 1, 1, 1, (0, 3), (2, 2), (1, 1), (1, 1), (1, 1)),  # nothing but padding
    ],
    ids=["leaves", "groups", "gaps", "no-batch", "no-input-channel", "no-output-channel", "no-row"],
)
def test_convolution_cases(case: Case) -> None:
    check(case, 11, FLOAT32, 0.05)


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_shards_of_the_groups_are_parts_of_the_whole(parts: int) -> None:
    """A split of the groups leaves each group whole; `groups` stays the logical number, a shard may be empty."""
    case = Case(2, 4, 2, 3, (4, 3), (2, 2), (1, 1), (1, 1), (1, 1))
    x, w, g = case.data(5, FLOAT32, 0.1)
    whole = [
        KERNELS["conv2d"](x, w, **case.attributes),
        KERNELS["conv2d_input"](g, w, size=case.size, **case.attributes),
        KERNELS["conv2d_filter"](x, g, size=case.kernel, **case.attributes),
    ]
    shards = []
    for lo, hi in naive.cuts(4, parts):
        c, o = slice(2 * lo, 2 * hi), slice(3 * lo, 3 * hi)
        inner, outer = whole[1][:, c].shape, whole[2][o].shape
        part = [
            KERNELS["conv2d"](x[:, c], w[o], **case.attributes),
            KERNELS["conv2d_input"](g[:, o], w[o], size=case.size, shape=inner, **case.attributes),
            KERNELS["conv2d_filter"](x[:, c], g[:, o], size=case.kernel, shape=outer, **case.attributes),
        ]
        assert [a.shape for a in part] == [whole[0][:, o].shape, inner, outer]
        shards.append(part)
    for one, dim, pieces in zip(whole, (1, 1, 0), zip(*shards, strict=True), strict=True):
        assert_bits(np.concatenate(pieces, axis=dim), one)


def test_absent_taps_contribute_nothing() -> None:
    """Padding is not +0 * w: infinite and NaN weights beyond the edge are not read, and -0.0 survives."""
    x = np.full((1, 1, 1, 1), -0.0, np.float32)
    w = np.full((1, 1, 3, 3), np.inf, np.float32)
    w[..., 0, :], w[..., 1, 1] = np.nan, 2.0
    attributes: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    negative_zero = np.full((1, 1, 1, 1), -0.0, np.float32)
    assert_bits(KERNELS["conv2d"](x, w, **attributes), negative_zero)
    assert_bits(KERNELS["conv2d_input"](x, w, size=(1, 1), **attributes), negative_zero)
    gradient = np.full((1, 1, 1, 1), np.inf, np.float32)
    expected = np.full((1, 1, 3, 3), -0.0, np.float32)
    expected[..., 1, 1] = np.nan
    assert_bits(KERNELS["conv2d_filter"](x, gradient, size=(3, 3), **attributes), expected)


def test_tree_does_not_depend_on_padding() -> None:
    """The windows that padding leaves alone have the bits of the convolution without padding."""
    x, w = naive.draw(1, (2, 5, 6, 6)), naive.draw(2, (3, 5, 3, 3))
    attributes: dict[str, Any] = {"stride": (1, 1), "dilation": (1, 1), "groups": 1}
    padded = KERNELS["conv2d"](x, w, padding=(2, 1), **attributes)
    assert_bits(padded[:, :, 2:-2, 1:-1].copy(), KERNELS["conv2d"](x, w, padding=(0, 0), **attributes))


def test_half_convolutions_are_the_rounded_float32_ones() -> None:
    case = Case(2, 2, 2, 2, (4, 4), (2, 3), (1, 2), (1, 1), (1, 1))
    x, w, g = (cast(a, bfloat16) for a in case.data(3, FLOAT32, 0.0))
    wide = [cast(a, FLOAT32) for a in (x, w, g)]
    for name, a, b, size in [
        ("conv2d", 0, 1, {}),
        ("conv2d_input", 2, 1, {"size": case.size}),
        ("conv2d_filter", 0, 2, {"size": case.kernel}),
    ]:
        half = KERNELS[name]((x, w, g)[a], (x, w, g)[b], **size, **case.attributes)
        assert_bits(half, cast(KERNELS[name](wide[a], wide[b], **size, **case.attributes), bfloat16))
