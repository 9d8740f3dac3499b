"""Boxing's array operations, compiled, against the reference's, to the bit (KER-ARRAYS)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from refflow_accel.cpu import abi
from refflow_accel.cpu.registry import NATIVE

from tests.accel.kernels_alike import BY_NAME, assert_alike, operands
from tests.strategies import examples


@examples(25)
@given(st.data(), st.sampled_from(sorted(BY_NAME)), st.integers(0, 3), st.integers(0, 9))
def test_pieces_put_together(data: Any, dtype: str, ndim: int, n: int) -> None:  # KER-ARRAYS
    shape = (n,) * ndim
    slices, parts = [], []
    for _ in range(data.draw(st.integers(0, 3))):  # they may overlap, and leave gaps
        ends = [sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))) for _ in shape]
        slices.append(tuple(slice(a, b) for a, b in ends))
        parts.append(data.draw(operands(tuple(b - a for a, b in ends), (dtype,))))
    fill = data.draw(st.sampled_from([-0.0, 0, 1]))
    assert_alike("assemble", *parts, shape=shape, slices=slices, fill=fill, dtype=BY_NAME[dtype])


def test_one_whole_part_is_returned_as_it_is() -> None:  # KER-ARRAYS
    x = np.ones((2, 3), np.float32)
    whole = NATIVE["assemble"](abi.CALL, x, shape=(2, 3), slices=[(slice(0, 2),)], fill=0, dtype=x.dtype)
    assert whole is x
