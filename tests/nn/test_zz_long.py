"""Layers (NN-LAYER, NN-MHA): each is its function, and no layout of inputs or parameters changes a bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refflow as flow
from refflow import nn
from refflow.errors import AttributeValueError, ShapeError
from refflow.nn import functional as F
from tests.nn.layouts import MESHES, Input, Outcome, f, i, whole
from tests.strategies import ONE, logical, placements, sbps

B = flow.sbp.broadcast


class Attend(nn.Module):
    """Self-attention; the weights are added in so that their gradient counts too."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, x: Any) -> Any:
        out, weights = self.inner(x, x, x, is_causal=True)
        return out + weights.sum(2, keepdim=True)


LAYERS: dict[str, tuple[Callable[[], nn.Module], Input]] = {
    "linear": (lambda: nn.Linear(6, 4), f(5, 6)),
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4), nn.LogSoftmax(1)), f(8, 6)),
    "conv": (
        lambda: nn.Sequential(
            *(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.AvgPool2d(2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
        ),
        f(3, 2, 6, 6),
    ),
    "embedding": (lambda: nn.Sequential(nn.Embedding(7, 4, padding_idx=1), nn.LayerNorm(4)), i(7, 3, 5)),
    "norms": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.RMSNorm(6), nn.Dropout(0.2), nn.SiLU()), f(3, 4, 6)),
    "attention": (lambda: Attend(dropout=0.25), f(2, 3, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), f(2, 3, 8)),
    "encoder first": (lambda: nn.TransformerEncoderLayer(8, 4, 8, norm_first=True, activation=F.gelu), f(3, 2, 8)),
}


def outcome(make: Callable[[], nn.Module], x: np.ndarray[Any, Any], place: Any, sbp: Any, of: Any) -> Outcome:
    """Result and gradients of a layer whose parameters are laid out as `of` says."""
    flow.manual_seed(1)
    layer = make().to_global(place, of)
    tensor = flow.tensor(x, placement=place, sbp=sbp, requires_grad=x.dtype.kind == "f")
    out = layer(tensor)
    cotangent = np.random.default_rng(2).standard_normal(out.shape).astype(np.float32)
    out.backward(flow.tensor(cotangent, placement=place, sbp=whole(place)))
    grads = [tensor.grad, *(p.grad for p in layer.parameters())]
    buffers = tuple(b.numpy() for b in layer.buffers())
    return Outcome(logical(out.value), (*(None if g is None else logical(g.value) for g in grads), *buffers))


@pytest.mark.parametrize("name", LAYERS)
@given(data=st.data())
@settings(max_examples=40, derandomize=False)
def test_no_layout_of_inputs_or_parameters_changes_a_bit(name: str, data: Any) -> None:  # NN-LAYER, NN-MHA
    make, spec = LAYERS[name]
    x = spec.draw(np.random.default_rng(data.draw(st.integers(0, 99))), spec.shape, np.float32)
    place = data.draw(placements(MESHES))
    sbp = data.draw(sbps(place, x.ndim, ()))
    found = outcome(make, x, place, sbp, lambda _, t: data.draw(sbps(place, t.ndim, ("sum",))))
    found.assert_same(outcome(make, x, ONE, B, lambda _, t: B))


def test_layers_are_their_functions() -> None:  # NN-LAYER
    x = flow.randn(4, 3)
    lin = nn.Linear(3, 2)
    assert flow.same_bits(lin(x).detach().numpy(), F.linear(x, lin.weight, lin.bias).detach().numpy())
    pairs: list[tuple[nn.Module, Callable[[Any], Any]]] = [
        (nn.ReLU(), F.relu),
        (nn.Sigmoid(), F.sigmoid),
        (nn.Tanh(), F.tanh),
        (nn.SiLU(), F.silu),
        (nn.GELU("tanh"), lambda v: F.gelu(v, "tanh")),
        (nn.LeakyReLU(0.3), lambda v: F.leaky_relu(v, 0.3)),
        (nn.ELU(0.5), lambda v: F.elu(v, 0.5)),
        (nn.Softplus(2.0), lambda v: F.softplus(v, 2.0)),
        (nn.Hardtanh(-0.1, 0.2), lambda v: F.hardtanh(v, -0.1, 0.2)),
        (nn.Softmax(0), lambda v: F.softmax(v, 0)),
        (nn.LogSoftmax(0), lambda v: F.log_softmax(v, 0)),
        (nn.Identity(1, a=2), lambda v: v),
        (nn.Unflatten(1, (3, 1)), lambda v: v.reshape(4, 3, 1)),
    ]
    for module, function in pairs:
        assert flow.same_bits(module(x).numpy(), function(x).numpy()), module


