"""Losses: cross entropy and its relatives, squared and absolute errors; reduction "none", "mean" or "sum".

Implements NN-REDUCTION, NN-CROSSENTROPY, NN-BCE, NN-KLDIV and NN-REGRESSION of spec/text/nn.md.  A mean is one sum over
the logical tensor and one division by the logical count, however the batch or the classes are split.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import AttributeValueError, DtypeError, IndexOutOfRange, ShapeError
from ...functional.arithmetic import (
    absolute,
    add,
    cast,
    div,
    eq,
    exp,
    le,
    log,
    log1p,
    lt,
    mul,
    ne,
    neg,
    sub,
    takes_tensors,
    where,
)
from ...functional.movement import reshape, unsqueeze
from ...functional.precision import floating, in_float32
from ...functional.reduction import mean, sum
from ...functional.softmax import log_softmax
from ...numerics import is_integer
from ...ops import elementwise as ops
from ...ops import indexing
from ...tensor.tensor import Tensor


def reduce(name: str, loss: Tensor, reduction: str) -> Tensor:
    """`loss` as it is, its mean, or its sum (NN-REDUCTION)."""
    if reduction == "none":
        return loss
    if reduction == "mean":
        return mean(loss)
    if reduction == "sum":
        return sum(loss)
    raise AttributeValueError(f"{name}: reduction must be 'none', 'mean' or 'sum', found {reduction!r}")


# --- classes --------------------------------------------------------------------------------------------------------


def _classes(name: str, x: Tensor, target: Tensor, weight: Tensor | None) -> None:
    if floating(name, x).ndim < 1 or not isinstance(target, Tensor) or not is_integer(target.dtype):
        found = target.dtype.name if isinstance(target, Tensor) else type(target).__name__
        raise DtypeError(f"{name}: needs scores (n, c, ...) and an integer tensor of class indices, found {found}")
    expected = x.shape[:1] + x.shape[2:] if x.ndim > 1 else ()
    if target.shape != expected:
        raise ShapeError(f"{name}: scores of shape {x.shape} need targets of shape {expected}, found {target.shape}")
    if weight is not None and weight.shape != (x.shape[min(x.ndim - 1, 1)],):
        raise ShapeError(f"{name}: needs one weight per class, found shape {weight.shape} for scores {x.shape}")


@contextmanager
def _classes_of(name: str) -> Iterator[None]:
    """A target that is no class is a fault of the loss, not of the gather inside it; a negative one may stand for none."""
    try:
        yield
    except IndexOutOfRange as error:
        negative = re.search(r"index (-\d+) at", str(error))
        hint = f"; ignore_index={negative[1]} leaves out such places, by default none are" if negative else ""
        raise IndexOutOfRange(f"{name}: a target is no class: {error}{hint}") from None


@in_float32
def _negative_likelihood(
    logp: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-w[t] logp[t] per place; smoothed (1 - s) of that + s / c of -sum(w logp); 0 at ignored places.

    "mean" divides by the sum of w[t] over the places kept; without weights that is their number.
    """
    if logp.ndim == 1:  # one sample
        logp, target = unsqueeze(logp, 0), unsqueeze(target, 0)
    kept = None if ignore_index is None else ne(target, ignore_index)
    index = target if kept is None else where(kept, target, 0)
    picked = Tensor(indexing.gather(logp.value, unsqueeze(index, 1).value, dim=1))
    loss = neg(reshape(picked, target.shape))
    each = None if weight is None else Tensor(indexing.index_select(cast(weight, logp.dtype).value, index.value, dim=0))
    if each is not None:
        loss = mul(loss, each)
    if label_smoothing:
        weighted = logp if weight is None else mul(logp, reshape(weight, (-1, *(1,) * (logp.ndim - 2))))
        spread = mul(neg(sum(weighted, 1)), label_smoothing / logp.shape[1])
        loss = add(mul(loss, 1 - label_smoothing), spread)
    if kept is not None:
        loss = where(kept, loss, 0.0)
    if reduction != "mean" or (kept is None and each is None):
        return reduce("cross_entropy", loss, reduction)
    if each is None:
        assert kept is not None
        count = cast(sum(kept), logp.dtype)
    else:
        count = sum(each if kept is None else where(kept, each, 0.0))
    return div(sum(loss), count)


