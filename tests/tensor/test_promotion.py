"""Type promotion of operators against a literal copy of PyTorch's answers.

Checks NUM-PROMOTE.  The one known difference: uint8 with int8 is int16 in PyTorch, which refflow does not have (int32).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from tests.tensor.layouts import LINE2, B, S, laid

DTYPES = {
    "bool": flow.bool, "uint8": flow.uint8, "int8": flow.int8, "int32": flow.int32, "int64": flow.int64,
    "float16": flow.float16, "bfloat16": flow.bfloat16, "float32": flow.float32, "float64": flow.float64,
}  # fmt: skip
NAMES = tuple(DTYPES)
SHORT = dict(zip("bucilhtfd", NAMES, strict=True))

# torch.result_type(row, column), both with dimensions (or both without).
TENSOR_TENSOR = """
  b u c i l h t f d
b b u c i l h t f d
u u u i i l h t f d
c c i c i l h t f d
i i i i i l h t f d
l l l l l l h t f d
h h h h h h h f f d
t t t t t t f t f d
f f f f f f f f f d
d d d d d d d d d d
"""
# torch.result_type(row with dimensions, column 0-d): the 0-d one matters only if its category is higher.
TENSOR_SCALAR_TENSOR = """
  b u c i l h t f d
b b u c i l h t f d
u u u u u u h t f d
c c c c c c h t f d
i i i i i i h t f d
l l l l l l h t f d
h h h h h h h h h h
t t t t t t t t t t
f f f f f f f f f f
d d d d d d d d d d
"""
# torch.result_type(row, a Python scalar), whether the row has dimensions or not.
PYTHON = {"bool": "bucilhtfd", "int": "lucilhtfd", "float": "fffffhtfd"}
SCALARS: dict[str, Any] = {"bool": True, "int": 2, "float": 1.5}


def read(table: str) -> dict[tuple[str, str], str]:
    """(row, column) -> dtype name."""
    header, *rows = (line.split() for line in table.strip().splitlines())
    return {(SHORT[row[0]], SHORT[c]): SHORT[cell] for row in rows for c, cell in zip(header, row[1:], strict=True)}


def vector(name: str) -> flow.Tensor:
    return flow.tensor([1, 1], dtype=DTYPES[name])


def number(name: str) -> flow.Tensor:
    return flow.tensor(1, dtype=DTYPES[name])


def test_tensors_of_one_kind() -> None:
    """Two tensors with dimensions, or two 0-d ones, both ways round."""
    for (a, b), expected in read(TENSOR_TENSOR).items():
        for make in (vector, number):
            assert (make(a) + make(b)).dtype.name == (make(b) * make(a)).dtype.name == expected, (a, b)


def test_tensor_with_a_0d_tensor() -> None:
    """A 0-d tensor gives way unless its category is higher."""
    for (a, b), expected in read(TENSOR_SCALAR_TENSOR).items():
        assert (vector(a) + number(b)).dtype.name == (number(b) * vector(a)).dtype.name == expected, (a, b)


@pytest.mark.parametrize("kind", PYTHON)
def test_tensor_with_a_python_scalar(kind: str) -> None:
    """Python scalars are weak; a float beside integers is float32."""
    for name, expected in zip(NAMES, PYTHON[kind], strict=True):
        for make in (vector, number):
            left, right = make(name) + SCALARS[kind], SCALARS[kind] * make(name)
            assert left.dtype.name == right.dtype.name == SHORT[expected], name


def test_functions_with_their_own_rule() -> None:
    """Division and functions of reals go to float32, comparisons to bool, integer sums to int64."""
    for name in NAMES:
        x = vector(name)
        own = name if name in ("float16", "bfloat16", "float32", "float64") else "float32"
        assert (x / x).dtype.name == flow.exp(x).dtype.name == flow.sqrt(x).dtype.name == own
        assert (x == x).dtype.name == (x < 2).dtype.name == flow.isnan(x).dtype.name == flow.logical_and(x, x).dtype.name == "bool"
        whole = name if own == name else "int64"
        assert x.sum().dtype.name == x.cumsum(0).dtype.name == x.prod().dtype.name == whole
        assert x.argmax().dtype.name == x.argsort().dtype.name == "int64"
        if name != "bool":
            assert (x**2).dtype.name == (x // 2).dtype.name == (-x).dtype.name == x.amax().dtype.name == name
            assert (x @ x).dtype.name == name
    assert (flow.tensor([2]) ** 0.5).dtype == flow.float32 and (2 / flow.tensor([2])).dtype == flow.float32


def test_values_after_promotion() -> None:
    """The wider type holds both values; a scalar is rounded once to the tensor's dtype."""
    assert (flow.tensor([200], dtype=flow.uint8) + flow.tensor([-100], dtype=flow.int8)).tolist() == [100]
    assert (flow.tensor([255], dtype=flow.uint8) + 1).tolist() == [0]  # wraps
    assert (flow.tensor([1], dtype=flow.uint8) + flow.tensor(300)).tolist() == [45]
    assert (flow.tensor([2**53 + 1]) + flow.tensor([0], dtype=flow.int32)).tolist() == [2**53 + 1]
    assert (flow.tensor([0.0]) + 0.1).numpy()[0] == np.float32(0.1)
    assert (flow.tensor([0.0], dtype=flow.float64) + 0.1).numpy()[0] == 0.1
    assert (flow.tensor([True]) + flow.tensor([True])).tolist() == [True]
    assert (flow.tensor([1.0], dtype=flow.float16) * 1e6).tolist() == [float("inf")]


def test_other_functions_promote_alike() -> None:
    """where, cat, maximum, stack, clamp and matmul meet in the same dtype."""
    condition = flow.tensor([True, False])
    a, b = vector("int32"), vector("float16")
    calls: list[Callable[[flow.Tensor, flow.Tensor], flow.Tensor]] = [
        lambda x, y: flow.where(condition, x, y), lambda x, y: flow.cat([x, y]), flow.maximum, flow.minimum,
        lambda x, y: flow.stack([x, y]), flow.dot,
    ]  # fmt: skip
    assert {call(a, b).dtype.name for call in calls} == {"float16"}
    assert flow.where(condition, 1, 2.0).dtype == flow.float32 and flow.where(condition, 1, 0).dtype == flow.int64
    assert flow.where(condition, True, False).dtype == flow.bool and flow.where(condition, a, 2.5).dtype == flow.float32
    clamped = flow.tensor([1, 2, 3]).clamp(1.5, 2.5)
    assert clamped.dtype == flow.float32 and clamped.tolist() == [1.5, 2, 2.5]
    assert flow.tensor([1, 5]).clamp(max=3).dtype == flow.int64


def test_layouts_do_not_change_promotion() -> None:
    """Global operands promote as local ones do."""
    x = laid(np.int8([1, 2]), LINE2, S(0)) + laid(np.float32(0.5), LINE2, B)
    assert x.dtype == flow.float32 and x.tolist() == [1.5, 2.5]
