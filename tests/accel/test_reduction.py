"""Compiled reductions against the reference's, to the bit (ACC-REDUCE, ACC-THREADS)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refflow_accel.cpu.kernels.reduction import space

from tests.accel.kernels_alike import BY_NAME, assert_alike, laid_out, operands, shapes
from tests.strategies import arbitrary, examples, seeds

FOLDS = ("sum", "prod", "amax", "amin", "any", "all")
LARGE = [
    ((1000,), (0,)),
    ((1025, 3), (0,)),
    ((3, 2049), (1,)),
    ((130, 300), (0,)),
    ((5, 33, 300), (1,)),
    ((300, 33, 5), (2, 0)),
    ((5, 3, 31, 7), (0, 2, 3)),
    ((64, 64), (1, 0)),
    ((33, 1024), (1,)),
]


@examples(40)
@given(st.data(), shapes())
def test_a_fold_of_any_dimensions(data: Any, shape: tuple[int, ...]) -> None:  # ACC-REDUCE
    dims = data.draw(st.permutations(range(len(shape)))) if shape else []
    dims = tuple(dims[: data.draw(st.integers(0, len(dims)))])
    assert_alike(data.draw(st.sampled_from(("sum", "amax"))), data.draw(operands(shape)), dims=dims)


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("shape, dims", LARGE)
def test_long_folds(name: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> None:  # ACC-REDUCE
    for specials in (0.0, 0.02):  # with few, most sums are NaN
        x = arbitrary(np.random.default_rng(len(shape)), shape, np.float32, specials)
        for how in range(4):
            assert_alike(name, laid_out(x, how), dims=dims)


@pytest.mark.parametrize("dtype", BY_NAME)
def test_every_dtype_sums(dtype: str) -> None:  # ACC-REDUCE
    x = arbitrary(np.random.default_rng(3), (37, 41), BY_NAME[dtype], 0.05)
    for dims in ((0,), (1,)):
        assert_alike("sum", x, dims=dims)


@pytest.mark.parametrize("n", [*range(1, 70), 127, 128, 129, 255, 1023, 1024, 1025])
def test_every_length(n: int) -> None:  # ACC-REDUCE
    x = arbitrary(np.random.default_rng(n), (3, n), np.float32, 0.0)
    assert_alike("sum", x, dims=(1,))
    assert_alike("sum", np.repeat(x, 4, axis=0).T, dims=(0,))
    assert_alike("sum", np.ascontiguousarray(np.repeat(x, 4, axis=0).T), dims=(0,))


@pytest.mark.parametrize("n", [2, 4, 8, 16, 128, 1024, 4096, 8192])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["sum", "prod"])
def test_rows_of_two_to_some_power(name: str, dtype: str, n: int) -> None:  # ACC-REDUCE
    for rows in (1, 31, 4096 // n + 3):
        x = arbitrary(np.random.default_rng(n), (rows, n), BY_NAME[dtype], 0.01 if rows > 31 else 0.0)
        for how in range(4):
            assert_alike(name, laid_out(x, how), dims=(1,))
        assert_alike(name, np.broadcast_to(x[:1], x.shape), dims=(1,))


@pytest.mark.parametrize("shape, dims", [((1_000_003,), (0,)), ((70_001, 9), (0,)), ((2, 90_000), (1,))])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_long_fold_is_cut_for_threads(dtype: str, shape: Any, dims: Any) -> None:  # ACC-REDUCE, ACC-THREADS
    assert_alike("sum", arbitrary(np.random.default_rng(1), shape, BY_NAME[dtype], 0.0), dims=dims)


@examples(25)
@given(st.data(), shapes(1, 3), st.sampled_from(("argmax", "argmin")))
def test_the_place_of_an_extreme(data: Any, shape: tuple[int, ...], name: str) -> None:  # ACC-REDUCE, NUM-ORDER
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    if shape[dim]:
        assert_alike(name, data.draw(operands(shape)), dim=dim)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 16, 17, 31, 64, 65, 130, 1000])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64", "bool"])
def test_extremes_of_rows(dtype: str, n: int) -> None:  # ACC-REDUCE, NUM-ORDER, NUM-MAX
    rng = np.random.default_rng(n)
    few = np.array([0.0, 1.0], np.float32) if dtype in ("int64", "bool") else np.array([-0.0, 0.0, 1, -np.inf, np.nan])
    for odds in ([0.5, 0.5, 0, 0, 0], [0.4, 0.4, 0.1, 0.1, 0], [0.3, 0.3, 0.2, 0.1, 0.1], [0.01, 0, 0, 0.98, 0.01]):
        picks = rng.choice(len(few), (40, n), p=odds if len(few) == 5 else [0.9, 0.1])
        for x in (few[picks].astype(BY_NAME[dtype]), arbitrary(rng, (40, n), BY_NAME[dtype], 0.01)):
            for name in ("argmax", "argmin"):
                assert_alike(name, x, dim=1)
                assert_alike(name, x.T, dim=0)
                assert_alike(name, np.ascontiguousarray(x.T), dim=0)
            for name in ("amax", "amin"):
                assert_alike(name, x, dims=(1,))
                assert_alike(name, laid_out(x, 3), dims=(1,))


def test_nan_of_either_sign_is_beyond_infinity() -> None:  # NUM-MAX
    x = np.tile(np.linspace(-1, 1, 70, dtype=np.float32), (4, 1))
    x[0, 40], x[1, 41], x[2, 3], x[3, 5] = np.nan, -np.nan, np.inf, -np.inf
    x.view(np.uint32)[1, 41] |= 0x80000001
    for name in ("amax", "amin"):
        assert_alike(name, x, dims=(1,))
        assert_alike(name, x, dims=(0, 1))
    for name in ("argmax", "argmin"):
        assert_alike(name, x, dim=1)


@examples(25)
@given(st.data(), shapes(0, 3), st.integers(1, 9), st.sampled_from(("sum", "prod", "max", "min")), seeds)
def test_parts_fold_by_place(data: Any, shape: tuple[int, ...], n: int, kind: str, seed: int) -> None:  # NUM-FOLD
    rng = np.random.default_rng(seed)
    parts = [laid_out(np.asarray(arbitrary(rng, shape, np.float32)), data.draw(st.integers(0, 4))) for _ in range(n)]
    assert_alike("fold", *parts, kind=kind)


def test_a_plan_reads_in_place() -> None:  # ACC-REDUCE
    assert space((8, 16), (16, 1), (0,)).columns
    assert not space((8, 16), (16, 1), (1,)).columns
    assert not space((300, 33, 5), (165, 5, 1), (2, 0)).columns  # no neighbours to block
    assert space((4, 8, 16), (128, 16, 1), (0, 1)).folded == ((32, 16),)
