"""EVT-*, PIC-TIMELINE: the event list, its clocks, its trace and its pictures."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings

from refflow.graph.plan import Plan
from refflow.graph.proofs import verify
from refflow.pictures.timeline import timeline
from refflow.runtime import Random, chrome_trace, in_virtual_time, run, text_trace, vector_clocks
from refflow.runtime.events import Event, save
from refflow.runtime.pipelines import one_f_one_b, sends_that_meet

from .plans import accumulation, chain, plans

# What chrome://tracing and Perfetto read of the JSON object format, as far as we write it.
_NUMBER, _ID = {"type": "number", "minimum": 0}, {"type": "integer", "minimum": 0}
_COMMON = {"ph": {"enum": ["M", "X", "C", "s", "f"]}, "name": {"type": "string"}, "pid": _ID, "tid": _ID}
_BY_PHASE = {
    "X": {"required": ["ts", "dur", "cat", "args"], "properties": {"ts": _NUMBER, "dur": _NUMBER}},
    "C": {"required": ["ts", "args"], "properties": {"args": {"additionalProperties": _NUMBER}}},
    "M": {"required": ["args"], "properties": {"args": {"required": ["name"]}}},
    "s": {"required": ["ts", "id", "cat"]},
    "f": {"required": ["ts", "id", "cat", "bp"]},
}
TRACE = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "traceEvents": {
            "type": "array",
            "items": {
                "type": "object",
                "required": list(_COMMON),
                "properties": _COMMON,
                "allOf": [{"if": {"properties": {"ph": {"const": p}}}, "then": rest} for p, rest in _BY_PHASE.items()],
            },
        },
    },
}


def traced(plan: Plan) -> list[Event]:
    return in_virtual_time(plan, log=True).result.events


@pytest.mark.parametrize(
    "plan", [one_f_one_b(3, 4), accumulation(), sends_that_meet(cure="order")], ids=lambda p: p.name
)
def test_the_trace_is_what_perfetto_reads(plan: Plan, tmp_path: Path) -> None:
    """EVT-TRACE: pid is the rank, tid the task; every flow that sets off arrives, once, not before."""
    save(plan, traced(plan), tmp_path / "run.json", unit=1000)
    trace = json.loads((tmp_path / "run.json").read_text())
    jsonschema.validate(trace, TRACE)
    rows: list[dict[str, Any]] = trace["traceEvents"]
    assert sum(row["ph"] == "X" for row in rows) == sum(e.what == "act" for e in traced(plan))
    assert all(plan.tasks[row["tid"]].rank == row["pid"] for row in rows if row["ph"] != "M")
    starts = {row["id"]: row["ts"] for row in rows if row["ph"] == "s"}
    ends = {row["id"]: row["ts"] for row in rows if row["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(starts) == len(plan.messages)
    assert all(starts[id] <= ends[id] for id in starts)
    if plan.messages:
        assert starts


def test_counters_tell_free_registers() -> None:
    """EVT-TRACE."""
    plan = chain(1, number=2)
    rows = chrome_trace(plan, run(plan, iterations=3, log=True).events)["traceEvents"]
    counts = [row["args"]["free"] for row in rows if row["ph"] == "C" and row["name"] == "free x"]
    assert min(counts) >= 0 and counts[-1] == 2 and 1 in counts


@settings(max_examples=30)
@given(plans(most=4))
def test_clocks_tell_what_happened_before(plan: Plan) -> None:
    """EVT-LAMPORT, EVT-VECTOR: a message is received after it was sent, by both clocks, and each rank's clock rises."""
    assume(verify(plan).sound)
    events = run(plan, iterations=2, schedule=Random(3), log=True).events
    vectors = vector_clocks(events, plan.ranks)
    sent = {(e.edge, e.number): (e.clock, v) for e, v in zip(events, vectors) if e.what == "send"}
    last: dict[int, tuple[int, ...]] = {}
    acts: dict[int, int] = {}
    for event, vector in zip(events, vectors):
        if event.what == "receive":
            clock, before = sent[event.edge, event.number]
            assert clock < event.clock
            assert before != vector and all(a <= b for a, b in zip(before, vector))
        if event.rank in last:
            assert all(a <= b for a, b in zip(last[event.rank], vector)) and last[event.rank] != vector
        last[event.rank] = vector
        if event.what == "act":
            assert acts.get(event.task, -1) < event.clock
            acts[event.task] = event.clock


def test_text_trace() -> None:
    """EVT-TEXT."""
    plan = chain(1)
    lines = text_trace(plan, run(plan, log=True).events).splitlines()
    assert lines[0].split(maxsplit=1)[1] == "clock    1 rank 0 source: acts, number 0"
    assert any("sends ready 'x' 0" in line for line in lines)
    assert any("gets eord 'y0'" in line for line in lines)
    assert lines[-1].endswith("c0: has 2 of 'y0' free") or "gets" in lines[-1]


def test_timeline_in_words() -> None:
    """PIC-TIMELINE: 1F1B on two stages, as everyone draws it; the stash never exceeds S - s."""
    plan = one_f_one_b(2, 3)
    picture = timeline(plan, traced(plan), occupancy=["stash 0", "stash 1"])
    assert str(picture) == (
        "1F1B 2x3: time 0 to 12, a column is 1/2\n"
        "rank 0 compute |F0F1....B0--F2B1--..B2--|\n"
        "rank 1 compute |..F0B0--F1B1--F2B2--....|\n"
        "stash 0        |..1122222222112222111111| in flight, of 3\n"
        "stash 1        |....1111..1111..1111....| in flight, of 3"
    )
    assert picture.svg.count("<rect") > 15 and "F2" in picture.svg and "stash 0 (of 3)" in picture.svg


def test_timeline_without_a_clock() -> None:
    """PIC-TIMELINE: without virtual time, a step is a column."""
    plan = chain(2)
    events = run(plan, iterations=2, log=True).events
    words = str(timeline(plan, events))
    assert "rank 0 compute |" in words and "x " in words and words.count("s") >= 2
    short = str(timeline(one_f_one_b(2, 2), traced(one_f_one_b(2, 2, link_time=Fraction(1, 2)))))
    assert "comm>1" in short
