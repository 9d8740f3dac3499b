"""Initialisation: PyTorch's schemes, written into a tensor in place, without a gradient.

Implements NN-INIT of spec/text/nn.md.  A local tensor takes a local draw, so every rank holds the same numbers and a
module moved to any layout has the same logical weights; a global tensor takes a global draw by logical index.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..functional.arithmetic import add, mul
from ..functional.creation import full_like, rand, randn
from ..layout import reduced
from ..random import Generator
from ..tensor.backward import no_grad
from ..tensor.tensor import Tensor

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The recommended gain of a nonlinearity; `param` is the slope of leaky_relu (default 0.01)."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    try:
        return _GAINS[nonlinearity]
    except KeyError:
        known = ", ".join(sorted([*_GAINS, "leaky_relu"]))
        raise AttributeValueError(f"calculate_gain: must be one of {known}, found {nonlinearity!r}") from None


def _layout(tensor: Tensor) -> dict[str, Any]:
    return {"placement": tensor.placement, "sbp": reduced(tensor.sbp)} if tensor.is_global else {}


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """rand * (b - a) + a, two roundings (NN-INIT)."""
    with no_grad():
        drawn = rand(*tensor.shape, generator=generator, dtype=tensor.dtype, **_layout(tensor))
        return tensor.write(add(mul(drawn, b - a), a).value)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """randn * std + mean, two roundings (NN-INIT)."""
    with no_grad():
        drawn = randn(*tensor.shape, generator=generator, dtype=tensor.dtype, **_layout(tensor))
        return tensor.write(add(mul(drawn, std), mean).value)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """`val` everywhere."""
    with no_grad():
        return tensor.write(full_like(tensor, val).value)


def zeros_(tensor: Tensor) -> Tensor:
    """+0 everywhere."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return constant_(tensor, 1.0)


def fans(tensor: Tensor) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight (out, in, ...): in and out times the size of the window."""
    if tensor.ndim < 2:
        raise ShapeError(f"init: fan in and fan out need at least 2 dimensions, found shape {tensor.shape}")
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise AttributeValueError(f"kaiming: mode must be 'fan_in' or 'fan_out', found {mode!r}")
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform on ±gain sqrt(3 / fan) (He et al. 2015, arXiv:1502.01852)."""
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal with deviation gain / sqrt(fan) (He et al. 2015, arXiv:1502.01852)."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _xavier_std(tensor: Tensor, gain: float) -> float:
    return gain * math.sqrt(2.0 / max(sum(fans(tensor)), 1))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform on ±gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return normal_(tensor, 0.0, _xavier_std(tensor, gain), generator)


__all__ = [
    "calculate_gain",
    "constant_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]
