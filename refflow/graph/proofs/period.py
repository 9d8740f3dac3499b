"""How fast a plan can go: the steady-state period, the bubble, and the least register numbers that reach it.

Implements PROOF-PERIOD, PROOF-BUBBLE and PROOF-NUMBERS of spec/text/plan.md.  The period is the maximum cycle ratio
(time around a cycle of events over tokens on it), found exactly by policy iteration (Cochet-Terrasson, Cohen,
Gaubert, Mc Gettrick and Quadrat, Numerical Computation of Spectral Elements in Max-Plus Algebra, 1998).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from ..plan import DeadlockError, Plan, PlanError, RegisterDesc
from .expansion import CREDIT, DATA, HELD, POST, Events, expand
from .liveness import order
from .rates import actions

Delay = Callable[[RegisterDesc], Fraction]  # how long a message about a register travels


def _no_delay(register: RegisterDesc) -> Fraction:
    return Fraction(0)


@dataclass(frozen=True)
class Period:
    """The exact time of an iteration in steady state, and the actions of a critical cycle as (task, index)."""

    time: Fraction
    critical: tuple[tuple[int, int], ...]

    def words(self, plan: Plan) -> str:
        """The period, and the actions that keep it from being shorter."""
        actions = ", ".join(f"'{plan.tasks[task].name}' #{index}" for task, index in self.critical)
        return f"an iteration every {self.time}, because of {actions}"


def period(plan: Plan, delay: Delay = _no_delay) -> Period:
    """The steady-state period of the plan with the times of its tasks (PROOF-PERIOD).

    `delay` adds a travelling time to what a register tells between ranks.  Streams without a static order are no part
    of the event graph: what they must do one after the other bounds the period from below.  `DeadlockError` if the
    plan is not live.
    """
    events = expand(plan)
    order(events)
    found = cycle_ratio(events, delay)
    return max([found, *_loads(events)], key=lambda p: p.time)


def _loads(events: Events) -> list[Period]:
    """For each stream in free order, the time of all it does in an iteration."""
    plan = events.plan
    loads = []
    for stream in plan.streams:
        if not stream.order:
            here = [t for t in plan.tasks if (t.rank, t.stream) == (stream.rank, stream.name)]
            total = sum((t.time * events.actions[t.id] for t in here), Fraction(0))
            loads.append(Period(total, tuple((t.id, i) for t in here for i in range(events.actions[t.id]))))
    return loads


def cycle_ratio(events: Events, delay: Delay = _no_delay) -> Period:
    """The maximum cycle ratio of the event graph, which must be live."""
    weights, scale = weights_of(events, delay)
    best = Period(Fraction(-1), ())
    for component in _components(events):
        ratio, cycle = _howard(events, weights, component)
        if ratio > best.time:
            acts = tuple((events.task[v], events.index[v]) for v in cycle if v not in events.posts.values())
            best = Period(ratio, acts)
    return Period(best.time / scale, best.critical)


def weights_of(events: Events, delay: Delay = _no_delay) -> tuple[list[int], int]:
    """Whole-number weights of the edges (time of the source, and travel), and what they were multiplied by."""
    plan = events.plan
    times = [task.time for task in plan.tasks]
    travels = [delay(register) for register in plan.registers]
    scale = math.lcm(*(t.denominator for t in times), *(t.denominator for t in travels))
    its = [int(t * scale) for t in times]
    whole = [its[task] if events.is_action(v) else 0 for v, task in enumerate(events.task)]
    moved = [int(t * scale) for t in travels]
    rank = [plan.tasks[t].rank for t in events.task]
    weights = []
    for source, target, why, via in zip(events.source, events.target, events.why, events.via):
        far = why in (DATA, CREDIT, POST, HELD) and rank[source] != rank[target]
        weights.append(whole[source] + (moved[via] if far else 0))
    return weights, scale


def _components(events: Events) -> list[list[int]]:
    """The strongly connected components with an edge inside (Tarjan, 1972, without recursion)."""
    outgoing, targets = events.outgoing, events.target
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on: set[int] = set()
    found = []
    for root in range(len(events.task)):
        if root in number:
            continue
        work = [(root, 0)]
        while work:
            v, at = work.pop()
            if at == 0:
                number[v] = low[v] = len(number)
                stack.append(v)
                on.add(v)
            edges = outgoing[v]
            while at < len(edges):
                w = targets[edges[at]]
                at += 1
                if w not in number:
                    work += [(v, at), (w, 0)]
                    break
                if w in on:
                    low[v] = min(low[v], number[w])
            else:
                if low[v] == number[v]:
                    component: list[int] = []
                    while not component or component[-1] != v:
                        component.append(stack.pop())
                    on.difference_update(component)
                    if len(component) > 1 or any(targets[e] == v for e in edges):
                        found.append(component)
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[v])
    return found


Way = tuple[int, int, int]  # an edge from an event: its target, weight and tokens


def _howard(events: Events, weights: list[int], component: list[int]) -> tuple[Fraction, list[int]]:
    """Policy iteration on one component: every event follows one edge; the best cycle of that choice gives a ratio and
    potentials; choices that raise a potential are taken until none does.
    """
    inside, targets, tokens = set(component), events.target, events.tokens
    ways = {
        v: [(targets[e], weights[e], tokens[e]) for e in events.outgoing[v] if targets[e] in inside] for v in component
    }
    into: dict[int, list[tuple[int, Way]]] = {v: [] for v in component}
    for v, out in ways.items():
        for way in out:
            into[way[0]].append((v, way))
    policy = {v: max(out, key=lambda way: (way[1], -way[2])) for v, out in ways.items()}
    while True:
        ratio, cycle = _best_cycle(policy, component)
        p, q = ratio.numerator, ratio.denominator
        value = _potentials(policy, into, cycle, p, q)
        improved = False
        for v, out in ways.items():
            here = value[v]
            for way in out:
                target, weight, spent = way
                gain = q * weight - p * spent + value[target]
                if gain > here:
                    policy[v], value[v], here, improved = way, gain, gain, True
        if not improved:
            return ratio, cycle


def _best_cycle(policy: dict[int, Way], component: list[int]) -> tuple[Fraction, list[int]]:
    """The cycle of the policy graph with the largest ratio."""
    best, chosen = Fraction(-1), []
    met: dict[int, int] = {}
    for root in component:
        v, path = root, []
        while v not in met:
            met[v] = root
            path.append(v)
            v = policy[v][0]
        if met[v] == root:
            cycle = path[path.index(v) :]
            tokens = sum(policy[u][2] for u in cycle)
            if not tokens:
                raise DeadlockError("a cycle of events without a token: prove liveness first")
            ratio = Fraction(sum(policy[u][1] for u in cycle), tokens)
            if ratio > best:
                best, chosen = ratio, cycle
    return best, chosen


def _potentials(
    policy: dict[int, Way], into: dict[int, list[tuple[int, Way]]], cycle: list[int], p: int, q: int
) -> dict[int, int]:
    """The weight (time less ratio times tokens, times q) of each event's way to the cycle, which all are made to reach."""
    following: dict[int, list[int]] = {}
    for v, (target, _, _) in policy.items():
        following.setdefault(target, []).append(v)
    value = {cycle[0]: 0}
    for v in reversed(cycle[1:]):
        target, weight, tokens = policy[v]
        value[v] = q * weight - p * tokens + value[target]
    queue, late = list(value), list[int]()
    while len(value) < len(into):
        if queue:  # events whose policy leads there keep it
            v = queue.pop()
            for u in following.get(v, ()):
                if u not in value:
                    _, weight, tokens = policy[u]
                    value[u] = q * weight - p * tokens + value[v]
                    queue.append(u)
            late.append(v)
        else:  # the others are given an edge that does
            v = late.pop()
            for u, way in into[v]:
                if u not in value:
                    policy[u] = way
                    value[u] = q * way[1] - p * way[2] + value[v]
                    queue.append(u)
    return value


