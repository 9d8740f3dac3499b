"""Public reports about partial values: what is not linear must see the logical value.

Checks TENSOR-LOGICAL, SIG-DERIVE and BORDER-DUAL.
"""

from __future__ import annotations

import math

import numpy as np

import refflow as flow
from tests.tensor.layouts import LINE2, LINE4, B, P, S, dense_partial, laid, numbers


def test_pytorch_144054_item_and_bool_of_a_partial() -> None:
    """pytorch/pytorch#144054, #152406, #166638: each rank got its own part, here 1, 5, 9, 13."""
    total = laid(numbers(8), LINE4, S(0)).sum()
    assert float(total) == 28 and total.item() == 28 and int(total) == 28
    partial = dense_partial(28.0, LINE4, P)
    assert all(array != 28 for array in partial.local_arrays().values())
    assert partial.item() == 28 and partial.tolist() == 28 and bool(partial == 28)
    assert f"{partial}".startswith("tensor(28.")
    nothing = flow.per_rank(lambda rank: np.float32([1, -1, 2, -2][rank])).to_global(LINE4, P)
    assert not bool(nothing)


def test_pytorch_147180_comparison_of_partials() -> None:
    """pytorch/pytorch#147180: -5 x == 2 x held for a partial x."""
    x = flow.per_rank(lambda rank: np.float32([[1.0], [2.0], [9.0], [9.0]][rank])).to_global(LINE2, P)
    assert x.tolist() == [3]
    for policy in ("exact", "cheap"):
        with flow.signatures(policy):
            same = -5 * x == 2 * x
            assert same.tolist() == [False] and same.dtype == flow.bool
            assert (x > 2).tolist() == [True]  # no single part is above 2


def test_oneflow_2796_2825_4241_2161_sum_over_a_split_axis_is_partial() -> None:
    """OneFlow PRs 2796, 2825, 4241, 2161: reducing over the split axis is P(sum), not B or S."""
    x = laid(np.ones((4, 3), np.float32), LINE2, S(0))
    down, across = x.sum(0), x.sum(1)
    assert down.sbp == (P,) and down.tolist() == [4, 4, 4]
    assert across.sbp == (S(0),) and across.tolist() == [3, 3, 3, 3]


def test_pytorch_172932_gradient_through_to_local_of_a_partial() -> None:
    """pytorch/pytorch#172932, PRs 173454, 173153, 115967: the gradient of a P forward is whole on every rank."""
    weight = laid([3.0, 5.0], LINE2, B)

    def gradient(cross: bool) -> list[float]:
        x = laid([1.0, 2.0], LINE2, B, grad=True)
        y = x.to_global(sbp=P)
        if cross:
            y = y.to_local().to_global(LINE2, P)
        (y * weight).sum().backward()
        assert x.grad is not None and x.grad.sbp == (B,)
        return x.grad.tolist()

    assert gradient(True) == gradient(False) == [3, 5]


def test_dtensor_norm_of_a_split_then_sum() -> None:
    """PyTorch DTensor, found by running: `norm(dim=0).sum()` treated a norm's partial as a sum."""
    x = numbers(4, 2) - 3
    expected = math.sqrt(9 + 1 + 1 + 9) + math.sqrt(4 + 0 + 4 + 16)
    for sbp in (S(0), S(1), B, P):
        for policy in ("exact", "cheap"):
            with flow.signatures(policy):
                y = dense_partial(x, LINE2, P) if sbp == P else laid(x, LINE2, sbp)
                assert math.isclose(y.norm(dim=0).sum().item(), expected, rel_tol=1e-6)


def test_dtensor_fill_of_a_partial_writes_the_logical_value() -> None:
    """PyTorch DTensor, found by running: fill_(c) put c on every rank, n c in all."""
    x = dense_partial(numbers(3), LINE4, P)
    x.fill_(7.0)
    assert x.sbp == (P,) and x.tolist() == [7, 7, 7]


def test_dtensor_int64_partial_plus_replicate_stays_exact() -> None:
    """PyTorch DTensor, found by running: int64 P + R went through float32, 16777221 -> 16777220."""
    x = dense_partial(np.array([16777216]), LINE2, P)
    for policy in ("exact", "cheap"):
        with flow.signatures(policy):
            y = x + laid(np.array([5]), LINE2, B)
            assert y.dtype == flow.int64 and y.tolist() == [16777221]


def test_dtensor_partial_divided_by_zero() -> None:
    """PyTorch DTensor, found by running: P / 0 was NaN where one part is 0; the logical 1 / 0 is inf."""
    x = flow.per_rank(lambda rank: np.float32([[1.0], [0.0], [0.0], [0.0]][rank])).to_global(LINE2, P)
    assert (x / 0.0).tolist() == [math.inf]
    assert (-x / 0.0).tolist() == [-math.inf]


def test_oneflow_norm_of_shards_and_parts() -> None:
    """OneFlow 0.9.0, found by running: linalg.norm of S(0) or P summed the norms of the parts (7.61, not 5.40)."""
    for x in (laid([3.0, 4.0], LINE2, S(0)), dense_partial(np.float32([3, 4]), LINE2, P)):
        assert x.norm().item() == 5


def test_oneflow_isfinite_sees_the_sum() -> None:
    """OneFlow 0.9.0, found by running: isfinite of P looked at the parts; 3e38 + 3e38 is inf."""
    x = flow.per_rank(lambda rank: np.float32([3e38])).to_global(LINE2, P)
    with np.errstate(over="ignore"):
        assert flow.isfinite(x).tolist() == [False] and flow.isinf(x).tolist() == [True]
    opposed = flow.per_rank(lambda rank: np.float32([[np.inf], [-np.inf], [0], [0]][rank])).to_global(LINE2, P)
    with np.errstate(invalid="ignore"):
        assert flow.isnan(opposed).tolist() == [True]


def test_oneflow_partial_cast_to_int_truncates_once() -> None:
    """OneFlow 0.9.0, found by running: each part was truncated; 1.5 + 1.5 is 3, not 2."""
    x = flow.per_rank(lambda rank: np.float32([1.5])).to_global(LINE2, P)
    for policy in ("exact", "cheap"):
        with flow.signatures(policy):
            assert x.cast(flow.int32).tolist() == [3]


def test_oneflow_arange_as_partial_is_logical() -> None:
    """OneFlow 0.9.0, found by running: arange(3, sbp=P) held the value on every rank, 2 x in all."""
    assert flow.arange(3, placement=LINE2, sbp=P).tolist() == [0, 1, 2]
    assert flow.ones(3, placement=LINE4, sbp=P).tolist() == [1, 1, 1]


def test_oneflow_negative_zero_survives_partial() -> None:
    """OneFlow 0.9.0, found by running: -0.0 through B -> P -> B became +0.0."""
    x = laid(np.float32([-0.0, 0.0]), LINE4, B)
    assert flow.same_bits(x.to_global(sbp=P).to_global(sbp=B).numpy(), np.float32([-0.0, 0.0]))
