"""Scans and orders: cumsum, cumprod, argsort.

Implements the scan and order chapter of spec/text/primitives.md (OPS-ORDER): scans ascend sequentially, sorts are
stable (NUM-ORDER).
"""

from __future__ import annotations

from typing import Any

from ..errors import AttributeValueError
from ..ir import LINEAR, Meta, Node, Primitive, Rule, Sample, Value, primitive
from ..numerics import int64
from .elementwise import mul
from .reduction import ones_on_diagonal
from .shape import expand, reshape, sum_, transpose
from .slicing import flip, triu

_DIM = Sample(((4, 3),), {"dim": 0}), Sample(((4, 3),), {"dim": 1})
_SEQUENTIAL = "a scan needs everything before it"


def _whole(name: str, x: Meta, dim: int, **more: Any) -> Rule:
    if not 0 <= dim < len(x.shape):
        raise AttributeValueError(f"{name}: dim must be in [0, {len(x.shape)}), found {dim}")
    side = " ".join(f"[d{d}]" if d == dim else f"d{d}" for d in range(len(x.shape)))
    return Rule(f"{side} -> {side}", **more)


def _cumsum_rule(x: Meta, *, dim: int) -> Rule:
    return _whole("cumsum", x, dim, dtypes=(x.dtype,), carries=(((0,), LINEAR),))


def _cumsum_vjp(node: Node, g: Value) -> list[Value | None]:
    dim = node.attrs["dim"]
    return [flip(cumsum(flip(g, dims=(dim,)), dim=dim), dims=(dim,))]


cumsum: Primitive = primitive(
    "cumsum",
    _cumsum_rule,
    vjp=_cumsum_vjp,
    samples=_DIM,
    doc="running sums along dim, ascending",
    whole_because=_SEQUENTIAL,
)


def _cumprod_rule(x: Meta, *, dim: int) -> Rule:
    return _whole("cumprod", x, dim, dtypes=(x.dtype,))


def _cumprod_vjp(node: Node, g: Value) -> list[Value | None]:
    """dx_i = sum over j >= i of g_j times the product of x_0..x_j without x_i: right where elements are zero."""
    x, dim = node.inputs[0], node.attrs["dim"]
    n = len(x.meta.shape)
    last = (*(d for d in range(n) if d != dim), dim)
    back = tuple(last.index(d) for d in range(n))
    moved, weight = transpose(x, perm=last), transpose(g, perm=last)
    square = triu(cumprod(ones_on_diagonal(moved), dim=n), diagonal=0)
    *batch, size = moved.meta.shape
    terms = mul(square, expand(reshape(weight, shape=(*batch, 1, size)), shape=(*batch, size, size)))
    return [transpose(sum_(terms, dims=(n,)), perm=back)]


cumprod: Primitive = primitive(
    "cumprod",
    _cumprod_rule,
    vjp=_cumprod_vjp,
    samples=_DIM,
    doc="running products along dim, ascending",
    whole_because=_SEQUENTIAL,
)


def _argsort_rule(x: Meta, *, dim: int, descending: bool) -> Rule:
    return _whole("argsort", x, dim, dtypes=(int64,))


argsort: Primitive = primitive(
    "argsort",
    _argsort_rule,
    doc="the stable order of the elements along dim; NaN largest, -0 equal to +0",
    samples=tuple(Sample(s.shapes, {**s.attrs, "descending": d}) for s in _DIM for d in (False, True)),
    whole_because="a place in the order depends on all elements",
)
