"""Factories: dtypes, layouts, logical values.

Checks OPS-CREATION.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import refflow as flow
from refflow.layout import Placement
from tests.tensor.layouts import LINE2, LINE4, MATRIX_LAYOUTS, MESH, B, P, S, in_layout, laid, layout_id, numbers

VECTORS: list[tuple[Placement, Any]] = [(LINE4, (S(0),)), (LINE4, (B,)), (LINE4, (P,)), (MESH, (S(0), P)), (MESH, (S(0), S(0)))]


def test_default_dtypes() -> None:
    """As PyTorch: float32 for floats, int64 for ints, bool for bools; an array keeps its own."""
    expected: dict[Any, Any] = {
        flow.float32: (flow.tensor(1.5), flow.tensor([1, 2.0]), flow.zeros(2), flow.ones(2), flow.empty(2), flow.eye(2),
                       flow.full((2,), 1.0), flow.arange(0, 1, 0.5), flow.arange(3.0), flow.linspace(0, 1, 3),
                       flow.rand(2), flow.randn(2), flow.normal(0, 1, (2,)), flow.tensor([]), flow.tensor(math.nan)),
        flow.int64: (flow.tensor(1), flow.tensor([True, 2]), flow.full((2,), 3), flow.arange(3), flow.arange(1, 9, 2),
                     flow.randint(0, 9, (2,)), flow.randperm(4), flow.one_hot(flow.tensor([1]), 2)),
        flow.bool: (flow.tensor(True), flow.tensor([False]), flow.full((2,), True)),
    }  # fmt: skip
    for dtype, made in expected.items():
        assert {x.dtype for x in made} == {dtype}
    for dtype in (np.float64, np.float16, np.int8, np.uint8, np.int32, ml_dtypes.bfloat16):
        array = np.array([1, 2]).astype(dtype)
        assert flow.tensor(array).dtype == flow.from_numpy(array).dtype == np.dtype(dtype)
        assert flow.tensor(array[0]).dtype == np.dtype(dtype)
        assert flow.tensor([1, 2], dtype=dtype).dtype == flow.zeros(2, dtype=dtype).dtype == np.dtype(dtype)


def test_tensor_from_data() -> None:
    """Numbers, nested lists, arrays, tensors; always a copy, rounded once."""
    assert flow.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert flow.tensor(2.0).shape == () and flow.tensor([[]]).shape == (1, 0)
    assert flow.tensor([0.1]).numpy()[0] == np.float32(0.1)
    assert flow.tensor([1.9, -1.9, math.nan], dtype=flow.int32).tolist() == [1, -1, 0]
    source = laid(numbers(4), LINE4, P)
    for copy in (flow.tensor(source), flow.tensor(source, placement=LINE2, sbp=S(0))):
        assert copy.tolist() == [0, 1, 2, 3] and copy is not source
    assert flow.tensor(laid([1.0], LINE2, B, grad=True)).requires_grad is False


@pytest.mark.parametrize("layout", VECTORS, ids=layout_id)
def test_values_are_logical_in_every_layout(layout: Any) -> None:
    """Under P too: one rank keeps the value, the fold of all is it."""
    placement, sbp = layout
    where: dict[str, Any] = {"placement": placement, "sbp": sbp}
    made: list[tuple[flow.Tensor, Any]] = [
        (flow.zeros(6, **where), [0] * 6), (flow.ones(6, **where), [1] * 6), (flow.full((6,), 2.5, **where), [2.5] * 6),
        (flow.empty(6, **where), [0] * 6), (flow.arange(6, **where), list(range(6))),
        (flow.arange(1, -5, -2, **where), [1, -1, -3]), (flow.linspace(0, 3, 7, **where), [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        (flow.tensor([3, 1, 2], **where), [3, 1, 2]), (flow.eye(3, **where), np.eye(3).tolist()),
        (flow.eye(2, 4, **where), np.eye(2, 4).tolist()), (flow.arange(0, **where), []),
    ]  # fmt: skip
    for x, expected in made:
        assert x.tolist() == expected and (x.placement, x.sbp) == layout


def test_sizes() -> None:
    """f(2, 3), f((2, 3)), f([2, 3]) and NumPy ints alike."""
    for x in (flow.zeros(2, 3), flow.zeros((2, 3)), flow.zeros([2, 3]), flow.zeros(np.int64(2), 3)):
        assert x.shape == (2, 3)
    assert flow.zeros(()).shape == flow.zeros().shape == () and flow.zeros(np.int64(2)).shape == (2,)
    assert flow.full((0, 3), 1.0).tolist() == [] and flow.rand(0).shape == (0,)


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_like(layout: Any) -> None:
    """*_like takes shape, dtype, placement and sbp of its model."""
    x = in_layout(numbers(4, 3, dtype=np.int32), *layout)
    for y, value in ((flow.zeros_like(x), 0), (flow.ones_like(x), 1), (flow.full_like(x, 7), 7), (flow.empty_like(x), 0)):
        assert (y.shape, y.dtype, y.placement, y.sbp) == (x.shape, x.dtype, x.placement, x.sbp)
        assert y.tolist() == [[value] * 3] * 4
    assert flow.ones_like(x, dtype=flow.float64).dtype == flow.float64
    assert flow.zeros_like(flow.tensor([1.0])).is_local


def test_arange_rounds_each_step() -> None:
    """Element i is start + i step: one product and one sum, each rounded (OPS-CREATION)."""
    expected = np.float32(0.1) + np.arange(7, dtype=np.float32) * np.float32(0.1)
    found = flow.arange(0.1, 0.75, 0.1, placement=LINE4, sbp=S(0))
    assert flow.same_bits(found.numpy(), expected.astype(np.float32))
    assert flow.arange(0, 1, 0.1).shape == (10,) and flow.arange(5, 0).shape == (0,)
    assert flow.linspace(2, 2, 1).tolist() == [2] and flow.linspace(0, 1, 0).tolist() == []
    assert flow.arange(3, dtype=flow.float16).dtype == flow.float16


def test_requires_grad() -> None:
    """A factory can make a leaf."""
    makers: list[Callable[..., flow.Tensor]] = [flow.zeros, flow.ones, flow.rand, flow.randn]
    for make in makers:
        x = make(3, placement=LINE2, sbp=B, requires_grad=True)
        assert x.requires_grad and x.is_leaf
    assert flow.tensor([1.0], requires_grad=True).requires_grad
    assert flow.full((2,), 1.0, requires_grad=True).requires_grad
