"""Public reports about in-place writes to split tensors: the write happens, or it is an error.

Checks TENSOR-VIEW and TENSOR-INPLACE.
"""

from __future__ import annotations

import numpy as np

import refflow as flow
from tests.tensor.layouts import LINE4, B, P, S, dense_partial, laid, numbers


def test_pytorch_139735_write_through_a_view_of_a_split_tensor() -> None:
    """pytorch/pytorch#139735, #147570: a write through a slice of a split tensor was lost in a temporary."""
    x = flow.zeros(8, placement=LINE4, sbp=S(0))
    x[0] = 1.0
    assert x.tolist() == [1, 0, 0, 0, 0, 0, 0, 0] and x.sbp == (S(0),)
    view = x[2:6].reshape(2, 2).transpose(0, 1)
    view[0].add_(laid([5.0, 6.0], LINE4, B))
    assert x.tolist() == [1, 0, 5, 0, 6, 0, 0, 0]
    x.mul_(2.0)
    assert view.tolist() == [[10, 12], [0, 0]]


def test_oneflow_in_place_on_a_partial() -> None:
    """OneFlow 0.9.0, found by running: P.add_(scalar) failed."""
    x = dense_partial(numbers(3), LINE4, P)
    x.add_(1.0)
    assert x.sbp == (P,) and x.tolist() == [1, 2, 3]
    y = laid(numbers(4), LINE4, B)
    y += laid(numbers(4), LINE4, S(0))
    assert y.sbp == (B,) and y.tolist() == [0, 2, 4, 6]
    assert np.all([array.tolist() == [0, 2, 4, 6] for array in y.local_arrays().values()])
