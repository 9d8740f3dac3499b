"""Indexing by tensors: index_select (embedding), gather, their transposes, one_hot.

Implements the indexing chapter of spec/text/primitives.md (OPS-INDEXING).  Where the indexed dimension is split, each
rank answers for the indices it holds and gives the identity for the rest: at most one real term, so the fold is exact
for any split.
"""

from __future__ import annotations

from ..errors import AttributeValueError, DtypeError, ShapeError
from ..ir import EXACT, LINEAR, Meta, Node, Primitive, Rule, Sample, Value, names, primitive
from ..ir.primitive import Fold
from ..numerics import bool_, int64, is_integer

Shape = tuple[int, ...]


def _check(name: str, index: Meta, dim: int, ndim: int) -> None:
    if not is_integer(index.dtype):
        raise DtypeError(f"{name}: the index must be an integer tensor, found {index.dtype.name}")
    if not 0 <= dim < ndim:
        raise AttributeValueError(f"{name}: dim must be in [0, {ndim}), found {dim}")


def _one(x: Meta) -> Fold:
    """The fold of "at most one real term": a sum over numbers, an or over bools."""
    return "max" if x.dtype == bool_ else "one"


def _index_select_rule(x: Meta, index: Meta, *, dim: int) -> Rule:
    _check("index_select", index, dim, len(x.shape))
    letters = names("d", len(x.shape))
    at = names("i", len(index.shape))
    side = [a if d != dim else "v@" for d, a in enumerate(letters)]
    out = [*letters[:dim], *at, *letters[dim + 1 :]]
    space = f"{' '.join(side)}, {' '.join(at)} -> {' '.join(out)}"
    return Rule(space, (x.dtype,), over="v", fold=_one(x), carries=(((0,), EXACT),))


def _index_select_vjp(node: Node, g: Value) -> list[Value | None]:
    x, index = node.inputs
    dim = node.attrs["dim"]
    return [index_add(index, g, dim=dim, size=x.meta.shape[dim]), None]


index_select: Primitive = primitive(
    "index_select",
    _index_select_rule,
    vjp=_index_select_vjp,
    checked=True,
    doc="x at `index` along dim; the index may have any shape",
    samples=(
        Sample(((5, 3), (2, 4)), {"dim": 0}, ("", "int64"), {1: 5}),
        Sample(((3, 5), (4,)), {"dim": 1}, ("", "int64"), {1: 5}),
    ),
)


def _index_add_rule(index: Meta, src: Meta, *, dim: int, size: int) -> Rule:
    n = len(index.shape)
    _check("index_add", index, dim, len(src.shape) - n + 1)
    letters = names("d", len(src.shape) - n + 1)
    at = names("i", n)
    left = [*letters[:dim], *at, *letters[dim + 1 :]]
    out = [a if d != dim else "v@" for d, a in enumerate(letters)]
    space = f"{' '.join(at)}, {' '.join(left)} -> {' '.join(out)}"
    return Rule(space, (src.dtype,), over=" ".join(at), fold="sum", carries=(((1,), LINEAR),), sizes={"v": size})


def _index_add_vjp(node: Node, g: Value) -> list[Value | None]:
    return [None, index_select(g, node.inputs[0], dim=node.attrs["dim"])]


index_add: Primitive = primitive(
    "index_add",
    _index_add_rule,
    vjp=_index_add_vjp,
    checked=True,
    doc="the transpose of index_select: the tree over the flat index positions of what goes to each place",
    samples=(
        Sample(((6,), (6, 3)), {"dim": 0, "size": 4}, ("int64", ""), {0: 4}),
        Sample(((2, 4), (3, 2, 4)), {"dim": 1, "size": 5}, ("int64", ""), {0: 5}),
    ),
)


def _along(name: str, data: Meta, index: Meta, dim: int) -> list[str]:
    """The letters of the dimensions data and index share; "" at `dim`."""
    _check(name, index, dim, len(data.shape))
    if len(data.shape) != len(index.shape) or any(
        a != b for d, (a, b) in enumerate(zip(data.shape, index.shape, strict=True)) if d != dim
    ):
        raise ShapeError(f"{name}: data {data.shape} and index {index.shape} must agree outside dim {dim}")
    return ["" if d == dim else f"d{d}" for d in range(len(data.shape))]


def _gather_rule(x: Meta, index: Meta, *, dim: int) -> Rule:
    letters = _along("gather", x, index, dim)
    side, at = (" ".join(a or own for a in letters) for own in ("v@", "j"))
    return Rule(f"{side}, {at} -> {at}", (x.dtype,), over="v", fold=_one(x), carries=(((0,), EXACT),))


def _gather_vjp(node: Node, g: Value) -> list[Value | None]:
    x, index = node.inputs
    dim = node.attrs["dim"]
    return [scatter_add(index, g, dim=dim, size=x.meta.shape[dim]), None]


gather: Primitive = primitive(
    "gather",
    _gather_rule,
    vjp=_gather_vjp,
    checked=True,
    doc="x[.., index[.., j, ..], ..] along dim",
    samples=(
        Sample(((5, 3), (4, 3)), {"dim": 0}, ("", "int64"), {1: 5}),
        Sample(((3, 5), (3, 2)), {"dim": 1}, ("", "int64"), {1: 5}),
    ),
)


def _scatter_add_rule(index: Meta, src: Meta, *, dim: int, size: int) -> Rule:
    if index.shape != src.shape:
        raise ShapeError(f"scatter_add: index {index.shape} and source {src.shape} must have one shape")
    letters = _along("scatter_add", src, index, dim)
    at, out = (" ".join(a or own for a in letters) for own in ("j", "v@"))
    return Rule(
        f"{at}, {at} -> {out}", (src.dtype,), over="j", fold="sum", carries=(((1,), LINEAR),), sizes={"v": size}
    )


def _scatter_add_vjp(node: Node, g: Value) -> list[Value | None]:
    return [None, gather(g, node.inputs[0], dim=node.attrs["dim"])]


scatter_add: Primitive = primitive(
    "scatter_add",
    _scatter_add_rule,
    vjp=_scatter_add_vjp,
    checked=True,
    doc="the transpose of gather: the tree over the source index of what goes to each place",
    samples=(Sample(((6, 3), (6, 3)), {"dim": 0, "size": 4}, ("int64", ""), {0: 4}),),
)


def _one_hot_rule(index: Meta, *, num_classes: int) -> Rule:
    _check("one_hot", index, 0, 1)
    if num_classes < 1:
        raise AttributeValueError(f"one_hot: num_classes must be >= 1, found {num_classes}")
    letters = " ".join(names("i", len(index.shape)))
    return Rule(f"{letters} -> {letters} v@", (int64,), sizes={"v": num_classes})


one_hot: Primitive = primitive(
    "one_hot",
    _one_hot_rule,
    checked=True,
    doc="1 where the class equals the index, else 0",
    samples=(
        Sample(((5,),), {"num_classes": 4}, ("int64",), {0: 4}),
        Sample(((2, 3),), {"num_classes": 6}, ("int64",), {0: 6}),
    ),
)
