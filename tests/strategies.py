"""What the tests draw from: meshes, placements, layouts, arrays; and plain definitions of scatter and gather.

`scatter` and `gather` say again, as simply as can be, what refflow/layout and refflow/boxing define: mesh axes cut from
left to right, each what the last one left, and are put together from right to left; P is a plain recursive tree over
position.  A law compares the two.  Data come from a drawn seed: arrays themselves would not shrink to anything useful.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

import refflow as flow
from refflow.ir import Meta, Primitive, Value
from refflow.layout import Broadcast, NdSbp, Partial, Placement, Sbp, Split, broadcast

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Shards = Mapping[int, Array]

WORLD = 8
ROWS: tuple[Shape, ...] = ((2,), (3,), (4,))
GRIDS: tuple[Shape, ...] = ((2, 2), (2, 3), (2, 2, 2))
MESHES: tuple[Shape, ...] = ((1,), *ROWS, *GRIDS)
KINDS = ("sum", "max", "min")
LATTICE = ("max", "min")  # all that bools have
ONE = Placement("cpu", [0])


def examples(count: int) -> Any:
    """`count` examples in the default profile, in proportion in others."""
    return settings(max_examples=max(1, count * settings.default.max_examples // 25))


# --- layouts --------------------------------------------------------------------------------------------------------


def mesh_of(mesh: Shape, ranks: Sequence[int] | None = None) -> Placement:
    """A placement of this mesh: ranks 0, 1, … in row-major order unless others are given."""
    flat = range(math.prod(mesh)) if ranks is None else ranks
    return Placement("cpu", np.array(flat[: math.prod(mesh)]).reshape(mesh))


def placements(meshes: Sequence[Shape] = MESHES) -> st.SearchStrategy[Placement]:
    """Placements on some of the `WORLD` ranks, in any order."""
    orders = st.one_of(st.just(list(range(WORLD))), st.permutations(range(WORLD)))
    return st.builds(mesh_of, st.sampled_from(meshes), orders)


def every_sbp(ndim: int, kinds: Sequence[str] = KINDS) -> list[Sbp]:
    """B, each S, each P that a tensor of `ndim` dimensions may have along one mesh axis."""
    return [broadcast, *map(Split, range(ndim)), *(Partial(kind) for kind in kinds)]  # type: ignore[arg-type]


def sbps(placement: Placement, ndim: int, kinds: Sequence[str] = KINDS) -> st.SearchStrategy[NdSbp]:
    """One sbp per mesh axis."""
    return st.tuples(*[st.sampled_from(every_sbp(ndim, kinds))] * placement.ndim)


def shapes(min_dims: int = 0, max_dims: int = 3, max_size: int = 9) -> st.SearchStrategy[Shape]:
    """Shapes with uneven and empty dimensions, and 0-d."""
    return st.lists(st.integers(0, max_size), min_size=min_dims, max_size=max_dims).map(tuple)


seeds = st.integers(0, 2**32 - 1)


# --- data -----------------------------------------------------------------------------------------------------------

Draw = Callable[[Shape], Array]


def exact(rng: np.random.Generator, shape: Shape, dtype: Any) -> Array:
    """Small multiples of one power of two: every sum and product of a few of them is exact, in any order."""
    dtype = np.dtype(dtype)
    whole = rng.integers(-6, 7, shape)
    if dtype.kind == "b":
        return np.asarray(whole > 0)
    if dtype.kind in "iu":
        return np.asarray(whole if dtype.kind == "i" else abs(whole)).astype(dtype)
    return np.asarray(whole * 2.0 ** rng.integers(-2, 2)).astype(dtype)


def arbitrary(rng: np.random.Generator, shape: Shape, dtype: Any, specials: float | None = None) -> Array:
    """Any values: floats of all sizes, many of which cancel, and a share of `specials` (by default often none)."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape) == 1)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        wide = rng.integers(ends.min, ends.max, shape, dtype=dtype, endpoint=True)
        return np.asarray(np.where(rng.random(shape) < 0.7, rng.integers(0, 9, shape).astype(dtype), wide))
    if specials is None:
        specials = float(rng.choice([0.0, 0.0, 0.15]))
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 7, shape)
    again = rng.integers(0, max(x.size, 1), shape)
    x = np.where(rng.random(shape) < 0.25, -x.ravel()[again] if x.size else x, x)  # what cancels shows the order
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < specials, rng.choice(special_values(dtype), shape), x.astype(dtype))


def special_values(dtype: Any) -> Array:
    """NaN, infinities, zeros, the least subnormal and the largest number, of either sign, and ones."""
    ends = ml_dtypes.finfo(dtype)
    tiny, huge = float(ends.smallest_subnormal), float(ends.max)
    return np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, huge, -huge, 1.0, -1.0]).astype(dtype)


