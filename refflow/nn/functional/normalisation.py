"""Normalisation: layer, RMS, group and batch norm, each a stated sequence of primitives.

Implements NN-LAYERNORM, NN-RMSNORM, NN-GROUPNORM and NN-BATCHNORM of spec/text/nn.md.  Every statistic is of the logical
tensor: how it is split changes what travels, never a bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import AttributeValueError, ShapeError
from ...functional.arithmetic import add, cast, div, mul, rsqrt, sub, takes_tensors
from ...functional.movement import reshape
from ...functional.precision import floating, in_float32
from ...functional.reduction import mean, sum
from ...numerics import float32, is_half
from ...tensor.backward import no_grad
from ...tensor.tensor import Tensor


def _trailing(name: str, x: Tensor, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or floating(name, x).shape[-len(shape) :] != shape:
        raise ShapeError(f"{name}: the last dimensions of {x.shape} must be {shape}")
    return tuple(range(x.ndim - len(shape), x.ndim))


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = y if weight is None else mul(y, weight)
    return y if bias is None else add(y, bias)


def _standardized(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    """c = x - mean(x), then c * rsqrt(mean(c * c) + eps)."""
    centred = sub(x, mean(x, dims, keepdim=True))
    return mul(centred, rsqrt(add(mean(mul(centred, centred), dims, keepdim=True), eps)))


@in_float32
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """c = x - mean(x), y = c rsqrt(mean(c c) + eps), y weight + bias, over the trailing dimensions `normalized_shape`.

    Errors: `ShapeError`.  Source: NN-LAYERNORM; Ba, Kiros and Hinton 2016 (arXiv:1607.06450).
    """
    return _affine(_standardized(x, _trailing("layer_norm", x, normalized_shape), eps), weight, bias)


@in_float32
def rms_norm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x rsqrt(mean(x x) + eps) weight over the trailing dimensions `normalized_shape`; eps defaults to the dtype's.

    Errors: `ShapeError`.  Source: NN-RMSNORM; Zhang and Sennrich 2019 (arXiv:1910.07467).
    """
    dims = _trailing("rms_norm", x, normalized_shape)
    floor = float(np.finfo(x.dtype).eps) if eps is None else eps
    return _affine(mul(x, rsqrt(add(mean(mul(x, x), dims, keepdim=True), floor))), weight, None)


@in_float32
def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """layer_norm of each of `num_groups` groups of channels of (n, c, ...), then weight and bias per channel.

    Errors: `ShapeError`, `AttributeValueError`.  Source: NN-GROUPNORM; Wu and He 2018 (arXiv:1803.08494).
    """
    if floating("group_norm", x).ndim < 2:
        raise ShapeError(f"group_norm: needs (n, c, ...), found shape {x.shape}")
    n, c, *rest = x.shape
    if num_groups < 1 or c % num_groups:
        raise AttributeValueError(f"group_norm: {c} channels do not divide into {num_groups} groups")
    grouped = reshape(x, (n, num_groups, c // num_groups, *rest))
    y = reshape(_standardized(grouped, tuple(range(2, grouped.ndim)), eps), x.shape)
    return _affine(y, _per_channel(weight, x), _per_channel(bias, x))


def _per_channel(v: Tensor | None, x: Tensor) -> Tensor | None:
    """`v` (c) shaped to broadcast against x (n, c, ...)."""
    return None if v is None else reshape(v, (-1, *(1,) * (x.ndim - 2)))


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) rsqrt(var + eps) weight + bias per channel of (n, c, ...).

    While training, mean and (biased) var are those of the logical batch, over (n, ...) as one flat range in that order,
    and running statistics r become r (1 - momentum) + momentum s, with s the mean and the unbiased variance; else
    mean and var are the running ones.  Errors: `ShapeError`, also for a training batch of less than two values per
    channel.
    Source: NN-BATCHNORM; Ioffe and Szegedy 2015 (arXiv:1502.03167).
    """
    if floating("batch_norm", x).ndim < 2:
        raise ShapeError(f"batch_norm: needs (n, c, ...), found shape {x.shape}")
    if not training:
        if running_mean is None or running_var is None:
            raise ShapeError("batch_norm: outside training the running mean and variance are needed")
        return _scaled(x, running_mean, running_var, weight, bias, eps)
    dims = (0, *range(2, x.ndim))
    count = math.prod(x.shape[d] for d in dims)
    if count < 2:
        raise ShapeError(f"batch_norm: training needs at least 2 values per channel, found {count} (shape {x.shape})")
    wide = cast(x, float32) if is_half(x.dtype) else x
    average = div(sum(wide, dims), float(count))
    centred = sub(wide, _per_channel(average, x))  # type: ignore[arg-type]
    square = sum(mul(centred, centred), dims)
    with no_grad():
        _run(running_mean, average, momentum)
        _run(running_var, div(square, float(count - 1)), momentum)
    scale = rsqrt(add(div(square, float(count)), eps))
    y = _affine(mul(centred, _per_channel(scale, x)), _per_channel(weight, x), _per_channel(bias, x))  # type: ignore[arg-type]
    return cast(y, x.dtype) if is_half(x.dtype) else y


@in_float32
def _scaled(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    centred, scale = sub(x, _per_channel(mean, x)), _per_channel(rsqrt(add(var, eps)), x)  # type: ignore[arg-type]
    return _affine(mul(centred, scale), _per_channel(weight, x), _per_channel(bias, x))  # type: ignore[arg-type]


def _run(running: Tensor | None, now: Tensor, momentum: float | Tensor) -> None:
    """r (1 - momentum) + momentum s, written into the buffer in its own layout."""
    if running is not None:
        kept = sub(1.0, momentum) if isinstance(momentum, Tensor) else 1 - momentum
        running.write(add(mul(running.detach(), kept), mul(now.detach(), momentum)).value)


__all__ = ["batch_norm", "group_norm", "layer_norm", "rms_norm"]
takes_tensors(globals(), __all__)
