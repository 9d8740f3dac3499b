"""Reductions other than `sum`: prod, amax, amin, any, all, argmax, argmin.

Implements the reduction chapter of spec/text/primitives.md (OPS-REDUCTION); orders and ties are NUM-ORDER's.
"""

from __future__ import annotations

import math

from ..errors import AttributeValueError, DtypeError, ShapeError
from ..ir import JOIN_MAX, JOIN_MIN, Meta, Node, Primitive, Rule, Sample, Value, primitive
from ..ir.primitive import Fold
from ..numerics import bool_, int64
from .constant import scalar
from .creation import eye_like
from .elementwise import cast, div, eq, mul, where
from .shape import expand, reduction_rule, reshape, spread, sum_, transpose

Shape = tuple[int, ...]
_DIMS = Sample(((4, 3),), {"dims": (0,)}), Sample(((4, 3),), {"dims": (1,)}), Sample(((2, 3, 4),), {"dims": (0, 2)})


_JOINS = {"max": JOIN_MAX, "min": JOIN_MIN}


def _needs_elements(name: str, x: Meta, dims: Shape) -> None:
    if any(x.shape[d] == 0 for d in dims if d < len(x.shape)):
        raise ShapeError(f"{name}: a dimension of size 0 has no {name} (shape {x.shape}, dims {dims})")


def _extreme(name: str, kind: Fold, doc: str) -> Primitive:
    def rule(x: Meta, *, dims: Shape) -> Rule:
        _needs_elements(name, x, dims)
        return reduction_rule(name, x, dims, dtypes=(x.dtype,), fold=kind, carries=(((0,), _JOINS[kind]),))

    def vjp(node: Node, g: Value) -> list[Value | None]:
        """Shared equally among the elements that reach the extreme."""
        x, dims = node.inputs[0], node.attrs["dims"]
        hit = eq(x, spread(node.outputs[0], x, dims))
        count = sum_(cast(hit, dtype=g.meta.dtype), dims=dims)
        return [where(hit, spread(div(g, count), x, dims), scalar(0.0, g))]

    return primitive(name, rule, vjp=vjp, samples=_DIMS, doc=doc)


amax: Primitive = _extreme("amax", "max", "the largest element over dims; NaN propagates")
amin: Primitive = _extreme("amin", "min", "the least element over dims; NaN propagates")


def _logical(name: str, kind: Fold, doc: str) -> Primitive:
    def rule(x: Meta, *, dims: Shape) -> Rule:
        if x.dtype != bool_:
            raise DtypeError(f"{name}: needs bool, found {x.dtype.name}; cast to bool first")
        return reduction_rule(name, x, dims, dtypes=(bool_,), fold=kind, carries=(((0,), _JOINS[kind]),))

    samples = tuple(Sample(s.shapes, s.attrs, ("bool",)) for s in (*_DIMS, Sample(((0, 3),), {"dims": (0,)})))
    return primitive(name, rule, samples=samples, doc=doc)


any_: Primitive = _logical("any", "max", "whether some element over dims is true")
all_: Primitive = _logical("all", "min", "whether every element over dims is true")


def _prod_rule(x: Meta, *, dims: Shape) -> Rule:
    return reduction_rule("prod", x, dims, dtypes=(x.dtype,))


def _prod_vjp(node: Node, g: Value) -> list[Value | None]:
    """For each element the product of the others, by a square with ones on its diagonal: right where some are zero."""
    x, dims = node.inputs[0], node.attrs["dims"]
    kept = tuple(d for d in range(len(x.meta.shape)) if d not in dims)
    order = (*kept, *dims)
    moved = transpose(x, perm=order)
    flat = reshape(moved, shape=(*(x.meta.shape[d] for d in kept), math.prod(x.meta.shape[d] for d in dims)))
    others = prod(ones_on_diagonal(flat), dims=(len(kept) + 1,))
    back = reshape(others, shape=moved.meta.shape)
    return [mul(spread(g, x, dims), transpose(back, perm=tuple(order.index(d) for d in range(len(order)))))]


def ones_on_diagonal(x: Value) -> Value:
    """(..., n) -> (..., n, n): row i holds x with its i-th element replaced by 1."""
    *batch, n = x.meta.shape
    rows = expand(reshape(x, shape=(*batch, 1, n)), shape=(*batch, n, n))
    return where(eye_like(n, x), scalar(1.0, x), rows)


prod: Primitive = primitive(
    "prod",
    _prod_rule,
    vjp=_prod_vjp,
    samples=(*_DIMS, Sample(((0, 3),), {"dims": (0,)})),
    doc="the product over dims, a pure tree",
    whole_because="there is no P(prod)",
)


def _index_of(name: str, doc: str) -> Primitive:
    def rule(x: Meta, *, dim: int) -> Rule:
        if not 0 <= dim < len(x.shape):
            raise AttributeValueError(f"{name}: dim must be in [0, {len(x.shape)}), found {dim}")
        _needs_elements(name, x, (dim,))
        left = " ".join(f"[d{d}]" if d == dim else f"d{d}" for d in range(len(x.shape)))
        return Rule(f"{left} -> {' '.join(f'd{d}' for d in range(len(x.shape)) if d != dim)}", (int64,))

    return primitive(
        name,
        rule,
        samples=(Sample(((4, 3),), {"dim": 0}), Sample(((4, 3),), {"dim": 1})),
        doc=doc,
        whole_because="the index of an extreme does not fold",
    )


argmax: Primitive = _index_of("argmax", "the lowest index of the largest element; a NaN comes first")
argmin: Primitive = _index_of("argmin", "the lowest index of the least element; a NaN comes first")
