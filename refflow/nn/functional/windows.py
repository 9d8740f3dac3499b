"""unfold and fold: images as columns, one per window, and back by adding the overlaps.

Implements NN-UNFOLD of spec/text/nn.md, on unfold2d and fold2d.  Rows and columns stay whole on every rank; batch and
channels may be split.
"""

from __future__ import annotations

import math

from ...errors import ShapeError
from ...functional.arithmetic import takes_tensors
from ...functional.movement import permute, reshape, unsqueeze
from ...functional.precision import floating, in_float32
from ...ops import shape as ops
from ...tensor.tensor import Tensor
from .linear import Pair, pair


def unfold(
    x: Tensor,
    kernel_size: int | Pair,
    dilation: int | Pair = 1,
    padding: int | Pair = 0,
    stride: int | Pair = 1,
) -> Tensor:
    """The windows of x (n, c, y, x) or (c, y, x) as columns: (n, c * i * j, windows), 0 on the padding.

    Channel, row and column of a window lie in that order along dimension 1, windows in row-major order along the last.
    Errors: `ShapeError`, `AttributeValueError`.  Source: NN-UNFOLD.
    """
    if floating("unfold", x).ndim == 3:
        columns = unfold(unsqueeze(x, 0), kernel_size, dilation, padding, stride)
        return reshape(columns, columns.shape[1:])
    if x.ndim != 4:
        raise ShapeError(f"unfold: needs (n, c, y, x) or (c, y, x), found shape {x.shape}")
    windows = Tensor(ops.unfold2d(x.value, value=0.0, **_window("unfold", kernel_size, dilation, padding, stride)))
    n, c, p, q, i, j = windows.shape
    return reshape(permute(windows, 0, 1, 4, 5, 2, 3), (n, c * i * j, p * q))


@in_float32
def fold(
    x: Tensor,
    output_size: int | Pair,
    kernel_size: int | Pair,
    dilation: int | Pair = 1,
    padding: int | Pair = 0,
    stride: int | Pair = 1,
) -> Tensor:
    """The image (n, c, *output_size) whose windows are the columns x (n, c * i * j, windows), overlaps added by NUM-TREE.

    Errors: `ShapeError`, `AttributeValueError`.  Source: NN-UNFOLD.
    """
    if floating("fold", x).ndim == 2:
        image = fold(unsqueeze(x, 0), output_size, kernel_size, dilation, padding, stride)
        return reshape(image, image.shape[1:])
    window = _window("fold", kernel_size, dilation, padding, stride)
    size, kernel = pair("fold", "output_size", output_size), window["kernel"]
    p, q = ops.window_counts("fold", size, **window)
    if x.ndim != 3 or x.shape[1] % math.prod(kernel) or x.shape[2] != p * q:
        raise ShapeError(f"fold: needs (n, c * {math.prod(kernel)}, {p * q}) for an image of {size}, found shape {x.shape}")
    windows = permute(reshape(x, (x.shape[0], -1, *kernel, p, q)), 0, 1, 4, 5, 2, 3)
    return Tensor(ops.fold2d(windows.value, size=size, **window))


def _window(
    name: str, kernel_size: int | Pair, dilation: int | Pair, padding: int | Pair, stride: int | Pair
) -> dict[str, Pair]:
    given = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation}
    return {what.removesuffix("_size"): pair(name, what, value) for what, value in given.items()}


__all__ = ["fold", "unfold"]
takes_tensors(globals(), __all__)
