"""Multi-head attention and the transformer's encoder layer.

Implements NN-MHA of spec/text/nn.md; Vaswani et al. 2017 (arXiv:1706.03762).  Queries, keys and values have a Linear each
(PyTorch packs the three weights into one): a split of the rows of each is then a split of the heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import AttributeValueError, ShapeError
from ..functional.arithmetic import add, logical_not, masked_fill
from ..functional.creation import full_like
from ..functional.movement import permute, reshape, transpose, unsqueeze
from ..functional.reduction import matmul, mean
from ..numerics import is_bool
from ..tensor.tensor import Tensor
from . import functional as F
from . import init
from .functional.attention import attention_weights
from .layers import Dropout, Linear
from .module import Module
from .normalisation import LayerNorm


class MultiheadAttention(Module):
    """Attention with `num_heads` heads of embed_dim / num_heads each.

    forward(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal) gives (result,
    weights or None).  Sequences are (n, l, e) with batch_first, else (l, n, e).  As in PyTorch a bool mask is true where
    a query must *not* look (scaled_dot_product_attention: where it may), a float mask is added; `attn_mask` is (l, s) or
    (n * heads, l, s), `key_padding_mask` (n, s).  Errors: `AttributeValueError`, `ShapeError`.  Source: NN-MHA.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise AttributeValueError(f"MultiheadAttention: {embed_dim} does not divide into {num_heads} heads")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.q_proj = Linear(embed_dim, embed_dim, bias)
        self.k_proj = Linear(embed_dim if kdim is None else kdim, embed_dim, bias)
        self.v_proj = Linear(embed_dim if vdim is None else vdim, embed_dim, bias)
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier uniform for queries, keys and values, as for the (3 e, e) weight PyTorch packs them into; biases 0."""
        for part in (self.q_proj, self.k_proj, self.v_proj):
            packed = part.in_features == self.embed_dim
            init.xavier_uniform_(part.weight, gain=math.sqrt(0.5) if packed else 1.0)
        for part in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            if part.bias is not None:
                init.zeros_(part.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.ndim != 3 or key.ndim != 3 or value.ndim != 3:
            raise ShapeError(
                f"MultiheadAttention: needs three dimensions each, found {query.shape}, {key.shape}, {value.shape}"
            )
        if not self.batch_first:
            query, key, value = (transpose(x, 0, 1) for x in (query, key, value))
        q, k, v = (self._heads(p(x)) for p, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value)))
        weights = attention_weights(q, k, self._mask(attn_mask, key_padding_mask, q), is_causal)
        dropped = F.dropout(weights, self.dropout, self.training)
        n, _, length, _ = q.shape
        joined = reshape(permute(matmul(dropped, v), 0, 2, 1, 3), (n, length, self.embed_dim))
        result = self.out_proj(joined)
        result = result if self.batch_first else transpose(result, 0, 1)
        if not need_weights:
            return result, None
        return result, mean(weights, 1) if average_attn_weights else weights

    def _heads(self, x: Tensor) -> Tensor:
        """(n, l, e) as (n, heads, l, e / heads)."""
        return permute(reshape(x, (*x.shape[:2], self.num_heads, self.head_dim)), 0, 2, 1, 3)

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, q: Tensor) -> Tensor | None:
        """One mask for scaled_dot_product_attention, broadcastable to (n, heads, l, s)."""
        masks = []
        if attn_mask is not None:
            heads = attn_mask.ndim == 3
            masks.append(reshape(attn_mask, (q.shape[0], self.num_heads, *attn_mask.shape[1:])) if heads else attn_mask)
        if padding is not None:
            masks.append(unsqueeze(unsqueeze(padding, 1), 1))
        if not masks:
            return None
        if all(is_bool(mask.dtype) for mask in masks):
            allowed = [logical_not(mask) for mask in masks]
            return allowed[0] if len(allowed) == 1 else allowed[0] & allowed[1]  # type: ignore[operator]
        added = [_additive(mask, q) for mask in masks]
        return added[0] if len(added) == 1 else add(added[0], added[1])

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """A bool mask as 0 where one may look and -inf where not."""
    return masked_fill(full_like(mask, 0.0, dtype=like.dtype), mask, -math.inf) if is_bool(mask.dtype) else mask


class TransformerEncoderLayer(Module):
    """Self-attention and two linear layers, each with dropout, a residual and LayerNorm (after, or norm_first before)."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Callable[[Tensor], Tensor] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first)
        self.linear1, self.linear2 = Linear(d_model, dim_feedforward), Linear(dim_feedforward, d_model)
        self.norm1, self.norm2 = LayerNorm(d_model, layer_norm_eps), LayerNorm(d_model, layer_norm_eps)
        self.dropout, self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation, self.norm_first = activation, norm_first

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            found, _ = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, True, is_causal)
            return self.dropout1(found)  # type: ignore[no-any-return]

        def feed(x: Tensor) -> Tensor:
            return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))  # type: ignore[no-any-return]

        if self.norm_first:
            x = add(src, attend(self.norm1(src)))
            return add(x, feed(self.norm2(x)))
        x = self.norm1(add(src, attend(src)))
        return self.norm2(add(x, feed(x)))  # type: ignore[no-any-return]


__all__ = ["MultiheadAttention", "TransformerEncoderLayer"]
