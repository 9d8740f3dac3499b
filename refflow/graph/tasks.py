"""What the compiler keeps while it makes a plan: which register holds what, on which rank, in which wave.

Part of PLAN-COMPILE and PLAN-TIME of spec/text/plan.md.  Moves become tasks in `moves`, everything else in `compile`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir import Meta, Node, Value
from ..layout import NdSbp, Placement, Sbp, boxes, volume
from ..state import settings
from .logical import LogicalGraph, key
from .plan import PlanBuilder
from .refusal import needed_at_once
from .time import TimedPlacement, varies

Payload = Callable[..., Any]


class Tasks:
    """The tasks made so far of a graph, and the registers they fill.  `number`: of what varies over micro-steps."""

    def __init__(self, graph: LogicalGraph, number: int) -> None:
        self.graph, self.steps, self.number = graph, graph.steps, number
        self.builder = PlanBuilder(graph.name)
        self.kernels: dict[str, Payload] = {}
        self.names = graph.names()
        self.wave = 0  # of the tasks that are being made: how many borders between stages were crossed (PLAN-ORDER)
        self.waves: list[int] = []  # of each task
        self.reached: dict[int, int] = {}  # key of a value -> the wave in which it is made
        self.at: dict[tuple[int, int], int] = {}  # (key of a value, rank) -> register that holds it
        self.repeated: dict[int, int] = {}  # register filled once a call -> the one that repeats it each micro-step
        self.late: set[int] = set()  # registers that are filled only once all micro-steps are over

    def _enter(self, wave: int) -> None:
        """The tasks made from now on are of this wave."""
        self.waves += [self.wave] * (self.builder.size - len(self.waves))
        self.wave = wave

    def _wave_of(self, node: Node) -> int:
        """The wave of a node's output: that of its inputs, one later if it lies elsewhere than they."""
        (output,) = node.outputs
        moved = any(value.meta.placement != output.meta.placement for value in node.inputs)
        return self.wave + moved

    def _name(self, value: Value) -> str:
        return self.names.get(key(value), "constant")

    def _bytes(self, meta: Meta, rank: int) -> int:
        """Bytes of one register of a value on a rank: its part in micro-step 0, the largest."""
        placement, sbp = layout_of(meta)
        return volume(boxes(meta.shape, placement, sbp)[rank * self.steps]) * meta.dtype.itemsize

    def _task(self, name: str, rank: int, payload: Payload | None, inputs: Sequence[int] = (), **more: Any) -> int:
        if payload is not None:
            self.kernels[name] = payload
        return self.builder.task(name, rank=rank, payload=name if payload else "", inputs=inputs, **more)

    def _holds(self, value: Value, rank: int, task: int) -> None:
        """Declares the register in which `task` leaves a value."""
        number = self.number if varies(value.meta) else 1
        name = f"{self._name(value)}@{rank}"
        self.at[key(value), rank] = self.builder.register(
            name, task, number=number, bytes=self._bytes(value.meta, rank)
        )

    def _read(self, value: Value, rank: int, micro: bool) -> int:
        """The register to read a value from, once a micro-step or once a call."""
        register = self.at[key(value), rank]
        if not micro or varies(value.meta) or self.steps == 1:
            return register
        if register in self.late:
            raise needed_at_once(self.graph, value)
        if register not in self.repeated:
            name = f"repeat {self._name(value)}@{rank}"
            task = self._task(name, rank, None, [register], kind="repeat", count=self.steps)
            self.repeated[register] = self.builder.register(
                name, task, number=self.number, bytes=self._bytes(value.meta, rank), in_place=register
            )
        return self.repeated[register]


def time_sbp(meta: Meta) -> Sbp:
    """The sbp of a value along the axis of micro-steps."""
    return layout_of(meta)[1][-1]


def layout_of(meta: Meta) -> tuple[Placement, NdSbp]:
    """The placement of a value, with the axis of micro-steps, and its sbp there."""
    assert meta.placement is not None and meta.sbp is not None
    return meta.placement, meta.sbp


def ranks_of(meta: Meta) -> tuple[int, ...]:
    """The ranks that hold a value."""
    assert isinstance(meta.placement, TimedPlacement)
    return meta.placement.base.ranks


def backend_of(meta: Meta) -> Any:
    """The back end in force that computes where a value lies."""
    return settings().backend(layout_of(meta)[0].type)
