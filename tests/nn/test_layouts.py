"""No layout changes a bit: every function of nn.functional under drawn placements and sbp against the one-rank run.

NN-HALF, NN-ACTIVATION, NN-GELU, NN-SOFTMAX, NN-LINEAR, NN-CONV, NN-EMBEDDING, NN-NORMALIZE, NN-MAXPOOL, NN-AVGPOOL,
NN-ADAPTIVE, NN-LAYERNORM, NN-RMSNORM, NN-GROUPNORM, NN-BATCHNORM, NN-ATTENTION, NN-CROSSENTROPY, NN-REGRESSION, NN-BCE,
NN-KLDIV, NN-REDUCTION: values and gradients are functions of the logical operands alone.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.nn.cases import CASES
from tests.nn.layouts import assert_layout_free


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@settings(max_examples=6)
def test_no_layout_changes_a_bit(name: str, data: Any) -> None:
    assert_layout_free(CASES[name], data)
