"""Normalisation layers: BatchNorm1d and 2d, LayerNorm, RMSNorm, GroupNorm.

Implements NN-LAYER and NN-BATCHNORM of spec/text/nn.md.  Under any split the statistics are those of the logical batch, so
BatchNorm is what other systems call synchronised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..functional.arithmetic import add, reciprocal
from ..functional.creation import ones, zeros
from ..numerics import float32, int64
from ..tensor.backward import no_grad
from ..tensor.tensor import Tensor
from . import functional as F
from . import init
from .layers import new_parameter
from .module import Module

Dtype = np.dtype[Any]


class _Affine(Module):
    """A module with an optional weight of ones and bias of zeros."""

    def _affine(self, shape: tuple[int, ...], weight: bool, bias: bool, dtype: Dtype | None) -> None:
        self.register_parameter("weight", new_parameter(*shape, dtype=dtype) if weight else None)
        self.register_parameter("bias", new_parameter(*shape, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets weights to 1 and biases to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class _BatchNorm(_Affine):
    dims: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: Dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self._affine((num_features,), affine, affine, dtype)
        kind = float32 if dtype is None else dtype
        for name, made in (
            ("running_mean", zeros(num_features, dtype=kind)),
            ("running_var", ones(num_features, dtype=kind)),
            ("num_batches_tracked", zeros(dtype=int64)),
        ):
            self.register_buffer(name, made if track_running_stats else None)

    def reset_running_stats(self) -> None:
        """Forgets the batches seen."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in self.dims or x.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: needs {' or '.join(map(str, self.dims))} dimensions"
                f" with {self.num_features} channels at dimension 1, found shape {x.shape}"
            )
        batch = self.training or self.running_mean is None
        momentum = self._count() if self.training and self.track_running_stats else 0.0
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, batch, momentum, self.eps)

    def _count(self) -> float | Tensor:
        """One more batch; the weight of its statistics: `momentum`, or 1 / batches so far if that is None."""
        with no_grad():
            self.num_batches_tracked.write(add(self.num_batches_tracked, 1).value)
            return reciprocal(self.num_batches_tracked.detach()) if self.momentum is None else self.momentum

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """batch_norm of (n, c) or (n, c, l)."""

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """batch_norm of (n, c, y, x)."""

    dims = (4,)


class LayerNorm(_Affine):
    """layer_norm over the trailing dimensions `normalized_shape`."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._affine(self.normalized_shape, elementwise_affine, elementwise_affine and bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(_Affine):
    """rms_norm over the trailing dimensions `normalized_shape`."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: Dtype | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._affine(self.normalized_shape, elementwise_affine, False, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """group_norm of (n, num_channels, ...)."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: Dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._affine((num_channels,), affine, affine, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm", "LayerNorm", "RMSNorm"]
