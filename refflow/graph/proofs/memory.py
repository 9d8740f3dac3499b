"""Memory: who may share bytes, and how many bytes a rank needs.

Implements PROOF-SHARE, PROOF-INPLACE and PROOF-BYTES of spec/text/plan.md.  A register lives from the first action that
writes it to the last event that releases it.  Let D(a, b) be the fewest tokens on a way from the release of a to the
write of b.  Two tokens may share bytes if and only if D(a, b) + D(b, a) = 1: then they alternate in every run, within
an iteration and across iterations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..plan import FORWARDING, Plan
from .expansion import Events

Token = tuple[int, int]  # (register, index in the iteration)


@dataclass(frozen=True)
class Bytes:
    """What a rank needs: planned blocks, registers that have no place in one, workspaces, and their sum."""

    blocks: int
    registers: int
    workspaces: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.blocks + self.registers + self.workspaces


def roots(plan: Plan) -> list[int]:
    """For each register the one whose memory it lies in: itself, or what it is in place of."""
    parent = {out: into for task in plan.tasks for into, out in task.in_place}
    root = list(range(len(plan.registers)))
    for id in range(len(root)):
        path, here = [id], id
        while here in parent and len(path) <= len(root):
            here = parent[here]
            path.append(here)
        root[id] = here
    return root


def bytes_needed(plan: Plan) -> Mapping[int, Bytes]:
    """The memory bound of every rank (PROOF-BYTES): no schedule needs more, whatever it does.

    A channel's registers lie at the receiver, a rendezvous needs none.
    """
    blocks: dict[tuple[int, int], int] = {}
    loose = dict.fromkeys(plan.ranks, 0)
    own = dict.fromkeys(plan.ranks, 0)
    root = roots(plan)
    for register in plan.registers:
        rank = plan.tasks[register.consumers[0] if register.kind == "message" else register.producer].rank
        if register.memory is not None:
            end = register.memory.offset + size(plan, register.id)
            place = (rank, register.memory.block)
            blocks[place] = max(blocks.get(place, 0), end)
        elif root[register.id] == register.id:
            loose[rank] += register.number * register.bytes
    for task in plan.tasks:
        own[task.rank] += task.workspace
    planned = dict.fromkeys(plan.ranks, 0)
    for (rank, _), end in blocks.items():
        planned[rank] += end
    return {rank: Bytes(planned[rank], loose[rank], own[rank]) for rank in plan.ranks}


def size(plan: Plan, register: int) -> int:
    """Bytes of all a descriptor's registers; those of a repeat are one piece of memory under many names."""
    desc = plan.registers[register]
    task = plan.tasks[desc.producer]
    alias = task.kind == "repeat" and any(out == register for _, out in task.in_place)
    return desc.bytes if alias else desc.bytes * desc.number


def faults(events: Events, order: list[int]) -> list[str]:
    """What is wrong with memory, in words; empty if nothing is."""
    reach = _Reach(events, order)
    return [*_blocks_shared(events.plan), *_written_in_place(events, reach), *_overlaps(events, reach, order)]


def _blocks_shared(plan: Plan) -> Iterator[str]:
    owner: dict[int, int] = {}
    for register in plan.registers:
        if register.memory is not None:
            rank = plan.tasks[register.consumers[0] if register.kind == "message" else register.producer].rank
            if owner.setdefault(register.memory.block, rank) != rank:
                yield f"PROOF-SHARE: '{register.name}' of rank {rank} lies in a block of rank {owner[register.memory.block]}"


class _Reach:
    """Answers whether an event always comes before another, `tokens` iterations later (0 or 1)."""

    def __init__(self, events: Events, order: list[int]) -> None:
        self.events = events
        self.place = {event: position for position, event in enumerate(order)}
        self.turn: dict[int, tuple[int, int]] = {}
        for number, stream in enumerate(events.plan.streams):
            done = dict.fromkeys(stream.order, 0)
            for position, task in enumerate(stream.order):
                self.turn[events.base[task] + done[task]] = (number, position)
                done[task] += 1

    def before(self, source: int, target: int, tokens: int) -> bool:
        """Is there a way from `source` to `target` with at most `tokens` tokens?"""
        if source == target:
            return tokens > 0  # an action ends after it begins
        one, two = self.turn.get(source), self.turn.get(target)
        if one and two and one[0] == two[0] and (tokens or one[1] < two[1]):
            return True
        return self._search(source, target, tokens)

    def _search(self, source: int, target: int, tokens: int) -> bool:
        events, last = self.events, self.place[target]
        least = {source: 0}
        queue = deque([source])
        while queue:
            event = queue.popleft()
            spent = least[event]
            for edge in events.outgoing[event]:
                after, used = events.target[edge], spent + events.tokens[edge]
                if used > tokens or used >= least.get(after, tokens + 1):
                    continue
                if used == tokens and self.place[after] > last:
                    continue  # what comes later in this iteration's order has no token-free way back
                if after == target:
                    return True
                least[after] = used
                queue.append(after)
        return False


