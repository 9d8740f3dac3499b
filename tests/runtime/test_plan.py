"""PLAN-*: plans as data: JSON and its schema, text, DOT; and what is malformed."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given

from refflow.graph.plan import Memory, Plan, PlanBuilder, PlanError, Stream
from refflow.graph.plan_json import schema
from refflow.graph.proofs import verify
from refflow.pictures.timeline import plan_picture
from refflow.runtime.pipelines import buffer_on_forward_stream, one_f_one_b

from .plans import accumulation, chain, crossing, in_place_chain, loop, plans

SCHEMA = Path(__file__).parents[2] / "spec" / "vectors" / "plan.schema.json"
ALL = [chain(), accumulation(), loop(), in_place_chain(), crossing(), one_f_one_b(3, 4), buffer_on_forward_stream()]


def test_the_schema_is_checked_in() -> None:
    """PLAN-JSON."""
    assert json.loads(SCHEMA.read_text()) == schema()
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("plan", ALL, ids=lambda plan: plan.name)
def test_a_plan_survives_json(plan: Plan) -> None:
    """PLAN-JSON."""
    text = plan.to_json()
    jsonschema.validate(json.loads(text), schema())
    assert Plan.from_json(text) == plan


@given(plans())
def test_any_plan_survives_json(plan: Plan) -> None:
    """PLAN-JSON."""
    jsonschema.validate(json.loads(plan.to_json()), schema())
    assert Plan.from_json(plan.to_json()) == plan


def test_times_stay_exact() -> None:
    """PLAN-JSON: a third is a third."""
    b = PlanBuilder()
    b.task("s", kind="source", time=Fraction(1, 3))
    assert Plan.from_json(b.plan().to_json()).tasks[0].time == Fraction(1, 3)


def test_other_versions_and_fields_are_refused() -> None:
    """PLAN-JSON."""
    text = chain().to_json()
    with pytest.raises(PlanError, match="version 7"):
        Plan.from_json(text.replace('"version": 1', '"version": 7'))
    with pytest.raises(PlanError, match="no field 'nubmer'"):
        Plan.from_json(text.replace('"number"', '"nubmer"'))
    with pytest.raises(PlanError, match="producer"):
        Plan.from_json(text.replace('"producer": 0, ', "", 1))


def test_text_and_dot() -> None:
    """PLAN-TEXT: every task, register and message is named."""
    for plan in ALL:
        for name in [t.name for t in plan.tasks] + [r.name for r in plan.registers]:
            assert name in str(plan)
        assert plan.dot().count("->") == sum(len(r.consumers) for r in plan.registers)
    assert "in this order: F0#0 F0#1 B0#0" in str(one_f_one_b(2, 3))
    assert "y (in place of x)" in str(in_place_chain())
    assert "0: 'y0 0>1' number 0, rank 0 to rank 1" in str(one_f_one_b(2, 3))


def test_the_picture_names_everything() -> None:
    """PIC-PLAN."""
    picture = plan_picture(one_f_one_b(2, 3))
    assert picture.text == str(one_f_one_b(2, 3))
    assert all(f">{task.name}" in picture.svg for task in one_f_one_b(2, 3).tasks)
    assert picture.svg == one_f_one_b(2, 3)._repr_svg_()


def _with_register(plan: Plan, id: int, **changes: object) -> Plan:
    registers = list(plan.registers)
    registers[id] = replace(registers[id], **changes)  # type: ignore[arg-type]
    return replace(plan, registers=tuple(registers))


def _with_task(plan: Plan, id: int, **changes: object) -> Plan:
    tasks = list(plan.tasks)
    tasks[id] = replace(tasks[id], **changes)  # type: ignore[arg-type]
    return replace(plan, tasks=tuple(tasks))


MALFORMED = {
    "register number 0": (_with_register(chain(), 0, number=0), "number 0: 'source' could never act"),
    "negative number": (_with_register(crossing(), 1, number=-1), "number -1"),
    "more full than there are": (_with_register(loop(), 1, initial=3), "3 full of 2"),
    "ids": (replace(chain(), tasks=chain().tasks[::-1]), "task ids"),
    "consumers": (_with_register(chain(), 0, consumers=(2,)), "consumers are not the same"),
    "no such stream": (replace(chain(), streams=()), "does not list"),
    "stream twice": (replace(chain(), streams=chain().streams * 2), "same name"),
    "not in the order": (replace(chain(), streams=(Stream(0, "compute", order=(0, 1)),)), "task 2"),
    "no end": (_with_task(chain(), 0, kind="compute"), "only a source starts"),
    "count": (_with_task(chain(), 1, count=2), "a compute, has count 2"),
    "in place, several": (_with_register(in_place_chain(), 1, number=2), "so its number is 1, not 2"),
    "in place, elsewhere": (_with_register(in_place_chain(), 1, memory=Memory(0, 4)), "lies elsewhere"),
    "time": (_with_task(chain(), 1, time=Fraction(-1)), "takes time -1"),
    "across ranks": (_with_task(chain(), 2, rank=1), "needs a send and a recv"),
    "ctrl bytes": (_with_register(chain(), 0, kind="ctrl", bytes=4), "carries no bytes"),
    "time shape": (_with_register(accumulation(), 3, time_shape=(1, 3)), "filled 4 times"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_plans_are_refused_in_words(name: str) -> None:
    """PLAN-FORM, PROOF-RATES."""
    plan, words = MALFORMED[name]
    report = verify(plan)
    assert not report.sound
    assert any(words in fault for fault in report.faults), report.faults
    with pytest.raises(PlanError):
        report.check()


def test_builder_finds_by_name() -> None:
    """PLAN-TASK."""
    b = PlanBuilder()
    b.task("a", kind="source")
    assert b.named("a") == 0
    with pytest.raises(PlanError, match="0 tasks named 'b'"):
        b.named("b")
    with pytest.raises(PlanError, match="0 registers"):
        b.plan().register("r")
    with pytest.raises(PlanError, match="0 tasks"):
        b.plan().task("t")
