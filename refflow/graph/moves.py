"""Moves in a plan: a boxing becomes cuts, messages and assemblies, a move over micro-steps acc, pack or parts.

Implements PLAN-BOXING of spec/text/plan.md, and what PLAN-TIME says of moves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..boxing import Layout, Step
from ..boxing import plan as boxing_plan
from ..boxing.plan import Piece
from ..boxing.run import Moved, assembled
from ..ir import Meta, Node, Value
from ..kernels import Array, Backend, Kernel
from ..layout import Partial, Split, box_shape, boxes, broadcast, within
from ..numerics import identity
from ..state import settings
from .logical import LogicalGraph, key
from .refusal import needed_at_once
from .tasks import Payload, Tasks, backend_of, layout_of, ranks_of, time_sbp
from .time import varies


class Moves(Tasks):
    """Tasks, and how moves become some."""

    def __init__(self, graph: LogicalGraph, number: int) -> None:
        super().__init__(graph, number)
        self.packed: dict[int, int] = {}  # register filled each micro-step -> the one with the list of all it held
        self.moves: list[Moved] = []

    def _boxing(self, node: Node) -> None:
        """A move: over micro-steps first (acc, pack), then between ranks, then into micro-steps again (a cut)."""
        (value,), (output,) = node.inputs, node.outputs
        before, after = time_sbp(value.meta), time_sbp(output.meta)
        if before == after or self.steps == 1:
            self._space(node, value, output)
            return
        if isinstance(before, Split):
            self._refuse_middle(node, output)
        whole = self._over_time(node, value) if before != broadcast else value
        if after == broadcast:
            self._space(node, whole, output)
            return
        placement, sbp = layout_of(output.meta)
        moved = Value(output.meta.with_layout(placement, (*sbp[:-1], broadcast)), type(output.shards)())
        self.names[key(moved)] = f"{self._name(output)}.whole"
        self._space(node, whole, moved)
        self._into_time(moved, output)

    def _over_time(self, node: Node, value: Value) -> Value:
        """A value that varies over micro-steps, made one: P folds by the canonical tree (acc), S is put together (pack)."""
        placement, sbp = layout_of(value.meta)
        along = sbp[-1]
        whole = Value(value.meta.with_layout(placement, (*sbp[:-1], broadcast)), type(value.shards)())
        self.names[key(whole)] = f"{self._name(value)}.all"
        backend = backend_of(value.meta)
        for rank in ranks_of(value.meta):
            name = f"{'acc' if isinstance(along, Partial) else 'pack'} {self._name(value)}@{rank}"
            if isinstance(along, Partial):

                def add(at: Any, left: Array, right: Array, kind: str = along.kind) -> Array:
                    return backend.kernel("fold")(left, right, kind=kind)

                kind, payload = "acc", cast(Payload, add)
            else:

                def join(at: Any, *parts: Array, rank: int = rank) -> Array:
                    return _joined(parts, value.meta, rank, self.steps)

                kind, payload = "pack", cast(Payload, join)
            task = self._task(name, rank, payload, [self.at[key(value), rank]], kind=kind, count=self.steps)
            self._holds(whole, rank, task)
            self.late.add(self.at[key(whole), rank])
        return whole

    def _at_step(self, node: Node) -> None:
        """What one micro-step holds, taken out of a list of what all hold (TIME-PARTS)."""
        (value,), (output,), step = node.inputs, node.outputs, node.attrs["step"]
        for rank in ranks_of(value.meta):
            register = self.at[key(value), rank]
            if register not in self.packed:
                name = f"steps {self._name(value)}@{rank}"
                task = self._task(name, rank, lambda at, *parts: list(parts), [register], kind="pack", count=self.steps)
                size = self.steps * self._bytes(value.meta, rank)
                self.packed[register] = self.builder.register(name, task, bytes=size)
            name = f"at_step {self._name(output)}@{rank}"
            task = self._task(name, rank, lambda at, parts: parts[step], [self.packed[register]])
            self._holds(output, rank, task)
            self.late.add(self.at[key(output), rank])

    def _into_time(self, whole: Value, output: Value) -> None:
        """Each micro-step takes its part of a value that is whole."""
        placement, sbp = layout_of(output.meta)
        parts, all_of = boxes(output.meta.shape, placement, sbp), boxes(output.meta.shape, *layout_of(whole.meta))
        cut = backend_of(output.meta).kernel("slice_box")
        fill = backend_of(output.meta).kernel("full")
        along = sbp[-1]
        for rank in ranks_of(output.meta):

            def payload(at: Any, array: Array, rank: int = rank) -> Array:
                here = rank * self.steps + at.position
                if isinstance(along, Partial):
                    shape = tuple(hi - lo for lo, hi in parts[here])
                    neutral = identity(along.kind, output.meta.dtype)
                    return array if at.position == 0 else fill(shape=shape, value=neutral, dtype=output.meta.dtype)
                return cut(array, slices=within(parts[here], all_of[here]))

            inputs = [self._read(whole, rank, True)]
            self._holds(output, rank, self._task(f"part {self._name(output)}@{rank}", rank, payload, inputs))

    def _space(self, node: Node, value: Value, output: Value) -> None:
        """A move between ranks, alike in every micro-step: cuts and messages at the source, an assembly at the target."""
        micro = self.steps > 1 and varies(value.meta)
        moves = boxing_plan(value.meta.shape, Layout(*layout_of(value.meta)), Layout(*layout_of(output.meta)))
        if not moves.steps:
            for rank in ranks_of(value.meta):
                self.at[key(output), rank] = self.at[key(value), rank]
            return
        if micro and any(piece.source % self.steps != rank % self.steps for s in moves.steps for rank, piece in s.pieces()):
            raise needed_at_once(self.graph, output, node)
        here = {rank: self.at[key(value), rank] for rank in ranks_of(value.meta)}
        source, target = (Layout(before.placement.base, before.sbp[:-1]) for before in (moves.source, moves.target))
        backends = backend_of(value.meta), backend_of(output.meta)
        for i, step in enumerate(moves.steps):
            self.moves += [
                Moved(step.kind, travelling(step, m, self.steps) * value.meta.dtype.itemsize, source, target)
                for m in range(self.steps if micro else 1)
            ]
            late = not self.late.isdisjoint(here.values())
            wave = self.reached[key(output)] if i + 1 == len(moves.steps) and key(output) in self.reached else self.wave
            here = self._step(f"{step.kind} {self._name(output)}.{i}", step, here, output.meta, micro, wave, backends)
            backends = backends[1], backends[1]
            self.late.update(here.values() if late else ())
        for rank in ranks_of(output.meta):
            self.at[key(output), rank] = here[rank]

    def _step(
        self,
        name: str,
        step: Step,
        here: Mapping[int, int],
        meta: Meta,
        micro: bool,
        wave: int,
        backends: tuple[Backend, Backend],
    ) -> dict[int, int]:
        """One step of a boxing: rank -> the register of what is assembled there; `here` holds what it is cut from.

        A cut for each pair of ranks of which one has pieces the other wants, a message where they differ, an assembly.
        Pieces that another process or back end is to have are host copies; `backends` are those before and after.
        """
        steps, (cutting, backend), world = self.steps, backends, settings().world
        apart = len(world.owned) != world.size

        def crosses(source: int, target: int) -> bool:
            return cutting is not backend or (apart and source != target)

        def cut_for(source: int, target: int) -> Kernel:
            cut = cutting.kernel("slice_box")
            return (lambda array, slices: cutting.to_host(cut(array, slices=slices))) if crosses(source, target) else cut

        wanted: dict[tuple[int, int], None] = {}
        for target, assembly in step.assemblies.items():
            if not micro and target % steps:
                continue
            for addend in assembly.addends:
                for piece in addend:
                    wanted[piece.source // steps, target // steps] = None
        reached = {target for _, target in wanted}
        for rank in dict.fromkeys(target // steps for target in step.assemblies):
            if rank not in reached:  # it makes only the identity: an empty bundle tells it when
                wanted[rank if rank in here else next(iter(here)), rank] = None
        arrived: dict[tuple[int, int], int] = {}
        for source, target in wanted:
            cut = cut_for(source, target)
            arrived[source, target] = self._cut(name, step, here[source], source, target, micro, meta, cut)
        made = {}
        self._enter(wave)
        for rank in dict.fromkeys(t // steps for t in step.assemblies):
            sources = [source for source, target in wanted if target == rank]

            def payload(at: Any, *bundles: Any, rank: int = rank, sources: list[int] = sources) -> Array:
                target = rank * steps + (at.position if micro else 0)
                queues = {
                    source: map(backend.from_host, bundle) if crosses(source, rank) else iter(bundle)
                    for source, bundle in zip(sources, bundles, strict=True)
                }
                assembly = step.assemblies[target]
                parts = [next(queues[piece.source // steps]) for addend in assembly.addends for piece in addend]
                return assembled(step, assembly, parts, meta.dtype, backend)

            inputs = [arrived[source, rank] for source in sources]
            task = self._task(f"{name}@{rank}", rank, payload, inputs)
            number = self.number if micro else 1
            size = max(math.prod(step.assemblies[rank * steps + m].shape) for m in range(steps if micro else 1))
            made[rank] = self.builder.register(f"{name}@{rank}", task, number=number, bytes=size * meta.dtype.itemsize)
        return made

    def _cut(
        self, name: str, step: Step, register: int, source: int, target: int, micro: bool, meta: Meta, cut: Kernel
    ) -> int:
        """The pieces of `source` that `target` needs, cut and sent; the register they arrive in."""
        steps, itemsize = self.steps, meta.dtype.itemsize

        def pieces(m: int) -> list[Piece]:
            addends = step.assemblies[target * steps + m].addends
            return [piece for addend in addends for piece in addend if piece.source // steps == source]

        def payload(at: Any, array: Array) -> list[Array]:
            return [cut(array, slices=piece.source_slices) for piece in pieces(at.position if micro else 0)]

        number = self.number if micro else 1
        title = f"{name} cut {source}>{target}"
        task = self._task(title, source, payload, [register])
        size = max(sum(piece.elements for piece in pieces(m)) for m in range(steps if micro else 1))
        moved = self.builder.register(title, task, number=number, bytes=size * itemsize)
        if source == target:
            return moved
        return self.builder.message(
            moved, target, capacity=number, number=number, name=title, streams=("comm>", "comm<")
        )

    def _refuse_middle(self, node: Node, output: Value) -> None:
        """Only a result may be put together over micro-steps: anything else would wait for the whole batch (TIME-REFUSED)."""
        results = {key(value) for value in self.graph.results()}
        used = any(key(output) in map(key, other.inputs) for other in self.graph.nodes)
        if used or key(output) not in results:
            raise needed_at_once(self.graph, output, node)


def travelling(step: Step, micro: int, steps: int) -> int:
    """The elements that a step moves between different ranks in one micro-step."""
    return sum(
        piece.elements
        for target, assembly in step.assemblies.items()
        if target % steps == micro
        for addend in assembly.addends
        for piece in addend
        if piece.source // steps != target // steps
    )


def _joined(parts: Sequence[Array], meta: Meta, rank: int, steps: int) -> Array:
    """What one rank holds of a value in all its micro-steps, put together; their parts tile it."""
    placement, sbp = layout_of(meta)
    here = boxes(meta.shape, placement, sbp)
    whole = boxes(meta.shape, placement, (*sbp[:-1], broadcast))[rank * steps]
    places = [within(here[rank * steps + m], whole) for m in range(steps)]
    assemble = backend_of(meta).kernel("assemble")
    fill = identity("sum", meta.dtype)
    return assemble(*parts, shape=box_shape(whole), slices=places, fill=fill, dtype=meta.dtype)
