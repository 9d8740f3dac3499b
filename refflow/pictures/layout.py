"""The layout of a global tensor: the whole in the colours of its ranks, and what each rank holds.

Implements PIC-LAYOUT of spec/text/pictures.md.  Small tensors are drawn with their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..boxing import format_sbp
from ..errors import PlacementError
from ..layout import Box, NdSbp, Partial, Placement, box_shape, boxes, normalize, volume
from ..state import settings
from ..tensor.logical import check_ranks
from ..tensor.tensor import Tensor
from .ink import FAINT, RULE, Drawing, Rect, colour, mixed, tint, width_of
from .parts import Region, drawn_shape, flat_region, kind_of, note, regions, sentence, slices
from .picture import Picture

Arrays = Mapping[int, np.ndarray[Any, Any]]
NUMBERS = 8  # tensors of at most so many rows and columns are drawn with their numbers


def draw_layout(x: Any, placement: Placement | None = None, sbp: Any = None) -> Picture:
    """A picture of which rank holds what of `x`.

    Args: `x` a global tensor, or a shape; `placement` and `sbp` needed with a shape, with a tensor another layout than
    its own.  A tensor in its own layout is drawn with its numbers if it is small (a collective of the world).
    Errors: `LocalGlobalError`, `SbpError`, `PlacementError`.  Source: PIC-LAYOUT.

    >>> import refflow as flow
    >>> print(flow.draw_layout((5, 6), flow.placement("cpu", [0, 1, 2, 3]), flow.sbp.split(0)))
    shape (5, 6): S(0) on placement("cpu", [0, 1, 2, 3])
      S(0): the rows are cut into 4 parts, one per rank, sizes as equal as can be
    <BLANKLINE>
        0   6
      0 +---+
        | 0 |
      2 +---+
        | 1 |
      3 +---+
        | 2 |
      4 +---+
        | 3 |
      5 +---+
    <BLANKLINE>
      rank 0  [0:2, 0:6]
      rank 1  [2:3, 0:6]
      rank 2  [3:4, 0:6]
      rank 3  [4:5, 0:6]
    """
    return Picture(layout_svg(x, placement, sbp), layout_text(x, placement, sbp))


def layout_text(x: Any, placement: Placement | None = None, sbp: Any = None) -> str:
    """`draw_layout` as text."""
    shape, where, nd_sbp = _layout_of(x, placement, sbp)
    lines = [_title(x, where, nd_sbp)]
    lines += [f"  {sentence(axis, shape, where, nd_sbp)}" for axis in range(where.ndim)]
    lines += ["", *(f"  {line}" for line in _grid_text(shape, where, nd_sbp)), ""]
    for rank, box in boxes(shape, where, nd_sbp).items():
        words = note(rank, where, nd_sbp) if volume(box) else "holds nothing"
        lines.append(f"  rank {rank}  {slices(box)}{f'   {words}' if words else ''}")
    return "\n".join(lines)


def _title(x: Any, placement: Placement, sbp: NdSbp) -> str:
    return f"{kind_of(x)}: {format_sbp(sbp)} on {placement}"


def _layout_of(x: Any, placement: Placement | None, sbp: Any) -> tuple[tuple[int, ...], Placement, NdSbp]:
    if isinstance(x, Tensor):
        shape, where = x.shape, placement or x.placement
        sbp = x.sbp if sbp is None else sbp
        check_ranks("draw_layout", where)
    else:
        shape = tuple(int(n) for n in x)
        if not isinstance(placement, Placement):
            raise PlacementError(f"draw_layout: a shape needs a placement and an sbp, found {placement!r}")
        where = placement
    return shape, where, normalize(sbp, where.mesh, shape, "draw_layout")


def _grid_text(shape: tuple[int, ...], placement: Placement, sbp: NdSbp) -> list[str]:
    """The regions as boxes of characters, with the bounds at the sides."""
    found = regions(shape, placement, sbp)
    if not found:
        return ["(no elements)"]
    rows, columns = (sorted({region[d] for region in found}) for d in (0, 1))
    widths = [max(len(found.get((r, c), "")) + 2 for r in rows) for c in columns]
    widths = [max(width, len(str(lo)) + 2) for width, (lo, _) in zip(widths, columns)]
    edge = max(len(str(hi)) for _, hi in rows)
    header = " " * (edge + 1) + "".join(str(lo).ljust(w + 1) for w, (lo, _) in zip(widths, columns)) + str(columns[-1][1])
    rule = "+" + "+".join("-" * w for w in widths) + "+"
    lines = [header, f"{rows[0][0]:>{edge}} {rule}"]
    for row in rows:
        cells = "|".join(found.get((row, c), "").center(w) for w, c in zip(widths, columns))
        lines += [f"{'':{edge}} |{cells}|", f"{row[1]:>{edge}} {rule}"]
    return lines


# --- the drawing ----------------------------------------------------------------------------------------------------


class Frame:
    """Where the cells of a matrix of some rows and columns are drawn, and how large."""

    def __init__(self, shape: tuple[int, ...], most: tuple[float, float], cell: tuple[float, float], least: float = 44) -> None:
        self.rows, self.columns = drawn_shape(shape)
        self.width = min(max(self.columns * cell[0], least), most[0])
        self.height = min(max(self.rows * cell[1], least / 2), most[1])
        self.lined = self.rows <= 16 and self.columns <= 16 and self.width >= 7 * self.columns and self.height >= 7 * self.rows

    def rect(self, x: float, y: float, region: Region) -> Rect:
        """The rectangle of some rows and columns, in a frame drawn at (x, y)."""
        (r0, r1), (c0, c1) = region
        across, down = self.width / max(self.columns, 1), self.height / max(self.rows, 1)
        return x + c0 * across, y + r0 * down, (c1 - c0) * across, (r1 - r0) * down

    def outline(self, drawing: Drawing, x: float, y: float) -> None:
        """The empty matrix."""
        drawing.rect((x, y, self.width, self.height), "#FFFFFF", RULE, dashes="3 3")

    def cells(self, drawing: Drawing, x: float, y: float, region: Region, stroke: str) -> None:
        """The lines between the cells of a region."""
        (r0, r1), (c0, c1) = region
        left, top, width, height = self.rect(x, y, region)
        if self.lined:
            for r in range(r0 + 1, r1):
                at = top + (r - r0) * height / (r1 - r0)
                drawing.line((left, at), (left + width, at), stroke, 0.7)
            for c in range(c0 + 1, c1):
                at = left + (c - c0) * width / (c1 - c0)
                drawing.line((at, top), (at, top + height), stroke, 0.7)


def holding(
    drawing: Drawing, frame: Frame, x: float, y: float, rank: int, box: Box, partial: bool, pieces: Sequence[tuple[int, Box]] = ()
) -> None:  # fmt: skip
    """What one rank holds, inside the outline of the whole, in its colour or its `pieces` in those of their ranks;
    hatched if it is an addend.
    """
    frame.outline(drawing, x, y)
    if not volume(box):
        return
    region = flat_region(box)
    rect = frame.rect(x, y, region)
    for source, part in pieces:
        drawing.rect(frame.rect(x, y, flat_region(part)), tint(source))
    if partial:
        drawing.hatch(rect, mixed(colour(rank), "#FFFFFF", 0.25))
    frame.cells(drawing, x, y, region, mixed(colour(rank), "#FFFFFF", 0.3))
    drawing.rect(rect, "none", colour(rank), 2)


def whole(drawing: Drawing, frame: Frame, x: float, y: float, shape: tuple[int, ...], placement: Placement, sbp: NdSbp) -> None:
    """The logical tensor: each part in the colour of the rank that holds it, or within one frame per rank where several
    do, with the expression that says how.
    """
    frame.outline(drawing, x, y)
    held = {rank: flat_region(box) for rank, box in boxes(shape, placement, sbp).items() if volume(box)}
    partial = any(isinstance(one, Partial) for one in sbp)
    for region, expression in regions(shape, placement, sbp).items():
        left, top, width, height = rect = frame.rect(x, y, region)
        ranks = [rank for rank in held if held[rank] == region]
        drawing.rect(rect, tint(ranks[0]) if len(ranks) == 1 else "#FFFFFF")
        if partial:
            drawing.hatch(rect, mixed(colour(ranks[0]), "#FFFFFF", 0.25) if len(ranks) == 1 else RULE)
        frame.cells(drawing, x, y, region, "#FFFFFF" if len(ranks) == 1 else mixed(RULE, "#FFFFFF", 0.6))
        inset = min(3.0, min(width, height) / (3 * len(ranks)))
        for i, rank in enumerate(ranks):
            d = (i + 0.5) * inset
            drawing.rect((left + d, top + d, width - 2 * d, height - 2 * d), "none", colour(rank), max(inset - 0.8, 0.8))
        size = _fitting(expression, width - 2 * len(ranks) * inset, height - 2 * len(ranks) * inset)
        if size < 8:
            expression = _shortened(expression)
            size = _fitting(expression, width, height)
        if size >= 6:
            ground = tint(ranks[0]) if len(ranks) == 1 else "#FFFFFF"
            drawing.text(left + width / 2, top + height / 2 + size * 0.36, expression, size, at="middle", bold=True, ground=ground)


def _fitting(words: str, width: float, height: float) -> float:
    """The font size, at most 13, at which a line fits."""
    return min(13.0, 0.92 * height, 13 * width / (width_of(words, 13) + 8))


def _shortened(expression: str) -> str:
    """``0 = 1 = 2 = 3`` as ``0 = … = 3``."""
    for sign in (" = ", " + ", " | ", ", "):
        terms = expression.split(sign)
        if len(terms) > 2 and "(" not in expression.strip("maxin()"):
            return f"{terms[0]}{sign}…{sign}{terms[-1]}"
    return "…" if len(expression) > 9 else expression


def _legend(found: Iterable[str]) -> str:
    """How to read the expressions in the picture of the whole."""
    signs = {"=": "a = b: equal bits", "+": "a + b: addends", "(": "max, min: terms", "|": "a | b: parts of a dimension not drawn"}
    used = [words for sign, words in signs.items() if any(sign in text for text in found) and (sign != "(" or any("m" in t for t in found))]
    return " · ".join(["numbers: ranks", *used])


def layout_svg(x: Any, placement: Placement | None = None, sbp: Any = None) -> str:
    """`draw_layout` as an SVG document."""
    shape, where, nd_sbp = _layout_of(x, placement, sbp)
    own = isinstance(x, Tensor) and (x.placement, x.sbp) == (where, nd_sbp)
    numbers = _numbers(x) if own and len(shape) <= 2 and max(drawn_shape(shape)) <= NUMBERS else {}
    drawing = Drawing()
    drawing.text(16, 26, f"{kind_of(x)}:  {format_sbp(nd_sbp)}", 15, bold=True)
    drawing.text(16, 44, f"on {where}", 11, fill=FAINT, mono=True)
    y = 62.0
    for axis in range(where.ndim):
        drawing.text(16, y, sentence(axis, shape, where, nd_sbp), 12)
        y += 17
    y += 16
    frame = Frame(shape, (230, 220), (34, 30), 60)
    drawing.text(16, y, "the logical tensor", 12, bold=True)
    whole(drawing, frame, 16, y + 8, shape, where, nd_sbp)
    legend = _legend(regions(shape, where, nd_sbp).values())
    drawing.text(16, y + frame.height + 24, legend, 10.5, fill=FAINT)
    _panels(drawing, 16 + max(frame.width, width_of(legend, 10.5), 135) + 30, y, shape, where, nd_sbp, numbers)
    return drawing.document(_title(x, where, nd_sbp), layout_text(x, where, nd_sbp))


def _panels(
    drawing: Drawing, x: float, y: float, shape: tuple[int, ...], placement: Placement, sbp: NdSbp, numbers: Mapping[int, list[list[str]]]
) -> None:
    """What each rank holds; ranks of one row of a mesh side by side, at most four of a flat one."""
    longest = max((len(text) for rows in numbers.values() for row in rows for text in row), default=0)
    cell = (max(26.0, 8 + width_of("0", 10, mono=True) * longest), 22.0) if numbers else (20.0, 20.0)
    frame = Frame(shape, (10_000, 10_000) if numbers else (120, 110), cell)
    across = placement.mesh[-1] if placement.ndim > 1 else min(placement.size, 4)
    held = boxes(shape, placement, sbp)
    partial = any(isinstance(one, Partial) and placement.mesh[a] > 1 for a, one in enumerate(sbp))
    lines = {rank: [slices(box), note(rank, placement, sbp) if volume(box) else "holds nothing"] for rank, box in held.items()}
    step = max(frame.width, *(width_of(line, 10.5) for pair in lines.values() for line in pair), 60) + 22
    for i, (rank, box) in enumerate(held.items()):
        left, top = x + (i % across) * step, y + (i // across) * (frame.height + 56)
        drawing.rect((left, top - 10, 11, 11), tint(rank), colour(rank), 1.5)
        drawing.text(left + 16, top, f"rank {rank}", 12, bold=True)
        holding(drawing, frame, left, top + 8, rank, box, partial, [(rank, box)])
        _write_numbers(drawing, frame, left, top + 8, flat_region(box), numbers.get(rank, []))
        for j, line in enumerate(lines[rank]):
            drawing.text(left, top + frame.height + 22 + 13 * j, line, 10.5, fill=FAINT)


def _write_numbers(drawing: Drawing, frame: Frame, x: float, y: float, region: Region, rows: list[list[str]]) -> None:
    (r0, _), (c0, _) = region
    for r, row in enumerate(rows):
        for c, text in enumerate(row):
            left, top, width, height = frame.rect(x, y, ((r0 + r, r0 + r + 1), (c0 + c, c0 + c + 1)))
            drawing.text(left + width / 2, top + height / 2 + 3.6, text, 10, at="middle", mono=True)


def _numbers(x: Tensor) -> dict[int, list[list[str]]]:
    """rank -> what it holds, each number in a few characters; every process tells the others (PIC-LAYOUT)."""
    told = settings().world.agree("draw_layout", {rank: np.asarray(array) for rank, array in x.local_arrays().items()})
    return {rank: [[_short(n) for n in row] for row in _two_dims(array)] for rank, array in told.items() if rank in x.placement}


def _two_dims(array: np.ndarray[Any, Any]) -> Any:
    return array.reshape(drawn_shape(box_shape(tuple((0, n) for n in array.shape)))).tolist()


def _short(number: Any) -> str:
    if isinstance(number, float) and not math.isfinite(number):
        return str(number)
    return f"{number:.3g}" if isinstance(number, float) else {True: "T", False: "F"}[number] if isinstance(number, bool) else str(number)
