"""Contractions: matmul, conv2d and its two gradients.

Implements the contraction chapter of spec/text/primitives.md (OPS-CONTRACTION); the canonical tree over fused
multiply-adds is NUM-CONTRACT's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import DtypeError, ShapeError
from ..ir import LINEAR, Meta, Node, Primitive, Rule, Sample, Value, primitive, same_dtype
from ..numerics import LEAF, is_half
from .shape import Pair, reshape, swap_last, transpose, window_counts

Shape = tuple[int, ...]
_EITHER = (((0,), LINEAR), ((1,), LINEAR))


def contraction_rule(name: str, space: str, over: str, x: Meta, y: Meta, sizes: dict[str, int] | None = None) -> Rule:
    """A contraction of two operands of one dtype, computed in at least float32."""
    dtype = same_dtype(name, x, y)
    if is_half(dtype):
        raise DtypeError(
            f"{name}: {dtype.name} is a storage type; cast to float32, multiply, cast back (flow.{name} does)"
        )
    if dtype.kind == "b":
        raise DtypeError(f"{name}: not for bool; cast to an integer or float type")
    return Rule(space, (dtype,), over, "sum", LEAF, _EITHER, sizes or {})


def _matmul_rule(x: Meta, y: Meta) -> Rule:
    return contraction_rule("matmul", "... m k, ... k n -> ... m n", "k", x, y)


def _matmul_vjp(node: Node, g: Value) -> list[Value | None]:
    x, y = node.inputs
    dx = dy = None
    if x.requires_grad:  # dx^T = y g^T, contracted over (the batch axes x lacks, n)
        dx = swap_last(_contract_lost(y, swap_last(g), x.meta.shape[:-2], shape=swap_shape(x.meta.shape)))
    if y.requires_grad:
        dy = _contract_lost(swap_last(x), g, y.meta.shape[:-2], shape=y.meta.shape)
    return [dx, dy]


def swap_shape(shape: Shape) -> Shape:
    """The shape of the transpose."""
    return (*shape[:-2], shape[-1], shape[-2])


def _contract_lost(a: Value, b: Value, batch: Shape, *, shape: Shape) -> Value:
    """a (..., r, t) @ b (..., t, s), summed also over the batch axes the result (of shape `shape`) does not have.

    Those axes and t become one flat contracted range, axes outermost: one tree, as the definition of a broadcast
    operand's gradient says.
    """
    n = max(len(a.meta.shape), len(b.meta.shape)) - 2
    have = (1,) * (n - len(batch)) + batch
    full = _batch(a, b, n)
    lost = [d for d in range(n) if have[d] == 1 and full[d] != 1]
    if lost:
        a, b = _merge(a, n, lost, last=True), _merge(b, n, lost, last=False)
    out = matmul(a, b)
    return out if out.meta.shape == shape else reshape(out, shape=shape)


def _batch(a: Value, b: Value, n: int) -> Shape:
    padded = [(1,) * (n + 2 - len(v.meta.shape)) + v.meta.shape for v in (a, b)]
    return tuple(max(p, q) if 0 not in (p, q) else 0 for p, q in zip(padded[0][:n], padded[1][:n], strict=True))


def _merge(v: Value, n: int, lost: Sequence[int], *, last: bool) -> Value:
    """Moves the `lost` batch axes in front of the contracted one (the last or the one before) and merges them in."""
    shape = (1,) * (n + 2 - len(v.meta.shape)) + v.meta.shape
    if v.meta.shape != shape:
        v = reshape(v, shape=shape)
    kept = [d for d in range(n) if d not in lost]
    contracted, other = (n + 1, n) if last else (n, n + 1)
    merged = math.prod(shape[d] for d in lost) * shape[contracted]
    head = [shape[d] for d in kept]
    if last:
        return reshape(transpose(v, perm=(*kept, other, *lost, contracted)), shape=(*head, shape[other], merged))
    return reshape(transpose(v, perm=(*kept, *lost, contracted, other)), shape=(*head, merged, shape[other]))


matmul: Primitive = primitive(
    "matmul",
    _matmul_rule,
    vjp=_matmul_vjp,
    doc="x @ y over the last two dimensions, the others broadcast",
    samples=(
        Sample(((3, 4), (4, 5))),
        Sample(((4, 64), (64, 3))),
        Sample(((2, 3, 4), (4, 5))),
        Sample(((2, 1, 3, 4), (3, 4, 2))),
        Sample(((3, 0), (0, 2))),
    ),
)


def _conv_rule(x: Meta, w: Meta, *, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Rule:
    if len(x.shape) != 4 or len(w.shape) != 4:
        raise ShapeError(f"conv2d: needs (n, c, y, x) and (o, c / groups, i, j), found {x.shape} and {w.shape}")
    _check_groups("conv2d", groups, "a weight", w, w.shape[:2])
    if groups < 1 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ShapeError(f"conv2d: {x.shape[1]} channels in {groups} groups do not fit a weight of shape {w.shape}")
    p, q = window_counts("conv2d", x.shape[2:], w.shape[2:], stride, padding, dilation)
    c, o = _channels(groups)
    return contraction_rule(
        "conv2d", f"n {c} [y x], {o} c [i j] -> n {o} [p q]", "c i j", x, w, {"p": p, "q": q, **_group_sizes(groups)}
    )


def _channels(groups: int) -> tuple[str, str]:
    """How the channels of the image and of the filter are indexed."""
    return ("c", "o") if groups == 1 else ("(g c)", "(g o)")


def _group_sizes(groups: int) -> dict[str, int]:
    return {} if groups == 1 else {"g": groups}


def _window(node: Node) -> dict[str, object]:
    return {k: node.attrs[k] for k in ("stride", "padding", "dilation", "groups")}


def _conv_vjp(node: Node, g: Value) -> list[Value | None]:
    x, w = node.inputs
    dx = conv2d_input(g, w, size=x.meta.shape[2:], **_window(node)) if x.requires_grad else None
    dw = conv2d_filter(x, g, size=w.meta.shape[2:], **_window(node)) if w.requires_grad else None
    return [dx, dw]


_PLAIN = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
_MIXED = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}

conv2d: Primitive = primitive(
    "conv2d",
    _conv_rule,
    vjp=_conv_vjp,
    doc="cross-correlation of (n, c, y, x) with (o, c, i, j); absent taps contribute nothing",
    samples=(Sample(((2, 3, 4, 4), (4, 3, 2, 2)), _PLAIN), Sample(((2, 4, 5, 4), (4, 2, 2, 2)), _MIXED)),
    whole_because="windows overlap: rows and columns stay whole",
)


def _conv_input_rule(g: Meta, w: Meta, *, size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Rule:
    _check_groups("conv2d_input", groups, "a weight", w, w.shape[:2])
    _check_gradient("conv2d_input", size, w.shape[2:], g.shape[2:], stride, padding, dilation)
    c, o = _channels(groups)
    sizes = {"y": size[0], "x": size[1], **_group_sizes(groups)}
    return contraction_rule("conv2d_input", f"n {o} [p q], {o} c [i j] -> n {c} [y x]", "o i j", g, w, sizes)


def _conv_input_vjp(node: Node, ct: Value) -> list[Value | None]:
    g, w = node.inputs
    dg = conv2d(ct, w, **_window(node)) if g.requires_grad else None
    dw = conv2d_filter(ct, g, size=w.meta.shape[2:], **_window(node)) if w.requires_grad else None
    return [dg, dw]


conv2d_input: Primitive = primitive(
    "conv2d_input",
    _conv_input_rule,
    vjp=_conv_input_vjp,
    local_shape=True,
    doc="the gradient of conv2d to its image",
    samples=(Sample(((2, 4, 3, 3), (4, 3, 2, 2)), {**_PLAIN, "size": (4, 4)}),),
    whole_because="windows overlap: rows and columns stay whole",
)


def _conv_filter_rule(
    x: Meta, g: Meta, *, size: Pair, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Rule:
    _check_groups("conv2d_filter", groups, "an image", x, x.shape[1:2])
    _check_groups("conv2d_filter", groups, "a gradient", g, g.shape[1:2])
    _check_gradient("conv2d_filter", x.shape[2:], size, g.shape[2:], stride, padding, dilation)
    c, o = _channels(groups)
    out = "o c [i j]" if groups == 1 else "(g o) c [i j]"
    sizes = {"i": size[0], "j": size[1], **_group_sizes(groups)}
    return contraction_rule("conv2d_filter", f"n {c} [y x], n {o} [p q] -> {out}", "n p q", x, g, sizes)


def _conv_filter_vjp(node: Node, ct: Value) -> list[Value | None]:
    x, g = node.inputs
    dx = conv2d_input(g, ct, size=x.meta.shape[2:], **_window(node)) if x.requires_grad else None
    dg = conv2d(x, ct, **_window(node)) if g.requires_grad else None
    return [dx, dg]


conv2d_filter: Primitive = primitive(
    "conv2d_filter",
    _conv_filter_rule,
    vjp=_conv_filter_vjp,
    local_shape=True,
    doc="the gradient of conv2d to its filter",
    samples=(Sample(((2, 3, 4, 4), (2, 4, 3, 3)), {**_PLAIN, "size": (2, 2)}),),
    whole_because="windows overlap: rows and columns stay whole",
)


def _check_groups(name: str, groups: int, what: str, operand: Meta, channels: Shape) -> None:
    """How many groups there are cannot be told from no channels; so all three refuse what one of them would."""
    if groups > 1 and 0 in channels:
        raise ShapeError(
            f"{name}: {groups} groups need at least one channel each, found {what} of shape {operand.shape}"
        )


def _check_gradient(
    name: str, size: Shape, kernel: Shape, out: Shape, stride: Pair, padding: Pair, dilation: Pair
) -> None:
    counts = window_counts(name, size, (kernel[0], kernel[1]), stride, padding, dilation)
    if tuple(out) != counts:
        raise ShapeError(
            f"{name}: an image of {tuple(size)} under a {tuple(kernel)} filter gives {counts}, found a gradient of {tuple(out)}"
        )