# --- plain definitions ----------------------------------------------------------------------------------------------


def cut(array: Array, axis: int, parts: int, position: int) -> Array:
    """The part at `position` of the balanced split: the first n mod p parts have one element more."""
    n = array.shape[axis]
    sizes = [n // parts + (i < n % parts) for i in range(parts)]
    return array[(slice(None),) * axis + (slice(sum(sizes[:position]), sum(sizes[: position + 1])),)]


def tree(parts: Sequence[Array], kind: str) -> Array:
    """node(first ceil(n/2)) + node(rest), plainly; 16-bit sums are made in float32 and rounded once."""
    if len(parts) > 1 and parts[0].dtype.itemsize == 2 and kind == "sum":
        with np.errstate(all="ignore"):
            return tree([part.astype(np.float32) for part in parts], kind).astype(parts[0].dtype)
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    x, y = tree(parts[:half], kind), tree(parts[half:], kind)
    with np.errstate(all="ignore"):
        if kind == "sum":
            return np.asarray(np.add(x, y))
        return np.asarray(flow.numerics.maximum(x, y) if kind == "max" else flow.numerics.minimum(x, y))


def partial_keys(placement: Placement, sbp: NdSbp) -> Iterator[Shape]:
    """The coordinates, along the P axes only, that tell one addend from another."""
    sizes = [size for size, one in zip(placement.mesh, sbp) if isinstance(one, Partial)]
    return itertools.product(*map(range, sizes))


def scatter(addends: Mapping[Shape, Array], placement: Placement, sbp: NdSbp) -> dict[int, Array]:
    """What each rank holds of the addends (one, under the key (), if there is no P)."""
    shards = {}
    for coords, rank in zip(itertools.product(*map(range, placement.mesh)), placement.ranks):
        x = addends[tuple(c for c, one in zip(coords, sbp) if isinstance(one, Partial))]
        for size, position, one in zip(placement.mesh, coords, sbp):
            if isinstance(one, Split):
                x = cut(x, one.axis, size, position)
        shards[rank] = x
    return shards


def gather(shards: Shards, placement: Placement, sbp: NdSbp) -> Array:
    """The logical array of what the ranks hold; an assertion if replicas differ in a bit."""
    parts = [np.asarray(shards[rank]) for rank in placement.ranks]
    for size, one in reversed(list(zip(placement.mesh, sbp))):
        rows = [parts[i : i + size] for i in range(0, len(parts), size)]
        parts = [_join(row, one) for row in rows]
    return parts[0]


def _join(row: Sequence[Array], one: Sbp) -> Array:
    if isinstance(one, Broadcast):
        assert all(flow.same_bits(part, row[0]) for part in row), f"replicas differ: {row}"
        return row[0]
    if isinstance(one, Split):
        sizes = [part.shape[one.axis] for part in row]
        total = sum(sizes)
        assert sizes == [total // len(row) + (i < total % len(row)) for i in range(len(row))], f"not balanced: {sizes}"
        return np.concatenate(row, axis=one.axis)
    return tree(row, one.kind)


def global_from(draw: Draw, shape: Shape, placement: Placement, sbp: NdSbp) -> tuple[Value, Array]:
    """A value in this layout and the logical array it stands for; every addend of a P is dense, drawn for itself."""
    addends = {key: draw(shape) for key in partial_keys(placement, sbp)}
    shards = scatter(addends, placement, sbp)
    logical = gather(shards, placement, sbp)
    return Value(Meta(shape, logical.dtype, placement, sbp), shards), logical


def given_array(array: Array) -> Draw:
    """The draw that always gives `array`; for layouts without P."""
    return lambda shape: array


def logical(value: Value) -> Array:
    """The logical array of a global value, by the plain definition."""
    assert value.meta.placement is not None and value.meta.sbp is not None
    whole = gather(value.shards, value.meta.placement, value.meta.sbp)
    assert (whole.shape, whole.dtype) == (value.meta.shape, value.meta.dtype), (
        f"{whole.shape} {whole.dtype}, {value.meta}"
    )
    return whole


def whole_value(array: Array) -> Value:
    """`array` on one rank."""
    return Value(Meta(array.shape, array.dtype, ONE, (broadcast,)), {0: array})


def run_whole(primitive: Primitive, arrays: Sequence[Array], attrs: Mapping[str, Any]) -> Array:
    """What `primitive` gives on one rank."""
    where: dict[str, Any] = {} if arrays else {"placement": ONE, "sbp": (broadcast,)}
    return logical(primitive(*map(whole_value, arrays), **attrs, **where))
