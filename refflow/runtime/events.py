"""What happened, as one list; its logical clocks; and the trace that Perfetto and chrome://tracing open.

Implements EVT-LIST, EVT-LAMPORT, EVT-VECTOR, EVT-TRACE and EVT-TEXT of spec/text/actors.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from ..graph.plan import Plan

_MESSAGES = ("ready", "ack", "post", "eord")


class Event(NamedTuple):
    """One event (EVT-LIST): what = "act", "send", "receive" or "free" (how many of a register are free, in `token`).

    `start` and `finish`: virtual time, or the number of the step.  `clock`: Lamport's.  `act`: which action of the task.
    For messages: the register, its token, the kind (ready, ack, post, eord), the edge and the number on it.
    """

    what: str
    task: int
    rank: int
    start: Any
    finish: Any
    clock: int
    act: int = -1
    register: int = -1
    token: int = -1
    kind: int = -1
    edge: int = -1
    number: int = -1


def vector_clocks(events: Sequence[Event], ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """For each event, how many events of each rank it knows of, itself included (Fidge and Mattern, 1988; EVT-VECTOR).

    One event happened before another if and only if its vector is less in every place or equal, and not the same.
    """
    place = {rank: i for i, rank in enumerate(ranks)}
    clocks = {rank: [0] * len(ranks) for rank in ranks}
    sent: dict[tuple[int, int], list[int]] = {}
    vectors = []
    for event in events:
        clock = clocks[event.rank]
        if event.what == "receive":
            clock[:] = map(max, clock, sent.pop((event.edge, event.number)))
        clock[place[event.rank]] += 1
        if event.what == "send":
            sent[event.edge, event.number] = list(clock)
        vectors.append(tuple(clock))
    return vectors


def chrome_trace(plan: Plan, events: Sequence[Event], unit: Fraction | int = 1) -> dict[str, Any]:
    """The events in Chrome's trace format (EVT-TRACE): pid = rank, tid = task; `unit` microseconds a unit of time.

    Actions are complete events, free registers counters, ready messages between ranks flows.
    """
    rows: list[dict[str, Any]] = []
    for rank in plan.ranks:
        rows.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
    for task in plan.tasks:
        label = f"{task.name} ({task.stream})"
        rows.append({"ph": "M", "name": "thread_name", "pid": task.rank, "tid": task.id, "args": {"name": label}})
    timed = any(event.finish != event.start for event in events if event.what == "act")
    for event in events:
        row = _row(plan, event, unit, timed)
        if row is not None:
            rows.append(row)
    return {"displayTimeUnit": "ms", "traceEvents": rows}


def _row(plan: Plan, event: Event, unit: Fraction | int, timed: bool) -> dict[str, Any] | None:
    row: dict[str, Any] = {"pid": event.rank, "tid": event.task, "ts": float(event.start * unit)}
    task = plan.tasks[event.task]
    if event.what == "act":
        length = event.finish - event.start if timed else 1
        row |= {"ph": "X", "name": task.name, "cat": task.kind, "dur": float(length * unit)}
        return row | {"args": {"action": event.act, "clock": event.clock}}
    register = plan.registers[event.register]
    if event.what == "free":
        return row | {"ph": "C", "name": f"free {register.name}", "args": {"free": event.token}}
    far = any(plan.tasks[c].rank != plan.tasks[register.producer].rank for c in register.consumers)
    if far and _MESSAGES[event.kind] == "ready":
        row |= {"ph": "s" if event.what == "send" else "f", "name": register.name, "cat": "message"}
        return row | {"id": f"{event.edge}.{event.number}", "bp": "e"}
    return None


def save(plan: Plan, events: Sequence[Event], path: str | Path, unit: Fraction | int = 1) -> None:
    """Writes the trace to a file that Perfetto opens."""
    Path(path).write_text(json.dumps(chrome_trace(plan, events, unit)), encoding="utf-8")


def text_trace(plan: Plan, events: Sequence[Event]) -> str:
    """One line an event, in the order in which they happened (EVT-TEXT)."""
    lines = []
    for event in events:
        who = f"{event.finish!s:>6} clock {event.clock:>4} rank {event.rank} {plan.tasks[event.task].name}"
        if event.what == "act":
            since = f" since {event.start}" if event.finish != event.start else ""
            lines.append(f"{who}: acts, number {event.act}{since}")
        elif event.what == "free":
            lines.append(f"{who}: has {event.token} of '{plan.registers[event.register].name}' free")
        else:
            verb = "sends" if event.what == "send" else "gets"
            token = f" {event.token}" if event.token >= 0 else ""
            lines.append(f"{who}: {verb} {_MESSAGES[event.kind]} '{plan.registers[event.register].name}'{token}")
    return "\n".join(lines)
