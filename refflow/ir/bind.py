"""bind: the one door through which every primitive goes, and the interpreters behind it.

Implements IR-BIND, AUTO-RECORD, LOCAL-RAGGED and ERR-AGREED of spec/text/autograd.md, border.md and errors.md.  Eager
computes at once; others (explain's, a graph's tracer) are pushed on a stack for a block of code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .. import errors
from ..errors import DataError, OutOfMemory
from ..layout import Placement
from ..numerics import is_float
from ..state import Override, Settings, settings
from ..world.base import refuse_foreign
from .lower import Lowered, lower
from .move import SPECIAL, to_global
from .node import Meta, Node, Value
from .primitive import Primitive


class Interpreter(Protocol):
    """Someone who carries out a primitive."""

    def bind(self, primitive: Primitive, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        """The outputs of `primitive`."""
        ...


def bind(primitive: Primitive, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
    """Applies a primitive in the innermost interpreter (IR-BIND)."""
    state = settings()
    if state.interpreters:
        inner: Interpreter = state.interpreters[-1]
        with Override(interpreters=state.interpreters[:-1]):
            return inner.bind(primitive, inputs, attrs)
    return EAGER.bind(primitive, inputs, attrs)


class Eager:
    """Computes at once, and records a node where a gradient may be asked for later."""

    def bind(self, primitive: Primitive, inputs: tuple[Value, ...], attrs: Mapping[str, Any]) -> tuple[Value, ...]:
        state = settings()
        if primitive.name in SPECIAL:
            outputs = SPECIAL[primitive.name](inputs, attrs)
        elif any(value.ragged for value in inputs):
            outputs = _run_ragged(primitive, inputs, attrs, state)
        else:
            metas = tuple([value.meta for value in inputs])
            lowered = lower(primitive, metas, attrs, state.signatures, state.boxing == "explicit")
            if lowered.outputs[0].placement is not None:
                state.world.saw(primitive.name, lowered.mark)
            if any(lowered.targets):
                inputs = tuple([v if t is None else _box(v, t) for v, t in zip(inputs, lowered.targets, strict=True)])
            outputs = _run(primitive, inputs, lowered, state)
        return record(primitive, inputs, attrs, outputs, state)


EAGER = Eager()


def record(
    primitive: Primitive,
    inputs: tuple[Value, ...],
    attrs: Mapping[str, Any],
    outputs: tuple[Value, ...],
    state: Settings,
) -> tuple[Value, ...]:
    """Puts a node behind `outputs` if grad mode is on and some input requires a gradient (AUTO-RECORD)."""
    if state.grad and primitive.vjp is not None and any(value.requires_grad for value in inputs):
        node = Node(primitive, inputs, attrs, tuple([value.meta for value in outputs]), outputs)
        for index, value in enumerate(outputs):
            if is_float(value.meta.dtype):
                value.node, value.index, value.requires_grad = node, index, True
    return outputs


def _box(value: Value, target: Meta) -> Value:
    """`value` brought to the layout of `target`: recorded and differentiated like any primitive."""
    (moved,) = bind(to_global, (value,), {"placement": target.placement, "sbp": target.sbp})
    return moved


def _run(primitive: Primitive, inputs: Sequence[Value], lowered: Lowered, state: Settings) -> tuple[Value, ...]:
    """Runs the kernel on every owned rank and wraps the results."""
    where = lowered.outputs[0].placement
    world = state.world
    if where is None:
        kernel = state.backend("cpu").kernel(primitive.name)
        calls = dict.fromkeys(world.owned, lowered.local)
    else:
        kernel = state.backend(where.type).kernel(primitive.name)
        owned = world.owned
        calls = {rank: call for rank, call in lowered.calls.items() if rank in owned}
        if where.top >= world.size:
            refuse_foreign(primitive.name, where.top, (), (), world)
    results = _call_kernels(primitive, kernel, inputs, calls, state, where)
    if len(lowered.outputs) == 1:
        return (Value(lowered.outputs[0], results),)
    return tuple(Value(meta, {rank: out[i] for rank, out in results.items()}) for i, meta in enumerate(lowered.outputs))


def _call_kernels(
    primitive: Primitive,
    kernel: Any,
    inputs: Sequence[Value],
    calls: Mapping[int, Mapping[str, Any]],
    state: Settings,
    where: Placement | None,
) -> dict[int, Any]:
    """rank -> kernel(local arrays); equal calls on the very same arrays (replicas in one process) run once."""
    held = [value.shards for value in inputs]
    results: dict[int, Any] = {}
    done: dict[Any, Any] = {}
    refused: dict[int, DataError] = {}
    for rank, call in calls.items():
        try:
            arrays = [shards[rank] for shards in held]
        except KeyError:
            for shards in held:
                refuse_foreign(primitive.name, rank, shards, calls, state.world)
            raise
        key = (id(call), *map(id, arrays))
        if key not in done:
            try:
                done[key] = kernel(*arrays, **call)
            except DataError as error:
                if not primitive.checked:
                    raise
                refused[rank] = error
                continue
            except MemoryError as error:
                raise OutOfMemory(f"{primitive.name}: {error or 'no memory left'} ({_on(rank, where)})") from error
        results[rank] = done[key]
    if primitive.checked:
        _agree(primitive, refused, state, where)
    return results


def _agree(primitive: Primitive, refused: Mapping[int, DataError], state: Settings, where: Placement | None) -> None:
    """What one rank's data makes wrong is one error on every rank (ERR-AGREED); local tensors are each rank's own."""
    told = {rank: (type(error).__name__, str(error)) for rank, error in refused.items()}
    entries: Mapping[int, tuple[str, str] | None] = told
    if where is not None:
        mine = {rank: told.get(rank) for rank in state.world.owned}
        entries = state.world.agree(f"{primitive.name}: data check", mine)
    for rank, entry in entries.items():
        if entry is not None:
            name, message = entry
            raise getattr(errors, name)(f"{message} ({_on(rank, where)})")


def _on(rank: int, where: Placement | None) -> str:
    """Who: in a graph's micro-steps the ids of a placement are (rank, micro-step) pairs (TIME-AXIS)."""
    steps = where.steps if where is not None else 1
    return f"on rank {rank // steps}" + (f", micro-step {rank % steps}" if steps > 1 else "")


def _run_ragged(
    primitive: Primitive, inputs: tuple[Value, ...], attrs: Mapping[str, Any], state: Settings
) -> tuple[Value, ...]:
    """Local operands whose shapes differ from rank to rank: each rank is lowered for itself (LOCAL-RAGGED)."""
    backend = state.backend("cpu")
    kernel = backend.kernel(primitive.name)
    held: dict[int, Any] = {}
    shapes: dict[int, tuple[Meta, ...]] = {}
    for value in inputs:
        refuse_foreign(primitive.name, 0, value.shards, state.world.owned, state.world)
    for rank in state.world.owned:
        metas = tuple(Meta(backend.shape(v.shards[rank]), v.meta.dtype, v.meta.placement, v.meta.sbp) for v in inputs)
        lowered = lower(primitive, metas, attrs, state.signatures, False)
        shapes[rank] = lowered.outputs
        result = kernel(*[v.shards[rank] for v in inputs], **lowered.local)
        held[rank] = result if len(lowered.outputs) > 1 else (result,)
    outputs = []
    for i in range(len(next(iter(shapes.values())))):
        metas = tuple(shapes[rank][i] for rank in held)
        outputs.append(Value(metas[0], {rank: held[rank][i] for rank in held}, ragged=len(set(metas)) > 1))
    return tuple(outputs)
