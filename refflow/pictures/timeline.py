"""Actors against time with register occupancy, and the plan itself: ranks x streams, registers and their numbers.

Implements PIC-TIMELINE and PIC-PLAN of spec/text/pictures.md.  Each picture has a text form that says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..graph.plan import Plan, Task
from ..graph.proofs.rates import actions
from ..runtime.events import Event
from .ink import FAINT, INK, RULE, Drawing, colour, mixed, width_of
from .picture import Picture

_LEFT, _TOP, _LANE, _GAP = 150.0, 58.0, 26.0, 16.0
_HUES = {"forward": 1, "backward": 0, "comm": 7, "copy": 2, "compute": 4}


def timeline(
    plan: Plan, events: Sequence[Event], *, width: float = 900, occupancy: Sequence[str] | None = None
) -> Picture:
    """Every stream's actions against time, and under them how many registers are in flight.

    `occupancy` names the registers to draw; by default those with more than one register that were ever in flight,
    eight at most.  Streams whose actions take no time are left out when others take some.
    """
    acts = [event for event in events if event.what == "act"]
    timed = any(event.finish != event.start for event in acts)
    end = max((event.finish for event in acts), default=0) + (0 if timed else 1)
    lanes = _lanes(plan, acts, timed)
    held = _occupancies(plan, events, occupancy)
    drawing = Drawing()
    scale = width / float(end or 1)
    drawing.text(16, 26, f"{plan.name}: actors against time", 15, bold=True)
    drawing.text(
        16, 44, "one row a stream; below, registers in flight (the dashed line is their number)", 11, fill=FAINT
    )
    bottom = _TOP + 10
    for position, (stream, mine) in enumerate(lanes):
        if position and lanes[position - 1][0][0] != stream[0]:
            bottom += 6
        _lane(drawing, plan, stream, mine, (bottom, scale), timed)
        bottom += _LANE
    _axis(drawing, bottom + 4, end, scale)
    bottom += 40
    for name, number, steps in held:
        _steps(drawing, name, number, steps, (bottom, scale, float(end)))
        bottom += 40
    drawing.rect((_LEFT, _TOP, width + 12, 1), "none")
    words = timeline_text(plan, events, occupancy=occupancy)
    return Picture(drawing.document(f"{plan.name}: actors against time", words), words)


def _lanes(plan: Plan, acts: Sequence[Event], timed: bool) -> list[tuple[tuple[int, str], list[Event]]]:
    """The streams to draw, by rank, each with its actions."""
    lanes: dict[tuple[int, str], list[Event]] = {(s.rank, s.name): [] for s in plan.streams}
    for event in acts:
        lanes[event.rank, plan.tasks[event.task].stream].append(event)
    return [
        (place, mine) for place, mine in lanes.items() if mine and (not timed or any(e.finish > e.start for e in mine))
    ]


def _lane(
    drawing: Drawing, plan: Plan, stream: tuple[int, str], acts: list[Event], at: tuple[float, float], timed: bool
) -> None:
    top, scale = at
    rank, name = stream
    drawing.text(_LEFT - 8, top + 17, f"rank {rank}, {name}", 11, at="end")
    drawing.rect((_LEFT, top + 3, 0.5, _LANE - 6), RULE)
    for event in acts:
        task = plan.tasks[event.task]
        length = float(event.finish - event.start) if timed else 1.0
        if timed and not length:
            continue
        box = (_LEFT + float(event.start) * scale, top + 2, length * scale, _LANE - 4)
        hue = colour(_hue(plan, task))
        drawing.rect(box, mixed(hue, "#FFFFFF", 0.55), hue, 0.8)
        label = _label(task, event.act)
        size = 10.5 if width_of(label, 10.5) < box[2] else 8.5
        if width_of(label, size) < box[2] + 4:
            drawing.text(box[0] + box[2] / 2, top + 16.5, label, size, at="middle")


def _hue(plan: Plan, task: Task) -> int:
    kind = plan.stream_of[task.rank, task.stream].kind
    for way in ("forward", "backward"):
        if kind == "compute" and (
            task.name.startswith(way) or (task.name[:1] == way[0].upper() and task.name[1:].isdigit())
        ):
            return _HUES[way]
    return _HUES[kind]


def _label(task: Task, act: int) -> str:
    short = task.name if len(task.name) <= 3 else task.name.split()[0][:8]
    return f"{short[0]}{act}" if short[:1] in "FB" and short[1:].isdigit() else f"{short} {act}"


def _axis(drawing: Drawing, top: float, end: Any, scale: float) -> None:
    drawing.line((_LEFT, top), (_LEFT + float(end) * scale, top), FAINT)
    step = next((s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000) if s * scale >= 38), max(1, int(end)))
    tick = 0
    while tick <= end:
        x = _LEFT + tick * scale
        drawing.line((x, top), (x, top + 4), FAINT)
        drawing.text(x, top + 16, str(tick), 10, fill=FAINT, at="middle")
        tick += step
    drawing.text(_LEFT - 8, top + 12, "time", 10, fill=FAINT, at="end")


Steps = list[tuple[Any, int]]  # (time, how many in flight from then on)


def _occupancies(plan: Plan, events: Sequence[Event], names: Sequence[str] | None) -> list[tuple[str, int, Steps]]:
    """For each register to draw: name, number, and how many were in flight from when on."""
    steps: dict[int, Steps] = {r.id: [(0, r.initial)] for r in plan.registers}
    for event in events:
        if event.what == "free":
            steps[event.register].append((event.finish, plan.registers[event.register].number - event.token))
    if names is not None:
        wanted = [plan.register(name).id for name in names]
    else:
        aliases = {out for task in plan.tasks for _, out in task.in_place}
        several = [
            r
            for r in plan.registers
            if r.number > 1 and r.kind == "data" and r.id not in aliases and _most(steps[r.id])
        ]
        wanted = [r.id for r in sorted(several, key=lambda r: -_most(steps[r.id]))[:8]]
        wanted.sort()
    return [(plan.registers[id].name, plan.registers[id].number, steps[id]) for id in wanted]


def _most(steps: Steps) -> int:
    """The most that were in flight for more than an instant."""
    later = [time for time, _ in steps[1:]] + [None]
    return max((count for (time, count), after in zip(steps, later) if after is None or after > time), default=0)


def _steps(drawing: Drawing, name: str, number: int, steps: Steps, at: tuple[float, float, float]) -> None:
    top, scale, end = at
    height = 26.0
    base = top + height
    drawing.text(_LEFT - 8, base - 8, f"{name} (of {number})", 10.5, at="end")
    ends = [float(time) for time, _ in steps[1:]] + [end]
    for (time, count), until in zip(steps, ends):
        tall = height * count / max(1, number)
        if count and until > float(time):
            drawing.rect((_LEFT + float(time) * scale, base - tall, (until - float(time)) * scale, tall), "#9DB8D2")
            if (until - float(time)) * scale > 9:
                drawing.text(_LEFT + float(time) * scale + 3, base - 3, str(count), 9, fill=INK)
    drawing.line((_LEFT, base), (_LEFT + end * scale, base), RULE)
    drawing.line((_LEFT, top), (_LEFT + end * scale, top), FAINT, dashes="3 3")


def timeline_text(
    plan: Plan, events: Sequence[Event], *, occupancy: Sequence[str] | None = None, columns: int = 96
) -> str:
    """The timeline as text: a row a stream; a letter is an action (its name, or its last digit), a dot is idle."""
    acts = [event for event in events if event.what == "act"]
    timed = any(event.finish != event.start for event in acts)
    end = max((event.finish for event in acts), default=0) + (0 if timed else 1)
    lanes = _lanes(plan, acts, timed)
    unit = _unit(acts, end, columns, timed)
    names = [f"rank {rank} {name}" for (rank, name), _ in lanes]
    held = _occupancies(plan, events, occupancy)
    left = max((len(name) for name in names + [entry[0] for entry in held]), default=0) + 1
    rows = [f"{plan.name}: time 0 to {end}, a column is {unit}"]
    for name, (_, mine) in zip(names, lanes):
        cells = ["."] * _columns(end, unit)
        for event in mine:
            start, stop = int(event.start / unit), int(event.finish / unit) if timed else int(event.start / unit) + 1
            word = _label(plan.tasks[event.task], event.act).replace(" ", "")
            for column in range(start, max(stop, start + 1) if event.finish > event.start or not timed else start):
                cells[column] = (word + "-" * columns)[column - start] if stop - start >= len(word) else word[0]
        rows.append(f"{name:<{left}}|{''.join(cells)}|")
    for name, number, steps in held:
        cells = [_digit(_at(steps, column * unit)) for column in range(_columns(end, unit))]
        rows.append(f"{name:<{left}}|{''.join(cells)}| in flight, of {number}")
    return "\n".join(rows)


def _unit(acts: Sequence[Event], end: Any, columns: int, timed: bool) -> Fraction:
    """The time of a column: half the shortest action if that fits, so that a name of two letters does."""
    lengths = [e.finish - e.start for e in acts if e.finish > e.start] if timed else [1]
    wanted = Fraction(min(lengths, default=1)) / (2 if timed else 1)
    return max(wanted, Fraction(end) / columns) if end else Fraction(1)


def _columns(end: Any, unit: Fraction) -> int:
    return -int(-Fraction(end) // unit)


def _at(steps: Steps, time: Any) -> int:
    return next((count for since, count in reversed(steps) if since <= time), 0)


def _digit(count: int) -> str:
    return "." if not count else "123456789abcdefghijklmnopqrstuvwxyz"[min(count, 35) - 1]


def plan_picture(plan: Plan) -> Picture:
    """The plan: a band a rank, a row a stream, tasks in the order they can act; arrows are registers with their number."""
    column = _depths(plan)
    drawing = Drawing()
    rows: dict[tuple[int, str], float] = {}
    y = 62.0
    for rank in plan.ranks:
        top = y
        for stream in [s for s in plan.streams if s.rank == rank]:
            rows[rank, stream.name] = y
            y += 48
        drawing.rect((12, top - 8, 1, y - top - 4), colour(rank), colour(rank), 3)
        y += _GAP
    wide = max((width_of(_titled(task), 11) for task in plan.tasks), default=0) + 12
    boxes = {task.id: _box(task, column[task.id], rows, max(60.0, wide)) for task in plan.tasks}
    drawing.text(16, 26, f"{plan.name}: tasks on ranks and streams", 15, bold=True)
    drawing.text(
        16,
        44,
        "solid: data; dashed: control; heavy: message; the number on an arrow is the register number",
        11,
        fill=FAINT,
    )
    right = max(box[0] + box[2] for box in boxes.values()) + 10
    for (rank, name), top in rows.items():
        drawing.text(22, top + 12, f"rank {rank}", 10, fill=FAINT)
        drawing.text(22, top + 25, name, 11)
        drawing.line((100, top + 17), (right, top + 17), RULE, dashes="2 4")
    _arrows(drawing, plan, boxes)
    for task in plan.tasks:
        hue = colour(_hue(plan, task))
        drawing.rect(boxes[task.id], mixed(hue, "#FFFFFF", 0.7), hue, 1.2)
        x, top, w, _ = boxes[task.id]
        drawing.text(x + w / 2, top + 20, _titled(task), 11, at="middle")
    words = str(plan)
    return Picture(drawing.document(f"{plan.name}: tasks on ranks and streams", words), words)


def _depths(plan: Plan) -> list[int]:
    """A column for each task: after all it reads in the same iteration, and one for itself in its row."""
    depth = [0] * len(plan.tasks)
    indegree = [sum(not plan.registers[r].initial for r in task.inputs) for task in plan.tasks]
    queue = [task.id for task in plan.tasks if not indegree[task.id]]
    used: set[tuple[int, str, int]] = set()
    for id in queue:
        task = plan.tasks[id]
        while (task.rank, task.stream, depth[id]) in used:
            depth[id] += 1
        used.add((task.rank, task.stream, depth[id]))
        for out in task.outputs:
            register = plan.registers[out]
            for consumer in () if register.initial else register.consumers:
                depth[consumer] = max(depth[consumer], depth[id] + 1)
                indegree[consumer] -= 1
                if not indegree[consumer]:
                    queue.append(consumer)
    return depth


def _titled(task: Task) -> str:
    return f"{task.name} x{task.count}" if task.count > 1 else task.name


def _box(task: Task, column: int, rows: dict[tuple[int, str], float], wide: float) -> tuple[float, float, float, float]:
    return 118 + column * (wide + 32), rows[task.rank, task.stream], wide, 32.0


def _arrows(drawing: Drawing, plan: Plan, boxes: dict[int, tuple[float, float, float, float]]) -> None:
    """From the right side of the producer to the left of each consumer; what goes back goes above or below."""
    for register in plan.registers:
        x, y, w, h = boxes[register.producer]
        hue = colour(plan.tasks[register.producer].rank)
        for consumer in register.consumers:
            cx, cy, cw, ch = boxes[consumer]
            a, b = (x + w, y + h / 2), (cx, cy + ch / 2)
            if cx <= x:
                down = cy >= y
                a, b = (x + w / 2, y + h if down else y), (cx + cw / 2, cy if down else cy + ch)
                if cy == y:  # around, above the row
                    drawing.line((x + w / 4, y), (x + w / 4, y - 7), FAINT, 1.1, "4 3")
                    drawing.line((x + w / 4, y - 7), (cx + 3 * cw / 4, y - 7), FAINT, 1.1, "4 3")
                    a, b = (cx + 3 * cw / 4, y - 7), (cx + 3 * cw / 4, cy)
            width = 2.6 if register.kind == "message" else 1.3
            if register.kind == "ctrl":
                drawing.line(a, b, FAINT, 1.1, dashes="4 3")
            else:
                drawing.arrow(a, b, mixed(hue, INK, 0.25), width)
            around = cx <= x and cy == y
            middle = ((x + cx) / 2, y - 4) if around else ((a[0] + 2 * b[0]) / 3, (a[1] + 2 * b[1]) / 3 + 3)
            full = f", {register.initial} full" if register.initial else ""
            drawing.text(*middle, f"{register.number}{full}", 9.5, at="middle", ground="#FCFCFA")


def periods_table(rows: Sequence[tuple[str, Fraction, Fraction]]) -> str:
    """Lines of (what, period, bubble) in columns, for comparing register numbers or links."""
    left = max(len(name) for name, _, _ in rows)
    lines = [f"{'':<{left}}  {'time':>8}  {'bubble':>8}"]
    lines += [f"{name:<{left}}  {time!s:>8}  {bubble!s:>8}" for name, time, bubble in rows]
    return "\n".join(lines)


def actions_line(plan: Plan) -> str:
    """How often each task acts in an iteration."""
    return ", ".join(f"{task.name} {count}" for task, count in zip(plan.tasks, actions(plan)))