def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-weight[t] x[t] at the class t of each place; x are log-probabilities (n, c, d1, ...), targets (n, d1, ...).

    The mean divides by the sum of weight[t], by the number of places without weights, ignored places left out of both.
    Unlike PyTorch's -100, the default ignores nothing: a divisor that depends on data ties the whole batch together.
    Errors: `ShapeError`, `DtypeError`, `IndexOutOfRange`.  Source: NN-CROSSENTROPY.
    """
    _classes("nll_loss", x, target, weight)
    with _classes_of("nll_loss"):
        return _negative_likelihood(x, target, weight, ignore_index, reduction)


def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """nll_loss of log_softmax over the classes; x are scores (n, c, d1, ...) or (c), targets (n, d1, ...) or ().

    Smoothed by s: (1 - s) weight[t] (-logp[t]) + s / c * (-sum(weight logp)), c the logical number of classes, also
    where the classes are split.  `ignore_index` as for `nll_loss`: none by default.
    Errors: `ShapeError`, `DtypeError`, `AttributeValueError`, `IndexOutOfRange`.  Source: NN-CROSSENTROPY; Szegedy et
    al. 2016 (arXiv:1512.00567) for the smoothing.
    """
    _classes("cross_entropy", x, target, weight)
    if not 0 <= label_smoothing <= 1:
        raise AttributeValueError(f"cross_entropy: label_smoothing must be in [0, 1], found {label_smoothing}")
    with _classes_of("cross_entropy"):
        return _smoothed(x, target, weight, ignore_index, reduction, label_smoothing)


@in_float32
def _smoothed(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str, smoothing: float
) -> Tensor:
    logp = log_softmax(x, min(x.ndim - 1, 1))
    return _negative_likelihood(logp, target, weight, ignore_index, reduction, smoothing)


# --- pairs ----------------------------------------------------------------------------------------------------------


def _alike(name: str, x: Tensor, target: Tensor) -> None:
    """Losses do not broadcast: a target of another shape is nearly always a mistake."""
    if floating(name, x).shape != floating(name, target).shape:
        raise ShapeError(f"{name}: input and target must have one shape, found {x.shape} and {target.shape}")


@in_float32
def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """(x - target)^2 as one product (NN-REGRESSION)."""
    _alike("mse_loss", x, target)
    d = sub(x, target)
    return reduce("mse_loss", mul(d, d), reduction)


@in_float32
def l1_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """|x - target|; gradient 0 where they are equal (NN-REGRESSION)."""
    _alike("l1_loss", x, target)
    return reduce("l1_loss", absolute(sub(x, target)), reduction)


@in_float32
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """0.5 d d / beta where |d| < beta, else |d| - 0.5 beta, with d = x - target; l1_loss for beta 0 (NN-REGRESSION)."""
    _alike("smooth_l1_loss", x, target)
    if beta < 0:
        raise AttributeValueError(f"smooth_l1_loss: needs beta >= 0, found {beta}")
    d = sub(x, target)
    size = absolute(d)
    if beta == 0:
        return reduce("smooth_l1_loss", size, reduction)
    near = lt(size, beta)
    inner = where(near, d, 0.0)  # the square of a far difference could overflow
    loss = where(near, div(mul(mul(inner, inner), 0.5), beta), sub(size, 0.5 * beta))
    return reduce("smooth_l1_loss", loss, reduction)


@in_float32
def huber_loss(x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """0.5 d d where |d| <= delta, else delta (|d| - 0.5 delta), with d = x - target (NN-REGRESSION)."""
    _alike("huber_loss", x, target)
    if delta <= 0:
        raise AttributeValueError(f"huber_loss: needs delta > 0, found {delta}")
    d = sub(x, target)
    size = absolute(d)
    near = le(size, delta)
    inner = where(near, d, 0.0)
    loss = where(near, mul(mul(inner, inner), 0.5), mul(sub(size, 0.5 * delta), delta))
    return reduce("huber_loss", loss, reduction)


@in_float32
def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """(1 - t) x + (1 + (pos_weight - 1) t) softplus(-x), times `weight`; the mean divides by the number of elements.

    `weight` and `pos_weight` broadcast against x.  Errors: `ShapeError`.  Source: NN-BCE.
    """
    _alike("binary_cross_entropy_with_logits", x, target)
    tail = Tensor(ops.softplus(neg(x).value))
    if pos_weight is not None:
        tail = mul(add(mul(sub(pos_weight, 1.0), target), 1.0), tail)
    loss = add(mul(sub(1.0, target), x), tail)
    return reduce("binary_cross_entropy_with_logits", loss if weight is None else mul(loss, weight), reduction)


@in_float32
def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """-(t max(log x, -100) + (1 - t) max(log1p(-x), -100)) of probabilities x, times `weight`; gradient 0 where a
    logarithm is at its bound.

    Take binary_cross_entropy_with_logits where scores are at hand: it loses no digits near 0 and 1.
    Errors: `ShapeError`.  Source: NN-BCE.
    """
    _alike("binary_cross_entropy", x, target)
    low, high = lt(x, math.exp(-100.0)), eq(x, 1.0)  # taken out before the logarithm: 0 * inf would be its gradient
    hit, miss = where(low, -100.0, log(where(low, 1.0, x))), where(high, -100.0, log1p(neg(where(high, 0.0, x))))
    loss = neg(add(mul(target, hit), mul(sub(1.0, target), miss)))
    return reduce("binary_cross_entropy", loss if weight is None else mul(loss, weight), reduction)


@in_float32
def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target (log target - x), 0 where target is 0; with log_target, exp(target) (target - x).

    x are log-probabilities; reduction "batchmean" divides the sum by the first dimension.  Errors: `ShapeError`,
    `AttributeValueError`.  Source: NN-KLDIV.
    """
    _alike("kl_div", x, target)
    if log_target:
        loss = mul(exp(target), sub(target, x))
    else:
        empty = eq(target, 0)
        loss = where(empty, 0.0, mul(target, sub(log(where(empty, 1.0, target)), x)))
    if reduction == "batchmean":
        return div(sum(loss), float(x.shape[0] if x.ndim else 1))
    return reduce("kl_div", loss, reduction)


__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]
takes_tensors(globals(), __all__)
