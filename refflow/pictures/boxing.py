"""A boxing plan as a picture: what each rank holds before, between and after its steps, and the bytes that travel.

Implements PIC-BOXING of spec/text/pictures.md, on the plans of refflow/boxing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..boxing import Layout, Plan, Step, format_sbp, plan
from ..layout import Box, Partial, Placement, boxes, normalize, volume
from ..tensor.logical import check_ranks
from ..tensor.tensor import Tensor
from .ink import FAINT, GROUND, Drawing, colour, mixed, tint
from .layout import Frame, holding
from .parts import slices
from .picture import Picture

ARROWS_UP_TO = 8  # with more ranks the bytes stand at the ranks, not on the arrows
GAP, CARD = 230.0, 150.0  # px between two columns of ranks, and the width of a column


@dataclass(frozen=True)
class Stage:
    """What every rank holds at one moment: its box, whether as an addend, and the pieces it is made of (the rank they
    come from, their box); a box made of no pieces is the neutral element.
    """

    title: str
    held: Mapping[int, Box]
    partial: bool
    pieces: Mapping[int, Sequence[tuple[int, Box]]]


def draw_boxing(x: Any, placement: Placement | None = None, sbp: Any = None) -> Picture:
    """A picture of what `x.to_global(placement, sbp)` moves: ranks before and after, arrows with their bytes.

    Args: `x` a global tensor; `placement`, `sbp` the target, each by default its own.  Errors: `LocalGlobalError`,
    `SbpError`, `PlacementError`.  Source: PIC-BOXING.

    >>> import refflow as flow
    >>> with flow.virtual_world(2):
    ...     x = flow.ones(4, 6, placement=flow.placement("cpu", [0, 1]), sbp=flow.sbp.split(0))
    ...     print(flow.draw_boxing(x, sbp=flow.sbp.broadcast))
    S(0) on placement("cpu", [0, 1]) -> B on placement("cpu", [0, 1]), shape (4, 6): 96 bytes
      step 1 of 1: all_gather, 96 bytes
        rank 0 -> rank 1         48 bytes   [0:2, 0:6]
        rank 1 -> rank 0         48 bytes   [2:4, 0:6]
    """
    here = x.placement
    where = placement or here
    check_ranks("draw_boxing", where)
    target = normalize(x.sbp if sbp is None else sbp, where.mesh, x.shape, "draw_boxing")
    moves = plan(x.shape, Layout(here, x.sbp), Layout(where, target))
    size = x.element_size() if isinstance(x, Tensor) else 4
    return Picture(plan_svg(moves, size), plan_text(moves, size))


def plan_text(moves: Plan, itemsize: int = 4) -> str:
    """A boxing plan as text: every move between two ranks with its bytes, for elements of `itemsize` bytes."""
    lines = [_title(moves, itemsize)]
    held: Mapping[int, Box] = boxes(moves.shape, moves.source.placement, moves.source.sbp)
    for number, step in enumerate(moves.steps, 1):
        lines.append(f"  step {number} of {len(moves.steps)}: {step.kind}, {step.elements * itemsize} bytes")
        lines += _moves_text(travels(step, held), itemsize)
        if step.folds:
            lines.append("    each rank folds the addends of its part in the canonical order")
        held = _held_after(step, held)
    return "\n".join(lines if moves.elements else [*lines, "  nothing moves between ranks"])


def _moves_text(moved: Mapping[tuple[int, int], Sequence[Box]], itemsize: int) -> list[str]:
    """A line per pair of ranks; with many ranks, one per rank that receives."""
    pairs = {pair: parts for pair, parts in moved.items() if pair[0] != pair[1]}
    targets = list(dict.fromkeys(target for _, target in pairs))
    lines = []
    if max(len({source for source, _ in moved}), len(targets)) > ARROWS_UP_TO:
        for rank in targets:
            sizes = [sum(map(volume, parts)) * itemsize for (_, target), parts in pairs.items() if target == rank]
            lines.append(f"    {len(sizes)} ranks -> rank {rank}  {sum(sizes):>9d} bytes")
        return lines
    for (source, target), parts in sorted(pairs.items()):
        amount = sum(map(volume, parts)) * itemsize
        lines.append(f"    rank {source} -> rank {target}  {amount:>9d} bytes   {', '.join(dict.fromkeys(map(slices, parts)))}")
    return lines


def _title(moves: Plan, itemsize: int) -> str:
    return f"{moves.source} -> {moves.target}, shape {moves.shape}: {moves.elements * itemsize} bytes"


def travels(step: Step, held: Mapping[int, Box]) -> dict[tuple[int, int], list[Box]]:
    """(from, to) -> the boxes that rank `to` takes from rank `from` (itself included) in one step."""
    found: dict[tuple[int, int], list[Box]] = {}
    for rank, assembly in step.assemblies.items():
        for addend in assembly.addends:
            for piece in addend:
                box = tuple((o + s.start, o + s.stop) for (o, _), s in zip(held[piece.source], piece.source_slices, strict=True))
                found.setdefault((piece.source, rank), []).append(box)
    return found


def _held_after(step: Step, held: Mapping[int, Box]) -> dict[int, Box]:
    """The box each rank has put together: what spans the pieces it took."""
    after: dict[int, Box] = {rank: tuple((0, 0) for _ in assembly.shape) for rank, assembly in step.assemblies.items()}
    spans: dict[int, list[Box]] = {}
    for (_, rank), parts in travels(step, held).items():
        spans.setdefault(rank, []).extend(parts)
    for rank, parts in spans.items():
        after[rank] = tuple((min(lo for lo, _ in dim), max(hi for _, hi in dim)) for dim in zip(*parts))
    return after


def stages(moves: Plan) -> list[Stage]:
    """Before, after each step: what the columns of the picture show."""

    def is_partial(layout: Layout) -> bool:
        return any(isinstance(one, Partial) and layout.placement.mesh[a] > 1 for a, one in enumerate(layout.sbp))

    held: Mapping[int, Box] = boxes(moves.shape, moves.source.placement, moves.source.sbp)
    first = Stage(f"before: {format_sbp(moves.source.sbp)}", held, is_partial(moves.source), _own(held))
    found = [first]
    for number, step in enumerate(moves.steps, 1):
        pieces: dict[int, list[tuple[int, Box]]] = {}
        for (source, rank), parts in travels(step, held).items():
            pieces.setdefault(rank, []).extend((source, part) for part in parts)
        last = number == len(moves.steps)
        held = boxes(moves.shape, moves.target.placement, moves.target.sbp) if last else _held_after(step, held)
        partial = is_partial(moves.target) if last else len(step.folds) < sum(isinstance(one, Partial) for one in moves.source.sbp)
        title = f"after: {format_sbp(moves.target.sbp)}" if last else "between"
        found.append(Stage(title, held, partial, _own(held) if step.folds else pieces))  # a fold is one rank's own work
    if not moves.steps:
        found.append(Stage(f"after: {format_sbp(moves.target.sbp)}", held, first.partial, first.pieces))
    return found


def _own(held: Mapping[int, Box]) -> dict[int, list[tuple[int, Box]]]:
    return {rank: [(rank, box)] for rank, box in held.items()}


def plan_svg(moves: Plan, itemsize: int = 4) -> str:
    """A boxing plan as an SVG document, for elements of `itemsize` bytes."""
    columns = stages(moves)
    ranks = max(len(stage.held) for stage in columns)
    frame = Frame(moves.shape, (84, 48), (12, 8))
    row = max(frame.height + 36, 13.0 * (ranks + 1) if ranks <= ARROWS_UP_TO else 0)
    drawing = Drawing()
    total = moves.elements * itemsize
    drawing.text(16, 26, f"{format_sbp(moves.source.sbp)} → {format_sbp(moves.target.sbp)}", 15, bold=True)
    words = f"{total:,} bytes travel between ranks" if total else "nothing travels between ranks"
    drawing.text(16, 45, f"shape {moves.shape}, {itemsize} bytes per element: {words}", 12)
    drawing.text(16, 62, _where(moves), 11, fill=FAINT, mono=True)
    tops = [{rank: 116 + i * row for i, rank in enumerate(stage.held)} for stage in columns]
    for i, stage in enumerate(columns):
        left = 16 + i * (CARD + GAP)
        drawing.text(left, 92, stage.title, 13, bold=True)
        if i < len(moves.steps):
            step = moves.steps[i]
            middle = left + CARD + GAP / 2
            drawing.text(middle, 84, step.kind, 12, at="middle", bold=True)
            drawing.text(middle, 99, f"{step.elements * itemsize:,} bytes", 11, at="middle", fill=FAINT)
            _arrows(drawing, travels(step, stage.held), tops[i], tops[i + 1], left, frame, itemsize)
        elif not moves.steps and i == 0:
            stay = {(rank, rank): [box] for rank, box in stage.held.items()}
            _arrows(drawing, stay, tops[0], tops[1], left, frame, itemsize)
        for rank, box in stage.held.items():
            _card(drawing, frame, left, tops[i][rank], rank, box, stage)
    y = drawing.height + 24
    words = "arrow: bytes to another rank · dots: stays where it is · colour: the rank it was on · hatched: an addend"
    drawing.text(16, y, words, 10.5, fill=FAINT)
    return drawing.document(_title(moves, itemsize), plan_text(moves, itemsize))


def _where(moves: Plan) -> str:
    source, target = moves.source.placement, moves.target.placement
    return f"on {source}" if source == target else f"{source} → {target}"


def _card(drawing: Drawing, frame: Frame, x: float, y: float, rank: int, box: Box, stage: Stage) -> None:
    drawing.rect((x, y - 10, 10, 10), tint(rank), colour(rank), 1.5)
    pieces = stage.pieces.get(rank, ())
    words = "holds nothing" if not volume(box) else slices(box) if pieces else "neutral: adds nothing"
    drawing.text(x + 15, y - 1, f"rank {rank}", 11.5, bold=True)
    holding(drawing, frame, x, y + 4, rank, box, stage.partial, pieces)
    drawing.text(x, y + frame.height + 16, words, 9.5, fill=FAINT)


def _arrows(
    drawing: Drawing, moved: Mapping[tuple[int, int], Sequence[Box]], before: Mapping[int, float], after: Mapping[int, float], left: float,
    frame: Frame, itemsize: int,
) -> None:  # fmt: skip
    """The moves of one step.  Labels sit where the p * q lines are evenly spread: at p / (p + 1) of the way."""
    start, end = left + frame.width + 8, left + CARD + GAP - 6
    middle = 4 + frame.height / 2
    share = len(before) / (len(before) + 1)
    many = max(len(before), len(after)) > ARROWS_UP_TO
    labels: dict[int, tuple[float, float, int]] = {}
    for (source, target), parts in moved.items():
        a, b = (start, before[source] + middle), (end, after[target] + middle)
        amount = sum(map(volume, parts)) * itemsize
        if source == target:
            drawing.line(a, b, "#A5ABB2", 1.3, "2 4")
            continue
        drawing.arrow(a, b, mixed(colour(source), "#000000", 0.12), 0.8 if many else 1.6)
        if many:  # one label per rank: what it receives
            earlier = labels.get(target, (0, 0, 0))[2]
            labels[target] = (end - 30, b[1] - 8, earlier + amount)
        else:
            labels[len(labels)] = (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]) + 3.4, amount)
    for x, y, amount in labels.values():
        drawing.text(x, y, f"{amount:,} B", 9.5, at="middle", ground=GROUND)
