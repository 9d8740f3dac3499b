"""nn.Graph: a training or inference step, traced once and run many times.

Implements GRAPH-CALL, GRAPH-OPTIMIZER, GRAPH-SCALARS and GRAPH-SHAPE of spec/text/graph.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import AttributeValueError, GraphError
from ..ir import Meta, Node, Value
from ..ir.lower import frozen
from ..layout import NdSbp
from ..state import Override, settings
from ..tensor.tensor import Tensor
from ..world.mpi import MpiWorld
from .compile import Compiled, compile_graph
from .execute import execute, run_plan
from .logical import LogicalGraph, Variable, key
from .passes import common_subexpressions, compose_boxing, dead_code, recompute
from .plan import Plan
from .time import input_sbp
from .trace import Tracer, lazily, over_steps, rebuilt, tensors_in, twin_of
from .zero import gathered_for_use, keep_in_parts, shard_sbp, stepped_in_parts


@dataclass
class GraphConfig:
    """What a graph is to do beyond its build function."""

    accumulation_steps: int = 1
    zero_stage: int = 0
    runtime: str = "actors"  # or "sequential": node by node, in program order
    schedule: Any = None  # makes the schedule of a run; None: the canonical one
    log_events: bool = False

    def enable_zero(self, mode: bool = True, *, stage: int = 2) -> None:
        """Holds optimizer state (1), gradients too (2), parameters too (3) in parts; the bits do not change (ZERO-*)."""
        if stage not in (1, 2, 3):
            raise AttributeValueError(f"enable_zero: the stage must be 1, 2 or 3, found {stage!r}")
        self.zero_stage = stage if mode else 0

    def set_gradient_accumulation_steps(self, steps: int) -> None:
        """Cuts each batch into `steps` micro-batches; the bits do not change (TIME-AXIS)."""
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise AttributeValueError(f"set_gradient_accumulation_steps: needs an int >= 1, found {steps!r}")
        self.accumulation_steps = steps


@dataclass(frozen=True, eq=False)
class Traced:
    """A traced call: its graph, what build returned, and what the optimizers did (to hold later calls against)."""

    graph: LogicalGraph
    result: Any
    compiled: Compiled
    gradients: Mapping[int, Meta]  # id of a parameter -> layout of its gradient
    optimizer_shape: tuple[Any, ...]


class Graph:
    """Base of graphs: assign modules, add optimizers, define `build`; call it like a function of global tensors.

    The first call traces `build`.  With optimizers, `build` calls ``loss.backward()`` and the graph steps them.
    Errors: `GraphError`. Source: GRAPH-CALL.
    """

    def __init__(self) -> None:
        self.config = GraphConfig()
        self._optimizers: list[tuple[Any, Any]] = []
        self._traced: dict[Any, Traced] = {}
        self._inputs: tuple[Meta, ...] | None = None
        self.last_run: Any = None
        self._layouts: dict[int, NdSbp] = {}  # parameters kept in parts: the layout they are used in

    def build(self, *args: Any) -> Any:
        """What the graph computes; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} defines no build()")

    def add_optimizer(self, optimizer: Any, lr_sch: Any = None) -> None:
        """Steps `optimizer` after each build, then the schedule `lr_sch` if there is one."""
        self._optimizers.append((optimizer, lr_sch))

    @property
    def graph(self) -> LogicalGraph:
        """The logical graph of the last new kind of call; `GraphError` before the first call."""
        if not self._traced:
            raise GraphError(f"{type(self).__name__}: not traced yet; the first call traces it")
        return next(reversed(self._traced.values())).graph

    def __str__(self) -> str:
        return str(self.graph) if self._traced else f"{type(self).__name__} (not traced yet)"

    # --- state --------------------------------------------------------------------------------------------------------

    def _cells(self) -> dict[str, Tensor]:
        """Every tensor with state that exists, by name: parameters, buffers, what the optimizers hold."""
        named: dict[str, Tensor] = {}
        for name, module in vars(self).items():
            if hasattr(module, "named_parameters") and hasattr(module, "named_buffers"):
                named.update({f"{name}.{path}": cell for path, cell in module.named_parameters()})
                named.update({f"{name}.{path}": cell for path, cell in module.named_buffers()})
        for name, p, state in self._optimizer_state():
            named.setdefault(name, p)
            named.update({f"{name}.{entry}": cell for entry, cell in state.items() if isinstance(cell, Tensor)})
        once = {id(cell): (name, cell) for name, cell in reversed(named.items())}
        return {name: cell for name, cell in named.items() if once[id(cell)][0] == name}

    def _optimizer_state(self) -> Iterator[tuple[str, Tensor, dict[str, Any]]]:
        for i, (optimizer, _) in enumerate(self._optimizers):
            for j, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
                yield f"optimizer{i}.{j}", p, optimizer.state.get(p, {})

    # --- calls --------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        """One call: outputs with numbers, state written, schedules stepped.  Errors: `GraphError` for another input layout."""
        given = [tensor.value for tensor in tensors_in(args)]
        self._check_inputs(tuple(value.meta for value in given))
        held = tuple(sorted((name, entry) for name, _, state in self._optimizer_state() for entry in state))
        mark = (held, self.config.accumulation_steps, self.config.zero_stage, settings().signatures)
        if self.config.zero_stage == 3 and not self._layouts:
            params = [p for _, p, _ in self._optimizer_state()]
            self._layouts = {id(p): p.sbp for p in params if shard_sbp(p.value) is not None}
            keep_in_parts(params)
        if mark in self._traced:
            traced = self._traced[mark]
            numbers = self._step_numbers(traced)
        else:
            traced, numbers = self._trace(args)
            self._traced[mark] = traced
        outputs, updates = self._run(traced, given, numbers)
        for i, value in updates.items():
            self._assign(traced.graph.variables[i], value)
        for _, schedule in self._optimizers:
            if schedule is not None:
                schedule.step()
        return rebuilt(traced.result, iter([Tensor(value) for value in outputs]))

    def _run(
        self, traced: Traced, given: Sequence[Value], numbers: Sequence[float]
    ) -> tuple[list[Value], dict[int, Value]]:
        world = settings().world
        lockstep = len(world.owned) != world.size and not isinstance(world, MpiWorld)
        if self.config.runtime == "sequential" or lockstep:  # lockstep threads meet at collectives only
            return execute(traced.graph, given, numbers)
        schedule = self.config.schedule() if self.config.schedule is not None else None
        outputs, updates, self.last_run = run_plan(
            traced.graph, traced.compiled, given, numbers, schedule=schedule, log=self.config.log_events
        )
        return outputs, updates

    @property
    def plan(self) -> Plan:
        """The plan of the last new kind of call; `GraphError` before the first call."""
        self.graph  # noqa: B018  (raises)
        return next(reversed(self._traced.values())).compiled.plan

    def _check_inputs(self, metas: tuple[Meta, ...]) -> None:
        if self._inputs is None:
            self._inputs = metas
        elif self._inputs != metas:
            was, now = (", ".join(map(str, m)) for m in (self._inputs, metas))
            raise GraphError(
                f"{type(self).__name__}: traced for {was}; called with {now}; another Graph serves another shape"
            )

    def _assign(self, variable: Variable, value: Value) -> None:
        with Override(grad=False):
            if variable.value is None:  # state the call made: it enters the optimizer now
                variable.cell._value = value
            else:
                variable.cell.write(value)

    def _trace(self, args: Any) -> tuple[Traced, list[float]]:
        """Runs build and the optimizers lazily."""
        steps = self.config.accumulation_steps
        tracer = Tracer(steps)
        cells = self._cells()
        lazy = [twin_of(t.value, steps, input_sbp(t.value.meta, steps)) for t in tensors_in(args)]
        with lazily(cells.values(), tracer) as twins:
            with gathered_for_use([p for _, p, _ in self._optimizer_state()], self._layouts):
                result = self.build(*rebuilt(args, iter([Tensor(value) for value in lazy])))
            gradients = self._gradients()
            first = len(tracer.nodes)
            scalars = self._step_optimizers(tracer)
            outputs = [over_steps(tensor) for tensor in tensors_in(result)]
            shape = shape_of(tracer.nodes[first:])
            variables = [
                Variable(name, cell, twins[id(cell)], cell.value if key(cell.value) != key(twins[id(cell)]) else None)
                for name, cell in cells.items()
            ]
            variables += self._made_state(set(map(id, cells.values())))
            generator = settings().generator
            draws = (generator.next_global, generator.next_local)
        graph = LogicalGraph(
            type(self).__name__, tuple(lazy), tuple(variables), tuple(tracer.nodes), tuple(t.value for t in outputs), draws, steps,
            tuple(value for value, _ in scalars),
        )  # fmt: skip
        graph = common_subexpressions(dead_code(graph))
        if self.config.zero_stage >= 2:
            graph = compose_boxing(graph)
        graph = recompute(graph, tracer.scope_of, frozenset(tracer.forward))
        return Traced(graph, result, compile_graph(graph), gradients, shape), [number for _, number in scalars]

    def _gradients(self) -> dict[int, Meta]:
        """The layout of every gradient build left; `GraphError` if it left none though there are optimizers."""
        found = {id(p): p.grad.value.meta for _, p, _ in self._optimizer_state() if p.grad is not None}
        if self._optimizers and not found:
            raise GraphError(
                f"{type(self).__name__}: has an optimizer, but build() called no backward(); call loss.backward()"
            )
        return found

    def _made_state(self, known: set[int]) -> list[Variable]:
        return [
            Variable(f"{name}.{entry}", cell, None, cell.value)
            for name, _, state in self._optimizer_state()
            for entry, cell in state.items()
            if isinstance(cell, Tensor) and id(cell) not in known
        ]

    def _step_optimizers(self, tracer: Tracer) -> list[tuple[Value, float]]:
        tracer.scalars = []
        parts = [p for _, p, _ in self._optimizer_state()] if self.config.zero_stage in (1, 2) else []
        with stepped_in_parts(parts):
            for optimizer, _ in self._optimizers:
                optimizer.step()
                optimizer.zero_grad()
        return tracer.scalars

    def _step_numbers(self, traced: Traced) -> list[float]:
        """The optimizers' numbers of this call, found by stepping them without tensors' numbers (GRAPH-SCALARS)."""
        tracer = Tracer(self.config.accumulation_steps)
        with lazily(self._cells().values(), tracer):
            for _, p, _ in self._optimizer_state():
                if id(p) in traced.gradients:
                    p.grad = Tensor(lazy_like(traced.gradients[id(p)]))
            scalars = self._step_optimizers(tracer)
            if shape_of(tracer.nodes) != traced.optimizer_shape:
                raise GraphError(f"{type(self).__name__}: an optimizer does other operations than when it was traced")
        return [number for _, number in scalars]


def lazy_like(meta: Meta) -> Value:
    """A lazy value of this meta."""
    from .trace import Unborn

    return Value(meta, Unborn())


def shape_of(nodes: Sequence[Node]) -> tuple[Any, ...]:
    """What a run of nodes does, but for the numbers it is given."""
    return tuple((node.primitive.name, frozen(node.attrs), node.metas) for node in nodes)
