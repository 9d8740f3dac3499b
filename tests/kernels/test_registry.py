"""Every primitive's kernel exists, once, by its name."""

from __future__ import annotations

import pytest

from refflow.kernels.reference import KERNELS
from refflow.kernels.reference.registry import register

NAMES = """
neg abs sign floor ceil trunc round sqrt rsqrt exp log log1p expm1 tanh sigmoid softplus gelu erf sin cos relu
isnan isinf isfinite logical_not add sub mul div floor_divide remainder maximum minimum pow eq ne lt le gt ge
logical_and logical_or logical_xor where cast
matmul conv2d conv2d_input conv2d_filter
sum prod amax amin any all argmax argmin fold
reshape transpose expand slice slice_update pad cat flip tril triu unfold2d fold2d
index_select index_add gather scatter_add one_hot
cumsum cumprod argsort
full arange eye rand randn random_bits randint
"""


def test_every_kernel_exists() -> None:
    assert set(NAMES.split()) <= set(KERNELS)


def test_a_second_kernel_of_one_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'add' is registered twice"):
        register("add", lambda x, y: x)