def test_losses_are_their_functions() -> None:  # NN-LAYER
    x, y, classes, w = flow.randn(4, 3), flow.rand(4, 3), flow.tensor([0, 2, 1, 2]), flow.tensor([1.0, 2.0, 0.5])
    pairs = [
        (nn.CrossEntropyLoss(w, 2, "sum", 0.1)(x, classes), F.cross_entropy(x, classes, w, 2, "sum", 0.1)),
        (nn.NLLLoss(w)(x, classes), F.nll_loss(x, classes, w)),
        (nn.MSELoss()(x, y), F.mse_loss(x, y)),
        (nn.L1Loss("sum")(x, y), F.l1_loss(x, y, "sum")),
        (nn.SmoothL1Loss(beta=0.5)(x, y), F.smooth_l1_loss(x, y, beta=0.5)),
        (nn.HuberLoss(delta=0.5)(x, y), F.huber_loss(x, y, delta=0.5)),
        (nn.BCEWithLogitsLoss(pos_weight=w)(x, y), F.binary_cross_entropy_with_logits(x, y, pos_weight=w)),
        (nn.KLDivLoss("batchmean")(x, y), F.kl_div(x, y, "batchmean")),
    ]
    for a, b in pairs:
        assert flow.same_bits(a.numpy(), b.numpy())
    assert nn.CrossEntropyLoss(w).to_global(ONE, B).weight.is_global


def test_a_split_of_projections_is_a_split_of_heads() -> None:  # NN-MHA
    place = flow.placement("cpu", [0, 1])
    rows, columns = flow.sbp.split(0), flow.sbp.split(1)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    layer.to_global(place, lambda name, t: B if name == "out_proj.bias" else columns if "out_proj" in name else rows)
    x = flow.randn(2, 3, 8, placement=place, sbp=B)
    with flow.boxing("explicit"):
        q = layer._heads(layer.q_proj(x))
        assert q.sbp == (columns,) and q.shape == (2, 2, 3, 4)  # heads are dimension 1
        F.scaled_dot_product_attention(q, q, q, is_causal=True)


def test_masks_of_multihead_attention() -> None:  # NN-MHA
    flow.manual_seed(0)
    layer, x = nn.MultiheadAttention(4, 2, batch_first=True), flow.randn(2, 3, 4)
    later = flow.triu(flow.ones(3, 3, dtype=flow.bool), 1)  # true: must not look
    causal, weights = layer(x, x, x, is_causal=True)
    masked, same = layer(x, x, x, attn_mask=later)
    added, _ = layer(x, x, x, attn_mask=flow.zeros(3, 3).masked_fill(later, float("-inf")))
    per_head, _ = layer(x, x, x, attn_mask=later.expand(4, 3, 3))
    for other in (masked, added, per_head):
        assert flow.same_bits(causal.detach().numpy(), other.detach().numpy())
    assert flow.same_bits(weights.detach().numpy(), same.detach().numpy()) and weights.shape == (2, 3, 3)
    padding = flow.tensor([[False, False, True], [False, False, False]])
    for mask in (later, flow.zeros(3, 3).masked_fill(later, float("-inf"))):
        both, weights = layer(x, x, x, key_padding_mask=padding, attn_mask=mask, average_attn_weights=False)
        assert weights.shape == (2, 2, 3, 3) and weights[0, :, :, 2].tolist() == [[0, 0, 0], [0, 0, 0]]
        assert flow.same_bits(both[1].detach().numpy(), causal[1].detach().numpy())
    assert layer(x, x, x, need_weights=False)[1] is None


def test_sequence_first_is_the_transpose() -> None:  # NN-MHA
    made = []
    for batch_first in (True, False):
        flow.manual_seed(0)
        layer, x = nn.MultiheadAttention(4, 2, kdim=3, batch_first=batch_first), flow.randn(2, 3, 4)
        k = flow.randn(2, 5, 3)
        args = (x, k, flow.cat([k, k[:, :, :1]], 2))
        out, _ = layer(*(args if batch_first else [a.transpose(0, 1) for a in args]))
        made.append((out if batch_first else out.transpose(0, 1)).detach().numpy())
    assert flow.same_bits(*made)


def test_errors() -> None:  # NN-LAYER
    with pytest.raises(AttributeValueError, match="groups"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(AttributeValueError, match="3 heads"):
        nn.MultiheadAttention(8, 3)
    with pytest.raises(AttributeValueError, match="padding_idx"):
        nn.Embedding(3, 2, padding_idx=3)
    with pytest.raises(ShapeError, match="three dimensions"):
        nn.MultiheadAttention(4, 2)(flow.ones(4), flow.ones(4), flow.ones(4))
