"""Micro-batches: a mesh axis in time, the innermost one.

Implements TIME-AXIS, TIME-INPUT and TIME-WORLD of spec/text/passes.md.  A step cut into M micro-batches is a program on
the mesh [ranks..., M] whose last axis is walked in time: position (r, m) is what rank r does in micro-step m.  The sbp
rules decide there as on any axis: inputs are S(0), parameters B, gradients P until they are folded, micro-steps first,
then ranks.  So accumulation follows the canonical tree and bits do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ..errors import GraphError
from ..errors import TooManySteps as TooManySteps
from ..ir import Meta, Value
from ..kernels.wire import Wire
from ..layout import NdSbp, Placement, Sbp, Split, boxes, broadcast, nested, within
from ..state import settings
from ..world import Transfer, World
from ..world.direct import moves_memory

T = TypeVar("T")


class TimedPlacement(Placement):
    """A placement with a last mesh axis of `steps` micro-steps; its rank ids are r * steps + m."""

    __slots__ = ("_base", "steps")

    def __init__(self, base: Placement, steps: int) -> None:
        ids = [rank * steps + m for rank in base.ranks for m in range(steps)]
        super().__init__(base.type, nested(ids, (*base.mesh, steps)))
        self._base, self.steps = base, steps
        self._hash = hash((base, steps))

    def __eq__(self, other: object) -> bool:
        """Two ranks in two micro-steps are not four ranks, though mesh and ids agree."""
        if not isinstance(other, TimedPlacement):
            return False if isinstance(other, Placement) else NotImplemented
        return (self.base, self.steps) == (other.base, other.steps)

    def __hash__(self) -> int:
        return self._hash

    @property
    def base(self) -> Placement:
        """The placement without the axis of micro-steps."""
        return self._base

    def __repr__(self) -> str:
        return f"{self.base} x {self.steps} micro-steps" if self.steps > 1 else str(self.base)


def varies(meta: Meta) -> bool:
    """Whether a value differs from micro-step to micro-step."""
    return isinstance(meta.placement, TimedPlacement) and meta.sbp is not None and bool(meta.sbp[-1] != broadcast)


def timed(placement: Placement, steps: int) -> TimedPlacement:
    """`placement` with the axis of micro-steps; one that has it already is left alone."""
    return placement if isinstance(placement, TimedPlacement) else TimedPlacement(placement, steps)


def timed_meta(meta: Meta, steps: int, along: Sbp) -> Meta:
    """The meta of a tensor on the mesh with micro-steps, `along` being its sbp on that axis."""
    assert meta.placement is not None and meta.sbp is not None
    if isinstance(meta.placement, TimedPlacement):
        return meta
    return meta.with_layout(timed(meta.placement, steps), (*meta.sbp, along))


def as_told(meta: Meta) -> Meta:
    """The meta as graphs are printed: without the axis of micro-steps where there is only one."""
    if not isinstance(meta.placement, TimedPlacement) or meta.placement.steps > 1:
        return meta
    assert meta.sbp is not None
    return meta.with_layout(meta.placement.base, meta.sbp[:-1])


def input_sbp(meta: Meta, steps: int) -> Sbp:
    """Inputs are cut along dimension 0 (TIME-INPUT); what has no dimension is the same in every micro-step."""
    if not meta.shape or steps == 1:
        return broadcast
    if meta.shape[0] % steps or not meta.shape[0]:
        raise TooManySteps(f"a batch of {meta.shape[0]} does not fall into {steps} equal micro-batches")
    return Split(0)


def spread(value: Value, steps: int, along: Sbp) -> Value:
    """A value on [ranks] as one on [ranks, steps]: the same array in every micro-step (B), or its part (S)."""
    meta = value.meta
    if isinstance(meta.placement, TimedPlacement):
        return value
    assert meta.placement is not None and meta.sbp is not None
    target = timed_meta(meta, steps, along)
    cut = settings().backend(meta.placement.type).kernel("slice_box")
    old, new = boxes(meta.shape, meta.placement, meta.sbp), boxes(meta.shape, *_layout(target))
    shards = {}
    for rank, array in value.shards.items():
        for m in range(steps):
            here = rank * steps + m
            shards[here] = array if along == broadcast else cut(array, slices=within(new[here], old[rank]))
    return Value(target, shards)


def _layout(meta: Meta) -> tuple[Placement, NdSbp]:
    assert meta.placement is not None and meta.sbp is not None
    return meta.placement, meta.sbp


def gathered(value: Value) -> Value:
    """A value that is B over the micro-steps, as one on [ranks]."""
    placement = value.meta.placement
    assert isinstance(placement, TimedPlacement) and value.meta.sbp is not None
    if value.meta.sbp[-1] != broadcast:
        raise GraphError(
            f"a value with sbp {value.meta.sbp[-1]} over micro-steps has no single value; bring it to B first"
        )
    shards = {rank // placement.steps: array for rank, array in value.shards.items() if rank % placement.steps == 0}
    return Value(value.meta.with_layout(placement.base, value.meta.sbp[:-1]), shards)


class TimeWorld:
    """A world whose ranks are (rank, micro-step) pairs of another; micro-steps of one rank are in one process."""

    def __init__(self, base: World, steps: int) -> None:
        self._base, self._steps = base, steps
        self.size = base.size * steps
        self.owned = tuple(rank * steps + m for rank in base.owned for m in range(steps))

    def transfer(self, call: str, transfers: Sequence[Transfer], outgoing: Mapping[int, Any]) -> Mapping[int, Any]:
        ranks = [Transfer(t.source // self._steps, t.target // self._steps, t.shape, t.dtype) for t in transfers]
        return self._base.transfer(call, ranks, outgoing)

    @property
    def direct(self) -> bool:
        """Whether the world takes memory of devices (WORLD-DIRECT)."""
        return moves_memory(self._base)

    def transfer_direct(
        self, call: str, transfers: Sequence[Transfer], outgoing: Mapping[int, Wire], landings: Mapping[int, Wire]
    ) -> None:
        """As the world's."""
        assert moves_memory(self._base)
        ranks = [Transfer(t.source // self._steps, t.target // self._steps, t.shape, t.dtype) for t in transfers]
        self._base.transfer_direct(call, ranks, outgoing, landings)

    def agree(self, call: str, mine: Mapping[int, T]) -> Mapping[int, T]:
        told: dict[int, dict[int, T]] = {rank: {} for rank in self._base.owned}
        for rank, entry in mine.items():
            told[rank // self._steps][rank] = entry
        return {rank: entry for held in self._base.agree(call, told).values() for rank, entry in held.items()}

    def saw(self, name: str, mark: int) -> None:
        self._base.saw(name, mark)

    def describe(self) -> str:
        return f"{self._base.describe()}, {self._steps} micro-steps"
