"""Layers with weights and layers of shape: Linear, Conv2d, Embedding, Dropout, pooling, Flatten, Identity.

Implements NN-LAYER of spec/text/nn.md: each forward is the function of the same name in nn.functional; weights start as
PyTorch's do (NN-INIT).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import AttributeValueError
from ..functional.creation import empty
from ..functional.movement import flatten, reshape
from ..numerics import float32
from ..tensor.tensor import Tensor
from . import functional as F
from . import init
from .functional.linear import Pair, padding_number, pair
from .module import Module
from .parameter import Parameter

Dtype = np.dtype[Any]


def new_parameter(*shape: int, dtype: Dtype | None) -> Parameter:
    """A local parameter of zeros, to be initialised."""
    return Parameter(empty(*shape, dtype=float32 if dtype is None else dtype))


def fan_in_bias(weight: Tensor, bias: Tensor | None) -> None:
    """PyTorch's start for weights (out, in, ...) and biases: both uniform on ±1 / sqrt(fan in) (NN-INIT)."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        fan_in, _ = init.fans(weight)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        init.uniform_(bias, -bound, bound)


class Identity(Module):
    """x; takes and ignores any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class Linear(Module):
    """x weight^T + bias, weight (out_features, in_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Dtype | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = new_parameter(out_features, in_features, dtype=dtype)
        self.register_parameter("bias", new_parameter(out_features, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights and bias anew."""
        fan_in_bias(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Conv2d(Module):
    """Cross-correlation of (n, in_channels, y, x) with weight (out_channels, in_channels / groups, i, j), plus bias."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair | str = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Dtype | None = None,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise AttributeValueError(
                f"Conv2d: {in_channels} and {out_channels} channels do not divide into {groups} groups"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = pair("Conv2d", "kernel_size", kernel_size)
        self.stride, self.dilation = pair("Conv2d", "stride", stride), pair("Conv2d", "dilation", dilation)
        self.padding = padding if isinstance(padding, str) else pair("Conv2d", "padding", padding)
        self.weight = new_parameter(out_channels, in_channels // groups, *self.kernel_size, dtype=dtype)
        self.register_parameter("bias", new_parameter(out_channels, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weights and bias anew."""
        fan_in_bias(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        plain = {"padding": (0, 0), "dilation": (1, 1), "groups": 1}
        parts = [f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}", f"stride={self.stride}"]
        parts += [f"{name}={getattr(self, name)!r}" for name, usual in plain.items() if getattr(self, name) != usual]
        return ", ".join([*parts, *(["bias=False"] if self.bias is None else [])])


class Embedding(Module):
    """Row `index` of weight (num_embeddings, embedding_dim); row `padding_idx` starts as 0 and gets no gradient."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, dtype: Dtype | None = None
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_number("Embedding", padding_idx, num_embeddings)
        self.weight = new_parameter(num_embeddings, embedding_dim, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the rows anew, standard normal."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            from ..tensor.backward import no_grad

            with no_grad():
                self.weight[self.padding_idx] = 0.0  # type: ignore[index]

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        tail = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{tail}"


class Dropout(Module):
    """While training, elements are 0 with probability p, the others divided by 1 - p."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise AttributeValueError(f"Dropout: p must be in [0, 1], found {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Unfold(Module):
    """The windows of an image as columns: (n, c * i * j, windows)."""

    def __init__(
        self, kernel_size: int | Pair, dilation: int | Pair = 1, padding: int | Pair = 0, stride: int | Pair = 1
    ) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return _window(self)


class Fold(Module):
    """The image whose windows are given as columns, overlaps added."""

    def __init__(
        self,
        output_size: int | Pair,
        kernel_size: int | Pair,
        dilation: int | Pair = 1,
        padding: int | Pair = 0,
        stride: int | Pair = 1,
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {_window(self)}"


def _window(layer: Unfold | Fold) -> str:
    return (
        f"kernel_size={layer.kernel_size}, dilation={layer.dilation}, padding={layer.padding}, stride={layer.stride}"
    )


class Flatten(Module):
    """Dimensions start_dim..end_dim merged into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        return flatten(x, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Dimension `dim` cut into `unflattened_size`."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        d = self.dim % x.ndim
        return reshape(x, (*x.shape[:d], *self.unflattened_size, *x.shape[d + 1 :]))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class MaxPool2d(Module):
    """The largest element of each window."""

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
    ) -> None:
        super().__init__()
        self.kernel_size, self.padding, self.dilation = kernel_size, padding, dilation
        self.stride = kernel_size if stride is None else stride

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        names = ("kernel_size", "stride", "padding", "dilation")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


class AvgPool2d(Module):
    """The mean of each window."""

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size, self.padding, self.count_include_pad = kernel_size, padding, count_include_pad
        self.stride = kernel_size if stride is None else stride

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, self.kernel_size, self.stride, self.padding, self.count_include_pad)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Means over as many windows as the output has places."""

    def __init__(self, output_size: int | Pair) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


__all__ = [
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "Fold",
    "Identity",
    "Linear",
    "MaxPool2d",
    "Unflatten",
    "Unfold",
]
