"""Public reports about embeddings, losses, norms and gradients of training programs.

Checks NN-EMBEDDING, NN-CROSSENTROPY, NN-LAYERNORM, NN-BATCHNORM, OPS-MEAN and AUTO-ACCUMULATE.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import PlacementError
from tests.tensor.layouts import LINE1, LINE2, LINE4, MESH, B, P, S, dense_partial, laid, locals_of, numbers

F = pytest.importorskip("refflow.nn.functional")


def test_pytorch_131264_two_row_split_embeddings() -> None:
    """pytorch/pytorch PR 131264 (#130725): the second lookup used the mask of the first."""
    w1, w2 = laid(numbers(4, 1), LINE2, S(0)), laid(10 * numbers(4, 1), LINE2, S(0))
    out1 = F.embedding(laid([0, 3], LINE2, B), w1)
    out2 = F.embedding(laid([3, 0], LINE2, B), w2)
    assert out1.tolist() == [[0], [3]] and out2.tolist() == [[30], [0]]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_megatron_737_label_smoothing_over_split_classes(ranks: int) -> None:
    """NVIDIA/Megatron-LM#737: the mean log-probability and the vocabulary size were the shard's, not the whole's."""
    line = flow.placement("cpu", list(range(ranks)))
    losses = []
    for sbp in (S(1), S(0), B):
        logits = laid([[0.0, 1.0, 2.0, 3.0]], line, sbp, grad=True)
        loss = F.cross_entropy(logits, laid([3], line, B), label_smoothing=0.1)
        loss.backward()
        assert logits.grad is not None
        losses.append((loss.item(), logits.grad.tolist()))
    # log sum exp = 3.4402, so -log p = 3.4402, 2.4402, 1.4402, 0.4402: 0.9 * 0.4402 + 0.1 * 1.9402
    assert math.isclose(losses[0][0], 0.5902, abs_tol=5e-5)
    assert losses[0] == losses[1] == losses[2]


def test_megatron_1446_layer_norm_gradients_under_a_sequence_split() -> None:
    """Megatron-LM#1446, #443, #474; TransformerEngine#435; apex#1686: gamma and beta gradients differed per rank."""
    x = laid(numbers(4, 2), LINE2, S(0))
    gamma, beta = laid(np.ones(2, np.float32), LINE2, B, grad=True), laid(np.zeros(2, np.float32), LINE2, B, grad=True)
    F.layer_norm(x, 2, gamma, beta).backward(laid(np.ones((4, 2), np.float32), LINE2, S(0)))
    assert beta.grad is not None and locals_of(beta.grad) == {0: [4, 4], 1: [4, 4]}
    assert gamma.grad is not None and gamma.grad.sbp == (B,)
    first, second = gamma.grad.local_arrays().values()
    assert flow.same_bits(first, second)


def test_apex_262_batch_norm_with_one_row_per_rank() -> None:
    """NVIDIA/apex#262: a local count of one is legal when the global count is not; 1 and 3 have mean 2, variance 1."""
    x = laid([[1.0], [3.0]], LINE2, S(0))
    out = F.batch_norm(x, None, None, training=True, eps=0.0)
    assert out.tolist() == [[-1], [1]]


def test_oneflow_batch_norm_statistics_under_split() -> None:
    """OneFlow 0.9.0, found by running: S(0) kept per-shard statistics (0.1 and 1.2) under a B name."""
    running = [laid([0.0], LINE2, B), laid([1.0], LINE2, B)]
    F.batch_norm(laid([[1.0], [3.0]], LINE2, S(0)), *running, training=True, momentum=1.0)
    assert locals_of(running[0]) == {0: [2], 1: [2]}
    assert locals_of(running[1]) == {0: [2], 1: [2]}  # the running variance is the unbiased one: 2 / (2 - 1)


def test_nemo_rl_3788_norm_counts_a_replicated_parameter_once() -> None:
    """NeMo-RL PR 3788; DeepSpeed PR 1252; Megatron-LM PR 7227: replicas were counted once per rank, 7.07 for 5."""
    assert laid([3.0, 4.0], LINE2, B).norm().item() == 5
    assert dense_partial(np.float32([3, 4]), LINE2, P).norm().item() == 5
    w = laid(np.full(8, 10, np.float32), LINE2, B, grad=True)
    (w + w.to_global(LINE1, B).to_global(LINE2, B)).sum().backward()  # tied: two uses, one parameter, one norm
    assert w.grad is not None and w.grad.tolist() == [2] * 8
    assert math.isclose(w.detach().norm().item(), math.sqrt(800), rel_tol=1e-7)


LOSSES: dict[str, Any] = {
    "mse": lambda x, y: F.mse_loss(x, y),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y),
    "huber": lambda x, y: F.huber_loss(x, y),
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, y),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rows", [2, 5])
def test_dtensor_mean_loss_of_an_uneven_split(name: str, rows: int) -> None:
    """PyTorch DTensor, found by running: the shard means were averaged, and an empty shard gave NaN."""
    x, y = numbers(rows, 3) / 4 - 1, numbers(rows, 3) % 2
    found = []
    for placement, sbp in ((LINE1, B), (LINE4, S(0)), (LINE4, B), (LINE2, S(1))):
        a = laid(x, placement, sbp, grad=True)
        loss = LOSSES[name](a, laid(y, placement, sbp))
        loss.backward()
        assert a.grad is not None
        found.append((loss.numpy() if not loss.requires_grad else loss.detach().numpy(), a.grad.numpy()))
    assert all(flow.same_bits(a, b) for one in found for a, b in zip(one, found[0], strict=True))
    if name == "mse":
        assert math.isclose(found[0][0].item(), float(np.mean((x - y).astype(np.float64) ** 2)), rel_tol=1e-6)


