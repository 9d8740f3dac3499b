"""Clipping of gradients, and parameters as one vector; PyTorch's torch.nn.utils.

Implements NN-CLIP-NORM and NN-CLIP-VALUE of spec/text/nn.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..errors import AttributeValueError, DataError, ShapeError
from ..functional.arithmetic import absolute, add, cast, clamp, div, gt, mul, sqrt, where
from ..functional.creation import tensor as make_tensor
from ..functional.movement import cat, reshape, stack
from ..functional.reduction import amax, sum
from ..layout import broadcast
from ..numerics import float32, is_half
from ..tensor.backward import no_grad
from ..tensor.tensor import Tensor


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The gradients of the parameters that have one, in order, a parameter that appears twice once."""
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [t.grad for t in {id(t): t for t in given}.values() if t.grad is not None]


def _wide(g: Tensor) -> Tensor:
    return cast(g, float32) if is_half(g.dtype) else g


def _beside(x: Tensor, like: Tensor) -> Tensor:
    """A 0-d tensor as B on the placement of `like`."""
    return x.to_global(like.placement, (broadcast,) * like.placement.ndim) if like.is_global else x


def get_total_norm(grads: Sequence[Tensor], norm_type: float = 2.0) -> Tensor:
    """The norm of all gradients as one vector, 0-d, whole on the placement of the first one.

    p = 2: the sum of g * g for each gradient, a canonical tree over these sums in order, the root.  p = 1: |g| instead,
    no root.  p = inf: the largest |g|.  Each logical gradient counts once, however it is laid out.
    Errors: `AttributeValueError`.  Source: NN-CLIP-NORM.
    """
    if norm_type not in (1, 2, math.inf):
        raise AttributeValueError(f"clip_grad_norm_: norm_type must be 1, 2 or inf, found {norm_type}")
    parts = []
    for g in (_wide(g) for g in grads if g.numel()):
        if norm_type == 2:
            part = sum(mul(g, g))
        else:
            part = sum(absolute(g)) if norm_type == 1 else amax(absolute(g))
        parts.append(_beside(part, grads[0]))
    if not parts:
        return make_tensor(0.0)
    together = stack(parts)
    if norm_type == math.inf:
        return amax(together)
    return sqrt(sum(together)) if norm_type == 2 else sum(together)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scales every gradient, in place, by min(1, max_norm / (norm + 1e-6)), a float32 product each; returns the norm.

    The norm is that of all gradients together, before clipping; a parameter given twice counts once.
    Errors: `DataError` for a norm that is not finite, if asked for.  Source: NN-CLIP-NORM; Pascanu et al. 2013
    (arXiv:1211.5063).
    """
    grads = _gradients(parameters)
    with no_grad():
        norm = get_total_norm(grads, norm_type)
        if error_if_nonfinite and not math.isfinite(norm.item()):
            raise DataError(f"clip_grad_norm_: the norm of the gradients is {norm.item()}, so they cannot be clipped")
        ratio = div(float(max_norm), add(norm, 1e-6))
        factor = where(gt(ratio, 1), 1.0, ratio)
        for g in grads:
            g.write(mul(_wide(g), _beside(factor, g)).value)
        return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Keeps every element of every gradient in [-clip_value, clip_value], in place (NN-CLIP-VALUE)."""
    with no_grad():
        for g in _gradients(parameters):
            g.write(clamp(g, -clip_value, clip_value).value)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters, flat, one after the other."""
    return cat([reshape(p, (-1,)) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Writes the pieces of `vec` into the parameters, each in its own layout; `ShapeError` if the sizes differ."""
    cells = list(parameters)
    total = 0
    for cell in cells:
        total += cell.numel()
    if vec.shape != (total,):
        raise ShapeError(f"vector_to_parameters: needs a vector of {total} elements, found shape {vec.shape}")
    at = 0
    with no_grad():
        for cell in cells:
            piece = vec[at : at + cell.numel()]  # type: ignore[index]
            cell.write(reshape(piece, cell.shape).value)
            at += cell.numel()


__all__ = ["clip_grad_norm_", "clip_grad_value_", "get_total_norm", "parameters_to_vector", "vector_to_parameters"]
