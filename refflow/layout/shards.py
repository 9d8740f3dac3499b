"""Shards: which box of the logical index space each rank holds.

Implements LAY-BALANCED, LAY-ND-SPLIT and LAY-INDEX of spec/text/layout.md.  A box is one (lo, hi) pair per dimension;
empty boxes are legal.  P and B do not cut: a rank under them holds the same box as its neighbours on that axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from .placement import Placement
from .sbp import NdSbp, Partial, Split

Range = tuple[int, int]
Box = tuple[Range, ...]


def balanced(lo: int, hi: int, parts: int) -> tuple[int, ...]:
    """The `parts` + 1 offsets that cut [lo, hi): the first (n mod p) parts get ceil(n / p) (LAY-BALANCED).

    >>> balanced(0, 7, 4)
    (0, 2, 4, 6, 7)
    """
    size, extra = divmod(hi - lo, parts)
    return tuple(lo + i * size + min(i, extra) for i in range(parts + 1))


def cut(bounds: Range, parts: int, position: int) -> Range:
    """Part `position` of the balanced cut of a range into `parts`."""
    offsets = balanced(*bounds, parts)
    return offsets[position], offsets[position + 1]


@lru_cache(maxsize=65536)
def boxes(shape: tuple[int, ...], placement: Placement, sbp: NdSbp) -> Mapping[int, Box]:
    """rank -> the box it holds, in mesh order: mesh axes left to right, each cuts what the last left (LAY-ND-SPLIT)."""
    made: list[Box] = [tuple((0, n) for n in shape)]
    for parts, one in zip(placement.mesh, sbp, strict=True):
        if isinstance(one, Split):
            made = [part for box in made for part in _parts(box, one.axis, parts)]
        else:
            made = [box for box in made for _ in range(parts)]
    return dict(zip(placement, made, strict=True))


def _parts(box: Box, axis: int, parts: int) -> list[Box]:
    """The balanced cut of a box along one dimension."""
    offsets = balanced(*box[axis], parts)
    return [(*box[:axis], (offsets[i], offsets[i + 1]), *box[axis + 1 :]) for i in range(parts)]


def box_shape(box: Box) -> tuple[int, ...]:
    """The local shape of a box."""
    return tuple([hi - lo for lo, hi in box])


def volume(box: Box) -> int:
    """The number of elements in a box."""
    return math.prod(hi - lo for lo, hi in box)


def intersect(a: Box, b: Box) -> Box | None:
    """The common part of two boxes, or None where it is empty."""
    both = tuple([(max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True)])
    return both if all(lo < hi for lo, hi in both) else None


def within(inner: Box, outer: Box) -> tuple[slice, ...]:
    """The slices that take `inner` out of an array that holds `outer`."""
    return tuple([slice(lo - o, hi - o) for (lo, hi), (o, _) in zip(inner, outer, strict=True)])


def partial_axes(sbp: NdSbp) -> tuple[int, ...]:
    """The mesh axes on which `sbp` is partial."""
    return tuple(i for i, one in enumerate(sbp) if isinstance(one, Partial))


def locate(
    index: Sequence[int], shape: tuple[int, ...], placement: Placement, sbp: NdSbp
) -> list[tuple[int, tuple[int, ...]]]:
    """Every (rank, local index) that holds the logical `index` (LAY-INDEX); several under B and P."""
    held = []
    for rank, box in boxes(shape, placement, sbp).items():
        if all(lo <= i < hi for i, (lo, hi) in zip(index, box, strict=True)):
            held.append((rank, tuple(i - lo for i, (lo, _) in zip(index, box, strict=True))))
    return held
