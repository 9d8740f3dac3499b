"""Movement that keeps all numbers: reshape, transpose, expand, windows; and `sum`, which undoes broadcasting.

Implements the movement chapter of spec/text/primitives.md (OPS-MOVEMENT; cutting and joining is slicing.py's),
SIG-RESHAPE, SIG-PAD and AUTO-UNBROADCAST.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import AttributeValueError, ShapeError
from ..ir import EXACT, LINEAR, MONOTONE, Meta, Node, Primitive, Rule, Sample, Value, names, primitive
from ..numerics import cast, fold_parts, same_bits
from .constant import scalar

Shape = tuple[int, ...]
ONE = (0,)


# --- constants and broadcasting, which every gradient needs ---------------------------------------------------------


def zeros_like(x: Value) -> Value:
    """+0 in the shape and, if it has no P, the layout of `x`."""
    return expand(scalar(0.0, x), shape=x.meta.shape)


def sum_to(g: Value, like: Value) -> Value:
    """`g` summed over what broadcasting added to `like`, as one flat range in dimension order (AUTO-UNBROADCAST)."""
    shape, target = g.meta.shape, like.meta.shape
    if shape == target:
        return g
    extra = len(shape) - len(target)
    dims = tuple(d for d, n in enumerate(shape) if d < extra or (target[d - extra] == 1 and n != 1))
    summed = sum_(g, dims=dims) if dims else g
    return summed if summed.meta.shape == target else reshape(summed, shape=target)


# --- sum ------------------------------------------------------------------------------------------------------------


def reduction_rule(name: str, x: Meta, dims: Shape, **fold: Any) -> Rule:
    """The space of a reduction over `dims` (in that order), which are removed."""
    n = len(x.shape)
    if len(set(dims)) != len(dims) or any(not 0 <= d < n for d in dims):
        raise AttributeValueError(f"{name}: dims must be distinct and in [0, {n}), found {dims}")
    letters = names("d", n)
    kept = [a for d, a in enumerate(letters) if d not in dims]
    return Rule(f"{' '.join(letters)} -> {' '.join(kept)}", over=" ".join(letters[d] for d in dims), **fold)


def _sum_rule(x: Meta, *, dims: Shape) -> Rule:
    return reduction_rule("sum", x, dims, dtypes=(x.dtype,), fold="sum", carries=((ONE, LINEAR),))


def spread(g: Value, x: Value, dims: Shape) -> Value:
    """`g`, which lacks `dims`, put back to the shape of `x`."""
    shape = tuple(1 if d in dims else n for d, n in enumerate(x.meta.shape))
    return expand(reshape(g, shape=shape), shape=x.meta.shape)


def _sum_vjp(node: Node, g: Value) -> list[Value | None]:
    return [spread(g, node.inputs[0], node.attrs["dims"])]


sum_: Primitive = primitive(
    "sum",
    _sum_rule,
    vjp=_sum_vjp,
    doc="the canonical tree over the flat range of dims",
    samples=(
        Sample(((4, 3),), {"dims": (0,)}),
        Sample(((4, 3),), {"dims": (1,)}),
        Sample(((2, 3, 4),), {"dims": (0, 2)}),
        Sample(((0, 3),), {"dims": (0,)}),
    ),
)


# --- reshape, transpose, expand -------------------------------------------------------------------------------------


def _reshape_rule(x: Meta, *, shape: Shape) -> Rule:
    if math.prod(x.shape) != math.prod(shape):
        raise ShapeError(f"reshape: {x.shape} has {math.prod(x.shape)} elements, {shape} has {math.prod(shape)}")
    left, right, sizes = reshape_space(x.shape, shape)
    return Rule(f"{left} -> {right}", (x.dtype,), carries=((ONE, EXACT),), sizes=sizes)


def reshape_space(old: Shape, new: Shape) -> tuple[str, str, dict[str, int]]:
    """The two sides of a reshape: runs of dimensions with equal products; in each the leading factor both share may
    split (SIG-RESHAPE).

    >>> reshape_space((6, 4), (24,))
    ('a0 [u0_1]', '(a0 s0)', {'a0': 6, 'u0_1': 4, 's0': 4})
    """
    if 0 in old:
        return (
            " ".join(f"[u{i}]" for i in range(len(old))),
            " ".join(f"[s{i}]" for i in range(len(new))),
            {f"s{i}": n for i, n in enumerate(new)},
        )
    left: list[str] = []
    right: list[str] = []
    sizes: dict[str, int] = {}
    for old_run, new_run in runs(old, new):
        _reshape_run(old_run, new_run, left, right, sizes)
    return " ".join(left), " ".join(right), sizes


def runs(old: Shape, new: Shape) -> list[tuple[Shape, Shape]]:
    """The shortest runs of dimensions of `old` and `new` with equal products; those of size 1 pair up."""
    found, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        start_i, start_j = i, j
        a = b = 1
        if i < len(old) and not (old[i] != 1 and j < len(new) and new[j] == 1):
            a, i = old[i], i + 1
        if j < len(new) and not (a == 1 and new[j] != 1):
            b, j = new[j], j + 1
        while a != b:
            if a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        found.append((old[start_i:i], new[start_j:j]))
    return found


def _reshape_run(old: Shape, new: Shape, left: list[str], right: list[str], sizes: dict[str, int]) -> None:
    """Adds one run: the largest common leading factor leads both sides, the rest stays whole (n to n: one letter)."""
    if not old or not new:
        left += ["1"] * len(old)
        right += ["1"] * len(new)
        return
    k = len(sizes)
    lead = math.gcd(old[0], new[0])
    sizes[f"a{k}"] = lead
    for side, dims, letter in ((left, old, "u"), (right, new, "s")):
        for d, n in enumerate(dims):
            rest = f"{letter}{k}" if d == 0 else f"{letter}{k}_{d}"
            if d == 0 and n == lead:
                side.append(f"a{k}")
                continue
            sizes[rest] = n // lead if d == 0 else n
            side.append(f"(a{k} {rest})" if d == 0 else f"[{rest}]")


def _reshape_vjp(node: Node, g: Value) -> list[Value | None]:
    return [reshape(g, shape=node.inputs[0].meta.shape)]


reshape: Primitive = primitive(
    "reshape",
    _reshape_rule,
    vjp=_reshape_vjp,
    local_shape=True,
    doc="the same elements in row-major order under another shape",
    samples=(
        Sample(((6, 4),), {"shape": (24,)}),
        Sample(((8, 6),), {"shape": (4, 2, 6)}),
        Sample(((24,),), {"shape": (4, 6)}),
        Sample(((4, 1, 3),), {"shape": (4, 3)}),
        Sample(((4, 6),), {"shape": (6, 4)}),
    ),
    whole_because="a part of a trailing factor is not a range of the merged dimension",
)


def _transpose_rule(x: Meta, *, perm: Shape) -> Rule:
    if sorted(perm) != list(range(len(x.shape))):
        raise AttributeValueError(f"transpose: perm must be a permutation of 0..{len(x.shape) - 1}, found {perm}")
    letters = names("d", len(perm))
    return Rule(f"{' '.join(letters)} -> {' '.join(letters[p] for p in perm)}", (x.dtype,), carries=((ONE, EXACT),))


def _transpose_vjp(node: Node, g: Value) -> list[Value | None]:
    perm = node.attrs["perm"]
    return [transpose(g, perm=tuple(perm.index(d) for d in range(len(perm))))]


transpose: Primitive = primitive(
    "transpose",
    _transpose_rule,
    vjp=_transpose_vjp,
    doc="dimensions in another order",
    samples=(Sample(((3, 4),), {"perm": (1, 0)}), Sample(((2, 3, 4),), {"perm": (2, 0, 1)})),
)


def swap_last(x: Value) -> Value:
    """The last two dimensions exchanged."""
    n = len(x.meta.shape)
    return transpose(x, perm=(*range(n - 2), n - 1, n - 2))


def _expand_rule(x: Meta, *, shape: Shape) -> Rule:
    extra = len(shape) - len(x.shape)
    if extra < 0 or any(n not in (1, shape[extra + d]) for d, n in enumerate(x.shape)):
        raise ShapeError(f"expand: {x.shape} does not broadcast to {shape}")
    letters = names("d", len(shape))
    left = [a if n == shape[extra + d] else "1" for d, (a, n) in enumerate(zip(letters[extra:], x.shape, strict=True))]
    return Rule(
        f"{' '.join(left)} -> {' '.join(letters)}",
        (x.dtype,),
        carries=((ONE, EXACT),),
        sizes=dict(zip(letters, shape, strict=True)),
    )


def _expand_vjp(node: Node, g: Value) -> list[Value | None]:
    return [sum_to(g, node.inputs[0])]


expand: Primitive = primitive(
    "expand",
    _expand_rule,
    vjp=_expand_vjp,
    local_shape=True,
    doc="size-1 and missing leading dimensions repeated",
    samples=(
        Sample(((3, 1),), {"shape": (3, 4)}),
        Sample(((4,),), {"shape": (2, 3, 4)}),
        Sample(((),), {"shape": (3,)}),
    ),
)


# --- windows --------------------------------------------------------------------------------------------------------


def window_count(name: str, size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How many windows fit; `ShapeError` if none does."""
    if kernel < 1 or stride < 1 or padding < 0 or dilation < 1:
        raise AttributeValueError(
            f"{name}: needs kernel, stride, dilation >= 1 and padding >= 0, found {kernel}, {stride}, {dilation}, {padding}"
        )
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    if room < 0:
        raise ShapeError(
            f"{name}: a window of {kernel} (dilation {dilation}) does not fit into {size} (padding {padding})"
        )
    return room // stride + 1