def test_oneflow_6746_tensor_of_another_stage() -> None:
    """Oneflow#6746, #9435: a tensor entered a later stage without to_global; here an error names both placements."""
    stage0, stage1 = laid(numbers(2, 2), LINE2, B), laid(numbers(2, 2), flow.placement("cpu", [2, 3]), B)
    with pytest.raises(PlacementError, match=r"\[0, 1\].*\[2, 3\].*to_global"):
        stage0 @ stage1
    assert (stage0.to_global(stage1.placement) @ stage1).tolist() == [[2, 3], [6, 11]]


def test_nemo_automodel_3530_accumulation_over_two_shapes() -> None:
    """NeMo Automodel PR 3530: a change of the batch shape cleared the gradients accumulated so far."""
    w = laid([1.0, 2.0], LINE2, B, grad=True)
    for rows in (4, 3):
        (laid(np.ones((rows, 2), np.float32), LINE2, S(0)) * w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [7, 7]


def test_alpa_405_sum_loss_over_micro_batches() -> None:
    """alpa PR 405 (review): micro-batch gradients of a sum loss must add up, not be averaged (the graph's: test_graphs.py)."""
    x = numbers(8, 2)
    whole, parts = (laid([1.0, 2.0], LINE4, B, grad=True) for _ in range(2))
    (laid(x, LINE4, S(0)) * whole).sum().backward()
    for i in range(4):
        (laid(x[2 * i : 2 * i + 2], LINE4, S(0)) * parts).sum().backward()
    assert whole.grad is not None and parts.grad is not None
    assert parts.grad.tolist() == whole.grad.tolist() == [56, 64]


def test_piper_13_tied_weight_on_two_stages() -> None:
    """uw-syfi/piper#13: a weight used on two stages was not synchronised; its gradient is the sum of both uses."""
    later = flow.placement("cpu", [2, 3])
    w = laid([1.0, 2.0], LINE2, B, grad=True)
    hidden = laid(numbers(3, 2), LINE2, S(0)) * w
    out = hidden.to_global(later, S(0)) * w.to_global(later, B)
    out.sum().backward()  # d/dw x w^2 = 2 w sum(x): 2 * 1 * 6, 2 * 2 * 9
    assert w.grad is not None and w.grad.placement == LINE2 and w.grad.tolist() == [12, 36]
    with flow.no_grad():
        w.sub_(w.grad)
    assert locals_of(w) == {0: [-11, -34], 1: [-11, -34]}


def test_oneflow_10561_layer_norm_parameter_gradients_are_reduced_once() -> None:
    """Oneflow#10561: gamma and beta gradients must be P, then reduced; on two mesh axes too."""
    beta = laid(np.zeros(3, np.float32), MESH, B, B, grad=True)
    F.layer_norm(laid(numbers(4, 3), MESH, S(0), B), 3, laid(np.ones(3, np.float32), MESH, B, B), beta).sum().backward()
    assert beta.grad is not None and locals_of(beta.grad) == {rank: [4, 4, 4] for rank in range(4)}


def test_oneflow_6176_gradients_of_a_global_parameter_start_again() -> None:
    """Oneflow#6176: zero_grad of a global parameter."""
    w = laid([1.0, 2.0], LINE2, S(0), grad=True)
    for _ in range(2):
        w.grad = None
        (w * w).sum().backward()
        assert w.grad is not None and w.grad.tolist() == [2, 4]
        w.grad.zero_()
        assert w.grad.tolist() == [0, 0] and w.grad.sbp == (S(0),)
