"""Public reports about operations along a split dimension.

Checks SIG-DERIVE, SIG-SPACE, SIG-RESHAPE, OPS-ORDER and OPS-INDEXING.
"""

from __future__ import annotations

import numpy as np
import pytest

import refflow as flow
from tests.tensor.layouts import LINE2, LINE4, MESH, B, P, S, dense_partial, laid, numbers


def test_pytorch_173936_argmax_over_a_split_dim_is_the_global_index() -> None:
    """pytorch/pytorch PRs 173936, 175776: local indices were combined with max, giving 1."""
    x = laid([10.0, 5.0, 3.0, 8.0], LINE2, S(0))
    assert x.argmax().item() == 0 and x.argmin().item() == 2
    values, indices = x.max(0)
    assert (values.item(), indices.item()) == (10, 0)
    assert tuple(one.item() for one in x.min(0)) == (3, 2)


def test_jax_21403_cumsum_along_the_split_axis() -> None:
    """jax-ml/jax#21403."""
    x = laid(np.ones((2, 16), np.float32), LINE4, S(1))
    assert x.cumsum(-1).tolist() == [list(range(1, 17))] * 2


def test_dtensor_cumsum_of_a_negative_dim() -> None:
    """PyTorch DTensor, found by running: a negative dim over the split one scanned each shard alone: [1, 3, 3, 7]."""
    x = laid([1.0, 2.0, 3.0, 4.0], LINE2, S(0))
    assert x.cumsum(-1).tolist() == x.cumsum(0).tolist() == [1, 3, 6, 10]
    assert x.cumprod(-1).tolist() == [1, 2, 6, 24]


def test_jax_24576_concatenate_on_part_of_a_mesh() -> None:
    """jax-ml/jax#24576, #19106: ones came back as 2s and 4s."""
    for axes in ((S(0), B), (B, S(0)), (S(0), S(0))):
        parts = [laid(np.ones(n, np.float32), MESH, *axes) for n in (4, 12)]
        assert flow.cat(parts).tolist() == [1] * 16


def test_shardy_945_concatenate_along_the_split_dim() -> None:
    """openxla/shardy#945: the copies came back in the wrong order."""
    x = laid(numbers(4), LINE4, S(0))
    assert flow.cat([x, x, x, x]).to_global(sbp=S(0)).tolist() == [0, 1, 2, 3] * 4


@pytest.mark.parametrize("rows", [5, 6, 7, 8])
def test_pytorch_143372_flatten_of_an_uneven_split(rows: int) -> None:
    """pytorch/pytorch#143372: view(-1) of 6 rows over 4 ranks failed or was refused."""
    x = laid(numbers(rows, 4), LINE4, S(0))
    assert x.reshape(-1).tolist() == list(range(rows * 4))
    assert x.view(-1).view(rows, 4).to_global(sbp=S(1)).tolist() == numbers(rows, 4).tolist()


def test_oneflow_8194_stack_backward_under_split_1() -> None:
    """Oneflow#8194: the gradient of stack came back transposed, [[0, 2], [1, 3]]."""
    a, b = (laid(np.zeros((2, 2)), LINE2, S(1), grad=True) for _ in range(2))
    y = flow.stack([a, b], dim=0)
    y.backward(laid(np.arange(8.0).reshape(2, 2, 2), LINE2, B))
    assert a.grad is not None and b.grad is not None
    assert a.grad.tolist() == [[0, 1], [2, 3]] and b.grad.tolist() == [[4, 5], [6, 7]]
    assert a.grad.sbp == (S(1),)


def test_oneflow_9942_broadcast_times_split_0() -> None:
    """Oneflow#9942: B (4 x 5) @ S(0) (5 x 8) died with SIGBUS."""
    x, w = numbers(4, 5), numbers(5, 8) - 7
    for placement in (LINE2, LINE4):
        product = laid(x, placement, B) @ laid(w, placement, S(0))
        assert product.tolist() == (x.astype(int) @ w.astype(int)).tolist()


