"""The functions on small cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

import refflow as flow
from refflow.errors import AttributeValueError, DtypeError, IndexOutOfRange, ShapeError
from refflow.nn import functional as F
from tests.nn.layouts import Array

NAN, INF = math.nan, math.inf


def t(data: object, grad: bool = False) -> flow.Tensor:
    return flow.tensor(data, requires_grad=grad)


def close(x: flow.Tensor, expected: object, abs: float = 1e-6) -> None:
    np.testing.assert_allclose(x.detach().numpy(), np.array(expected, np.float32), rtol=1e-6, atol=abs)


def grad_of(y: flow.Tensor, x: flow.Tensor) -> Array:
    y.sum().backward()
    assert x.grad is not None
    return x.grad.numpy()


def ones(*shape: int) -> flow.Tensor:
    return flow.ones(*shape)


# --- activations ----------------------------------------------------------------------------------------------------


def test_activations() -> None:  # NN-ACTIVATION
    x = t([-2.0, -0.0, 0.5, 3.0])
    close(F.relu(x), [0, 0, 0.5, 3])
    close(F.leaky_relu(x, 0.5), [-1, 0, 0.5, 3])
    close(F.elu(x, 2.0), [2 * math.expm1(-2), 0, 0.5, 3])
    close(F.hardtanh(x), [-1, 0, 0.5, 1])
    close(F.silu(x), [-2 / (1 + math.exp(2)), 0, 0.5 / (1 + math.exp(-0.5)), 3 / (1 + math.exp(-3))])
    close(F.softplus(x, 2.0), [math.log1p(math.exp(2 * v)) / 2 for v in (-2, 0, 0.5, 3)])


def test_gelu_far_below_zero_is_not_rounded_away() -> None:  # NN-GELU
    phi = 0.5 * math.erfc(6 / math.sqrt(2))
    assert F.gelu(t([-6.0])).item() == np.float32(-6 * phi)
    assert F.gelu(t([-INF])).item() == 0
    close(F.gelu(t([1.0]), "tanh"), [0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * 1.044715))])
    with pytest.raises(AttributeValueError, match="'none' or 'tanh'"):
        F.gelu(t([1.0]), "erf")


def test_gradients_stay_finite_where_the_other_branch_overflows() -> None:  # NN-ACTIVATION
    x = t([200.0], grad=True)
    assert grad_of(F.elu(x), x).tolist() == [1.0]
    d = t([1e30], grad=True)
    assert grad_of(F.huber_loss(d, t([0.0])), d).tolist() == [1.0]


def test_hardtanh_has_no_gradient_on_its_bounds() -> None:  # NN-ACTIVATION
    x = t([-1.0, 0.0, 1.0, NAN], grad=True)
    assert grad_of(F.hardtanh(x), x).tolist() == [0, 1, 0, 1]


def test_softmax() -> None:  # NN-SOFTMAX
    x = t([[0.0, math.log(2.0), math.log(5.0)]])
    close(F.softmax(x, 1), [[1 / 8, 2 / 8, 5 / 8]])
    close(F.log_softmax(x, 1), np.log([[1 / 8, 2 / 8, 5 / 8]]))
    close(F.softmax(t([1000.0, 1000.0]), 0), [0.5, 0.5])
    close(F.softmax(t([-INF, 1.0]), 0), [0, 1])
    assert F.softmax(t([1, 2]), 0, dtype=flow.float64).dtype == flow.float64
    with pytest.raises(DtypeError, match="floating point"):
        F.softmax(t([1, 2]), 0)


def test_halves_compute_in_float32_and_round_once() -> None:  # NN-HALF
    rng = np.random.default_rng(0)
    x, w = (flow.tensor(rng.standard_normal(s), dtype=flow.bfloat16) for s in ((4, 6), (6,)))
    wide = F.layer_norm(x.float(), 6, w.float())
    assert flow.same_bits(F.layer_norm(x, 6, w).numpy(), wide.to(flow.bfloat16).numpy())
    assert F.layer_norm(x, 6, w.float()).dtype == flow.float32  # promoted, as everywhere
    assert F.cross_entropy(x, t([0, 1, 2, 3])).dtype == flow.bfloat16


# --- linear maps and lookups ----------------------------------------------------------------------------------------


def test_linear_and_conv2d() -> None:  # NN-LINEAR, NN-CONV
    close(F.linear(t([[1.0, 2.0]]), t([[3.0, 4.0], [5.0, 6.0]]), t([1.0, -1.0])), [[12, 16]])
    image = flow.arange(9).float().reshape(1, 1, 3, 3)
    close(F.conv2d(image, ones(1, 1, 2, 2), t([10.0])), [[[[18, 22], [30, 34]]]])
    close(F.conv2d(image, ones(1, 1, 2, 2), stride=2, padding=1), [[[[0, 3], [9, 24]]]])
    close(F.conv2d(image[0], ones(1, 1, 2, 2), dilation=2), [[[16]]])
    assert F.conv2d(image, ones(1, 1, 2, 2), padding="valid").shape == (1, 1, 2, 2)


def test_same_padding_puts_the_surplus_at_the_end() -> None:  # NN-CONV
    image = flow.arange(9).float().reshape(1, 1, 3, 3)
    close(F.conv2d(image, ones(1, 1, 2, 2), padding="same"), [[[[8, 12, 7], [20, 24, 13], [13, 15, 8]]]])
    with pytest.raises(AttributeValueError, match="stride 1"):
        F.conv2d(image, ones(1, 1, 2, 2), padding="same", stride=2)


def test_taps_on_padding_are_absent() -> None:  # NN-CONV
    weight = t([[[[INF, INF], [1.0, 1.0]]]])
    for padding in (1, "same"):
        assert not F.conv2d(ones(1, 1, 2, 2), weight, padding=padding).isnan().any().item()


def test_embedding() -> None:  # NN-EMBEDDING
    w = flow.arange(8).float().reshape(4, 2).requires_grad_()
    out = F.embedding(t([[0, 3], [3, 1]]), w, padding_idx=3)
    close(out, [[[0, 1], [6, 7]], [[6, 7], [2, 3]]])
    assert grad_of(out, w).tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]
    with pytest.raises(IndexOutOfRange, match="4"):
        F.embedding(t([4]), w)


def test_two_split_embeddings_do_not_share_a_mask() -> None:  # NN-EMBEDDING, pytorch#130725
    place = {"placement": flow.placement("cpu", [0, 1]), "sbp": flow.sbp.split(0)}
    index = {**place, "sbp": flow.sbp.broadcast}
    first, second = (flow.tensor(a, **place) for a in ([[0.0], [1], [2], [3]], [[0.0], [10], [20], [30]]))
    assert F.embedding(flow.tensor([0, 3], **index), first).tolist() == [[0], [3]]
    assert F.embedding(flow.tensor([3, 0], **index), second).tolist() == [[30], [0]]


def test_normalize() -> None:  # NN-NORMALIZE
    x = t([[3.0, 4.0], [0.0, 0.0]], grad=True)
    out = F.normalize(x)
    close(out, [[0.6, 0.8], [0, 0]])
    assert np.isfinite(grad_of(out, x)).all()
    close(F.normalize(t([[1.0, -3.0]]), p=1), [[0.25, -0.75]])
    close(F.normalize(t([[1.0, -4.0]]), p=INF), [[0.25, -1]])


# --- pooling --------------------------------------------------------------------------------------------------------


def test_max_pool2d() -> None:  # NN-MAXPOOL
    x = t([[[[1.0, 5, 5, 2], [3, 5, 0, 1]]]], grad=True)
    out = F.max_pool2d(x, 2, stride=(2, 1))
    close(out, [[[[5, 5, 5]]]])
    assert grad_of(out, x).tolist() == [[[[0, 2, 1, 0], [0, 0, 0, 0]]]]  # the first of equals
    assert F.max_pool2d(t([[[[1.0, NAN], [2, 0]]]]), 2).isnan().item()
    close(F.max_pool2d(t([[[-3.0]]]), 2, padding=1, stride=1), [[[-3, -3], [-3, -3]]])  # the padding is -inf
    with pytest.raises(AttributeValueError, match="half the kernel"):
        F.max_pool2d(x, 2, padding=2)


def test_avg_pool2d() -> None:  # NN-AVGPOOL
    x = flow.arange(4).float().reshape(1, 1, 2, 2)
    close(F.avg_pool2d(x, 2), [[[[1.5]]]])
    close(F.avg_pool2d(x, 2, stride=1, padding=1)[0, 0, 0], [0, 0.25, 0.25])
    close(F.avg_pool2d(x, 2, 1, 1, count_include_pad=False)[0, 0, 0], [0, 0.5, 1])
    close(F.avg_pool2d(x, 2, divisor_override=2), [[[[3]]]])


def test_adaptive_avg_pool2d() -> None:  # NN-ADAPTIVE
    x = flow.arange(10).float().reshape(1, 1, 2, 5)
    close(F.adaptive_avg_pool2d(x, (2, 3)), [[[[0.5, 2, 3.5], [5.5, 7, 8.5]]]])
    close(F.adaptive_avg_pool2d(x, 1), [[[[4.5]]]])
    close(F.adaptive_avg_pool2d(x, (1, 5)), [[[[2.5, 3.5, 4.5, 5.5, 6.5]]]])


# --- normalisation --------------------------------------------------------------------------------------------------


def test_norms() -> None:  # NN-LAYERNORM, NN-RMSNORM, NN-GROUPNORM
    x = t([[1.0, 3.0], [2.0, 2.0]])
    close(F.layer_norm(x, 2, t([1.0, 2.0]), t([0.0, 1.0]), eps=0.0)[0], [-1, 3])
    close(F.layer_norm(x, (2,))[1], [0, 0])
    close(F.rms_norm(t([[3.0, 4.0]]), 2, eps=0.0), np.array([[3, 4]]) / math.sqrt(12.5))
    close(F.group_norm(t([[[1.0], [3.0], [5.0], [5.0]]]), 2, eps=1e-12), [[[-1], [1], [0], [0]]])
    with pytest.raises(ShapeError, match="last dimensions"):
        F.layer_norm(x, 3)
    with pytest.raises(AttributeValueError, match="groups"):
        F.group_norm(x, 3)


def test_gradient_of_a_bias_under_a_split_sequence() -> None:  # NN-LAYERNORM, Megatron-LM#1446
    place = flow.placement("cpu", [0, 1])
    x = flow.randn(4, 2, placement=place, sbp=flow.sbp.split(0))
    w, b = (flow.ones(2, placement=place, sbp=flow.sbp.broadcast, requires_grad=True) for _ in range(2))
    F.layer_norm(x, 2, w, b).sum().backward()
    assert b.grad is not None and b.grad.sbp == (flow.sbp.broadcast,)
    assert b.grad.tolist() == [4, 4]


# --- losses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_smoothing_counts_the_logical_classes(parts: int) -> None:  # NN-CROSSENTROPY, Megatron-LM#737
    place = flow.placement("cpu", list(range(parts)))
    x = flow.tensor([[0.0, 1, 2, 3]], placement=place, sbp=flow.sbp.split(1))
    target = flow.tensor([3], placement=place, sbp=flow.sbp.broadcast)
    assert F.cross_entropy(x, target, label_smoothing=0.1).item() == pytest.approx(0.5902, abs=5e-5)


def test_cross_entropy() -> None:  # NN-CROSSENTROPY
    x = t(np.log([[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]).astype(np.float32))
    first, second = -math.log(0.5), -math.log(0.125)
    close(F.cross_entropy(x, t([0, 1]), reduction="none"), [first, second])
    close(F.cross_entropy(x, t([0, 1])), (first + second) / 2)
    close(F.cross_entropy(x, t([0, 1]), t([1.0, 3.0, 9.0])), (first + 3 * second) / 4)
    close(F.cross_entropy(x, t([0, 7]), ignore_index=7), first)
    close(F.cross_entropy(x, t([0, 7]), ignore_index=7, reduction="sum"), first)
    close(F.cross_entropy(x, t([0, 1]), t([1.0, 3.0, 9.0]), ignore_index=0, reduction="none"), [0, 3 * second])
    close(F.cross_entropy(x[0], t(0)), first)
    close(F.nll_loss(F.log_softmax(x, 1), t([0, 1])), (first + second) / 2)
    assert math.isnan(F.cross_entropy(x, t([7, 7]), ignore_index=7).item())  # nothing to take the mean of


def test_cross_entropy_errors() -> None:  # NN-CROSSENTROPY
    x = flow.randn(2, 3)
    with pytest.raises(IndexOutOfRange, match="-100"):
        F.cross_entropy(x, t([0, -100]))
    with pytest.raises(DtypeError, match="class indices"):
        F.cross_entropy(x, t([0.0, 1.0]))
    with pytest.raises(ShapeError, match=r"\(2,\)"):
        F.cross_entropy(x, t([0]))
    with pytest.raises(ShapeError, match="one weight per class"):
        F.cross_entropy(x, t([0, 1]), t([1.0]))
    with pytest.raises(AttributeValueError, match="reduction"):
        F.cross_entropy(x, t([0, 1]), reduction="avg")


def test_an_ignored_place_gives_no_gradient_even_at_infinity() -> None:  # NN-CROSSENTROPY
    x = t([[1.0, -INF], [0.0, 0.0]], grad=True)
    loss = F.cross_entropy(x, t([-1, 0]), ignore_index=-1)
    assert loss.item() == np.float32(math.log(2))
    assert grad_of(loss, x)[0].tolist()[0] == 0


def test_regression_losses() -> None:  # NN-REGRESSION
    x, y = t([1.0, 2.0, -3.0]), t([1.5, 2.0, 1.0])
    close(F.mse_loss(x, y), 16.25 / 3)
    close(F.l1_loss(x, y, "none"), [0.5, 0, 4])
    close(F.smooth_l1_loss(x, y, "none", beta=2.0), [0.0625, 0, 3])
    close(F.smooth_l1_loss(x, y, "sum", beta=0.0), 4.5)
    close(F.huber_loss(x, y, "none", delta=2.0), [0.125, 0, 6])
    with pytest.raises(ShapeError, match="one shape"):
        F.mse_loss(x, t([[1.0, 2.0, 3.0]]))


def test_binary_cross_entropy_and_kl() -> None:  # NN-BCE, NN-KLDIV
    close(F.binary_cross_entropy_with_logits(t([0.0, 100.0, -100.0]), t([1.0, 1.0, 1.0]), reduction="none"),
          [math.log(2), 0, 100])  # fmt: skip
    close(F.binary_cross_entropy_with_logits(t([0.0]), t([1.0]), pos_weight=t([3.0])), 3 * math.log(2))
    close(F.binary_cross_entropy_with_logits(t([0.0]), t([0.0]), t([5.0])), 5 * math.log(2))
    logp, q = t(np.log([[0.5, 0.5], [0.5, 0.5]]).astype(np.float32)), t([[1.0, 0.0], [0.5, 0.5]])
    close(F.kl_div(logp, q, "batchmean"), math.log(2) / 2)
    close(F.kl_div(logp, logp, "sum", log_target=True), 0)


@pytest.mark.parametrize("rows", [5, 2, 1])
def test_a_mean_divides_by_the_logical_count(rows: int) -> None:  # NN-REDUCTION
    place = {"placement": flow.placement("cpu", [0, 1, 2, 3]), "sbp": flow.sbp.split(0)}
    x, y = (flow.tensor(np.arange(rows, dtype=np.float32) * k, **place) for k in (1, 3))
    assert F.mse_loss(x, y).item() == np.float32(sum((2 * n) ** 2 for n in range(rows))) / np.float32(rows)


# --- attention ------------------------------------------------------------------------------------------------------


def test_attention() -> None:  # NN-ATTENTION
    q, k, v = t([[0.0], [2.0]]), t([[1.0], [1.0 + math.log(3.0)]]), t([[0.0, 4.0], [8.0, 0.0]])
    close(F.scaled_dot_product_attention(q, k, v)[0], [4, 2])
    close(F.scaled_dot_product_attention(q, k, v, scale=0.5)[1], [6, 1])
    close(F.scaled_dot_product_attention(q, k, v, is_causal=True)[0], [0, 4])
    close(F.scaled_dot_product_attention(q, k, v, t([[True, True], [False, True]]))[1], [8, 0])
    close(F.scaled_dot_product_attention(q, k, v, t([[0.0, math.log(3.0)], [0.0, 0.0]]))[0], [6, 1])


def test_a_query_that_may_look_nowhere_gives_zero() -> None:  # NN-ATTENTION
    q, v = flow.randn(2, 3).requires_grad_(), flow.randn(2, 3)
    out = F.scaled_dot_product_attention(q, v, v, t([[False, False], [True, False]]))
    assert out[0].tolist() == [0, 0, 0] and out[1].tolist() == v[0].tolist()
    assert np.isfinite(grad_of(out, q)).all()


def test_attention_errors() -> None:  # NN-ATTENTION
    q = flow.randn(2, 3)
    with pytest.raises(ShapeError, match="queries"):
        F.scaled_dot_product_attention(q, flow.randn(2, 4), q)
    with pytest.raises(DtypeError, match="mask"):
        F.scaled_dot_product_attention(q, q, q, t([[1, 1], [1, 1]]))
