"""Is the plan well formed?  Implements PLAN-FORM of spec/text/plan.md: what every other proof takes for granted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..plan import FORWARDING, KINDS, Plan, RegisterDesc, Task


def faults(plan: Plan) -> list[str]:
    """What is malformed, in words; empty if nothing is."""
    named = list(_ids(plan))
    if named:
        return named  # nothing else can be read
    found = [fault for task in plan.tasks for fault in _task(plan, task)]
    found += [fault for register in plan.registers for fault in _register(plan, register)]
    return found + list(_streams(plan)) + list(_ends(plan))


def _ids(plan: Plan) -> Iterator[str]:
    if [t.id for t in plan.tasks] != list(range(len(plan.tasks))):
        yield "PLAN-FORM: task ids are not 0, 1, 2 ... in order"
        return
    if [r.id for r in plan.registers] != list(range(len(plan.registers))):
        yield "PLAN-FORM: register ids are not 0, 1, 2 ... in order"
        return
    reads = Counter((r, task.id) for task in plan.tasks for r in task.inputs)
    fills = Counter((r, task.id) for task in plan.tasks for r in task.outputs)
    if reads != Counter((r.id, c) for r in plan.registers for c in r.consumers):
        yield "PLAN-FORM: the tasks' inputs and the registers' consumers are not the same pairs"
    if fills != Counter((r.id, r.producer) for r in plan.registers):
        yield "PLAN-FORM: the tasks' outputs and the registers' producers are not the same pairs"
    for (register, task), times in reads.items():
        if times > 1:
            yield f"PLAN-FORM: task '{plan.tasks[task].name}' reads register '{plan.registers[register].name}' {times} times"
    for message in plan.messages:
        if not 0 <= message.register < len(plan.registers):
            yield f"PLAN-FORM: a message names register {message.register}, which is not in the plan"


def _task(plan: Plan, task: Task) -> Iterator[str]:
    who = f"PLAN-FORM: task '{task.name}'"
    if task.kind not in KINDS:
        yield f"{who} is of unknown kind {task.kind!r}; kinds: {', '.join(KINDS)}"
    if task.count < 1 or (task.count > 1 and task.kind not in ("repeat", "acc", "pack", "unpack")):
        yield f"{who}, a {task.kind}, has count {task.count}"
    if task.time < 0:
        yield f"{who} takes time {task.time}"
    if not task.inputs and task.kind != "source":
        yield f"{who} is a {task.kind} without inputs: only a source starts by itself and knows its end"
    if (task.rank, task.stream) not in plan.stream_of:
        yield f"{who} is on stream '{task.stream}' of rank {task.rank}, which the plan does not list"
    reads = [plan.registers[r] for r in task.inputs if plan.registers[r].kind != "ctrl"]
    fills = [plan.registers[r] for r in task.outputs if plan.registers[r].kind != "ctrl"]
    if (task.kind in FORWARDING or task.kind in ("acc", "pack", "unpack")) and len(reads) != 1:
        yield f"{who}, a {task.kind}, has {len(reads)} data inputs instead of 1"
    if task.kind == "recv" and any(r.kind != "message" for r in reads):
        yield f"{who}, a recv, reads something other than a message"
    if task.kind == "send" and (len(fills) != 1 or fills[0].kind != "message"):
        yield f"{who}, a send, must fill one message and nothing else"
    yield from _in_place(plan, task, who)


def _in_place(plan: Plan, task: Task, who: str) -> Iterator[str]:
    if task.in_place and task.kind not in ("compute", "sink", "buffer", "repeat"):
        yield f"{who}, a {task.kind}, cannot work in place"
    for into, out in task.in_place:
        if into not in task.inputs or out not in task.outputs:
            yield f"{who}: in-place pair ({into}, {out}) is not an input and an output of it"
            continue
        number = plan.registers[out].number
        if task.kind != "repeat" and number != 1:
            yield f"{who}: '{plan.registers[out].name}' takes over its input's memory, so its number is 1, not {number}"
        if plan.registers[out].initial:
            yield f"{who}: '{plan.registers[out].name}' takes over its input's memory, so it starts empty"
        one, other = plan.registers[into].memory, plan.registers[out].memory
        if one != other:
            yield f"{who}: '{plan.registers[out].name}' is in place of '{plan.registers[into].name}' but lies elsewhere"
    for which in (0, 1):
        if len({pair[which] for pair in task.in_place}) != len(task.in_place):
            yield f"{who}: a register is in two in-place pairs"


def _register(plan: Plan, register: RegisterDesc) -> Iterator[str]:
    who = f"PLAN-FORM: register '{register.name}'"
    source = plan.tasks[register.producer]
    ranks = {plan.tasks[c].rank for c in register.consumers}
    if register.number < (0 if register.kind == "message" else 1):
        yield f"{who} has number {register.number}: '{source.name}' could never act"
    if register.initial > register.number:
        yield f"{who} starts with {register.initial} full of {register.number}"
    if register.initial and not register.consumers:
        yield f"{who} starts full, and nobody would ever give it back"
    if register.kind == "data" and ranks - {source.rank}:
        yield f"{who} is read on rank {min(ranks - {source.rank})} but lies on rank {source.rank}: it needs a send and a recv"
    if register.kind == "message":
        kinds = [source.kind, *(plan.tasks[c].kind for c in register.consumers)]
        if kinds != ["send", "recv"] or ranks == {source.rank}:
            yield f"{who} is a message: one send fills it, one recv on another rank reads it"
        if register.initial:
            yield f"{who} is a message and starts full"
    if register.kind == "ctrl" and register.bytes:
        yield f"{who} is a control register and carries no bytes, not {register.bytes}"
    if register.memory and min(register.memory.offset, register.memory.block) < 0:
        yield f"{who} lies at a negative place"


def _streams(plan: Plan) -> Iterator[str]:
    if len(plan.stream_of) != len(plan.streams):
        yield "PLAN-FORM: two streams of one rank have the same name"
    on: dict[tuple[int, str], set[int]] = {place: set() for place in plan.stream_of}
    for task in plan.tasks:
        on.setdefault((task.rank, task.stream), set()).add(task.id)
    for place, stream in plan.stream_of.items():
        if stream.order and set(stream.order) != on[place]:
            odd = min(set(stream.order) ^ on[place])
            yield f"PLAN-FORM: task {odd} is either on stream '{stream.name}' of rank {stream.rank} or in its order, not both"


def _ends(plan: Plan) -> Iterator[str]:
    """Every task is fed, through registers that start empty, by a source: so the end of the stream reaches it."""
    waits = [sum(not plan.registers[r].initial for r in task.inputs) for task in plan.tasks]
    fed = [task.kind == "source" for task in plan.tasks]
    queue = [task.id for task in plan.tasks if task.kind == "source"]
    while queue:
        for out in plan.tasks[queue.pop()].outputs:
            register = plan.registers[out]
            for consumer in () if register.initial else register.consumers:
                if not fed[consumer]:
                    fed[consumer] = True
                    queue.append(consumer)
    for task in plan.tasks:
        if not fed[task.id]:
            why = "all its inputs start full" if task.inputs and not waits[task.id] else "no source leads to it"
            yield f"PLAN-FORM: task '{task.name}' would never learn that the stream has ended ({why})"
