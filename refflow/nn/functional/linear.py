"""Linear maps and lookups: linear, conv2d, embedding, one_hot, dropout, normalize, pad.

Implements NN-LINEAR, NN-CONV, NN-EMBEDDING, NN-DROPOUT and NN-NORMALIZE of spec/text/nn.md.
"""

from __future__ import annotations

from typing import Any

from ...errors import AttributeValueError, DtypeError, IndexOutOfRange, ShapeError
from ...functional.arithmetic import (
    add,
    cast,
    cast_value,
    div,
    eq,
    lt,
    mul,
    require_tensor,
    result_type,
    sqrt,
    takes_tensors,
    where,
)
from ...functional.creation import rand
from ...functional.movement import narrow, pad, reshape, transpose, unsqueeze
from ...functional.precision import floating, in_float32
from ...functional.reduction import matmul, norm, one_hot, sum
from ...layout import reduced
from ...numerics import float32, is_half, is_integer
from ...ops import contraction, indexing
from ...random import Generator
from ...tensor.tensor import Tensor

Pair = tuple[int, int]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., in) times the transpose of weight (out, in), plus bias (out) (NN-LINEAR)."""
    if require_tensor("linear", weight).ndim != 2:
        raise ShapeError(f"linear: the weight must be (out, in), found shape {weight.shape}")
    shape = require_tensor("linear", x).value.meta.shape
    if shape and shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: x of shape {shape} has {shape[-1]} features, the weight {weight.shape} (out, in) takes {weight.shape[1]}"
        )
    out = matmul(x, transpose(weight, 0, 1))
    return out if bias is None else add(out, bias)


def pair(name: str, what: str, value: Any) -> Pair:
    """An int for both dimensions, or one for each; `AttributeValueError` otherwise."""
    given = (value, value) if isinstance(value, int) else tuple(value)
    if len(given) != 2 or not all(isinstance(n, int) for n in given):
        raise AttributeValueError(f"{name}: {what} must be an int or a pair of ints, found {value!r}")
    return given[0], given[1]


def _same(kernel: Pair, stride: Pair, dilation: Pair) -> tuple[Pair, Pair]:
    """(padding, how many leading rows and columns are too many): the surplus of an odd padding goes to the end."""
    if stride != (1, 1):
        raise AttributeValueError(f"conv2d: padding 'same' needs stride 1, found {stride}")
    total = [d * (k - 1) for k, d in zip(kernel, dilation)]
    return (-(-total[0] // 2), -(-total[1] // 2)), (total[0] % 2, total[1] % 2)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | str = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of x (n, c, y, x) or (c, y, x) with weight (o, c / groups, i, j), plus bias (o).

    `padding`: an int, a pair, "valid" (none) or "same" (stride 1; the surplus of an odd padding lies at the end).  Taps
    on padding are absent: they contribute nothing.  Halves compute in float32 and round once.
    Errors: `ShapeError`, `AttributeValueError`.  Source: NN-CONV, NUM-CONV.
    """
    if require_tensor("conv2d", x).ndim == 3:
        batch = conv2d(unsqueeze(x, 0), weight, bias, stride, padding, dilation, groups)
        return reshape(batch, batch.shape[1:])
    if weight.ndim != 4:
        raise ShapeError(f"conv2d: the weight must be (out, in / groups, i, j), found shape {weight.shape}")
    steps, gaps = pair("conv2d", "stride", stride), pair("conv2d", "dilation", dilation)
    extra = (0, 0)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise AttributeValueError(f"conv2d: padding must be ints, 'same' or 'valid', found {padding!r}")
        kernel = weight.shape[2], weight.shape[3]
        around, extra = _same(kernel, steps, gaps) if padding == "same" else ((0, 0), extra)
    else:
        around = pair("conv2d", "padding", padding)
    met = result_type(x, weight)
    inner = float32 if is_half(met) else met
    operands = cast_value(x.value, inner), cast_value(weight.value, inner)
    out = Tensor(contraction.conv2d(*operands, stride=steps, padding=around, dilation=gaps, groups=groups))
    for d, n in zip((2, 3), extra):
        if n:  # padded by the larger half on both sides: the first row (column) is one too many
            out = narrow(out, d, n, out.shape[d] - n)
    if bias is not None:
        out = add(out, reshape(bias, (-1, 1, 1)))
    return cast(out, met) if is_half(met) else out


def embedding(index: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Row `index` (any shape) of weight (num, dim), as (*index.shape, dim); row `padding_idx` gets no gradient.

    Errors: `DtypeError`, `IndexOutOfRange` on every rank for an index outside [0, num).  Source: NN-EMBEDDING.
    """
    if require_tensor("embedding", weight).ndim != 2:
        raise ShapeError(f"embedding: the weight must be (num, dim), found shape {weight.shape}")
    if not is_integer(require_tensor("embedding", index).dtype):
        raise DtypeError(f"embedding: the index must be an integer tensor, found {index.dtype.name}; index.long() converts")
    try:
        rows = Tensor(indexing.index_select(weight.value, index.value, dim=0))
    except IndexOutOfRange as error:
        raise IndexOutOfRange(f"embedding: the weight has no such row: {error}") from None
    if padding_idx is None:
        return rows
    row = padding_number("embedding", padding_idx, weight.shape[0])
    return where(unsqueeze(eq(index, row), -1), rows.detach(), rows)


def padding_number(name: str, padding_idx: int, rows: int) -> int:
    """`padding_idx` in [0, rows), negative ones counted from the end."""
    if not -rows <= padding_idx < rows:
        raise AttributeValueError(f"{name}: padding_idx must be in [{-rows}, {rows}), found {padding_idx}")
    return padding_idx % rows


def dropout(x: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None) -> Tensor:
    """x * (rand < 1 - p) * (1 / (1 - p)) while training, else x.

    The mask is drawn by logical index, so it is the same under every layout; one draw per call with p > 0.
    Errors: `AttributeValueError`.  Source: NN-DROPOUT, RNG-INDEX.
    """
    if not 0 <= p <= 1:
        raise AttributeValueError(f"dropout: p must be in [0, 1], found {p}")
    floating("dropout", x)
    if not training or p == 0:
        return x
    layout: dict[str, Any] = {"placement": x.placement, "sbp": reduced(x.sbp)} if x.is_global else {}
    kept = lt(rand(*x.shape, generator=generator, **layout), 1 - p)
    return _scaled(x, kept, 1 / (1 - p) if p < 1 else 1.0)


@in_float32
def _scaled(x: Tensor, kept: Tensor, scale: float) -> Tensor:
    return mul(mul(x, cast(kept, x.dtype)), scale)


@in_float32
def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm of x over `dim`, eps); the norm of a zero vector has gradient 0 (NN-NORMALIZE)."""
    if p != 2:
        size = norm(floating("normalize", x), p, dim, keepdim=True)
    else:
        square = sum(mul(floating("normalize", x), x), dim, keepdim=True)
        zero = eq(square, 0)
        size = where(zero, 0.0, sqrt(where(zero, 1.0, square)))  # the root has no finite gradient at 0
    return div(x, where(lt(size, eps), eps, size))


__all__ = ["conv2d", "dropout", "embedding", "linear", "normalize", "one_hot", "pad"]
takes_tensors(globals(), __all__)
