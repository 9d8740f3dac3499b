"""What each rank holds of a tensor, as two-dimensional boxes and in words.

Implements PIC-LAYOUT of spec/text/pictures.md, on the boxes of refflow/layout.  A tensor of more than two dimensions is
drawn by its first two, one of fewer as a single row; the words name every dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..layout import Box, Broadcast, NdSbp, Partial, Placement, Range, Split, boxes, volume

Region = tuple[Range, Range]  # rows, columns


def flat_region(box: Box) -> Region:
    """The rows and columns at which a box is drawn."""
    if len(box) >= 2:
        return box[0], box[1]
    return (0, 1), box[0] if box else (0, 1)


def drawn_shape(shape: Sequence[int]) -> tuple[int, int]:
    """The rows and columns of the drawing of a whole tensor."""
    (_, rows), (_, columns) = flat_region(tuple((0, n) for n in shape))
    return rows, columns


def slices(box: Box) -> str:
    """A box as Python writes it: ``[0:2, 0:6]``."""
    return f"[{', '.join(f'{lo}:{hi}' for lo, hi in box)}]" if box else "the one element"


def regions(shape: tuple[int, ...], placement: Placement, sbp: NdSbp) -> dict[Region, str]:
    """The parts a logical tensor is drawn in, each with the expression that says who holds it.

    ``0 = 1``: equal bits on ranks 0 and 1.  ``0 + 1``, ``max(0, 1)``: the logical value is the fold of what they hold.
    ``0 | 1``: they hold parts of a dimension that is not drawn.
    """
    held = {rank: flat_region(box) for rank, box in boxes(shape, placement, sbp).items() if volume(box)}
    return {region: _expression(region, held, placement, sbp, ())[0] for region in dict.fromkeys(held.values())}


def _expression(
    region: Region, held: Mapping[int, Region], placement: Placement, sbp: NdSbp, coords: tuple[int, ...]
) -> tuple[str, bool]:  # fmt: skip
    """Who holds a region among the ranks that start with `coords`, and whether that needs brackets."""
    axis = len(coords)
    if axis == placement.ndim:
        rank = placement.rank_at(coords)
        return (str(rank) if held.get(rank) == region else ""), False
    inner = [_expression(region, held, placement, sbp, (*coords, i)) for i in range(placement.mesh[axis])]
    found = [(text, compound) for text, compound in inner if text]
    if len(found) < 2:
        return found[0] if found else ("", False)
    one = sbp[axis]
    if isinstance(one, Partial) and one.kind != "sum":
        return f"{one.kind}({', '.join(text for text, _ in found)})", False
    sign = " = " if isinstance(one, Broadcast) else " + " if isinstance(one, Partial) else " | "
    return sign.join(f"({text})" if compound else text for text, compound in found), True


def note(rank: int, placement: Placement, sbp: NdSbp) -> str:
    """In words: which addend a rank holds, and of whom it is a copy."""
    coords = placement.coords(rank)
    partial = [a for a, one in enumerate(sbp) if isinstance(one, Partial) and placement.mesh[a] > 1]
    copied = [a for a, one in enumerate(sbp) if isinstance(one, Broadcast) and placement.mesh[a] > 1]
    words = []
    if partial:
        position, count = 0, 1
        for a in partial:
            position, count = position * placement.mesh[a] + coords[a], count * placement.mesh[a]
        term = "addend" if all(sbp[a] == Partial("sum") for a in partial) else "term"
        words.append(f"{term} {position + 1} of {count}")
    if copied:
        first = placement.rank_at([0 if a in copied else c for a, c in enumerate(coords)])
        words.append("copied below" if first == rank else f"copy of rank {first}")
    return ", ".join(words).replace("copied below", "the first copy")


def sentence(axis: int, shape: tuple[int, ...], placement: Placement, sbp: NdSbp) -> str:
    """What the sbp of one mesh axis means, in words."""
    one, parts = sbp[axis], placement.mesh[axis]
    where = f"mesh axis {axis}, {one}: " if placement.ndim > 1 else f"{one}: "
    if parts == 1:
        return f"{where}one rank holds all there is"
    if isinstance(one, Split):
        what = {0: "the rows are", 1: "the columns are"}.get(one.axis, f"dimension {one.axis} is") if len(shape) > 1 else "it is"
        return f"{where}{what} cut into {parts} parts, one per rank, sizes as equal as can be"
    if isinstance(one, Broadcast):
        return f"{where}each of {parts} ranks holds all of it, with equal bits"
    fold = {"sum": "sum", "max": "maximum", "min": "minimum"}[one.kind]
    return f"{where}each of {parts} ranks holds a {'term' if fold != 'sum' else 'whole addend'}; the value is their {fold}"


def kind_of(x: Any) -> str:
    """``float32, shape (8, 6)`` of a tensor, ``shape (8, 6)`` of a shape."""
    return f"{x.dtype.name}, shape {x.shape}" if hasattr(x, "dtype") else f"shape {tuple(x)}"
