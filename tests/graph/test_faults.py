"""Deliberate faults of tracing, passes and compiler, each caught by a small law: the tests of graphs test something.

A fault replaces one thing by a plausible wrong one; its detector passes without it and fails, or is told, with it.
PASS-BITS, PASS-COMMON, PASS-COMPOSE, PASS-RECOMPUTE, TIME-AXIS, TIME-INPUT, TIME-RESULT, GRAPH-STATE, GRAPH-SCALARS,
GRAPH-RANDOM, ZERO-STATE, PLAN-TIME, PLAN-BOXING, ACT-ACC, ACT-PACK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow import Tensor, nn
from refflow.errors import RefflowError
from refflow.graph import api, compile, execute, order, passes, time, trace, zero
from refflow.graph.api import Graph
from refflow.graph.buffers import LaidDown
from refflow.graph.logical import LogicalGraph, key
from refflow.graph.moves import Moves
from refflow.graph.tasks import Tasks
from refflow.graph.trace import Tracer
from refflow.ir import Node, Value
from refflow.ir.lower import frozen
from refflow.layout import Placement, broadcast
from refflow.runtime import work
from refflow.tensor.backward import grad
from tests.faults.planting import everywhere, instead
from tests.graph.nets import Told, dropped, mlp, rows
from tests.graph.nets import run as train
from tests.graph.running import B, Of, P, S, bits, proved

PAIR = Placement("cpu", [0, 1])
Detector = Callable[[], None]


@dataclass(frozen=True)
class Fault:
    """What is planted, and the law that notices."""

    plant: Callable[[], AbstractContextManager[None]]
    detect: Detector


FAULTS: dict[str, Fault] = {}


def fault(detect: Detector) -> Callable[[Callable[[], AbstractContextManager[None]]], None]:
    """Registers the decorated planting under its name."""

    def register(plant: Callable[[], AbstractContextManager[None]]) -> None:
        FAULTS[plant.__name__.replace("_", " ")] = Fault(plant, detect)

    return register


# --- detectors --------------------------------------------------------------------------------------------------------


def eager_bits(function: Callable[..., Any], *args: Tensor, micro: int = 1, zero: int = 0, calls: int = 1) -> None:
    """GRAPH-RUN: a graph of `function` gives eager's bits, call after call, and a sound plan."""
    graph = Of(function, micro)
    if zero:
        graph.config.enable_zero(stage=zero)
    flow.manual_seed(0)
    lazy = [[bit[2:] for bit in bits(graph(*args))] for _ in range(calls)]
    proved(graph)
    flow.manual_seed(0)
    assert lazy == [[bit[2:] for bit in bits(function(*args))] for _ in range(calls)]


def x(values: Any = None, sbp: Any = None) -> Tensor:
    data = rows(8, 4) if values is None else np.array(values, np.float32)
    return flow.tensor(data, placement=PAIR, sbp=S(0) if sbp is None else sbp)


def sum_in_order() -> None:
    """TIME-AXIS: 1e8 + 1 - 1e8 + 1 by the tree is 0, one after the other it is 1."""
    eager_bits(lambda x: x.sum(0), flow.tensor([1e8, 1.0, -1e8, 1.0], placement=Placement("cpu", [0]), sbp=B), micro=4)


def rows_in_order() -> None:
    """TIME-INPUT, TIME-RESULT: rows come out as they went in."""
    eager_bits(lambda x: x * 2, x(), micro=4)


def rows_know_their_place() -> None:
    """PLAN-TIME: a triangle cut in micro-steps is the triangle."""
    eager_bits(flow.tril, x(rows(8, 8)), micro=4)


def uses_keep_their_order() -> None:
    """AUTO-ORDER: gradients of equal values made thrice."""

    def f(x: Tensor) -> Any:
        x = x.detach().requires_grad_()
        loss = (flow.exp(x) * 0.1 + (flow.exp(x) * 0.7 + flow.exp(x) * 1e-4)).sum()
        return grad(loss, [x])

    eager_bits(f, x())


