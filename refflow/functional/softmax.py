"""softmax, log_softmax and logsumexp: what normalises over one dimension, shifted by its maximum.

Implements NN-SOFTMAX of spec/text/nn.md and OPS-COMPOSITE.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tensor.tensor import Tensor
from .arithmetic import add, cast, div, exp, isinf, log, sub, where
from .movement import dim_of
from .precision import floating, in_float32
from .reduction import Dims, amax, dims_of, sum


def shifted(x: Tensor, dim: int) -> Tensor:
    """x - max(x) along `dim`; the maximum counts as a constant, for a shift does not change softmax."""
    return sub(x, amax(x, dim, keepdim=True).detach())


@in_float32
def _softmax(x: Tensor, dim: int) -> Tensor:
    e = exp(shifted(x, dim))
    return div(e, sum(e, dim, keepdim=True))


@in_float32
def _log_softmax(x: Tensor, dim: int) -> Tensor:
    z = shifted(x, dim)
    return sub(z, log(sum(exp(z), dim, keepdim=True)))


def softmax(x: Tensor, dim: int, dtype: np.dtype[Any] | None = None) -> Tensor:
    """m = amax(x), e = exp(x - m), e / sum(e) along `dim`, of x cast to `dtype` if given (NN-SOFTMAX)."""
    y = floating("softmax", x if dtype is None else cast(x, dtype))
    return _softmax(y, dim_of("softmax", dim, y.ndim))


def log_softmax(x: Tensor, dim: int, dtype: np.dtype[Any] | None = None) -> Tensor:
    """m = amax(x), z = x - m, z - log(sum(exp(z))) along `dim`, of x cast to `dtype` if given (NN-SOFTMAX)."""
    y = floating("log_softmax", x if dtype is None else cast(x, dtype))
    return _log_softmax(y, dim_of("log_softmax", dim, y.ndim))


def logsumexp(x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """m + log(sum(exp(x - m))) over `dim`, with m = amax(x), or 0 where that is infinite (OPS-COMPOSITE)."""
    return _logsumexp(floating("logsumexp", x), dims_of("logsumexp", x, dim), bool(keepdim))


@in_float32
def _logsumexp(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    m = amax(x, dims, keepdim=True).detach()
    m = where(isinf(m), 0.0, m)  # inf - inf would be NaN
    total = log(sum(exp(sub(x, m)), dims, keepdim))
    return add(total, m if keepdim else sum(m, dims))


__all__ = ["log_softmax", "logsumexp", "softmax"]
