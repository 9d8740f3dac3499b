"""Public reports about gradients across the local/global border, and about the border itself.

Checks BORDER-DUAL, BORDER-LOCAL-TO-GLOBAL, LAY-REPLICA and AUTO-LAYOUT.
"""

from __future__ import annotations

import numpy as np
import pytest

import refflow as flow
from refflow.errors import ReplicaError
from tests.tensor.layouts import BACK4, LINE2, LINE4, MESH, B, P, S, laid, locals_of, numbers


def test_jax_3970_gradient_of_a_sum_over_ranks() -> None:
    """jax-ml/jax#3970: per-device gradients were scaled or partial; d/dw sum((w^2 + 1) d) = 2 w (0 + 1 + 2 + 3) = 12."""
    d = laid(numbers(4), LINE4, S(0))
    w = laid(1.0, LINE4, B, grad=True)
    ((w * w + 1.0) * d).sum().backward()
    assert w.grad is not None and w.grad.sbp == (B,)
    assert locals_of(w.grad) == dict.fromkeys(range(4), 12)
    # the same by hand, inside the ranks: the local gradients of a B tensor are summed at the border
    w = laid(1.0, LINE4, B, grad=True)
    inside = w.to_local()
    (((inside * inside) + 1.0) * d.to_local()).sum().to_global(LINE4, P).backward()
    assert w.grad is not None and w.grad.item() == 12


def test_torchtitan_2106_bias_beside_a_partial() -> None:
    """pytorch/torchtitan PR 2106: P + B added the bias once per rank, and its gradient was as many times too large."""
    x, w, b = numbers(3, 4), numbers(4, 2), np.float32([10, 20])
    for policy in ("exact", "cheap"):
        with flow.signatures(policy):
            bias = laid(b, LINE2, B, grad=True)
            out = laid(x, LINE2, S(1)) @ laid(w, LINE2, S(0)) + bias
            assert out.tolist() == (x.astype(int) @ w.astype(int) + b).tolist()
            out.sum().backward()
            assert bias.grad is not None and bias.grad.tolist() == [3, 3]


def test_jax_18711_gradient_of_an_integer_power() -> None:
    """jax-ml/jax PR 18711: d/dw sum((w x)^2) = 2 w sum(x^2) = 2 * 3 * 140 = 840."""
    x = laid(numbers(8), LINE4, S(0))
    for square in (lambda y: y**2, lambda y: y * y):
        w = laid(3.0, LINE4, B, grad=True)
        square(w * x).sum().backward()
        assert w.grad is not None and w.grad.item() == 840


def test_oneflow_7224_gradient_from_one_mesh_to_another() -> None:
    """OneFlow PR 7224: the gradient of a 1-d -> 2-d move had the 2-d placement."""
    x = laid(numbers(4), LINE4, S(0), grad=True)
    x.to_global(MESH, (S(0), B)).sum().backward()
    assert x.grad is not None and x.grad.placement == LINE4 and x.grad.sbp == (S(0),)
    assert x.grad.tolist() == [1, 1, 1, 1]


def test_oneflow_unequal_replicas_are_refused() -> None:
    """OneFlow 0.9.0, found by running: local to_global(B) silently took rank 0's value."""
    local = flow.per_rank(lambda rank: np.float32([1, 2, 3 + (rank == 2)]))
    with pytest.raises(ReplicaError, match=r"ranks 0 and 2.*first differ at \(2,\).*3\.0.*4\.0"):
        local.to_global(LINE4, B)
    taken = local.to_global(LINE4, B, check_meta=False)
    assert locals_of(taken)[2] == [1, 2, 4]
    assert local.to_global(LINE2, B).tolist() == [1, 2, 3]


def test_oneflow_9727_rank_order_is_honoured() -> None:
    """Oneflow#9727: [1, 0] equalled [0, 1] and a permuted mesh was sorted."""
    x = laid(numbers(4), BACK4, S(0))
    assert locals_of(x) == {3: [0], 1: [1], 2: [2], 0: [3]}
    assert flow.placement("cpu", [1, 0]) != flow.placement("cpu", [0, 1])
    mesh = flow.placement("cpu", [[0, 3], [1, 2]])
    assert locals_of(laid(numbers(2, 2), mesh, S(0), S(1))) == {0: [[0]], 3: [[1]], 1: [[2]], 2: [[3]]}


def test_oneflow_9704_same_logical_data_or_local_parts() -> None:
    """Oneflow#9704: flow.tensor(sbp=S) wants the logical data; local parts come in by to_global."""
    assert locals_of(laid(numbers(4), LINE4, S(0))) == {0: [0], 1: [1], 2: [2], 3: [3]}
    parts = flow.per_rank(lambda rank: np.float32([rank])).to_global(LINE4, S(0))
    assert parts.tolist() == [0, 1, 2, 3]


def test_oneflow_8091_to_global_of_split_and_partial() -> None:
    """Oneflow#8091, #8868: to_global on a tensor that is S or P already hung."""
    for x in (laid(numbers(5), LINE4, S(0)), laid(numbers(5), LINE4, P)):
        for sbp in (S(0), B, P):
            assert x.to_global(LINE4, sbp).tolist() == [0, 1, 2, 3, 4]


def test_oneflow_6232_numpy_on_a_subset_placement() -> None:
    """Oneflow#6232, #7469: print and numpy of a tensor on some of the ranks."""
    x = laid(numbers(3), flow.placement("cpu", [2, 1]), S(0))
    assert x.numpy().tolist() == [0, 1, 2]
    assert str(x) == 'tensor([0., 1., 2.], placement=placement("cpu", [2, 1]), sbp=S(0), dtype=float32)'


def test_oneflow_9390_grad_after_backward_of_the_same_tensor() -> None:
    """Oneflow#9390: autograd.grad after backward on the same tensor."""
    from refflow.autograd import grad

    x = laid([1.0, 2.0], LINE2, B, grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    (again,) = grad(y, x)
    assert again is not None and again.tolist() == [2, 4]
    assert x.grad is not None and x.grad.tolist() == [2, 4]


def test_oneflow_size_1_dimension_to_split() -> None:
    """OneFlow 0.9.0, found by running: B -> S of a size-1 dim aborted one rank while the other raised."""
    x = laid([[7.0, 8.0]], LINE4, B).to_global(sbp=S(0))
    assert x.shapes == {0: (1, 2), 1: (0, 2), 2: (0, 2), 3: (0, 2)} and x.tolist() == [[7, 8]]
