"""Tracing: the same user code, run on values without numbers, leaves a logical graph.

Implements GRAPH-TRACE, GRAPH-LAZY and GRAPH-SAME-CHOICE of spec/text/graph.md.  The tracer is an interpreter behind
`bind`; it lowers each primitive as the eager one does, so a graph has the signatures and boxings of eager code, and the
same bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import GraphError
from ..ir import SPECIAL, Meta, Node, Primitive, Value, lower, to_global
from ..ir.bind import record
from ..layout import Sbp, broadcast
from ..random import Generator
from ..state import Override, settings
from ..tensor.tensor import Tensor
from .logical import key
from .time import TimedPlacement, TimeWorld, spread, timed, timed_meta


@dataclass(eq=False)
class Trace:
    """What the lazy values of one trace of the graph called `graph` belong to; `over` when it has ended."""

    graph: str
    over: bool = False

    def refuse_later(self) -> NoReturn:
        """`GraphError` for a lazy value that build left somewhere."""
        raise GraphError(
            f"a lazy tensor, which has no numbers, is left over from build() of graph {self.graph};"
            " return it from build(), and use what the call returns"
        )


class Unborn(Mapping[int, Any]):
    """The shards of a lazy value: there are none yet, and asking for one says so (GRAPH-LAZY)."""

    def __init__(self, trace: Trace | None = None) -> None:
        self.trace = trace

    def _refuse(self) -> NoReturn:
        if self.trace is not None and self.trace.over:
            self.trace.refuse_later()
        raise GraphError(
            "a lazy tensor has no numbers inside build(): numpy(), item(), bool(), printing and branching on values"
            " belong outside the graph; return the tensor from build() and look at it there"
        )

    def __getitem__(self, rank: int) -> Any:
        self._refuse()

    def __iter__(self) -> Iterator[int]:
        self._refuse()

    def __len__(self) -> int:
        self._refuse()


def is_lazy(value: Value) -> bool:
    """Whether `value` belongs to a graph under construction."""
    return isinstance(value.shards, Unborn)


def refuse_kept(value: Value) -> None:
    """`GraphError` for a lazy value of a trace that is over."""
    if isinstance(value.shards, Unborn) and value.shards.trace is not None and value.shards.trace.over:
        value.shards.trace.refuse_later()


def is_tracing() -> bool:
    """Whether a graph is being traced here."""
    return any(isinstance(one, Tracer) for one in settings().interpreters)


class Tracer:
    """An interpreter that computes nothing and writes down every primitive, boxing included.

    With `steps` > 1 everything lives on meshes with an axis of micro-steps (TIME-AXIS): placements that build names,
    and constants it captures, are put there.
    """

    def __init__(self, steps: int = 1, graph: str = "") -> None:
        self.trace = Trace(graph)
        self.nodes: list[Node] = []
        self.steps = steps
        self.scalars: list[tuple[Value, float]] | None = None  # while optimizers step: the numbers they bring along
        self.scales: list[Value] = []  # where build used the loss scale
        self.scope: int | None = None  # the checkpointed module whose forward runs now
        self.scopes = 0
        self.scope_of: dict[int, int] = {}  # order of a node -> its scope
        self.forward: set[int] = set()  # orders of the nodes made in grad mode
        self.generator: Generator | None = None  # the default one; its ordinals count from the start of the call
        self.asked: dict[int, tuple[Meta, ...]] = {}  # order of a node -> its operands' metas before they were moved for it
        self.inserted: set[int] = set()  # orders of the moves that lowering put in
        self._times_set = 0
        self._draws = (0, 0)
        self._constants: dict[int, tuple[Value, Value]] = {}  # with the captured value, so that its key stays its own

    def bind(self, primitive: Primitive, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        state = settings()
        inputs = tuple(self._constant(value) for value in inputs)
        asked = tuple(value.meta for value in inputs)
        attrs = self._in_time(inputs, attrs)
        if self.scalars is not None and primitive.name == "full" and attrs["shape"] == ():
            return self._scalar(attrs)
        with Override(interpreters=(*state.interpreters, self)):
            if primitive.name == "to_global":
                metas: tuple[Meta, ...] = (inputs[0].meta.with_layout(attrs["placement"], attrs["sbp"]),)
            elif primitive.name in SPECIAL:
                raise GraphError(
                    f"{primitive.name}: only global tensors live in a graph; cross the border outside build()"
                )
            else:
                lowered = lower(primitive, asked, attrs, state.signatures, state.boxing == "explicit")
                first = len(self.nodes)
                inputs = tuple(
                    value if target is None else to_global(value, placement=target.placement, sbp=target.sbp)
                    for value, target in zip(inputs, lowered.targets, strict=True)
                )
                self.inserted.update(node.order for node in self.nodes[first:])
                metas = lowered.outputs
        if metas[0].placement is None:
            raise GraphError(f"{primitive.name}: only global tensors live in a graph; give placement and sbp")
        if primitive.random:
            self._drawn(primitive)
        outputs = tuple(map(self.lazy, metas))
        node = Node(primitive, inputs, dict(attrs), metas, outputs)
        self.nodes.append(node)
        self.asked[node.order] = asked
        if state.grad:
            self.forward.add(node.order)
            if self.scope is not None:
                self.scope_of[node.order] = self.scope
        return record(primitive, inputs, attrs, outputs, state)

    def lazy(self, meta: Meta) -> Value:
        """A lazy value of this trace."""
        return Value(meta, Unborn(self.trace))

    def require_own(self, value: Value) -> Value:
        """`value`; `GraphError` for a lazy one of another trace, which this graph would never have (GRAPH-LAZY)."""
        trace = value.shards.trace if isinstance(value.shards, Unborn) else None
        if trace is not None and trace is not self.trace:
            trace.refuse_later()
        return value

    def _drawn(self, primitive: Primitive) -> None:
        """Draws are moved to the default generator's ordinals when the graph runs, so they must be its own (GRAPH-RANDOM)."""
        assert self.generator is not None
        before, self._draws = self._draws, self.generator.state[1:]
        self.ends_draws()
        if self._draws == before:
            raise GraphError(
                f"{primitive.name}: in build() numbers are drawn from the default generator, not from one of your own"
            )

    def starts_draws(self, generator: Generator) -> None:
        """Draws are those of `generator`, the default one, and count from the start of the call."""
        generator.state = (generator.seed, 0, 0)
        self.generator, self._times_set = generator, generator._times_set

    def ends_draws(self) -> None:
        """`GraphError` if build did more with the generator than draw (GRAPH-RANDOM)."""
        if self.generator is not None and self.generator._times_set != self._times_set:
            raise GraphError(
                "build() seeds the default generator or sets its state, which later calls would not do again; do it before a call"
            )

    def steps_optimizer(self) -> None:
        """The graph steps the optimizers it was given; of another the state would be lost, and the rate a constant (GRAPH-OPTIMIZER)."""
        if self.scalars is None:
            raise GraphError(
                f"{self.trace.graph}: build() steps an optimizer; leave step() out of build(): add_optimizer(optimizer) in __init__"
                " gives it to the graph, which steps it after build()"
            )

    def writes(self, old: Value) -> None:
        """What the graph writes must be state it knows, or the next call would not see it (GRAPH-STATE)."""
        if not is_lazy(old):
            raise GraphError(
                "in-place: build() writes to a tensor that is no parameter or buffer of the graph's modules and no state of"
                " its optimizers; register it as a buffer of a module that is an attribute of the graph"
            )

    def _scalar(self, attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        """A number of the optimizer's (a learning rate, a bias correction): another one in the next call (GRAPH-SCALARS)."""
        assert self.scalars is not None
        value = self.lazy(Meta((), attrs["dtype"], attrs["placement"], attrs["sbp"]))
        self.scalars.append((value, attrs["value"]))
        return (value,)

    def _constant(self, value: Value) -> Value:
        """A captured eager value, the same in every micro-step."""
        if is_lazy(value) or value.meta.placement is None:
            return self.require_own(value)
        if value.requires_grad and settings().grad:
            raise GraphError(
                "build() uses a tensor from outside that requires a gradient, and its gradient would be lost: make its module"
                " an attribute of the graph, or add an optimizer that has it, or take it under no_grad()"
            )
        if key(value) not in self._constants:
            self._constants[key(value)] = value, spread(value, self.steps, broadcast)
        return self._constants[key(value)][1]

    def _in_time(self, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Attributes that name a placement, with the axis of micro-steps: what moves keeps its sbp there, what is made is B."""
        placement = attrs.get("placement")
        if placement is None or isinstance(placement, TimedPlacement):
            return attrs
        along = inputs[0].meta.sbp[-1] if inputs and inputs[0].meta.sbp else broadcast
        longer = {name: (*attrs[name], along) for name in ("sbp", "grad_sbp") if attrs.get(name) is not None}
        return {**attrs, "placement": timed(placement, self.steps), **longer}


@contextmanager
def lazily(cells: Iterable[Tensor], tracer: Tracer) -> Iterator[dict[int, Value]]:
    """For the block, `tracer` carries out primitives and the cells hold lazy values (given by id of the cell); then all is as before."""
    before = [(cell, cell.value, cell.grad) for cell in cells]
    generator = settings().generator
    assert isinstance(generator, Generator)
    draws = generator.state
    tracer.starts_draws(generator)
    twins: dict[int, Value] = {}
    world = TimeWorld(settings().world, tracer.steps)
    try:
        for cell, value, _ in before:
            twins[id(cell)] = cell._value = twin_of(value, tracer.steps, broadcast, tracer.trace)
            cell._value.owner, cell._value.hooks, cell.grad = value.owner, value.hooks, None
        with Override(interpreters=(*settings().interpreters, tracer), world=world):
            yield twins
            tracer.ends_draws()
    finally:
        tracer.trace.over = True
        generator.state = draws
        for cell, value, grad in before:
            cell._value, cell.grad = value, grad


def twin_of(value: Value, steps: int, along: Sbp, trace: Trace | None = None) -> Value:
    """A lazy value that stands for `value`."""
    refuse_kept(value)
    if value.meta.placement is None:
        raise GraphError("a graph takes global tensors; to_global(placement, sbp) makes one of a local tensor")
    twin = Value(timed_meta(value.meta, steps, along), Unborn(trace))
    twin.requires_grad = value.requires_grad
    return twin


def twin_tensor(twin: Value) -> Tensor:
    """What build gets of an input: one that requires a gradient finds it in `.grad`, as eagerly."""
    tensor = Tensor(twin)
    if twin.requires_grad:
        twin.owner = weakref.ref(tensor)
    return tensor


def over_steps(tensor: Tensor) -> Tensor:
    """A result brought to B over the micro-steps: the batch's loss, the batch's outputs (TIME-RESULT)."""
    meta = tensor.value.meta
    if meta.placement is None or meta.sbp is None:
        raise GraphError("build() returned a local tensor: only global tensors live in a graph")
    if not isinstance(meta.placement, TimedPlacement):  # a constant, captured from outside
        return Tensor(to_global(tensor.value, placement=meta.placement, sbp=meta.sbp))
    if meta.sbp[-1] == broadcast:
        return Tensor(tensor.value)  # of its own: a cell forgets its lazy value when the trace ends
    return Tensor(to_global(tensor.value, placement=meta.placement, sbp=(*meta.sbp[:-1], broadcast)))


def tensors_in(result: Any, told: str = "build() must return") -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dicts, in order; `GraphError`, which begins as `told`, for anything else but None."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for item in result:
            yield from tensors_in(item, told)
    elif isinstance(result, dict):
        for item in result.values():
            yield from tensors_in(item, told)
    elif result is not None:
        raise GraphError(f"{told} tensors (in tuples, lists or dicts), found {type(result).__name__}")


def rebuilt(result: Any, tensors: Iterator[Any]) -> Any:
    """`result` with its tensors replaced in order."""
    if isinstance(result, Tensor):
        return next(tensors)
    if isinstance(result, (tuple, list)):
        items = [rebuilt(item, tensors) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)  # a named tuple takes them one by one
    if isinstance(result, dict):
        return {key: rebuilt(item, tensors) for key, item in result.items()}
    return result
