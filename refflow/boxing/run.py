"""Carrying out a boxing plan: slices out, bytes moved by the world, pieces assembled or folded by the back end.

Implements BOX-RUN and BOX-LOG of spec/text/boxing.md.  Where back end and world can, arrays go from device to device
(KER-WIRE, WORLD-DIRECT); otherwise the world moves host copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ..kernels import Array, Backend
from ..kernels.wire import Wired
from ..numerics import identity
from ..state import Override, settings
from ..world import Transfer, World
from ..world.base import refuse_foreign
from ..world.direct import DirectWorld, moves_memory
from .plan import Assembly, Layout, Plan, Step, format_sbp

Shards = Mapping[int, Array]


@dataclass(frozen=True)
class Moved:
    """One logged step: the collective, the logical bytes that travelled, and between which layouts."""

    kind: str
    bytes: int
    source: Layout
    target: Layout

    def __str__(self) -> str:
        where = f" on {self.target.placement}" if self.source.placement == self.target.placement else ""
        ends = (format_sbp(self.source.sbp), format_sbp(self.target.sbp)) if where else (self.source, self.target)
        return f"{self.kind:15s} {self.bytes:>10d} B   {ends[0]} -> {ends[1]}{where}"


@dataclass(repr=False)
class CommLog:
    """Every move of the block it is open for, in order; iterable and printable."""

    moves: list[Moved] = field(default_factory=list)
    _open: list[Override] = field(default_factory=list)

    def __enter__(self) -> Self:
        logs = settings().logs
        self._open.append(Override(logs=logs if any(log is self for log in logs) else (*logs, self)))
        return self

    def __exit__(self, *trace: Any) -> None:
        self._open.pop().__exit__(None, None, None)

    def __iter__(self) -> Iterator[Moved]:
        return iter(self.moves)

    def __len__(self) -> int:
        return len(self.moves)

    @property
    def bytes(self) -> int:
        """All bytes that travelled between ranks."""
        return sum(move.bytes for move in self.moves)

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """collective -> (how often, bytes)."""
        table: dict[str, tuple[int, int]] = {}
        for move in self.moves:
            count, total = table.get(move.kind, (0, 0))
            table[move.kind] = (count + 1, total + move.bytes)
        return table

    def __str__(self) -> str:
        return "\n".join(map(str, self.moves)) or "nothing moved"

    __repr__ = __str__


def comm_log() -> CommLog:
    """``with flow.comm_log() as log:`` lists every move of the block (BOX-LOG).

    ``print(log)`` shows them, ``log.bytes`` is their sum, ``log.by_kind()`` a table of collectives.  Looking at a value
    (numpy(), item(), printing) is not logged.
    """
    return CommLog()


def run(plan: Plan, shards: Shards, dtype: np.dtype[Any]) -> dict[int, Array]:
    """The local arrays of the owned ranks after `plan`."""
    state = settings()
    target = state.backend(plan.target.placement.type)
    backend = state.backend(plan.source.placement.type)
    top = max(plan.source.placement.top, plan.target.placement.top)
    refuse_foreign(
        "to_global", top, shards, (r for r in state.world.owned if r in plan.source.placement), state.world
    )
    for step in plan.steps:
        for log in state.logs:
            log.moves.append(Moved(step.kind, step.elements * dtype.itemsize, plan.source, plan.target))
        shards = _run_step(step, shards, dtype, backend, target, state.world, plan)
        backend = target
    return dict(shards)


def _run_step(
    step: Step, shards: Shards, dtype: np.dtype[Any], backend: Backend, target: Backend, world: World, plan: Plan
) -> dict[int, Array]:
    """Moves the pieces of one step, then puts each owned rank's new array together."""
    cut = backend.kernel("slice_box")
    transfers: list[Transfer] = []
    outgoing: dict[int, Array] = {}
    here = world.owned
    for index, (rank, piece) in enumerate(step.pieces()):
        transfers.append(Transfer(piece.source, rank, tuple(s.stop - s.start for s in piece.slices), dtype))
        if piece.source in here:
            outgoing[index] = cut(shards[piece.source], slices=piece.source_slices)
    call = f"{step.kind} {plan.source} -> {plan.target} of {plan.shape} {dtype}"
    arrived = _carried(call, transfers, outgoing, backend, target, world)
    result, index = {}, 0
    for rank, assembly in step.assemblies.items():
        count = sum(map(len, assembly.addends))
        if rank in here:
            parts = [arrived[i] for i in range(index, index + count)]
            result[rank] = assembled(step, assembly, parts, dtype, target)
        index += count
    return result


def _carried(
    call: str, transfers: list[Transfer], outgoing: Mapping[int, Array], backend: Backend, target: Backend, world: World
) -> Mapping[int, Array]:
    """The pieces that arrive here, by index of their transfer, as arrays of the back end `target`."""
    if backend is target and len(world.owned) == world.size:
        return world.transfer(call, transfers, outgoing)
    if backend is target and moves_memory(world) and isinstance(backend, Wired):
        return _directly(call, transfers, outgoing, backend, world)
    incoming = world.transfer(call, transfers, {index: backend.to_host(part) for index, part in outgoing.items()})
    return {index: target.from_host(part) for index, part in incoming.items()}


def _directly(
    call: str, transfers: list[Transfer], outgoing: Mapping[int, Array], backend: Wired, world: DirectWorld
) -> dict[int, Array]:
    """As `_carried`, without a copy on the host; what stays in this process is not sent."""
    here = set(world.owned)
    kept = {index: part for index, part in outgoing.items() if transfers[index].target in here}
    wires = {index: backend.wire(part) for index, part in outgoing.items() if index not in kept}
    landings = {
        index: backend.landing(t.shape, t.dtype)
        for index, t in enumerate(transfers)
        if t.target in here and t.source not in here
    }
    world.transfer_direct(call, transfers, wires, {index: wire for index, (_, wire) in landings.items()})
    return {**kept, **{index: array for index, (array, _) in landings.items()}}


def assembled(step: Step, assembly: Assembly, parts: list[Array], dtype: np.dtype[Any], backend: Backend) -> Array:
    """One rank's array: each addend from its pieces, folded over mesh positions, innermost first (BOX-FOLD-ORDER)."""
    build = backend.kernel("assemble")
    arrays, index = [], 0
    for addend in assembly.addends:
        pieces = [(piece.slices, parts[index + i]) for i, piece in enumerate(addend)]
        index += len(addend)
        arrays.append(build(*[part for _, part in pieces], shape=assembly.shape, slices=[s for s, _ in pieces],
                            fill=identity(assembly.fill, dtype), dtype=dtype))  # fmt: skip
    fold = backend.kernel("fold")
    for size, kind in reversed(step.folds):
        arrays = [fold(*arrays[i : i + size], kind=kind) for i in range(0, len(arrays), size)]
    return arrays[0]
