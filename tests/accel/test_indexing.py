"""Compiled indexing against the reference's, to the bit; bad indices are the reference's errors (ACC-SCATTER)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refflow_accel.cpu.backend import NumbaBackend

from refflow.errors import IndexOutOfRange
from tests.accel.kernels_alike import BY_NAME, assert_alike, laid_out, operands, shapes
from tests.strategies import arbitrary, examples

INTEGERS = st.sampled_from(("int64", "int32", "uint8"))


def indices(data: Any, shape: tuple[int, ...], of: int) -> Any:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    return laid_out(rng.integers(0, of, shape).astype(data.draw(INTEGERS)), data.draw(st.integers(0, 4)))


@examples(40)
@given(st.data(), shapes(1, 3), shapes(0, 2), st.integers(0, 3), st.booleans())
def test_reading_and_adding(data: Any, shape: tuple[int, ...], at: tuple[int, ...], lo: int, part: bool) -> None:
    """ACC-SCATTER, IDX-RANGE: whole dimensions and shards."""
    dim = data.draw(st.integers(0, len(shape) - 1))
    span = (lo, lo + shape[dim], lo + shape[dim] + 2) if part else (0, max(shape[dim], 1), max(shape[dim], 1))
    shape = (*shape[:dim], span[1] - span[0], *shape[dim + 1 :])
    where, of = {"v": span} if part else {}, span[2]
    assert_alike("index_select", data.draw(operands(shape)), indices(data, at, of), dim=dim, at=where)
    added = (*shape[:dim], *at, *shape[dim + 1 :])
    assert_alike("index_add", indices(data, at, of), data.draw(operands(added)), dim=dim, size=of, at=where)
    lanes = (*shape[:dim], data.draw(st.integers(0, 9)), *shape[dim + 1 :])
    assert_alike("gather", data.draw(operands(shape)), indices(data, lanes, of), dim=dim, at=where)
    assert_alike("scatter_add", indices(data, lanes, of), data.draw(operands(lanes)), dim=dim, size=of, at=where)
    assert_alike("one_hot", indices(data, at, of), num_classes=of, at=where)


@pytest.mark.parametrize("tokens, vocabulary, width", [(1024, 65, 128), (1000, 3, 300), (257, 1, 7), (3000, 5000, 2)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_embeddings(dtype: str, tokens: int, vocabulary: int, width: int) -> None:  # ACC-SCATTER
    rng = np.random.default_rng(tokens)
    src = arbitrary(rng, (tokens, width), BY_NAME[dtype], 0.0)
    index = rng.integers(0, vocabulary, tokens)
    assert_alike("index_add", index, src, dim=0, size=vocabulary)
    assert_alike("scatter_add", np.repeat(index[:, None], width, 1), src, dim=0, size=vocabulary)


@pytest.mark.parametrize("shape, dim", [((60, 4), 1), ((4, 60), 0), ((5, 7, 9), 1), ((2, 3, 4, 4), -1), ((5,), 0)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_lanes_of_one_index(dtype: str, shape: tuple[int, ...], dim: int) -> None:
    """ACC-SCATTER: a lone term is the sum, NaN and -0.0 too; the rest is -0.0; other shards' indices are left out."""
    rng, dim = np.random.default_rng(len(shape)), dim % len(shape)
    lane = (*shape[:dim], 1, *shape[dim + 1 :])
    x, src = (arbitrary(rng, size, BY_NAME[dtype], 0.3) for size in (shape, lane))
    longer = arbitrary(rng, tuple(n + 1 for n in lane), BY_NAME[dtype], 0.3)
    n = shape[dim]
    for at, of in (({}, n), ({"v": (2, 2 + n, n + 5)}, n + 5)):
        index = rng.integers(0, of, lane)
        for how in range(5):
            assert_alike("gather", laid_out(x, how), index, dim=dim, at=at)
            assert_alike("gather", x, laid_out(index, how), dim=dim, at=at)
            assert_alike("gather", x, rng.integers(0, of, (*shape[:dim], 3, *shape[dim + 1 :])), dim=dim, at=at)
            assert_alike("scatter_add", index, laid_out(src, how), dim=dim, size=of, at=at)
        assert_alike("scatter_add", index, longer, dim=dim, size=of, at=at)


@pytest.mark.parametrize("bad", [-1, 5])
def test_a_bad_index_is_the_references_error(bad: int) -> None:  # IDX-RANGE, ACC-BACKEND
    kernel = NumbaBackend().kernel
    x, index = np.ones((5, 3), np.float32), np.array([0, bad, 2])
    calls: dict[str, Any] = {
        "index_select": lambda: kernel("index_select")(x, index, dim=0),
        "index_add": lambda: kernel("index_add")(index, x[:3], dim=0, size=5),
        "gather": lambda: kernel("gather")(x, index[:, None], dim=0),
        "scatter_add": lambda: kernel("scatter_add")(index[:, None], x[:3, :1], dim=0, size=5),
        "one_hot": lambda: kernel("one_hot")(index, num_classes=5),
    }
    for name, call in calls.items():
        with pytest.raises(IndexOutOfRange, match=rf"{name}: index {bad} at position \(1,"):
            call()
