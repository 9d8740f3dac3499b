"""Movement that cuts and joins: slice, slice_update, pad, cat, flip, and the triangles of a matrix.

Implements the movement chapter of spec/text/primitives.md (OPS-MOVEMENT) and SIG-PAD.  A dimension that is cut or
joined stays whole: the parts of a balanced split are not the balanced split of the result.
"""

from __future__ import annotations

from ..errors import AttributeValueError, ShapeError
from ..ir import EXACT, MONOTONE, Meta, Node, Primitive, Rule, Sample, Value, primitive, same_dtype
from .shape import ONE, Shape, keeps_sum, zeros_like


def cut_length(start: int, stop: int, step: int) -> int:
    """How many indices start, start + step, … lie below stop."""
    return max(0, -((start - stop) // step))


def _slice_space(
    name: str, x: Meta, starts: Shape, stops: tuple[int | None, ...], steps: Shape
) -> tuple[list[str], list[str], dict[str, int]]:
    left, right, sizes = [], [], {}
    for d, (n, start, stop, step) in enumerate(zip(x.shape, starts, stops, steps, strict=True)):
        if stop is None:
            left.append(f"d{d}")
            right.append(f"d{d}")
            continue
        if step < 1 or not 0 <= start <= n or not 0 <= stop <= n:
            raise AttributeValueError(
                f"{name}: [{start}:{stop}:{step}] on dimension {d} of size {n}: needs 0 <= start, stop <= {n}, step >= 1"
            )
        left.append(f"[d{d}]")
        right.append(f"[s{d}]")
        sizes[f"s{d}"] = cut_length(start, stop, step)
    return left, right, sizes


def _slice_rule(x: Meta, *, starts: Shape, stops: tuple[int | None, ...], steps: Shape) -> Rule:
    left, right, sizes = _slice_space("slice", x, starts, stops, steps)
    return Rule(f"{' '.join(left)} -> {' '.join(right)}", (x.dtype,), carries=((ONE, EXACT),), sizes=sizes)


def _slice_vjp(node: Node, g: Value) -> list[Value | None]:
    zeros = zeros_like(node.inputs[0])
    return [slice_update(zeros, g, **node.attrs)]


_CUT = {"starts": (1, 0), "stops": (3, None), "steps": (1, 1)}
slice_: Primitive = primitive(
    "slice",
    _slice_rule,
    vjp=_slice_vjp,
    doc="start, stop, step per dimension; stop None takes the whole dimension",
    samples=(Sample(((4, 3),), _CUT), Sample(((5, 4),), {"starts": (0, 1), "stops": (5, None), "steps": (2, 1)})),
    whole_because="a cut dimension's parts are not the balanced split of the result",
)


def _slice_update_rule(x: Meta, value: Meta, *, starts: Shape, stops: tuple[int | None, ...], steps: Shape) -> Rule:
    left, right, sizes = _slice_space("slice_update", x, starts, stops, steps)
    space = f"{' '.join(left)}, {' '.join(right)} -> {' '.join(left)}"
    return Rule(space, (same_dtype("slice_update", x, value),), carries=(((0, 1), EXACT),), sizes=sizes)


def _slice_update_vjp(node: Node, g: Value) -> list[Value | None]:
    value = node.inputs[1]
    return [slice_update(g, zeros_like(value), **node.attrs), slice_(g, **node.attrs)]


slice_update: Primitive = primitive(
    "slice_update",
    _slice_update_rule,
    vjp=_slice_update_vjp,
    doc="a copy of x with a slice replaced",
    samples=(Sample(((4, 3), (2, 3)), _CUT),),
    whole_because="a cut dimension's parts are not the balanced split of the slice",
)


def _pad_rule(x: Meta, *, low: Shape, high: Shape, value: float) -> Rule:
    if len(low) != len(x.shape) or len(high) != len(x.shape) or min((*low, *high), default=0) < 0:
        raise AttributeValueError(f"pad: needs {len(x.shape)} sizes >= 0 before and after, found {low} and {high}")
    touched = [bool(a or b) for a, b in zip(low, high, strict=True)]
    left = [f"[d{d}]" if t else f"d{d}" for d, t in enumerate(touched)]
    right = [f"[s{d}]" if t else f"d{d}" for d, t in enumerate(touched)]
    sizes = {f"s{d}": n + low[d] + high[d] for d, n in enumerate(x.shape) if touched[d]}
    carry = EXACT if keeps_sum(value, x.dtype) else MONOTONE
    return Rule(f"{' '.join(left)} -> {' '.join(right)}", (x.dtype,), carries=((ONE, carry),), sizes=sizes)


def _pad_vjp(node: Node, g: Value) -> list[Value | None]:
    low, high, shape = node.attrs["low"], node.attrs["high"], node.inputs[0].meta.shape
    stops = tuple(a + n if a or b else None for a, b, n in zip(low, high, shape, strict=True))
    return [slice_(g, starts=low, stops=stops, steps=(1,) * len(shape))]


pad: Primitive = primitive(
    "pad",
    _pad_rule,
    vjp=_pad_vjp,
    doc="`value` before and after each dimension",
    samples=(
        Sample(((3, 4),), {"low": (1, 0), "high": (2, 0), "value": 0.0}),
        Sample(((3, 2),), {"low": (0, 1), "high": (0, 1), "value": 3.0}),
    ),
    whole_because="padding shifts the balanced split",
)


def _cat_rule(*xs: Meta, dim: int) -> Rule:
    shape = list(xs[0].shape)
    if not 0 <= dim < len(shape):
        raise AttributeValueError(f"cat: dim must be in [0, {len(shape)}), found {dim}")
    for i, x in enumerate(xs):
        if len(x.shape) != len(shape) or any(n != shape[d] for d, n in enumerate(x.shape) if d != dim):
            raise ShapeError(
                f"cat: tensors must agree outside dim {dim}, found {xs[0].shape} and {x.shape} (tensor {i})"
            )
    shape[dim] = sum(x.shape[dim] for x in xs)
    side = [" ".join(f"[c{i}]" if d == dim else f"d{d}" for d in range(len(shape))) for i in (*range(len(xs)), "")]
    carries = ((tuple(range(len(xs))), EXACT),)
    return Rule(
        f"{', '.join(side[:-1])} -> {side[-1]}", (same_dtype("cat", *xs),), carries=carries, sizes={"c": shape[dim]}
    )


def _cat_vjp(node: Node, g: Value) -> list[Value | None]:
    dim, at = node.attrs["dim"], 0
    parts: list[Value | None] = []
    n = len(g.meta.shape)
    for x in node.inputs:
        end = at + x.meta.shape[dim]
        starts = tuple(at if d == dim else 0 for d in range(n))
        stops = tuple(end if d == dim else None for d in range(n))
        parts.append(slice_(g, starts=starts, stops=stops, steps=(1,) * n))
        at = end
    return parts


cat: Primitive = primitive(
    "cat",
    _cat_rule,
    vjp=_cat_vjp,
    doc="tensors joined along dim",
    samples=(Sample(((3, 2), (4, 2)), {"dim": 0}), Sample(((3, 2), (3, 1), (3, 4)), {"dim": 1})),
    whole_because="the parts of the operands are not the balanced split of the whole",
)


def _flip_rule(x: Meta, *, dims: Shape) -> Rule:
    if len(set(dims)) != len(dims) or any(not 0 <= d < len(x.shape) for d in dims):
        raise AttributeValueError(f"flip: dims must be distinct and in [0, {len(x.shape)}), found {dims}")
    side = " ".join(f"[d{d}]" if d in dims else f"d{d}" for d in range(len(x.shape)))
    return Rule(f"{side} -> {side}", (x.dtype,), carries=((ONE, EXACT),))


flip: Primitive = primitive(
    "flip",
    _flip_rule,
    vjp=lambda node, g: [flip(g, **node.attrs)],
    doc="dims in reverse order",
    samples=(Sample(((3, 4),), {"dims": (0,)}), Sample(((3, 4),), {"dims": (0, 1)})),
    whole_because="position r would hold what position p-1-r should",
)


def _triangle(name: str, doc: str) -> Primitive:
    def rule(x: Meta, *, diagonal: int) -> Rule:
        return Rule("... m@ n@ -> ... m@ n@", (x.dtype,), carries=((ONE, EXACT),))

    made: Primitive = primitive(
        name,
        rule,
        vjp=lambda node, g: [made(g, **node.attrs)],
        doc=doc,
        samples=(Sample(((4, 5),), {"diagonal": 0}), Sample(((2, 3, 3),), {"diagonal": -1})),
    )
    return made


tril: Primitive = _triangle("tril", "+0 above the diagonal")
triu: Primitive = _triangle("triu", "+0 below the diagonal")