Pair = tuple[int, int]


def window_counts(name: str, size: Shape, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Pair:
    """`window_count` for rows and columns."""
    rows, columns = (window_count(name, *row) for row in zip(size, kernel, stride, padding, dilation, strict=True))
    return rows, columns


def keeps_sum(value: float, dtype: np.dtype[Any]) -> bool:
    """Whether a fill value folded with itself by any of sum, max, min is itself: then P carries exactly (SIG-PAD)."""
    with np.errstate(all="ignore"):
        filler = cast(np.asarray(value), dtype)
        return same_bits(fold_parts([filler, filler], "sum"), filler)


def _unfold_rule(x: Meta, *, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, value: float) -> Rule:
    if len(x.shape) != 4:
        raise ShapeError(f"unfold2d: needs (n, c, y, x), found shape {x.shape}")
    p, q = window_counts("unfold2d", x.shape[2:], kernel, stride, padding, dilation)
    sizes = {"p": p, "q": q, "i": kernel[0], "j": kernel[1]}
    carry = EXACT if keeps_sum(value, x.dtype) or not any(padding) else MONOTONE
    return Rule("n c [y x] -> n c [p q i j]", (x.dtype,), carries=((ONE, carry),), sizes=sizes)


def _unfold_vjp(node: Node, g: Value) -> list[Value | None]:
    attrs = {k: v for k, v in node.attrs.items() if k != "value"}
    return [fold2d(g, size=node.inputs[0].meta.shape[2:], **attrs)]


_WINDOW = {"kernel": (2, 2), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
unfold2d: Primitive = primitive(
    "unfold2d",
    _unfold_rule,
    vjp=_unfold_vjp,
    doc="the windows of (n, c, y, x) as (n, c, p, q, i, j)",
    samples=(
        Sample(((3, 4, 4, 3),), {**_WINDOW, "value": 0.0}),
        Sample(((2, 2, 5, 5),), {**_WINDOW, "stride": (2, 2), "padding": (1, 1), "value": -math.inf}),
    ),
    whole_because="windows overlap: a part of the rows does not hold its own windows",
)


def _fold_rule(g: Meta, *, size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Rule:
    counts = window_counts("fold2d", size, kernel, stride, padding, dilation)
    if len(g.shape) != 6 or g.shape[2:] != (*counts, *kernel):
        raise ShapeError(
            f"fold2d: needs windows (n, c, {counts[0]}, {counts[1]}, {kernel[0]}, {kernel[1]}), found shape {g.shape}"
        )
    return Rule("n c [p q i j] -> n c [y x]", (g.dtype,), carries=((ONE, LINEAR),), sizes={"y": size[0], "x": size[1]})


def _fold_vjp(node: Node, g: Value) -> list[Value | None]:
    attrs = {k: v for k, v in node.attrs.items() if k != "size"}
    return [unfold2d(g, value=0.0, **attrs)]


fold2d: Primitive = primitive(
    "fold2d",
    _fold_rule,
    vjp=_fold_vjp,
    doc="the transpose of unfold2d: overlapping windows add by the tree over (p, q)",
    samples=(Sample(((3, 4, 3, 2, 2, 2),), {**_WINDOW, "size": (4, 3)}),),
    whole_because="windows overlap",
)
