"""The functions of refflow.nn.functional, each on a few operand shapes; used by the layout and the gradient tests."""

from __future__ import annotations

import functools
from typing import Any

import refflow as flow
from refflow.nn import functional as F
from tests.nn.layouts import Case, f, i


def case(function: Any, *inputs: Any, **attrs: Any) -> Case:
    return Case(functools.partial(function, **attrs) if attrs else function, inputs)


def _batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    return F.batch_norm(x, None, None, weight, bias, training=True)


def _batch_norm_eval(x: Any, mean: Any, var: Any, weight: Any, bias: Any) -> Any:
    return F.batch_norm(x, mean, var, weight, bias)


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return F.layer_norm(x, weight.shape, weight, bias)


def _rms_norm(x: Any, weight: Any) -> Any:
    return F.rms_norm(x, weight.shape, weight)


def _group_norm(x: Any, weight: Any, bias: Any) -> Any:
    return F.group_norm(x, 2, weight, bias)


def _masked_attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, mask)


IMAGE = f(3, 4, 5, 5)
CASES: dict[str, Case] = {
    "relu": case(F.relu, f(5, 4)),
    "gelu": case(F.gelu, f(5, 4)),
    "gelu tanh": case(F.gelu, f(5, 4), approximate="tanh"),
    "silu": case(F.silu, f(5, 4)),
    "leaky_relu": case(F.leaky_relu, f(5, 4), negative_slope=0.2),
    "elu": case(F.elu, f(5, 4), alpha=1.5),
    "softplus": case(F.softplus, f(5, 4)),
    "softplus beta": case(F.softplus, f(5, 4), beta=2.0),
    "sigmoid": case(F.sigmoid, f(5, 4)),
    "tanh": case(F.tanh, f(5, 4)),
    "hardtanh": case(F.hardtanh, f(5, 4), min_val=-0.5, max_val=0.75),
    "softmax": case(F.softmax, f(4, 7), dim=-1),
    "softmax rows": case(F.softmax, f(8, 3), dim=0),
    "log_softmax": case(F.log_softmax, f(4, 8), dim=1),
    "dropout": case(F.dropout, f(5, 6), p=0.3),
    "linear": case(F.linear, f(5, 6), f(4, 6), f(4)),
    "linear aligned": case(F.linear, f(2, 4, 32), f(4, 32), f(4)),
    "embedding": case(lambda w, t: F.embedding(t, w), f(7, 3), i(7, 4, 2)),
    "embedding padding": case(lambda w, t: F.embedding(t, w, padding_idx=-1), f(3, 4), i(3, 9)),
    "normalize": case(F.normalize, f(4, 5)),
    "normalize 1": case(F.normalize, f(4, 5), p=1.0, dim=0),
    "pad": case(F.pad, f(3, 4), pad=(1, 2)),
    "conv2d": case(F.conv2d, f(3, 3, 5, 4), f(4, 3, 3, 2), f(4), stride=(2, 1), padding=1),
    "conv2d same": case(F.conv2d, f(2, 2, 4, 5), f(3, 2, 2, 4), padding="same", dilation=(1, 1)),
    "conv2d groups": case(F.conv2d, f(4, 4, 4, 4), f(4, 2, 2, 2), f(4), groups=2, dilation=2, padding=(0, 1)),
    "max_pool2d": case(F.max_pool2d, IMAGE, kernel_size=3, stride=2, padding=1),
    "max_pool2d dilated": case(F.max_pool2d, IMAGE, kernel_size=2, stride=1, dilation=2),
    "avg_pool2d": case(F.avg_pool2d, IMAGE, kernel_size=(2, 3), stride=1, padding=1),
    "avg_pool2d inside": case(F.avg_pool2d, IMAGE, kernel_size=3, stride=2, padding=1, count_include_pad=False),
    "adaptive": case(F.adaptive_avg_pool2d, IMAGE, output_size=(2, 3)),
    "adaptive mean": case(F.adaptive_avg_pool2d, IMAGE, output_size=1),
    "adaptive even": case(F.adaptive_avg_pool2d, f(2, 3, 4, 6), output_size=(2, 3)),
    "layer_norm": case(_layer_norm, f(3, 4, 6), f(6), f(6)),
    "layer_norm 2": case(_layer_norm, f(5, 2, 4), f(2, 4), f(2, 4)),
    "rms_norm": case(_rms_norm, f(3, 4, 6), f(6)),
    "group_norm": case(_group_norm, f(3, 4, 2, 3), f(4), f(4)),
    "batch_norm": case(_batch_norm, f(5, 3, 2, 2), f(3), f(3)),
    "batch_norm rows": case(_batch_norm, f(8, 4), f(4), f(4)),
    "batch_norm few": case(_batch_norm, f(2, 3), f(3), f(3)),
    "batch_norm eval": case(_batch_norm_eval, f(4, 3, 2), f(3), f(3, kind="positive"), f(3), f(3)),
    "attention": case(F.scaled_dot_product_attention, f(2, 2, 4, 4), f(2, 2, 5, 4), f(2, 2, 5, 3)),
    "attention causal": case(F.scaled_dot_product_attention, f(3, 4, 2), f(3, 4, 2), f(3, 4, 2), is_causal=True),
    "attention mask": case(_masked_attention, f(2, 3, 4), f(2, 3, 4), f(2, 3, 2), f(3, 3, kind="bool")),
    "attention bias": case(_masked_attention, f(2, 3, 4), f(2, 3, 4), f(2, 3, 2), f(3, 3)),
    "attention dropout": case(F.scaled_dot_product_attention, f(2, 3, 4), f(2, 3, 4), f(2, 3, 2), dropout_p=0.4),
    "cross_entropy": case(F.cross_entropy, f(5, 7), i(7, 5)),
    "cross_entropy none": case(F.cross_entropy, f(4, 8), i(8, 4), reduction="none"),
    "cross_entropy sum": case(F.cross_entropy, f(4, 8), i(8, 4), reduction="sum", label_smoothing=0.1),
    "cross_entropy smooth": case(F.cross_entropy, f(5, 7), i(7, 5), label_smoothing=0.1),
    "cross_entropy dims": case(F.cross_entropy, f(3, 4, 2, 3), i(4, 3, 2, 3), ignore_index=2, label_smoothing=0.2),
    "cross_entropy weight": case(
        lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=0.1, ignore_index=0),
        f(5, 4),
        i(4, 5),
        f(4, kind="positive", grad=False),
    ),
    "nll_loss": case(lambda x, t, w: F.nll_loss(x, t, w), f(5, 4), i(4, 5), f(4, kind="positive", grad=False)),
    "mse_loss": case(F.mse_loss, f(5, 3), f(5, 3)),
    "l1_loss": case(F.l1_loss, f(5, 3), f(5, 3)),
    "smooth_l1_loss": case(F.smooth_l1_loss, f(5, 3), f(5, 3), beta=0.7),
    "huber_loss": case(F.huber_loss, f(5, 3), f(5, 3), delta=0.6, reduction="sum"),
    "bce": case(F.binary_cross_entropy_with_logits, f(4, 5), f(4, 5, kind="unit")),
    "bce weights": case(
        lambda x, t, w, p: F.binary_cross_entropy_with_logits(x, t, w, "mean", p),
        f(4, 5),
        f(4, 5, kind="unit"),
        f(5, kind="positive"),
        f(5, kind="positive"),
    ),
    "kl_div": case(F.kl_div, f(4, 5), f(4, 5, kind="unit"), reduction="batchmean"),
    "kl_div log": case(F.kl_div, f(4, 5), f(4, 5), log_target=True),
    "one_hot": case(lambda t: flow.nn.functional.one_hot(t, 5), i(5, 3, 2)),
}
