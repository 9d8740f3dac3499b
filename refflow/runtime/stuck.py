"""Why a run is stuck, read off its state: who waits for whom, as a cycle in words.  Implements ACT-STUCK of
spec/text/actors.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .actor import DONE, Actor

if TYPE_CHECKING:
    from .run import Run


def waits_for(run: Run, actor: Actor) -> list[tuple[Actor, str]]:
    """The actors this one waits for, and what for."""
    found: list[tuple[Actor | None, str]] = []
    if actor.stream is not None and actor.stream.now is not actor:
        found.append((actor.stream.now, f"its turn on stream '{actor.task.stream}' of rank {actor.task.rank}, behind"))
    for into in actor.inputs:
        if not into.fifo:
            found.append((run.actors[into.desc.producer], f"a register '{into.desc.name}' of"))
        elif into.held and into.out is not None:
            found += [
                (reader, f"'{into.out.desc.name}', in place of its input, from")
                for reader in _readers(run, into.out.desc.id)
            ]
    for out in actor.outputs:
        if not out.free:
            what = (
                "the post of"
                if not out.desc.number
                else f"a free register '{out.desc.name}' (it has {out.desc.number}) from"
            )
            found += [(reader, what) for reader in _readers(run, out.desc.id)]
    return [(other, what) for other, what in found if other is not None]


def _readers(run: Run, register: int) -> list[Actor]:
    """Those of a register's consumers that are furthest behind."""
    desc = run.plan.registers[register]
    ends = []
    for id in desc.consumers:
        actor = run.actors[id]
        if actor is not None:
            ends.append((actor.inputs[actor.task.inputs.index(register)].taken, actor))
    least = min((taken for taken, _ in ends), default=0)
    return [actor for taken, actor in ends if taken == least]


def why_stuck(run: Run) -> str:
    """The cycle of waiting in words; else every actor that waits and has nobody to wait for."""
    path: list[tuple[Actor, str]] = []
    seen: dict[int, int] = {}
    here: Actor | None = next((a for a in run.actors if a is not None and a.handler != DONE and a.acts < a.limit), None)
    while here is not None and here.task.id not in seen:
        seen[here.task.id] = len(path)
        waits = [(other, what) for other, what in waits_for(run, here) if other.handler != DONE]
        path.append((here, waits[0][1] if waits else "what nobody will send"))
        here = waits[0][0] if waits else None
    if here is None:
        return "deadlock: " + ", which ".join(f"'{actor.task.name}' waits for {what}" for actor, what in path)
    cycle = path[seen[here.task.id] :]
    names = [actor.task.name for actor, _ in cycle]
    lines = [f"'{a.task.name}' waits for {what} '{other}'" for (a, what), other in zip(cycle, names[1:] + names[:1])]
    return "deadlock: " + ",\n  which ".join(lines) + ", and so nobody ever acts"