def bubble(plan: Plan, time: Fraction, kind: str = "compute") -> Fraction:
    """The part of `time` (of one iteration) in which streams of a kind stand idle, on average over those that have
    work that takes time (PROOF-BUBBLE).
    """
    counts = actions(plan)
    busy: dict[tuple[int, str], Fraction] = {}
    for task in plan.tasks:
        place = (task.rank, task.stream)
        if plan.stream_of[place].kind == kind and task.time:
            busy[place] = busy.get(place, Fraction(0)) + task.time * counts[task.id]
    if not busy or not time:
        raise PlanError(f"plan '{plan.name}': no {kind} stream, or no time, to have a bubble in")
    return 1 - sum(busy.values(), Fraction(0)) / (len(busy) * time)


def best_period(plan: Plan, delay: Delay = _no_delay) -> Fraction:
    """The period with as many registers as are of use (PROOF-NUMBERS)."""
    events = expand(plan, credits=False)
    return max(cycle_ratio(events, delay).time, *(p.time for p in _loads(events)), Fraction(0))


def irreducible(plan: Plan, delay: Delay = _no_delay) -> dict[int, int]:
    """Register numbers that reach the best period, of which none can drop by one (PROOF-NUMBERS).

    In order of register id each is made as small as the others allow.  Fewer registers never help, so what could not
    drop then cannot later.  Rendezvous, in-place and control registers keep their number; a channel keeps one at least.
    """
    goal, counts = best_period(plan, delay), actions(plan)
    taken = {out for task in plan.tasks for _, out in task.in_place}
    free = [r for r in plan.registers if r.kind != "ctrl" and r.number and r.id not in taken and r.consumers]
    numbers = {r.id: max(r.number, r.initial + 1) for r in free}
    events = expand(plan, counts)
    for _ in range(64):
        if _reaches(plan.with_numbers(numbers), goal, delay):
            break
        numbers = {id: 2 * number for id, number in numbers.items()}
    else:
        raise PlanError(f"plan '{plan.name}': no register numbers reach the period {goal}: {_kept(events)}")
    for register in free:
        low, high = max(1, register.initial), numbers[register.id]
        while low < high:
            middle = (low + high) // 2
            if _reaches(plan.with_numbers({**numbers, register.id: middle}), goal, delay):
                high = middle
            else:
                low = middle + 1
        numbers[register.id] = high
    return numbers


def _kept(events: Events) -> str:
    fixed = [r.name for r in events.plan.registers if r.kind == "ctrl" or not r.number]
    return "control and rendezvous registers keep their number" + (f" ({', '.join(fixed[:5])})" if fixed else "")


def _reaches(plan: Plan, goal: Fraction, delay: Delay) -> bool:
    events = expand(plan)
    try:
        order(events)
    except DeadlockError:
        return False
    return cycle_ratio(events, delay).time <= goal