def draws_differ() -> None:
    """PASS-COMMON: two draws are two."""
    eager_bits(lambda x: x + flow.rand(4, placement=PAIR, sbp=B) - flow.rand(4, placement=PAIR, sbp=B), x())


def dropout_goes_on() -> None:
    """GRAPH-RANDOM: call after call."""
    eager_bits(lambda x: nn.functional.dropout(x), x(), calls=3)


def both_moves_arrive() -> None:
    """PASS-COMPOSE: what is moved on is still where it was."""

    def f(x: Tensor) -> Any:
        y = x.to_global(sbp=B)
        return y.to_global(sbp=S(0)), y * 2

    eager_bits(f, x(sbp=B).to_global(sbp=P), zero=2)


def blocks_arrive() -> None:
    """PLAN-BOXING"""
    eager_bits(lambda x: x.to_global(sbp=S(1)), x())


def trains(told: Told, net: Any = mlp, steps: int = 3) -> None:
    """GRAPH-STATE, GRAPH-SCALARS, GRAPH-OPTIMIZER: a few steps with a rate that changes and momentum."""
    found = train(net, told, steps=steps)
    assert found.graph is not None
    proved(found.graph)
    assert found == train(net, steps=steps)


def normed() -> None:
    """GRAPH-STATE: running statistics."""

    class Step(Graph):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def build(self, x: Tensor) -> Tensor:
            return self.model(x)

    found = []
    for lazy in (True, False):
        model = nn.BatchNorm1d(4).to_global(PAIR, B)
        with flow.no_grad():
            result = (Step(model) if lazy else model)(x())
        found.append(bits([result, *model.buffers()]))
    assert found[0] == found[1]


plain, longer = partial(trains, Told((2,))), partial(trains, Told((2,)), steps=4)
micro = partial(trains, Told((2,), micro=4))
zero1 = partial(trains, Told((2,), zero=1))
recomputed = partial(trains, Told(recompute=True), dropped)

# --- faults -----------------------------------------------------------------------------------------------------------


@fault(sum_in_order)
def gradients_accumulated_one_after_the_other() -> AbstractContextManager[None]:
    return everywhere(work.nodes_closed, lambda n: (0, *[1] * (n - 1)))


@fault(rows_in_order)
def pack_in_reverse_order() -> AbstractContextManager[None]:
    right = work._pack

    def wrong(kernel: Any, outputs: int) -> Any:
        return right(lambda at, *parts: kernel(at, *reversed(parts)), outputs)

    return everywhere(right, wrong)


@fault(micro)
def micro_steps_accumulated_even_ones_first() -> AbstractContextManager[None]:
    right = work._accumulate

    def wrong(kernel: Any, outputs: int) -> Any:
        held: list[Any] = []
        inner = right(kernel, outputs)

        def late(actor: Any, at: Any, values: list[Any]) -> Any:
            held.append(values)
            if at.phase + 1 < actor.count:
                return None
            mine, held[:] = held[::2] + held[1::2], []  # reversed, the tree would be its own mirror image
            return [inner(actor, at._replace(phase=phase), one) for phase, one in enumerate(mine)][-1]

        return late

    return everywhere(right, wrong)


