"""The picture of the front page: one matrix on four ranks, held in four ways, and the bytes from each way to each.

Implements PIC-README of spec/text/pictures.md.  ``python -m refflow.pictures readme docs/global_tensor.svg`` makes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..boxing import Layout, plan
from ..layout import Placement, Sbp, Split, boxes, broadcast, partial_sum, within
from .ink import FAINT, RULE, Drawing, colour, mixed, tint
from .layout import Frame, holding
from .parts import flat_region
from .picture import Picture

COMMAND = "python -m refflow.pictures readme docs/global_tensor.svg"
WAYS: tuple[tuple[Sbp, str, str], ...] = (
    (Split(0), "split(0)", "each rank holds some rows"),
    (Split(1), "split(1)", "each rank holds some columns"),
    (broadcast, "broadcast", "each rank holds everything"),
    (partial_sum, "partial_sum", "x is the sum of what they hold"),
)
# Four addends anyone can add up.
ADDENDS = np.array(
    [[[(3 * r + 2 * i + 3 * j + 2 * (r * i + 1) * (j + r)) % 7 for j in range(4)] for i in range(4)] for r in range(4)]
)  # fmt: skip
X = np.add.reduce(ADDENDS)  # integers: exact in any order
CELL, ROW = 21.0, 118.0


def readme_picture() -> Picture:
    """The picture of the front page; the same bytes every time.  Source: PIC-README."""
    ranks, shape = Placement("cpu", [0, 1, 2, 3]), X.shape
    drawing, frame = Drawing(), Frame(X.shape, (999, 999), (CELL, CELL))
    drawing.text(18, 30, "One logical matrix x on four ranks", 17, bold=True)
    words = "A program is written on x. Its sbp says what each rank holds; the result never depends on it, not in one bit."
    drawing.text(18, 52, words, 12.5, fill=FAINT)
    drawing.text(18, 92, "x", 14, bold=True)
    drawing.text(30, 92, "(4, 4), float32: 64 bytes", 11, fill=FAINT)
    _plain_matrix(drawing, frame, 18, 104)
    for row, (sbp, name, meaning) in enumerate(WAYS):
        top = 84 + row * ROW
        drawing.text(248, top + 20, f"{sbp}".replace("(sum)", ""), 16, bold=True)
        drawing.text(248, top + 40, f"sbp.{name}", 10.5, mono=True)
        for i, line in enumerate(_two_lines(meaning)):
            drawing.text(248, top + 58 + 14 * i, line, 10.5, fill=FAINT)
        for rank, box in boxes(shape, ranks, (sbp,)).items():
            left = 372 + rank * (frame.width + 30)
            if row == 0:
                drawing.rect((left, top - 14, 11, 11), tint(rank), colour(rank), 1.5)
                drawing.text(left + 16, top - 4, f"rank {rank}", 12, bold=True)
            holding(drawing, frame, left, top + 6, rank, box, sbp == partial_sum, [(rank, box)])
            held = ADDENDS[rank] if sbp == partial_sum else X
            _write(drawing, frame, left, top + 6, held, box)
            if rank < 3:
                sign = {broadcast: "=", partial_sum: "+"}.get(sbp, "")
                drawing.text(left + frame.width + 15, top + 6 + frame.height / 2 + 5, sign, 16, at="middle", bold=True)
    moved = {(a, b): plan(shape, Layout(ranks, (a,)), Layout(ranks, (b,))).elements * 4 for a, _, _ in WAYS for b, _, _ in WAYS}
    _table(drawing, 18, 300, moved)
    text = _text(moved)
    title = "One logical matrix on four ranks, and the bytes that travel between its layouts"
    return Picture(drawing.document(title, text, f"Made by: {COMMAND}"), text)


def _plain_matrix(drawing: Drawing, frame: Frame, x: float, y: float) -> None:
    everything = ((0, frame.rows), (0, frame.columns))
    drawing.rect((x, y, frame.width, frame.height), "#FFFFFF")
    frame.cells(drawing, x, y, everything, RULE)
    drawing.rect((x, y, frame.width, frame.height), "none", "#59626B", 1.6)
    _write(drawing, frame, x, y, X, everything)


def _write(drawing: Drawing, frame: Frame, x: float, y: float, values: Any, box: Any) -> None:
    (r0, r1), (c0, c1) = flat_region(box)
    part = values[within(box, ((0, frame.rows), (0, frame.columns)))]
    for r in range(r0, r1):
        for c in range(c0, c1):
            left, top, width, height = frame.rect(x, y, ((r, r + 1), (c, c + 1)))
            drawing.text(left + width / 2, top + height / 2 + 4, str(part[r - r0, c - c0]), 11, at="middle", mono=True)


def _two_lines(words: str) -> tuple[str, str]:
    """A short sentence broken near its middle."""
    half = min((i for i, c in enumerate(words) if c == " "), key=lambda i: abs(i - len(words) / 2))
    return words[:half], words[half + 1 :]


def _table(drawing: Drawing, x: float, y: float, moved: dict[tuple[Sbp, Sbp], int]) -> None:
    """The bytes of each conversion, darker where more travels."""
    drawing.text(x, y, "Bytes that travel between ranks", 13, bold=True)
    drawing.text(x, y + 17, "when x goes from one to another", 11, fill=FAINT)
    drawing.text(x + 34, y + 42, "to", 10.5, fill=FAINT)
    wide, high, most = 42.0, 26.0, max(moved.values())
    for i, (a, _, _) in enumerate(WAYS):
        name = str(a).replace("(sum)", "")
        drawing.text(x + 36 + (i + 0.5) * wide, y + 58, name, 11.5, at="middle", bold=True)
        drawing.text(x + 30, y + 66 + (i + 0.66) * high, name, 11.5, at="end", bold=True)
        for j, (b, _, _) in enumerate(WAYS):
            amount = moved[a, b]
            cell = (x + 36 + j * wide + 1, y + 66 + i * high + 1, wide - 2, high - 2)
            drawing.rect(cell, mixed("#FFFFFF", "#0072B2", 0.05 + 0.4 * amount / most))
            words = "" if i == j else f"{amount}"
            drawing.text(cell[0] + cell[2] / 2, cell[1] + high / 2 + 3, words, 11.5, at="middle")
    drawing.text(x, y + 58, "from", 10.5, fill=FAINT)
    drawing.text(x, y + 66 + 4 * high + 20, "0: every rank has all it needs already", 10.5, fill=FAINT)


def _text(moved: dict[tuple[Sbp, Sbp], int]) -> str:
    names = [str(a) for a, _, _ in WAYS]
    lines = ["One logical matrix x of shape (4, 4), float32, on four ranks:"]
    lines += [f"  {a!s:8s} sbp.{name:12s} {meaning}" for a, name, meaning in WAYS]
    lines += ["Bytes that travel between ranks, from (row) to (column):", " " * 10 + "".join(f"{n:>8s}" for n in names)]
    lines += [f"  {a!s:8s}" + "".join(f"{moved[a, b]:>8d}" for b, _, _ in WAYS) for a, _, _ in WAYS]
    return "\n".join(lines)