def test_oneflow_9734_stack_under_split_sees_logical_shapes() -> None:
    """Oneflow#9734: a check compared a local shape with a logical one (the graph's half: test_graphs.py)."""
    parts = [laid(numbers(4, 3) + i, LINE4, S(0), grad=True) for i in range(2)]
    y = flow.stack(parts, dim=1)
    assert y.shape == (4, 2, 3)
    (y * y).sum().backward()
    for i, part in enumerate(parts):
        assert part.grad is not None and part.grad.tolist() == (2 * (numbers(4, 3) + i)).tolist()


def test_dtensor_max_with_an_empty_shard() -> None:
    """PyTorch DTensor, found by running: one rank raised and the others hung; an empty shard answers the identity."""
    x = laid([[4.0], [9.0], [1.0]], LINE4, S(0))
    assert x.shapes[3] == (0, 1)
    assert x.amax().item() == 9 and x.amin().item() == 1 and x.argmax().item() == 1
    assert x.max(0).indices.tolist() == [1] and x.sum().item() == 14
    assert laid([-3, -9], LINE4, S(0)).amax().item() == -3


def test_oneflow_scatter_with_split_index_and_updates() -> None:
    """OneFlow 0.9.0, found by running: scatter_nd declared B although the ranks differed; it is P."""
    index, source = laid([0, 1, 0, 2], LINE2, S(0)), laid([1.0, 2.0, 3.0, 4.0], LINE2, S(0))
    for policy in ("exact", "cheap"):
        with flow.signatures(policy):
            assert laid([0.0, 0.0, 0.0], LINE2, B).scatter_add(0, index, source).tolist() == [4, 2, 4]
            assert laid([0.0, 0.0, 0.0], LINE2, B).index_add(0, index, source).tolist() == [4, 2, 4]


def test_oneflow_7020_row_of_an_uneven_split() -> None:
    """Oneflow#7020: x[1] of an unevenly split tensor crashed in S -> S."""
    x = laid(numbers(5, 3), LINE4, S(0))
    for row in range(5):
        assert x[row].tolist() == numbers(5, 3)[row].tolist()
        assert x[row].to_global(sbp=S(0)).tolist() == numbers(5, 3)[row].tolist()


def test_oneflow_3915_reshape_backward_under_split() -> None:
    """Oneflow#3915: the gradient of a reshape of a split tensor."""
    x = laid(numbers(6, 4), LINE4, S(0), grad=True)
    (x.reshape(2, 12) * laid(numbers(2, 12), LINE4, B)).sum().backward()
    assert x.grad is not None and x.grad.tolist() == numbers(6, 4).tolist() and x.grad.sbp == (S(0),)


def test_libai_409_heads_that_do_not_divide() -> None:
    """Oneflow-Inc/libai#406, #409: (batch, 6 heads) reshaped under a split over 8 mixed local and logical shapes."""
    x = laid(numbers(2, 12), MESH, S(1), S(1))
    assert x.reshape(2, 6, 2).tolist() == numbers(2, 6, 2).tolist()
    assert x.reshape(2, 6, 2).transpose(1, 2).reshape(2, 12).shape == (2, 12)


def test_oneflow_8920_cumprod_gradient_under_split() -> None:
    """Oneflow#8920, #9091: the sbp of cumprod's gradient."""
    for sbp in (S(0), S(1), B):
        x = laid([[1.0, 2.0], [3.0, 0.0], [5.0, 6.0]], LINE2, sbp, grad=True)
        x.cumprod(0).sum().backward()
        # column 0: 1 (1 + 3 + 15), 1 (1 + 5), 3; column 1: 1 + 0 + 0, 2 (1 + 6), 0
        assert x.grad is not None and x.grad.tolist() == [[19, 1], [6, 14], [3, 0]]


def test_oneflow_7238_like_factories_follow_the_layout() -> None:
    """Oneflow#7238: zeros_like and ones_like take the sbp of their model, and ones_like of P is logically 1."""
    for x in (laid(numbers(4, 2), LINE4, S(0)), dense_partial(numbers(4, 2), LINE4, P)):
        ones, zeros = flow.ones_like(x), flow.zeros_like(x)
        assert ones.sbp == zeros.sbp == x.sbp
        assert ones.tolist() == [[1, 1]] * 4 and zeros.tolist() == [[0, 0]] * 4