@fault(rows_in_order)
def the_next_micro_batch_is_cut() -> AbstractContextManager[None]:
    right = time.spread

    def wrong(value: Value, steps: int, along: Any) -> Value:
        made = right(value, steps, along)
        moved = {r: made.shards[r // steps * steps + (r + 1) % steps] for r in made.shards}
        return made if along == broadcast else Value(made.meta, moved)

    return everywhere(right, wrong)


@fault(rows_know_their_place)
def every_micro_step_is_lowered_as_the_first() -> AbstractContextManager[None]:
    right = compile.lower

    def wrong(primitive: Any, metas: Any, *more: Any) -> Any:
        lowered = right(primitive, metas, *more)
        steps = getattr(metas[0].placement, "steps", 1) if metas else 1
        return replace(lowered, calls={r: lowered.calls[r // steps * steps] for r in lowered.calls})

    return instead(compile, "lower", wrong)


@fault(micro)
def weights_not_repeated() -> AbstractContextManager[None]:
    return instead(Tasks, "_read", lambda self, value, rank, micro: self.at[key(value), rank])


@fault(sum_in_order)
def partials_over_micro_steps_returned_unfolded() -> AbstractContextManager[None]:
    right = trace.over_steps

    def wrong(tensor: Tensor) -> Tensor:
        meta = tensor.value.meta
        if meta.sbp is None or meta.placement is None or meta.sbp[-1] != P:
            return right(tensor)
        return Tensor(Value(meta.with_layout(meta.placement, (*meta.sbp[:-1], broadcast)), tensor.value.shards))

    return everywhere(right, wrong)


@fault(uses_keep_their_order)
def subexpressions_merged_before_backward() -> AbstractContextManager[None]:
    right = Tracer.bind

    def wrong(self: Any, primitive: Any, inputs: Any, attrs: Any) -> Any:
        made = self.__dict__.setdefault("made", {})
        mark = (primitive, tuple(map(id, inputs)), frozen(attrs))
        if primitive.random or mark not in made:
            made[mark] = inputs, right(self, primitive, inputs, attrs)
        return made[mark][1]

    return instead(Tracer, "bind", wrong)


@fault(draws_differ)
def draws_merged() -> AbstractContextManager[None]:
    right = passes.common_subexpressions

    def wrong(graph: LogicalGraph) -> LogicalGraph:
        graph, same, first = right(graph), {}, {}
        for node in graph.nodes:
            if node.primitive.random:
                mark = (node.primitive, frozen({k: v for k, v in node.attrs.items() if k != "stream"}))
                same[key(node.outputs[0])] = first.setdefault(mark, node).outputs[0]
        return graph.with_nodes(passes.rewired(n, tuple(same.get(key(v), v) for v in n.inputs)) for n in graph.nodes)

    return everywhere(right, wrong)


@fault(recomputed)
def dropout_recomputed_with_a_new_draw() -> AbstractContextManager[None]:
    right = passes._copies

    def wrong(nodes: Any, again: Any) -> list[Node]:
        made = right(nodes, again)
        for node in made:
            if node.primitive.random:
                node.attrs = {**node.attrs, "stream": node.attrs["stream"] + 64}
        return made

    return everywhere(right, wrong)


@fault(both_moves_arrive)
def moves_composed_though_the_value_between_is_used() -> AbstractContextManager[None]:
    right = passes.compose_boxing

    def wrong(graph: LogicalGraph) -> LogicalGraph:
        moves: dict[int, Node] = {}
        same: dict[int, Value] = {}
        kept = []
        for node in graph.nodes:
            node = passes.rewired(node, tuple(same.get(key(v), v) for v in node.inputs))
            first = moves.get(key(node.inputs[0])) if node.primitive.name == "to_global" else None
            if first is not None:
                node = passes.rewired(node, first.inputs)
                same[key(first.outputs[0])] = node.outputs[0]  # the value between is thought to be nobody's
            if node.primitive.name == "to_global":
                moves[key(node.outputs[0])] = node
            kept.append(node)
        return passes.dead_code(graph.with_nodes(kept))

    return everywhere(right, wrong)


@fault(blocks_arrive)
def pieces_cut_for_another_target() -> AbstractContextManager[None]:
    right = Moves._cut

    def wrong(self: Any, name: str, step: Any, register: int, source: int, target: int, *more: Any) -> int:
        other = {t: step.assemblies[max(step.assemblies) - t] for t in step.assemblies}
        return right(self, name, replace(step, assemblies=other), register, source, target, *more)

    return instead(Moves, "_cut", wrong)


def two_stages() -> None:
    """PLAN-ORDER, PLAN-BUFFER: four micro-batches through two stages and back, and a sound plan."""
    with flow.virtual_world(2):
        graph = train(mlp, Told(stages=2, micro=4), steps=1).graph
    assert graph is not None
    proved(graph)


@fault(two_stages)
def backward_ordered_before_forward() -> AbstractContextManager[None]:
    def wrong(events: Any, rank: Any, more: Any = ()) -> Any:
        return sorted(range(len(events.task)), key=lambda event: -events.task[event])

    return instead(order, "least_first", wrong)


@fault(two_stages)
def a_register_too_few() -> AbstractContextManager[None]:
    right = LaidDown.in_use
    return instead(LaidDown, "in_use", lambda self, register: max(1, right(self, register) - 1))


@fault(dropout_goes_on)
def draws_counted_twice() -> AbstractContextManager[None]:
    right = execute.run_plan

    def wrong(graph: LogicalGraph, *more: Any, **options: Any) -> Any:
        found = right(graph, *more, **options)
        flow.default_generator().next_global += graph.draws[0]
        return found

    return everywhere(right, wrong)


@fault(dropout_goes_on)
def draws_of_the_first_call_again() -> AbstractContextManager[None]:
    return everywhere(compile.drawn, lambda attrs, generator: dict(attrs))


@fault(plain)
def an_update_lost() -> AbstractContextManager[None]:
    right = Graph._assign

    def wrong(self: Any, variable: Any, value: Value) -> None:
        if not variable.name.endswith("bias"):
            right(self, variable, value)

    return instead(Graph, "_assign", wrong)


@fault(plain)
def momentum_of_the_first_step_lost() -> AbstractContextManager[None]:
    right = Graph._assign

    def wrong(self: Any, variable: Any, value: Value) -> None:
        zeros = {r: a * 0 for r, a in value.shards.items()}
        right(self, variable, Value(value.meta, zeros) if variable.value is None else value)

    return instead(Graph, "_assign", wrong)


@fault(longer)
def numbers_of_an_earlier_call_kept() -> AbstractContextManager[None]:
    right = Graph._step_numbers

    def wrong(self: Any, traced: Any) -> list[float]:
        held = self.__dict__.setdefault("held", {})
        return held.setdefault(id(traced), right(self, traced))

    return instead(Graph, "_step_numbers", wrong)


@fault(zero1)
def zero_gathers_the_parameters_of_before() -> AbstractContextManager[None]:
    right = zero.stepped_in_parts

    @contextmanager
    def wrong(params: Any) -> Iterator[None]:
        held = [(p, p.value) for p in params]
        with right(p for p, _ in held):
            yield
        for p, value in held:
            p._value = value

    return everywhere(right, wrong)


@fault(zero1)
def zero_steps_on_the_mean_of_the_ranks() -> AbstractContextManager[None]:
    """A sum over ranks was meant (the loss is already the batch's mean)."""
    right = zero.stepped_in_parts

    def wrong(params: Any) -> Any:
        chosen = list(params)
        for p in chosen:
            p.grad = None if p.grad is None else p.grad * 0.5
        return right(chosen)

    return everywhere(right, wrong)


@fault(normed)
def buffers_forgotten() -> AbstractContextManager[None]:
    right = Graph._cells

    def wrong(self: Any) -> dict[str, Tensor]:
        return {name: cell for name, cell in right(self).items() if "running" not in name}

    return instead(Graph, "_cells", wrong)


@fault(micro)
def dead_code_takes_updates_for_dead() -> AbstractContextManager[None]:
    right = passes.dead_code

    def wrong(graph: LogicalGraph) -> LogicalGraph:
        names = {v.name for v in graph.variables if v.name.endswith("weight")}
        kept = tuple(v if v.name not in names else replace(v, update=None) for v in graph.variables)
        return right(replace(graph, variables=kept))

    return everywhere(right, wrong)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught(name: str) -> None:
    planted = FAULTS[name]
    with planted.plant(), pytest.raises((AssertionError, RefflowError, KeyError, ValueError, IndexError)):
        planted.detect()


@pytest.mark.parametrize("detect", dict.fromkeys(f.detect for f in FAULTS.values()))
def test_without_a_fault_the_detector_is_silent(detect: Detector) -> None:
    detect()


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 20 and api.run_plan is execute.run_plan
