"""Elementwise primitives: arithmetic, comparison, logic, selection, cast and the elementary functions.

Implements the elementwise chapter of spec/text/primitives.md (OPS-ELEMENTWISE).  Values are the kernels' (NUM-*); here
are index spaces, what becomes of P, and gradients, each a composition of primitives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import DtypeError
from ..ir import (
    ANTITONE,
    EXACT,
    JOIN_MAX,
    JOIN_MIN,
    LINEAR,
    MONOTONE,
    Carry,
    Meta,
    Node,
    Primitive,
    Rule,
    Sample,
    Value,
    primitive,
    same_dtype,
    vjp_of,
)
from ..numerics import bool_
from .constant import scalar
from .shape import sum_to, zeros_like

Unary = Callable[..., Any]
_SHAPES = Sample(((3, 4),)), Sample(((),)), Sample(((0, 3),))
_PAIRS = Sample(((3, 4), (3, 4))), Sample(((3, 4), (4,))), Sample(((2, 1), (1, 3))), Sample(((), (5,)))
EACH = (0,)
BOTH = (0, 1)


def unary(name: str, gradient: Unary | None, carries: Any = (), dtype: Any = None, doc: str = "") -> Primitive:
    """A primitive on one operand; `gradient(g, x, y)` in primitives, y the output."""
    vjp = None if gradient is None else lambda node, g: [gradient(g, node.inputs[0], node.outputs[0])]
    return primitive(name, "... -> ...", carries=carries, dtype=dtype, vjp=vjp, samples=_SHAPES, doc=doc)


def binary(name: str, carries: Any = (), dtype: Any = None, doc: str = "", checked: bool = False) -> Primitive:
    """A primitive on two operands of one dtype, broadcast together; `checked` if its kernel may refuse integers."""

    def rule(x: Meta, y: Meta) -> Rule:
        operand = same_dtype(name, x, y)
        return Rule("..., ... -> ...", (dtype or operand,), carries=carries)

    return primitive(name, rule, samples=_PAIRS, doc=doc, checked=checked)


def logical(name: str, operands: int, carry: Any, doc: str) -> Primitive:
    """A primitive on bool operands: only there do order and truth agree, which is what carries P."""

    def rule(*xs: Meta) -> Rule:
        if any(x.dtype != bool_ for x in xs):
            raise DtypeError(f"{name}: needs bool, found {', '.join(x.dtype.name for x in xs)}; cast to bool first")
        carries = ((tuple(range(operands)), carry),) if carry else ()
        return Rule(f"{', '.join(['...'] * operands)} -> ...", (bool_,), carries=carries)

    shapes = _SHAPES if operands == 1 else _PAIRS
    return primitive(name, rule, samples=tuple(Sample(s.shapes, dtypes=("bool",) * operands) for s in shapes), doc=doc)


def _flat(g: Value, x: Value, y: Value) -> Value:
    return zeros_like(x)


def _neg_rule(x: Meta) -> Rule:
    """Integers wrap: -x does not reverse their order at the least one (nor anywhere if unsigned)."""
    order = () if x.dtype.kind in "iub" else ((EACH, ANTITONE),)
    return Rule("... -> ...", (x.dtype,), carries=((EACH, LINEAR), *order))


neg: Primitive = primitive("neg", _neg_rule, vjp=lambda node, g: [neg(g)], samples=_SHAPES, doc="-x")
absolute: Primitive = unary("abs", lambda g, x, y: mul(g, sign(x)), doc="|x|")
sign: Primitive = unary("sign", _flat, ((EACH, MONOTONE),), doc="-1, ±0 or 1; NaN stays NaN")
floor: Primitive = unary("floor", _flat, ((EACH, MONOTONE),), doc="the largest integer <= x")
ceil: Primitive = unary("ceil", _flat, ((EACH, MONOTONE),), doc="the least integer >= x")
trunc: Primitive = unary("trunc", _flat, ((EACH, MONOTONE),), doc="x without its fraction")
rounded: Primitive = unary("round", _flat, ((EACH, MONOTONE),), doc="the nearest integer, ties to even")
sqrt: Primitive = unary(
    "sqrt", lambda g, x, y: div(g, mul(scalar(2.0, y), y)), doc="the square root, correctly rounded"
)
rsqrt: Primitive = unary(
    "rsqrt", lambda g, x, y: mul(mul(scalar(-0.5, y), g), mul(mul(y, y), y)), doc="1 / sqrt(x), correctly rounded"
)
exp: Primitive = unary("exp", lambda g, x, y: mul(g, y), ((EACH, MONOTONE),), doc="e to the x, correctly rounded")
log: Primitive = unary("log", lambda g, x, y: div(g, x), doc="the natural logarithm, correctly rounded")
log1p: Primitive = unary("log1p", lambda g, x, y: div(g, add(scalar(1.0, x), x)), doc="log(1 + x), correctly rounded")
expm1: Primitive = unary(
    "expm1", lambda g, x, y: mul(g, add(y, scalar(1.0, y))), ((EACH, MONOTONE),), doc="exp(x) - 1, correctly rounded"
)
tanh: Primitive = unary(
    "tanh",
    lambda g, x, y: mul(g, sub(scalar(1.0, y), mul(y, y))),
    ((EACH, MONOTONE),),
    doc="the hyperbolic tangent, correctly rounded",
)
sigmoid: Primitive = unary(
    "sigmoid",
    lambda g, x, y: mul(g, mul(y, sub(scalar(1.0, y), y))),
    ((EACH, MONOTONE),),
    doc="1 / (1 + exp(-x)), correctly rounded",
)
softplus: Primitive = unary(
    "softplus", lambda g, x, y: mul(g, sigmoid(x)), ((EACH, MONOTONE),), doc="log(1 + exp(x)), correctly rounded"
)
erf: Primitive = unary(
    "erf",
    lambda g, x, y: mul(g, mul(scalar(2 / math.sqrt(math.pi), x), exp(neg(mul(x, x))))),
    ((EACH, MONOTONE),),
    doc="the error function, correctly rounded",
)
sin: Primitive = unary("sin", lambda g, x, y: mul(g, cos(x)), doc="the sine, correctly rounded")
cos: Primitive = unary("cos", lambda g, x, y: neg(mul(g, sin(x))), doc="the cosine, correctly rounded")
relu: Primitive = unary(
    "relu",
    lambda g, x, y: where(gt(x, scalar(0.0, x)), g, scalar(0.0, g)),
    ((EACH, MONOTONE),),
    doc="max(x, 0); gradient 0 at 0",
)


def _gelu_gradient(g: Value, x: Value, y: Value) -> Value:
    """Phi(x) + x phi(x), with Phi by erf and phi by exp, each step rounded."""
    cdf = mul(scalar(0.5, x), add(scalar(1.0, x), erf(mul(x, scalar(math.sqrt(0.5), x)))))
    density = mul(scalar(1 / math.sqrt(2 * math.pi), x), exp(mul(scalar(-0.5, x), mul(x, x))))
    return mul(g, add(cdf, mul(x, density)))


gelu: Primitive = unary("gelu", _gelu_gradient, doc="x Phi(x), correctly rounded")
isnan: Primitive = unary("isnan", None, dtype=bool_, doc="whether x is NaN")
isinf: Primitive = unary("isinf", None, dtype=bool_, doc="whether x is an infinity")
isfinite: Primitive = unary("isfinite", None, dtype=bool_, doc="whether x is neither NaN nor an infinity")
logical_not: Primitive = logical("logical_not", 1, ANTITONE, "not x")

add: Primitive = binary("add", ((BOTH, LINEAR),), doc="x + y")
sub: Primitive = binary("sub", ((BOTH, LINEAR),), doc="x - y")
mul: Primitive = binary("mul", ((EACH, LINEAR), ((1,), LINEAR)), doc="x * y")
div: Primitive = binary("div", ((EACH, LINEAR),), doc="x / y, floats only")
floor_divide: Primitive = binary("floor_divide", doc="floor(x / y) as Python's //", checked=True)
remainder: Primitive = binary("remainder", doc="x - y floor(x / y) as Python's %", checked=True)
pow_: Primitive = binary("pow", doc="x to the y, correctly rounded", checked=True)
maximum: Primitive = binary("maximum", ((BOTH, JOIN_MAX),), doc="IEEE 754-2019 maximum: NaN propagates, -0 < +0")
minimum: Primitive = binary("minimum", ((BOTH, JOIN_MIN),), doc="IEEE 754-2019 minimum: NaN propagates, -0 < +0")
eq: Primitive = binary("eq", dtype=bool_, doc="x == y")
ne: Primitive = binary("ne", dtype=bool_, doc="x != y")
lt: Primitive = binary("lt", dtype=bool_, doc="x < y")
le: Primitive = binary("le", dtype=bool_, doc="x <= y")
gt: Primitive = binary("gt", dtype=bool_, doc="x > y")
ge: Primitive = binary("ge", dtype=bool_, doc="x >= y")
logical_and: Primitive = logical("logical_and", 2, JOIN_MIN, "x and y")
logical_or: Primitive = logical("logical_or", 2, JOIN_MAX, "x or y")
logical_xor: Primitive = logical("logical_xor", 2, None, "x or y but not both")


@vjp_of(add)
def _add_vjp(node: Node, g: Value) -> list[Value | None]:
    x, y = node.inputs
    return [sum_to(g, x), sum_to(g, y)]


@vjp_of(sub)
def _sub_vjp(node: Node, g: Value) -> list[Value | None]:
    x, y = node.inputs
    return [sum_to(g, x), sum_to(neg(g), y)]


@vjp_of(mul)
def _mul_vjp(node: Node, g: Value) -> list[Value | None]:
    x, y = node.inputs
    return [sum_to(mul(g, y), x) if x.requires_grad else None, sum_to(mul(g, x), y) if y.requires_grad else None]


@vjp_of(div)
def _div_vjp(node: Node, g: Value) -> list[Value | None]:
    x, y = node.inputs
    return [sum_to(div(g, y), x), sum_to(neg(div(mul(g, node.outputs[0]), y)), y) if y.requires_grad else None]


@vjp_of(remainder)
def _remainder_vjp(node: Node, g: Value) -> list[Value | None]:
    x, y = node.inputs
    return [sum_to(g, x), sum_to(neg(mul(g, floor_divide(x, y))), y)]


@vjp_of(pow_)
def _pow_vjp(node: Node, g: Value) -> list[Value | None]:
    """y x^(y-1) (0 where y is 0), and x^y log x (0 where x is 0 and y >= 0)."""
    x, y = node.inputs
    zero, one = scalar(0.0, x), scalar(1.0, x)
    dx = dy = None
    if x.requires_grad:
        dx = sum_to(mul(g, where(eq(y, zero), zero, mul(y, pow_(x, sub(y, one))))), x)
    if y.requires_grad:
        flat = logical_and(eq(x, zero), ge(y, zero))
        dy = sum_to(mul(g, where(flat, zero, mul(node.outputs[0], log(x)))), y)
    return [dx, dy]


def _choose_vjp(first: Primitive) -> Callable[..., list[Value | None]]:
    """The gradient of maximum/minimum goes to the chosen operand, half to each where they are equal."""

    def vjp(node: Node, g: Value) -> list[Value | None]:
        x, y = node.inputs
        half = mul(g, scalar(0.5, g))
        tie, zero = eq(x, y), scalar(0.0, g)
        return [sum_to(where(tie, half, where(first(a, b), g, zero)), a) for a, b in ((x, y), (y, x))]

    return vjp


vjp_of(maximum)(_choose_vjp(gt))
vjp_of(minimum)(_choose_vjp(lt))


def _where_rule(c: Meta, x: Meta, y: Meta) -> Rule:
    if c.dtype != bool_:
        raise DtypeError(f"where: the condition must be bool, found {c.dtype.name}")
    return Rule("..., ..., ... -> ...", (same_dtype("where", x, y),), carries=(((1, 2), EXACT),))


def _where_vjp(node: Node, g: Value) -> list[Value | None]:
    c, x, y = node.inputs
    zero = scalar(0.0, g)
    return [None, sum_to(where(c, g, zero), x), sum_to(where(c, zero, g), y)]


where: Primitive = primitive(
    "where",
    _where_rule,
    vjp=_where_vjp,
    doc="x where c, else y",
    samples=(
        Sample(((3, 4), (3, 4), (3, 4)), dtypes=("bool", "", "")),
        Sample(((3, 1), (4,), ()), dtypes=("bool", "", "")),
    ),
)


_LINEAR_INEXACT = Carry("linear", LINEAR.kinds, False)  # a wide integer sum keeps what the narrow one lost by wrapping


def _cast_rule(x: Meta, *, dtype: np.dtype[Any]) -> Rule:
    """P(max) and P(min) survive what keeps order: float to float, and widening integers; P(sum) only algebra."""
    kinds = x.dtype.kind == dtype.kind or (x.dtype.kind in "fV" and dtype.kind in "fV")
    ordered = kinds and (dtype.kind not in "iu" or dtype.itemsize >= x.dtype.itemsize)
    narrower = x.dtype.kind in "iu" and dtype.itemsize <= x.dtype.itemsize  # wrapping keeps sums
    linear = LINEAR if narrower else _LINEAR_INEXACT
    carries: Any = ((EACH, linear),) if kinds and dtype.kind not in "b" else ()
    return Rule("... -> ...", (dtype,), carries=(*carries, *(((EACH, MONOTONE),) if ordered else ())))


def _cast_vjp(node: Node, g: Value) -> list[Value | None]:
    return [cast(g, dtype=node.inputs[0].meta.dtype)]


cast: Primitive = primitive(
    "cast",
    _cast_rule,
    vjp=_cast_vjp,
    doc="x in another dtype, rounded once",
    samples=(Sample(((3, 4),), {"dtype": np.dtype("float64")}), Sample(((5,),), {"dtype": np.dtype("int32")})),
)
