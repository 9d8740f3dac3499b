"""float32 convolutions: the shapes, and the work of each side on one, its operands always the same numbers.

Those of a CNN on 8 x 8 digits, and some larger; forward, and the gradients to input and filter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..cpu import kernels  # noqa: F401  (fills the table)
from ..cpu.registry import NATIVE
from .rounds import Recorded

Case = tuple[int, ...]
# n, c, size, o, taps, padding, stride
CASES = [
    (64, 1, 8, 16, 3, 1, 1),
    (64, 16, 8, 32, 3, 1, 1),
    (64, 16, 4, 32, 3, 1, 1),
    (64, 8, 8, 16, 3, 1, 1),
    (16, 3, 32, 32, 3, 1, 1),
    (16, 32, 32, 64, 3, 1, 1),
    (8, 64, 14, 128, 3, 1, 2),
]
PRIMITIVES = ("conv2d", "conv2d_input", "conv2d_filter")


def operands(case: Case) -> tuple[np.ndarray[Any, Any], ...]:
    """Input, filter, and the result's gradient."""
    n, c, size, o, taps, padding, stride = case
    out = (size + 2 * padding - taps) // stride + 1
    rng = np.random.default_rng(0)
    shapes = (n, c, size, size), (o, c, taps, taps), (n, o, out, out)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def native(case: Case, primitive: str) -> Callable[[], Any]:
    """The compiled kernels alone."""
    _, _, size, _, taps, padding, stride = case
    x, w, g = operands(case)
    given = {"conv2d": (x, w), "conv2d_input": (g, w), "conv2d_filter": (x, g)}[primitive]
    sizes = {"conv2d": {}, "conv2d_input": {"size": (size, size)}, "conv2d_filter": {"size": (taps, taps)}}[primitive]
    geometry = {"stride": (stride, stride), "padding": (padding, padding), "dilation": (1, 1), "groups": 1}
    call = Recorded()
    NATIVE[primitive](call, *given, **geometry, **sizes)
    return call.program()


def torch(case: Case, primitive: str) -> Callable[[], Any]:
    """PyTorch's function."""
    import torch

    *_, padding, stride = case
    x, w, g = map(torch.from_numpy, operands(case))
    if primitive == "conv2d":
        return partial(torch.nn.functional.conv2d, x, w, padding=padding, stride=stride)
    which = [primitive == name for name in ("conv2d_input", "conv2d_filter", "bias")]
    back, geometry = torch.ops.aten.convolution_backward, ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1)
    return partial(back, g, x, w, None, *geometry, which)
