"""Every primitive on the back end "numba", forward and backward, under any layout (ACC-BACKEND, KER-BITS).

In float32, int64 and bool, for a kernel is compiled for each of its dtypes; in all of them under the profile `long`.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refflow_accel.cpu.backend import NumbaBackend

from refflow.numerics.dtypes import DTYPES
from tests.accel.primitives_alike import NAMES, assert_alike
from tests.strategies import examples

BACKEND = NumbaBackend()
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
SOME = tuple(dtype.name for dtype in DTYPES) if LONG else ("float32", "int64", "bool")


@pytest.mark.parametrize("name", NAMES)
@examples(8)
@given(st.data())
def test_every_primitive_forward_and_backward(name: str, data: st.DataObject) -> None:  # ACC-BACKEND
    assert_alike(BACKEND, name, data, SOME)
