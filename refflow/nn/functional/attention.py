"""Scaled dot-product attention.

Implements NN-ATTENTION of spec/text/nn.md; Vaswani et al. 2017 (arXiv:1706.03762).
"""

from __future__ import annotations

import math
from typing import Any

from ...errors import DtypeError, ShapeError
from ...functional.arithmetic import add, div, eq, exp, mul, sub, takes_tensors, where
from ...functional.creation import ones
from ...functional.movement import transpose, tril
from ...functional.precision import floating, in_float32
from ...functional.reduction import amax, matmul, sum
from ...layout import broadcast
from ...numerics import bool_, is_bool, is_float
from ...tensor.tensor import Tensor
from .linear import dropout


@in_float32
def attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query key^T scale + mask) over the keys: (..., l, s).

    A bool mask is true where a query may look; a float mask is added.  A query that may look nowhere has weights 0.
    """
    floating("scaled_dot_product_attention", query)
    if query.ndim < 2 or key.ndim < 2 or query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"scaled_dot_product_attention: needs queries (..., l, e) and keys (..., s, e), found {query.shape} and {key.shape}"
        )
    scores = mul(matmul(query, transpose(key, -2, -1)), 1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = where(_causal(scores), scores, -math.inf)
    if attn_mask is not None:
        if not is_bool(attn_mask.dtype) and not is_float(attn_mask.dtype):
            raise DtypeError(
                f"scaled_dot_product_attention: the mask must be bool or float, found {attn_mask.dtype.name}"
            )
        scores = where(attn_mask, scores, -math.inf) if is_bool(attn_mask.dtype) else add(scores, attn_mask)
    top = amax(scores, -1, keepdim=True).detach()
    nowhere = eq(top, -math.inf)
    e = exp(sub(scores, where(nowhere, 0.0, top)))
    return div(e, where(nowhere, 1.0, sum(e, -1, keepdim=True)))


def _causal(scores: Tensor) -> Tensor:
    """True where key j <= query i."""
    layout: dict[str, Any] = {}
    if scores.is_global:
        layout = {"placement": scores.placement, "sbp": (broadcast,) * scores.placement.ndim}
    return tril(ones(*scores.shape[-2:], dtype=bool_, **layout))


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query key^T scale + mask) value, for query (..., l, e), key (..., s, e), value (..., s, v): (..., l, v).

    `scale` defaults to 1 / sqrt(e); a bool mask is true where a query may look, a float mask is added; `dropout_p` > 0
    always drops, as in PyTorch; a query that may look nowhere gives 0.  Halves: the weights are rounded, then the result.
    Errors: `ShapeError`, `DtypeError`.  Source: NN-ATTENTION.
    """
    weights = attention_weights(query, key, attn_mask, is_causal, scale)
    return matmul(dropout(weights, dropout_p) if dropout_p else weights, value)


__all__ = ["scaled_dot_product_attention"]
takes_tensors(globals(), __all__)
