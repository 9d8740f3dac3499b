"""How the tests of CPU kernels compare one with the reference's: same bits, with one thread and with two."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from refflow_accel.cpu import (
    abi,
    kernels,  # noqa: F401  (fills the table)
)
from refflow_accel.cpu.registry import NATIVE

from refflow.kernels.reference import KERNELS
from refflow.numerics.bits import first_difference, same_bits
from refflow.numerics.dtypes import DTYPES
from tests.strategies import arbitrary

Array = np.ndarray[Any, Any]
BY_NAME = {dtype.name: dtype for dtype in DTYPES}
SOME = ("float32", "bfloat16", "int64")  # each dtype is compiled anew, so most tests take a few
sizes = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17])


def shapes(least: int = 0, most: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    """0-d, empty, odd."""
    return st.lists(sizes, min_size=least, max_size=most).map(tuple)


def laid_out(x: Array, how: int) -> Array:
    """The same values in other places: a transposed copy, every second element, backwards, one row for all."""
    if how == 1 and x.ndim > 1:
        return np.ascontiguousarray(x.transpose()).transpose()
    if how == 2 and x.ndim:
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if how == 3 and x.ndim:
        return np.ascontiguousarray(np.flip(x))[tuple([slice(None, None, -1)] * x.ndim)]
    if how == 4 and x.ndim and x.shape[0]:
        return np.broadcast_to(x[:1], x.shape)
    return x


@st.composite
def operands(draw: Any, shape: tuple[int, ...], dtypes: tuple[str, ...] = SOME) -> Array:
    """An array of any values, however it lies in memory."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = np.asarray(arbitrary(rng, shape, BY_NAME[draw(st.sampled_from(dtypes))]))
    return laid_out(x, draw(st.integers(0, 4)))


def assert_alike(name: str, *arrays: Array, served: bool = True, **attrs: Any) -> None:
    """The native kernel's result, with one thread and two, is the reference's to the bit."""
    with np.errstate(all="ignore"):
        expected = np.asarray(KERNELS[name](*arrays, **attrs))
    for threads in (1, 2):
        before = abi.set_threads(threads)
        try:
            made = NATIVE[name](abi.CALL, *arrays, **attrs)
        finally:
            abi.set_threads(before)
        assert made is not NotImplemented or not served, f"{name} is left to the reference"
        if made is not NotImplemented and not same_bits(made, expected):
            assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
            at = first_difference(made, expected)
            raise AssertionError(f"{name} {attrs}, {threads} threads, at {at}: {made[at]!r}, not {expected[at]!r}")
