"""A plan for people: text that a terminal shows, and Graphviz' language.  Implements PLAN-TEXT of spec/text/plan.md."""

from __future__ import annotations

from collections import Counter

from .plan import Plan, RegisterDesc, Task

_COLOURS = {"compute": "#dbe9f6", "copy": "#e5f2dc", "comm": "#fde6cf"}


def text(plan: Plan) -> str:
    """Streams with their tasks in order, then registers, then messages."""
    lines = [
        f"plan '{plan.name}': {len(plan.tasks)} tasks, {len(plan.registers)} registers, {len(plan.streams)} streams, "
        f"{len(plan.messages)} messages an iteration, {plan.iterations} iteration{'s' * (plan.iterations != 1)}"
    ]
    for stream in plan.streams:
        how = "in this order: " + _runs(plan, stream.order) if stream.order else "any order"
        lines.append(f"rank {stream.rank}, stream {stream.name} ({stream.kind}), {how}")
        here = [task for task in plan.tasks if (task.rank, task.stream) == (stream.rank, stream.name)]
        lines.extend("  " + task_line(plan, task) for task in here)
    lines.append("registers")
    lines.extend("  " + register_line(plan, register) for register in plan.registers)
    if plan.messages:
        lines.append("messages, in total order")
    for position, message in enumerate(plan.messages):
        name = plan.registers[message.register].name
        lines.append(f"  {position}: '{name}' number {message.index}, rank {message.source} to rank {message.target}")
    return "\n".join(lines)


def task_line(plan: Plan, task: Task) -> str:
    """One task in words: kind, what it reads, what it fills."""
    paired = {out: into for into, out in task.in_place}
    reads = ", ".join(plan.registers[r].name for r in task.inputs) or "-"
    fills = ", ".join(
        plan.registers[r].name + (f" (in place of {plan.registers[paired[r]].name})" if r in paired else "")
        for r in task.outputs
    )
    count = f" x{task.count}" if task.count != 1 else ""
    cost = f", time {task.time}" if task.time else ""
    payload = f" [{task.payload}]" if task.payload else ""
    return f"{task.id}: {task.name}, {task.kind}{count}{payload}: {reads} -> {fills or '-'}{cost}"


def register_line(plan: Plan, register: RegisterDesc) -> str:
    """One register descriptor in words: number, bytes, place, who fills and who reads it."""
    readers = ", ".join(plan.tasks[c].name for c in register.consumers) or "nobody"
    place = f", block {register.memory.block} at {register.memory.offset}" if register.memory else ""
    full = f", {register.initial} full at the start" if register.initial else ""
    shape = f", time shape {list(register.time_shape)}" if register.time_shape else ""
    return (
        f"{register.id}: {register.name}, {register.kind}, {register.number} of {register.bytes} bytes{place}{full}{shape}: "
        f"{plan.tasks[register.producer].name} -> {readers}"
    )


def _runs(plan: Plan, order: tuple[int, ...]) -> str:
    seen: Counter[int] = Counter()
    many = Counter(order)
    words = []
    for task in order:
        words.append(plan.tasks[task].name + (f"#{seen[task]}" if many[task] > 1 else ""))
        seen[task] += 1
    return " ".join(words)


def dot(plan: Plan) -> str:
    """A digraph: a cluster per rank, a fill colour per kind of stream, an edge per consumer with the register number."""
    kinds = {place: stream.kind for place, stream in plan.stream_of.items()}
    lines = [f"digraph {_quoted(plan.name)} {{", "  rankdir=LR; node [shape=box, style=filled, fontname=sans];"]
    for rank in plan.ranks:
        lines.append(f"  subgraph cluster_{rank} {{ label={_quoted(f'rank {rank}')};")
        for task in plan.on_rank(rank):
            colour = _COLOURS[kinds.get((task.rank, task.stream), "compute")]
            label = _quoted(f"{task.name}\\n{task.stream}")
            lines.append(f'    t{task.id} [label={label}, fillcolor="{colour}"];')
        lines.append("  }")
    for register in plan.registers:
        style = ", style=dashed" if register.kind == "ctrl" else ", penwidth=2" if register.kind == "message" else ""
        label = _quoted(
            f"{register.name} x{register.number}" + (f" ({register.initial} full)" if register.initial else "")
        )
        for consumer in register.consumers:
            lines.append(f"  t{register.producer} -> t{consumer} [label={label}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(words: str) -> str:
    return '"' + words.replace('"', '\\"') + '"'
