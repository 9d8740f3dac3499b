"""Dropout masks are drawn by logical index (NN-DROPOUT): replicas agree, shards differ, layouts do not matter."""

from __future__ import annotations

import numpy as np
import pytest

import refflow as flow
from refflow import nn
from refflow.errors import AttributeValueError, DtypeError
from refflow.nn import functional as F

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
MESH = flow.placement("cpu", [[0, 1], [2, 3]])


def ones(*sbp: object) -> flow.Tensor:
    return flow.ones(8, 6, placement=MESH, sbp=sbp)


def test_masks_agree_in_a_replica_group_and_differ_across_a_split() -> None:  # NN-DROPOUT, NVIDIA/Fuser#3123
    held = F.dropout(ones(S(0), B)).local_arrays()
    assert flow.same_bits(held[0], held[1]) and flow.same_bits(held[2], held[3])
    assert not flow.same_bits(held[0], held[2])


@pytest.mark.parametrize("sbp", [(B, B), (S(0), S(1)), (S(1), B), (S(0), S(0)), (P, S(0))])
def test_the_mask_is_that_of_the_logical_index(sbp: tuple[object, ...]) -> None:  # NN-DROPOUT
    flow.manual_seed(3)
    out = F.dropout(ones(*sbp), 0.25).numpy()
    drawn = flow.manual_seed(3)
    kept = flow.rand(8, 6, generator=drawn, placement=MESH, sbp=(B, B)).numpy() < 0.75
    assert flow.same_bits(out, kept * np.float32(1 / 0.75))


def test_the_scale_is_one_product_and_the_gradient_the_same_mask() -> None:  # NN-DROPOUT
    x = flow.randn(50).requires_grad_()
    out = F.dropout(x, 0.3)
    out.backward(flow.ones(50))
    assert x.grad is not None
    kept = out.detach().numpy() != 0
    assert 0 < kept.sum() < 50
    assert flow.same_bits(x.grad.numpy(), np.where(kept, np.float32(1 / 0.7), np.float32(0)))
    expected = x.detach().numpy() * kept.astype(np.float32) * np.float32(1 / 0.7)
    assert flow.same_bits(out.detach().numpy(), expected)


def test_draws_are_counted_only_where_something_is_drawn() -> None:  # NN-DROPOUT
    x = flow.ones(4)
    before = flow.default_generator().state
    assert F.dropout(x, 0.0) is x and F.dropout(x, training=False) is x
    assert flow.default_generator().state == before
    assert F.dropout(x, 1.0).tolist() == [0, 0, 0, 0]
    assert flow.default_generator().state != before


def test_the_module_drops_while_training_only() -> None:  # NN-DROPOUT, NN-LAYER
    layer, x = nn.Dropout(0.5), flow.ones(64)
    assert set(layer(x).tolist()) == {0.0, 2.0}
    assert layer.eval()(x) is x


def test_errors() -> None:  # NN-DROPOUT
    with pytest.raises(AttributeValueError, match=r"\[0, 1\]"):
        F.dropout(flow.ones(2), 1.5)
    with pytest.raises(AttributeValueError, match=r"\[0, 1\]"):
        nn.Dropout(-0.1)
    with pytest.raises(DtypeError, match="floating point"):
        F.dropout(flow.arange(3))
