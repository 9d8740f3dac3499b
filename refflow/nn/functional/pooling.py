"""Pooling over the rows and columns of (n, c, y, x): maximum, average, adaptive average.

Implements NN-MAXPOOL, NN-AVGPOOL and NN-ADAPTIVE of spec/text/nn.md, on the windows of unfold2d.  Rows and columns stay
whole on every rank; batch and channels may be split.
"""

from __future__ import annotations

import math
from typing import Any

from ...errors import AttributeValueError, ShapeError
from ...functional.arithmetic import div, takes_tensors
from ...functional.creation import ones
from ...functional.movement import reshape, stack, unsqueeze
from ...functional.precision import floating, in_float32
from ...functional.reduction import argmax, mean, sum
from ...layout import broadcast
from ...ops import indexing
from ...ops import shape as ops
from ...tensor.tensor import Tensor
from .linear import Pair, pair


def _image(name: str, x: Tensor) -> None:
    if floating(name, x).ndim != 4:
        raise ShapeError(f"{name}: needs (n, c, y, x) or (c, y, x), found shape {x.shape}")


def _windows(name: str, x: Tensor, kernel: Pair, stride: Any, padding: Pair, dilation: Pair, fill: float) -> Tensor:
    """The windows (n, c, p, q, i, j) of x, with `fill` where they reach over its edge."""
    _image(name, x)
    if any(2 * p > k for p, k in zip(padding, kernel)):
        raise AttributeValueError(f"{name}: padding must be at most half the kernel {kernel}, found {padding}")
    steps = kernel if stride is None else pair(name, "stride", stride)
    return Tensor(ops.unfold2d(x.value, kernel=kernel, stride=steps, padding=padding, dilation=dilation, value=fill))


def _unbatched(x: Tensor) -> bool:
    return x.ndim == 3


def max_pool2d(
    x: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    dilation: int | Pair = 1,
) -> Tensor:
    """The largest element of each window of (n, c, y, x) or (c, y, x), -inf on the padding; `stride` defaults to the
    kernel.

    The gradient goes to the chosen element: the first of the largest, in row-major order of the window; NaN is the
    largest.  Errors: `ShapeError`, `AttributeValueError`.  Source: NN-MAXPOOL.
    """
    if _unbatched(x):
        pooled = max_pool2d(unsqueeze(x, 0), kernel_size, stride, padding, dilation)
        return reshape(pooled, pooled.shape[1:])
    kernel = pair("max_pool2d", "kernel_size", kernel_size)
    around, gaps = pair("max_pool2d", "padding", padding), pair("max_pool2d", "dilation", dilation)
    windows = _windows("max_pool2d", x, kernel, stride, around, gaps, -math.inf)
    flat = reshape(windows, (*windows.shape[:4], math.prod(kernel)))
    chosen = argmax(flat, 4, keepdim=True)
    return reshape(Tensor(indexing.gather(flat.value, chosen.value, dim=4)), flat.shape[:4])


@in_float32
def avg_pool2d(
    x: Tensor,
    kernel_size: int | Pair,
    stride: int | Pair | None = None,
    padding: int | Pair = 0,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The sum of each window, flat in row-major order, divided by the size of the kernel (or, without
    count_include_pad, by the number of its elements inside the image; or by `divisor_override`).

    Errors: `ShapeError`, `AttributeValueError`.  Source: NN-AVGPOOL.
    """
    if _unbatched(x):
        pooled = avg_pool2d(unsqueeze(x, 0), kernel_size, stride, padding, count_include_pad, divisor_override)
        return reshape(pooled, pooled.shape[1:])
    kernel, around = pair("avg_pool2d", "kernel_size", kernel_size), pair("avg_pool2d", "padding", padding)
    window = ("avg_pool2d", kernel, stride, around, (1, 1))
    total = sum(_windows(window[0], x, *window[1:], -0.0), (4, 5))  # -0 is what a sum does not notice
    if divisor_override is not None:
        if divisor_override == 0:
            raise AttributeValueError("avg_pool2d: divisor_override must not be 0")
        return div(total, float(divisor_override))
    if count_include_pad or around == (0, 0):
        return div(total, float(math.prod(kernel)))
    layout: dict[str, Any] = {}
    if x.is_global:
        layout = {"placement": x.placement, "sbp": (broadcast,) * x.placement.ndim}
    inside = ones(1, 1, *x.shape[2:], dtype=x.dtype, **layout)
    return div(total, sum(_windows(window[0], inside, *window[1:], 0.0), (4, 5)))


@in_float32
def adaptive_avg_pool2d(x: Tensor, output_size: int | Pair) -> Tensor:
    """The mean of rows [floor(i y / o), ceil((i+1) y / o)) and columns alike, for each output (i, j) of o x o'.

    Errors: `ShapeError`, `AttributeValueError`.  Source: NN-ADAPTIVE.
    """
    if _unbatched(x):
        pooled = adaptive_avg_pool2d(unsqueeze(x, 0), output_size)
        return reshape(pooled, pooled.shape[1:])
    _image("adaptive_avg_pool2d", x)
    size, out = x.shape[2:], pair("adaptive_avg_pool2d", "output_size", output_size)
    if min(*out, *size) < 1:
        raise AttributeValueError(f"adaptive_avg_pool2d: sizes must be >= 1, found {size} to {out}")
    if out == (1, 1):
        return mean(x, (2, 3), keepdim=True)
    if all(n % o == 0 for n, o in zip(size, out)):
        return avg_pool2d(x, (size[0] // out[0], size[1] // out[1]))
    rows, columns = (_cells(n, o) for n, o in zip(size, out))
    return stack([stack([mean(x[:, :, r, c], (2, 3)) for c in columns], 2) for r in rows], 2)  # type: ignore[index]


def _cells(size: int, out: int) -> list[slice]:
    return [slice(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


__all__ = ["adaptive_avg_pool2d", "avg_pool2d", "max_pool2d"]
takes_tensors(globals(), __all__)
