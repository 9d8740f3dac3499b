"""nn.Graph: a training or inference step, traced once and run many times.

Implements GRAPH-CALL, GRAPH-MODE, GRAPH-OPTIMIZER, GRAPH-SCALARS, GRAPH-SHAPE and GRAPH-COMM of spec/text/graph.md, and
TIME-REFUSED's advice.  What TIME-PARTS and GRAPH-EXPLAIN ask for is made in `graph.parts` and `graph.explain`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..errors import AttributeValueError, GraphError
from ..ir import Meta, Value
from ..layout import NdSbp
from ..nn.module import Module
from ..optim import Optimizer
from ..state import Override, settings
from ..tensor.tensor import Tensor
from ..world.mpi import MpiWorld
from .amp import GradScaler, HalfContractions, scaled_losses, unscaled
from .before import Before
from .compile import Compiled, compile_graph
from .config import GraphConfig
from .execute import execute, run_plan
from .explain import GraphExplanation, explain_graph
from .logical import LogicalGraph, Variable, key
from .mark import mark_of, named_modules, nesting
from .numbers import Numbers, names_of, operations
from .outside import Outside
from .parts import grouped, parts_of
from .passes import common_subexpressions, compose_boxing, dead_code, recompute
from .plan import Plan
from .programs import Program, program_of
from .recording import Recording, record
from .refusal import advised, asked_first
from .time import TooManySteps, input_sbp
from .trace import (
    Tracer,
    is_tracing,
    lazily,
    over_steps,
    rebuilt,
    refuse_kept,
    tensors_in,
    twin_of,
    twin_tensor,
)
from .zero import gathered_for_use, kept_in_parts, stepped_in_parts

_ONE_CALL = threading.RLock()  # tracing puts lazy values into cells, which may be another graph's too


@dataclass(frozen=True, eq=False)
class Traced:
    """A traced call: its graph, what build returned, and what the optimizers did (to hold later calls against)."""

    graph: LogicalGraph
    result: Any
    compiled: Compiled
    gradients: Mapping[int, Meta]  # id of a parameter -> layout of its gradient
    optimizer_shape: tuple[Any, ...]
    scales: int  # how many of the graph's scalars are the loss scale
    checked: bool  # whether the last output tells if all gradients are finite
    parts: tuple[int, ...] = ()  # how many parts of each result are kept; they are outputs after the results
    # what GRAPH-EXPLAIN tells of: operands before they were moved for a node, the moves, the policy
    choices: tuple[Mapping[int, tuple[Meta, ...]], frozenset[int], str] = ({}, frozenset(), "exact")
    programs: dict[int, tuple[Any, Program]] = field(default_factory=dict)  # by id of the back end
    remembered: Numbers = field(default_factory=Numbers)

    @cached_property
    def optimizer_names(self) -> tuple[str, ...]:
        """The names of the operations in `optimizer_shape`."""
        return names_of(self.optimizer_shape)


class Graph:
    """Base of graphs: assign modules, add optimizers, define `build`; call it like a function of global tensors.

    The first call traces `build`.  With optimizers, `build` calls ``loss.backward()`` and the graph steps them.
    Errors: `GraphError`. Source: GRAPH-CALL.
    """

    def __init__(self) -> None:
        self.config = GraphConfig()
        self._optimizers: list[tuple[Any, Any]] = []
        self._scaler: GradScaler | None = None
        self._layouts: dict[Tensor, NdSbp] = {}  # parameters kept in parts: the layout they are used in
        self.__setstate__({})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What `__getstate__` gave, and nothing traced."""
        vars(self).update(state)
        self._traced: dict[Any, Traced] = {}
        self._inputs: tuple[Any, ...] | None = None  # the nesting of its arguments, and their metas
        self.last_run: Any = None
        self._last: Traced | None = None
        self._parts: Any = None

    def __getattr__(self, name: str) -> Any:
        if "_traced" not in vars(self):
            raise AttributeError(f"{type(self).__name__}: call super().__init__() first in __init__()")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles are made of: all but the traces, which hold compiled programs and this graph's cells."""
        traced = ("_traced", "_inputs", "last_run", "_last", "_parts")
        return {name: held for name, held in vars(self).items() if name not in traced}

    def build(self, *args: Any) -> Any:
        """What the graph computes; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} defines no build()")

    def add_optimizer(self, optimizer: Any, lr_sch: Any = None) -> None:
        """Steps `optimizer` after each build, then the schedule `lr_sch` if there is one.  Errors: `AttributeValueError`."""
        if not isinstance(optimizer, Optimizer):
            works = "an optimizer such as flow.optim.SGD(model.parameters(), lr=0.1)"
            raise AttributeValueError(f"add_optimizer: needs {works}, found {type(optimizer).__name__}")
        if lr_sch is not None and not hasattr(lr_sch, "step"):
            raise AttributeValueError(
                f"add_optimizer: lr_sch must be a schedule of flow.optim.lr_scheduler or None, found {type(lr_sch).__name__}"
            )
        self._optimizers.append((optimizer, lr_sch))

    def set_grad_scaler(self, scaler: GradScaler) -> None:
        """Scales losses by `scaler`, and skips the steps whose gradients overflow (AMP-SCALE, AMP-SKIP)."""
        if not isinstance(scaler, GradScaler):
            raise AttributeValueError(f"set_grad_scaler: needs a flow.amp.GradScaler, found {type(scaler).__name__}")
        self._scaler = scaler

    @property
    def graph(self) -> LogicalGraph:
        """The logical graph of the last call; `GraphError` before the first."""
        return self._called().graph

    @property
    def plan(self) -> Plan:
        """The plan of the last call; `GraphError` before the first.  Its `verify()` proves what can be proved of it."""
        return self._called().compiled.plan

    @property
    def parts(self) -> Any:
        """What the last call returned, with the tuple of its parts, one a micro-batch, for each tensor (TIME-PARTS).

        Errors: `GraphError` unless ``config.keep_parts`` was set for that call.
        """
        if not self._called().parts:
            raise GraphError(f"{type(self).__name__}: the last call kept no parts; set config.keep_parts = True before a call")
        return self._parts

    def explain(self, *only: str) -> GraphExplanation:
        """For each node of the last call's graph the signature chosen, its price, what was dearer or refused, and what moves.

        `only` those of these names (``"matmul"``, ``"to_global"``).  Errors: `GraphError` before the first call.
        Source: GRAPH-EXPLAIN.
        """
        called = self._called()
        return explain_graph(called.graph, *called.choices, only)

    def trace(self, cost: Any = None) -> Recording:
        """What happened in the last call, event by event: `.save(path)` for Perfetto, `.timeline()` as a picture.

        With a `cost` model (`refflow.runtime.Machine`), in the virtual time of that machine.  Source: EVT-REPLAY.
        """
        traced = self._called()
        held = self.last_run
        if cost is None and held is not None and held.events:
            return Recording(traced.compiled.plan, tuple(held.events))
        return record(traced.compiled.plan, cost, self._schedule())

    def _called(self) -> Traced:
        if self._last is None:
            raise GraphError(f"{type(self).__name__}: not traced yet; the first call traces it")
        return self._last

    def __str__(self) -> str:
        return str(self.graph) if self._last is not None else f"{type(self).__name__} (not traced yet)"

    # --- state --------------------------------------------------------------------------------------------------------

    def _modules(self) -> list[list[tuple[str, Module]]]:
        """(name, module) of every module of the graph, parents first; a list for each that it was assigned."""
        return [named_modules(name, held) for name, held in vars(self).items() if isinstance(held, Module)]

    def _cells(self) -> dict[str, Tensor]:
        """Every tensor with state that exists, by name: parameters, buffers, what the optimizers hold."""
        named: dict[str, Tensor] = {}
        for walked in self._modules():
            for table in ("_parameters", "_buffers"):
                for path, module in walked:
                    named.update({f"{path}.{n}": cell for n, cell in getattr(module, table).items() if cell is not None})
        for name, p, state in self._optimizer_state():
            named.setdefault(name, p)
            named.update({f"{name}.{entry}": cell for entry, cell in state.items() if isinstance(cell, Tensor)})
        first: dict[int, str] = {}
        return {name: cell for name, cell in named.items() if first.setdefault(id(cell), name) == name}

    def _optimizer_state(self) -> Iterator[tuple[str, Tensor, dict[str, Any]]]:
        for i, (optimizer, _) in enumerate(self._optimizers):
            for j, p in enumerate(p for group in optimizer.param_groups for p in group["params"]):
                yield f"optimizer{i}.{j}", p, optimizer.state.get(p, {})

    # --- calls --------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        """One call: outputs with numbers, state written, schedules stepped.  Errors: `GraphError` for another input layout."""
        world = settings().world
        here = len(world.owned) == world.size  # else other threads are other ranks, and wait for this one
        with _ONE_CALL if here else nullcontext():
            return self._call(args)

    def _call(self, args: Any) -> Any:
        given = [tensor.value for tensor in tensors_in(args, f"{type(self).__name__}: a graph takes")]
        if is_tracing():
            raise GraphError(f"{type(self).__name__}: a graph is called outside build(); inside, call the modules it has")
        for value in given:
            refuse_kept(value)
        inputs = nesting(args)
        self._check_inputs(inputs)
        mark, cells = self._mark(given)
        before, layouts = Before(cells, [optimizer for optimizer, _ in self._optimizers]), self._layouts
        try:
            try:
                traced, outputs, finite = self._carry_out(args, given, mark, before)
            except BaseException:
                self._layouts = layouts
                before.put_back()
                raise
        except BaseException:  # an interrupt may come while everything is being put back
            self._layouts = layouts
            before.put_back()
            raise
        self._last, self._inputs = traced, inputs
        if self._scaler is not None and traced.checked:
            self._scaler.update(finite)
        for _, schedule in self._optimizers if finite else ():
            if schedule is not None:
                schedule.step()
        tensors = iter([Tensor(value) for value in outputs])
        result = rebuilt(traced.result, tensors)
        self._parts = rebuilt(traced.result, grouped(tensors, traced.parts)) if traced.parts else None
        return result

    def _carry_out(self, args: Any, given: Sequence[Value], mark: Any, before: Before) -> tuple[Traced, list[Value], bool]:
        """What was done, the values of its outputs, and whether it was a step (AMP-SKIP)."""
        if self.config.zero_stage == 3 and not self._layouts:
            self._layouts = kept_in_parts(p for _, p, _ in self._optimizer_state())
            mark, _ = self._mark(given)
        known = self._traced.get(mark)
        traced, numbers = self._trace_or_advise(args, before) if known is None else (known, self._step_numbers(known))
        outputs, updates = self._run(traced, given, numbers)
        finite = not traced.checked or bool(Tensor(outputs.pop()).item())  # the same answer on every rank
        if finite:
            with Override(grad=False):
                for i, value in updates.items():
                    self._assign(traced.graph.variables[i], value)
        else:
            before.put_back_states()
        if known is None:
            made = any(v.value is None for v in traced.graph.variables)  # state, of which the next call makes none
            if not made and mark == self._mark(given)[0]:  # nor did build change what it depends on
                self._traced[mark] = traced
        return traced, outputs, finite

    def _mark(self, given: Sequence[Value]) -> tuple[tuple[Any, ...], list[Tensor]]:
        """What a traced call depends on beside its inputs, another of which is traced anew (GRAPH-MODE); the cells there are."""
        config = self.config
        settled = (
            config.accumulation_steps, config.zero_stage, config.amp_dtype, config.order, config.keep_parts,
            self._scaler is not None,
        )  # fmt: skip
        return mark_of(given, self._modules(), self._optimizer_state(), settled)

    def _run(
        self, traced: Traced, given: Sequence[Value], numbers: Sequence[float]
    ) -> tuple[list[Value], dict[int, Value]]:
        state = settings()
        world = state.world
        lockstep = len(world.owned) != world.size and not isinstance(world, MpiWorld)
        program = program_of(traced.graph, traced.programs, self.config)
        with Override(logs=()):  # the compiler knows the moves; what the runtime does with them is its own
            if program is not None:
                outputs, updates = program(given, numbers)
                self.last_run = None
            elif self.config.runtime == "sequential" or lockstep:  # lockstep threads meet at collectives only
                outputs, updates = execute(traced.graph, given, numbers)
                self.last_run = None
            else:
                options = {"schedule": self._schedule(), "log": self.config.log_events}
                outputs, updates, self.last_run = run_plan(traced.graph, traced.compiled, given, numbers, **options)
        for log in state.logs:
            log.moves += traced.compiled.moves
        return outputs, updates

    def _schedule(self) -> Any:
        return self.config.schedule() if self.config.schedule is not None else None

    def _check_inputs(self, inputs: tuple[Any, ...]) -> None:
        if self._inputs not in (None, inputs):
            was, now = (", ".join(map(str, i)) for i in (self._inputs or (), inputs))
            raise GraphError(
                f"{type(self).__name__}: traced for {was}; called with {now}; another Graph serves another shape"
            )

    def _assign(self, variable: Variable, value: Value) -> None:
        if variable.value is None:  # state the call made: it enters the optimizer now
            variable.cell._value = value
        else:
            variable.cell.write(value)

    def _trace_or_advise(self, args: Any, before: Before) -> tuple[Traced, list[float]]:
        """Traces; where the micro-batches are too many, says how many would do (TIME-REFUSED)."""
        steps = self.config.accumulation_steps
        metas, count = [t.value.meta for t in tensors_in(args)], steps

        def works(fewer: int) -> bool:
            before.put_back_states()
            try:
                self._trace(args, fewer)
            except TooManySteps:
                return False
            return True

        try:
            for count in asked_first(metas, steps):
                before.put_back_states()
                traced = self._trace(args, count)
            return traced
        except TooManySteps as error:
            raise TooManySteps(f"{error}; {advised(metas, steps, count, works)}") from None

    def _trace(self, args: Any, steps: int) -> tuple[Traced, list[float]]:
        """Runs build and the optimizers lazily."""
        tracer = Tracer(steps, type(self).__name__)
        cells = self._cells()
        lazy = [twin_of(t.value, steps, input_sbp(t.value.meta, steps), tracer.trace) for t in tensors_in(args)]
        handed = [twin_tensor(value) for value in lazy]
        with lazily(cells.values(), tracer) as twins:
            outside = Outside(type(self).__name__, handed, self._modules(), [optimizer for optimizer, _ in self._optimizers])
            try:
                result = self._build(rebuilt(args, iter(handed)), tracer)
                outside.require_unchanged(twins)
            except BaseException:
                outside.put_back()
                raise
            read = {key(v) for node in tracer.nodes for v in node.inputs} | {key(t.value) for t in tensors_in(result)}
            outside.require_none_lost({} if self._optimizers else cells, read)
            gradients = self._gradients()
            first = len(tracer.nodes)
            scalars, finite = self._step_optimizers(tracer)
            shape = operations(tracer.nodes[first:])
            for tensor in tensors_in(result):
                tracer.require_own(tensor.value)
            outputs = [over_steps(tensor) for tensor in tensors_in(result)]
            parts = parts_of(outputs, tracer) if self.config.keep_parts else []
            variables = [
                Variable(name, cell, twins[id(cell)], cell.value if key(cell.value) != key(twins[id(cell)]) else None)
                for name, cell in cells.items()
            ]
            variables += self._made_state(set(map(id, cells.values())))
            generator = settings().generator
            draws = (generator.next_global, generator.next_local)
        outputs += [Tensor(part) for those in parts for part in those] + ([] if finite is None else [finite])
        graph = LogicalGraph(
            type(self).__name__, tuple(lazy), tuple(variables), tuple(tracer.nodes), tuple(t.value for t in outputs), draws, steps,
            (*tracer.scales, *(value for value, _ in scalars)),
        )  # fmt: skip
        graph = common_subexpressions(dead_code(graph))
        graph = recompute(graph, tracer.scope_of, frozenset(tracer.forward))
        if self.config.zero_stage >= 2:
            graph = compose_boxing(graph)
        compiled = compile_graph(graph, order=self.config.order)
        counts = tuple(map(len, parts))
        choices = (tracer.asked, frozenset(tracer.inserted), settings().signatures)
        traced = Traced(graph, result, compiled, gradients, shape, len(tracer.scales), finite is not None, counts, choices)
        return traced, self._numbers(traced, scalars)

    def _build(self, args: Any, tracer: Tracer) -> Any:
        """build() on lazy tensors, in the precision and with the loss scale asked for."""
        state, config = settings(), self.config
        with ExitStack() as around:
            around.enter_context(gathered_for_use([p for _, p, _ in self._optimizer_state()], self._layouts))
            if config.amp_dtype is not None:
                halves = HalfContractions(config.amp_dtype)
                around.enter_context(Override(interpreters=(*state.interpreters, halves)))
            if self._scaler is not None and self._optimizers:
                around.enter_context(scaled_losses(tracer, self._scaler.get_scale()))
            return self.build(*args)

    def _numbers(self, traced: Traced, scalars: Sequence[tuple[Value, float]]) -> list[float]:
        """The numbers of this call: the loss scale wherever build used it, then what the optimizers brought along."""
        scale = self._scaler.get_scale() if self._scaler is not None else 1.0
        return [scale] * traced.scales + [number for _, number in scalars]

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

    def _step_optimizers(self, tracer: Tracer) -> tuple[list[tuple[Value, float]], Tensor | None]:
        """Steps them lazily: the numbers they brought along, and with a grad scaler whether all gradients are finite."""
        tracer.scalars, finite = [], None
        params = list({id(p): p for _, p, _ in self._optimizer_state()}.values())
        with stepped_in_parts(params if self.config.zero_stage in (1, 2) else []):
            if self._scaler is not None and params:
                finite = unscaled(tracer, params, self._scaler.get_scale())
            for optimizer, _ in self._optimizers:
                optimizer.step()
            for optimizer, _ in self._optimizers:  # only now: two may step one parameter
                optimizer.zero_grad()
        return tracer.scalars, finite

    def _step_numbers(self, traced: Traced) -> list[float]:
        """The optimizers' numbers of this call, found by stepping them without tensors' numbers (GRAPH-SCALARS)."""
        if self._scaler is None and self.config.zero_stage in (0, 3):
            optimizers = [optimizer for optimizer, _ in self._optimizers]
            found = traced.remembered.of(optimizers, traced.gradients, traced.graph.steps)
            if found is not None:
                self._require_same(found[1], traced.optimizer_names)
                return [1.0] * traced.scales + found[0]
        tracer = Tracer(traced.graph.steps, type(self).__name__)
        with lazily(self._cells().values(), tracer):
            for _, p, _ in self._optimizer_state():
                if id(p) in traced.gradients:
                    p.grad = Tensor(tracer.lazy(traced.gradients[id(p)]))
            scalars, _ = self._step_optimizers(tracer)
            self._require_same(operations(tracer.nodes), traced.optimizer_shape)
        return self._numbers(traced, scalars)

    def _require_same(self, done: tuple[Any, ...], traced: tuple[Any, ...]) -> None:
        if done != traced:
            raise GraphError(f"{type(self).__name__}: an optimizer does other operations than when it was traced")
