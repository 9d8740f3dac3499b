"""x[key] and x[key] = value, every form, against NumPy.

Checks TENSOR-VIEW, OPS-MOVEMENT and OPS-INDEXING.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow.errors import AttributeValueError, DtypeError, IndexOutOfRange, ShapeError
from tests.tensor.layouts import LINE4, MATRIX_LAYOUTS, B, S, fresh_world, in_layout, laid, layout_id, numbers

KEYS: list[Any] = [
    0, -1, (1, 2), (-1, -1), slice(None), slice(1, 3), slice(-2, None), slice(None, None, 2), slice(3, 1), slice(0, 99),
    slice(-99, 2), (slice(1, 4, 2), slice(None, None, 3)), None, (None, 1), (1, None, 2), (slice(None), None),
    (None, None), ..., (..., 1), (1, ...), (..., None), (slice(1, 2), ..., 0), (None, ..., None), (), np.int64(2),
    (np.int64(1), slice(2)), slice(np.int64(1), np.int64(3)),
]  # fmt: skip


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_basic_keys(layout: Any) -> None:
    """ints, slices, None and "..." select what they select in NumPy (OPS-MOVEMENT)."""
    whole = numbers(5, 6)
    x = in_layout(whole, *layout)
    for key in KEYS:
        found = x[key]
        assert found.shape == whole[key].shape and found.tolist() == whole[key].tolist(), key


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS[::2], ids=layout_id)
def test_assignment_with_basic_keys(layout: Any) -> None:
    """Numbers and tensors are assigned, broadcast and cast to the dtype of x."""
    for key in KEYS:
        whole = numbers(5, 6)
        x = in_layout(whole, *layout)
        x[key] = 100
        whole[key] = 100
        assert x.tolist() == whole.tolist(), key
        row = numbers(*whole[key].shape[-1:], dtype=np.int64) - 3
        x[key] = laid(row, layout[0], *([B] * layout[0].ndim))
        whole[key] = row
        assert x.tolist() == whole.tolist() and (x.dtype, x.sbp) == (flow.float32, layout[1]), key


def test_assignment_of_numpy_and_python_scalars() -> None:
    """A number is rounded once to the dtype of x."""
    x = flow.zeros(5, dtype=flow.float16)
    x[0], x[1], x[2], x[3] = 1, True, np.float64(0.1), np.int8(-3)
    assert x.tolist() == [1, 1, float(np.float16(0.1)), -3, 0]
    y = flow.zeros(2, dtype=flow.int64)
    y[0], y[1] = 2.9, -2.9
    assert y.tolist() == [2, -2]


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS[1::2], ids=layout_id)
def test_integer_tensor_as_key(layout: Any) -> None:
    """One integer tensor of any shape selects along the first dimension (OPS-INDEXING)."""
    whole = numbers(5, 6)
    x = in_layout(whole, *layout)
    for index in ([4, 0, 0], [[1, 2], [3, 3]], 2, []):
        key = laid(np.array(index, np.int64), layout[0], *([B] * layout[0].ndim))
        assert x[key].tolist() == whole[np.array(index, np.int64)].tolist()


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS[::3], ids=layout_id)
def test_mask_assignment(layout: Any) -> None:
    """A bool mask over the leading dimensions, as in NumPy."""
    whole = numbers(6, 6)
    x = in_layout(whole, *layout)
    rows = np.array([True, False, False, True, False, True])
    everywhere = whole % 4 == 1
    for mask in (rows, everywhere):
        x[laid(mask, layout[0], *([B] * layout[0].ndim))] = -1
        whole[mask] = -1
        assert x.tolist() == whole.tolist() and x.sbp == layout[1]
    big = flow.tensor([1, 16777217])
    big[flow.tensor([True, False])] = 2.9  # the others keep every bit
    assert big.tolist() == [2, 16777217]


keys = st.one_of(
    st.integers(-4, 3),
    st.builds(slice, *[st.none() | st.integers(-6, 6)] * 2, st.none() | st.integers(1, 4)),
    st.none(),
)


@given(st.lists(keys, max_size=3), st.sampled_from(MATRIX_LAYOUTS))
def test_random_keys(key: list[Any], layout: Any) -> None:
    """Any mix of ints, slices and None."""
    while sum(k is not None for k in key) > 2:
        key.pop()
    with fresh_world(4):
        whole = numbers(4, 4)
        x = in_layout(whole, *layout)
        assert x[tuple(key)].tolist() == whole[tuple(key)].tolist()
        x[tuple(key)] = -5.0
        whole[tuple(key)] = -5
        assert x.tolist() == whole.tolist()


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "too large": (5, IndexOutOfRange, r"5 is out of range for dimension 0 of size 5"),
    "too small": ((0, -7), IndexOutOfRange, r"-7 .*dimension 1 of size 6"),
    "too many": ((0, 0, 0), IndexOutOfRange, "3 indices .* 2 dimensions"),
    "negative step": (slice(None, None, -1), AttributeValueError, r"flip\(\)"),
    "two dots": ((..., ...), AttributeValueError, "at most one"),
    "bool": (True, AttributeValueError, "found bool"),
    "float": (1.0, AttributeValueError, "found float"),
    "text": ("a", AttributeValueError, "found str"),
    "list": ([0, 1], AttributeValueError, "found list"),
    "array": (np.array([0, 1]), AttributeValueError, "found ndarray"),
    "array in a tuple": ((0, np.array([0, 1])), AttributeValueError, "found ndarray"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_keys(name: str) -> None:
    """A key that is not allowed is named; nothing is written (ERR-TYPES)."""
    key, error, words = BAD[name]
    x = laid(numbers(5, 6), LINE4, S(0))
    with pytest.raises(error, match=words):
        x[key]
    with pytest.raises(error, match=words):
        x[key] = 1.0
    assert x.tolist() == numbers(5, 6).tolist()


def test_bad_tensor_keys_and_values() -> None:
    """Masks that would make a shape, index tensors with others, values that are no numbers."""
    x = laid(numbers(3, 3), LINE4, S(0))
    index, mask = laid([0, 1], LINE4, B), laid([True, False, True], LINE4, B)
    with pytest.raises(AttributeValueError, match=r"depends on data.*where\(\)"):
        x[mask]
    with pytest.raises(AttributeValueError, match=r"gather\(dim, index\)"):
        x[index, index]
    for key in ((index, 0), (slice(None), index), (0, mask), (..., index)):  # a copy: writing to it would be lost
        with pytest.raises(AttributeValueError, match="assignment"):
            x[key] = 1.0
    with pytest.raises(AttributeValueError, match=r"scatter_add\(\)"):
        x[index] = 1.0
    with pytest.raises(ShapeError, match=r"\(2,\).*\(3, 3\)"):
        x[laid([True, False], LINE4, B)] = 1.0
    with pytest.raises(ShapeError, match=r"\(2,\).*\(3,\)"):
        x[0] = laid([1.0, 2.0], LINE4, B)
    for value in ([1, 2, 3], np.ones(3), "1", None):
        with pytest.raises(DtypeError, match=type(value).__name__):
            x[0] = value
        with pytest.raises(DtypeError, match=type(value).__name__):
            x[mask] = value
    with pytest.raises(IndexOutOfRange, match="index 3 at position"):
        x[laid([0, 3], LINE4, B)]
    assert x.tolist() == numbers(3, 3).tolist()
