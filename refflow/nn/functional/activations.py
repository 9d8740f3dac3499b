"""Activations: elementwise functions of one tensor.

Implements NN-ACTIVATION and NN-GELU of spec/text/nn.md; softmax is that of refflow/functional.  relu, gelu, softplus,
sigmoid and tanh are primitives; the others are stated sequences of primitives.
"""

from __future__ import annotations

import math

from ...errors import AttributeValueError
from ...functional.arithmetic import add, div, expm1, ge, gt, le, mul, neg, relu, sigmoid, takes_tensors, tanh, where
from ...functional.precision import floating, in_float32
from ...functional.softmax import log_softmax, softmax
from ...ops import elementwise as ops
from ...tensor.tensor import Tensor


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x Phi(x), correctly rounded; or with approximate="tanh" 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).

    Errors: `AttributeValueError`.  Source: NN-GELU; Hendrycks and Gimpel 2016 (arXiv:1606.08415).
    """
    if approximate == "none":
        return Tensor(ops.gelu(floating("gelu", x).value))
    if approximate != "tanh":
        raise AttributeValueError(f"gelu: approximate must be 'none' or 'tanh', found {approximate!r}")
    return _gelu_tanh(floating("gelu", x))


@in_float32
def _gelu_tanh(x: Tensor) -> Tensor:
    cubic = add(x, mul(mul(mul(x, x), x), 0.044715))
    return mul(mul(x, 0.5), add(tanh(mul(cubic, math.sqrt(2 / math.pi))), 1.0))


@in_float32
def silu(x: Tensor) -> Tensor:
    """x sigmoid(x) (NN-ACTIVATION)."""
    return mul(x, sigmoid(floating("silu", x)))


@in_float32
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope x (NN-ACTIVATION)."""
    return where(gt(floating("leaky_relu", x), 0), x, mul(x, negative_slope))


@in_float32
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha expm1(x) (NN-ACTIVATION)."""
    positive = gt(floating("elu", x), 0)
    return where(positive, x, mul(expm1(where(positive, 0.0, x)), alpha))  # expm1 of a large x would be inf: 0 * inf


@in_float32
def softplus(x: Tensor, beta: float = 1.0) -> Tensor:
    """log(1 + exp(beta x)) / beta, the function correctly rounded, so it needs no threshold (NN-ACTIVATION)."""
    if beta == 1:
        return Tensor(ops.softplus(floating("softplus", x).value))
    return div(Tensor(ops.softplus(mul(floating("softplus", x), beta).value)), beta)


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x kept between two bounds; the gradient is 0 on and outside them, as PyTorch's (NN-ACTIVATION)."""
    if min_val > max_val:
        raise AttributeValueError(f"hardtanh: needs min_val <= max_val, found {min_val} and {max_val}")
    return where(le(floating("hardtanh", x), min_val), min_val, where(ge(x, max_val), max_val, x))


def relu6(x: Tensor) -> Tensor:
    """x kept between 0 and 6 (NN-ACTIVATION)."""
    return hardtanh(x, 0.0, 6.0)


def logsigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)) = -softplus(-x) (NN-ACTIVATION)."""
    return neg(softplus(neg(floating("logsigmoid", x))))


__all__ = [
    "elu",
    "gelu",
    "hardtanh",
    "leaky_relu",
    "log_softmax",
    "logsigmoid",
    "relu",
    "relu6",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
takes_tensors(globals(), __all__)