def _written_in_place(events: Events, reach: _Reach) -> Iterator[str]:
    """Who writes over its input comes after everybody else who reads it."""
    plan = events.plan
    for task in plan.tasks:
        for into, out in task.in_place if task.kind not in FORWARDING else ():
            register = plan.registers[into]
            for other in register.consumers:
                if other == task.id:
                    continue
                for token in range(events.filled_by(into)):
                    writer = events.reads(task.id, token)[0]
                    if not reach.before(events.released_by(into, other, token), writer, 0):
                        yield (
                            f"PROOF-INPLACE: '{task.name}' writes '{plan.registers[out].name}' over '{register.name}' while "
                            f"'{plan.tasks[other].name}' may still read it"
                        )
                        break


def _overlaps(events: Events, reach: _Reach, order: list[int]) -> Iterator[str]:
    """Between two neighbouring borders of a block, the tokens that lie there must take turns around the iteration.

    If each is released before the next is written, and the last before the first is written an iteration later, all
    pairs alternate; and if all pairs do, then in any valid order each neighbour does.
    """
    told: set[tuple[int, int]] = set()
    proved: set[tuple[Token, Token, int]] = set()
    for here in _segments(events.plan):
        if len(here) < 2:
            continue
        plan = events.plan
        for register in here:
            desc = plan.registers[register]
            if (desc.number != 1 or desc.initial) and not told.intersection((register, other) for other in here):
                told.update((register, other) for other in here)
                why = "starts full" if desc.initial else f"has number {desc.number}"
                other = plan.registers[next(r for r in here if r != register)].name
                yield f"PROOF-SHARE: '{desc.name}' shares bytes with '{other}' but {why}; what shares has number 1 and starts empty"
        tokens = [(r, i) for r in here for i in range(events.filled_by(r))]
        tokens.sort(key=lambda t: reach.place[events.fills(*t)[0]])
        for position, token in enumerate(tokens):
            following = tokens[(position + 1) % len(tokens)]
            later = int(position + 1 == len(tokens))
            pair = (min(token[0], following[0]), max(token[0], following[0]))
            if token[0] == following[0] or pair in told or (token, following, later) in proved:
                continue
            proved.add((token, following, later))
            if late := _late_reader(events, reach, token, following, later):
                told.add(pair)
                yield (
                    f"PROOF-SHARE: '{plan.registers[token[0]].name}' and '{plan.registers[following[0]].name}' share bytes, but "
                    f"'{plan.tasks[plan.registers[following[0]].producer].name}' may write "
                    f"{'for the next iteration ' * later}while '{late}' still reads: nothing orders them"
                )


def _late_reader(events: Events, reach: _Reach, token: Token, following: Token, later: int) -> str:
    """Who may still read `token` when `following` is written; empty if nobody may."""
    register = events.plan.registers[token[0]]
    write = events.fills(*following)[0]
    for consumer in register.consumers:
        if not reach.before(events.released_by(*_at(token, consumer)), write, later):
            return events.plan.tasks[consumer].name
    if not register.consumers and not reach.before(events.fills(*token)[1], write, later):
        return events.plan.tasks[register.producer].name
    return ""


def _at(token: Token, consumer: int) -> tuple[int, int, int]:
    return token[0], consumer, token[1]


def _segments(plan: Plan) -> list[tuple[int, ...]]:
    """For each block, the sets of registers that lie between neighbouring borders, without repeats."""
    root = roots(plan)
    spans: dict[int, list[tuple[int, int, int]]] = {}
    for register in plan.registers:
        if register.memory is not None and root[register.id] == register.id and register.bytes:
            start = register.memory.offset
            spans.setdefault(register.memory.block, []).append((start, start + size(plan, register.id), register.id))
    found: dict[tuple[int, ...], None] = {}
    for block in spans.values():
        borders = sorted([(start, 1, id) for start, _, id in block] + [(end, 0, id) for _, end, id in block])
        open: set[int] = set()
        last = -1
        for border, starts, id in borders:
            if border > last and open:
                found[tuple(sorted(open))] = None
            last = border
            (open.add if starts else open.discard)(id)
    return list(found)
