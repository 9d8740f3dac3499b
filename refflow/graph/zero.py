"""ZeRO: optimizer state, gradients and parameters held in parts by the ranks that would otherwise hold copies.

Implements ZERO-SHARD, ZERO-STATE, ZERO-GRADIENT and ZERO-PARAMETER of spec/text/passes.md (Rajbhandari et al., 2020).
The stages choose layouts, and a
layout never changes a bit: stage 1 steps the optimizer on S parts of B parameters and gathers the result, stage 2 also
lets gradients go from P straight
to those parts, stage 3 keeps the parameters in parts and gathers them where they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..ir import Value, to_global
from ..layout import Broadcast, NdSbp, Placement, Split
from ..tensor.tensor import Tensor
from .time import TimedPlacement


def shard_sbp(value: Value) -> NdSbp | None:
    """The sbp with the last B mesh axis of several ranks (not that of micro-steps) made S(0); None where nothing can be split.

    Source: ZERO-SHARD.
    """
    placement, sbp = value.meta.placement, value.meta.sbp
    if placement is None or sbp is None or not value.meta.shape:
        return None
    axes = range(placement.ndim - isinstance(placement, TimedPlacement))
    for axis in reversed(axes):
        if isinstance(sbp[axis], Broadcast) and placement.mesh[axis] > 1:
            return (*sbp[:axis], Split(0), *sbp[axis + 1 :])
    return None


def moved(value: Value, placement: Placement | None, sbp: NdSbp) -> Value:
    """`value` in a layout, as it is if it is there already."""
    if (value.meta.placement, value.meta.sbp) == (placement, sbp):
        return value
    return to_global(value, placement=placement, sbp=sbp)


@contextmanager
def stepped_in_parts(params: Iterable[Tensor]) -> Iterator[None]:
    """For the block (an optimizer's step), parameters and gradients are S parts; then the new parameters are gathered (ZERO-STATE)."""
    whole: list[tuple[Tensor, Value]] = []
    for p in params:
        sbp = shard_sbp(p.value)
        if sbp is None or p.grad is None:
            continue
        whole.append((p, p.value))
        placement = p.value.meta.placement
        p.grad = Tensor(moved(p.grad.value, placement, sbp))
        p._value = _leaf(moved(p.value, placement, sbp))
    yield
    for p, old in whole:
        assert old.meta.sbp is not None
        p._value = moved(p.value, old.meta.placement, old.meta.sbp)


def _leaf(value: Value) -> Value:
    return Value(value.meta, value.shards)


def kept_in_parts(params: Iterable[Tensor]) -> dict[Tensor, NdSbp]:
    """Brings each parameter that every rank holds to S parts, for good (ZERO-PARAMETER).

    Its logical value stays.  Gives, by parameter, the layouts they had.
    """
    layouts: dict[Tensor, NdSbp] = {}
    for p in params:
        held, sbp = p.value, shard_sbp(p.value)
        if sbp is not None:
            layouts[p] = p.sbp
            value = to_global(held, placement=held.meta.placement, sbp=sbp)
            p._value = Value(value.meta, value.shards)
            p._version += 1
            if held.requires_grad:  # else it is frozen, and stays so
                p._own(p._value)
                p._value.hooks = held.hooks
    return layouts


@contextmanager
def gathered_for_use(params: Iterable[Tensor], layouts: dict[Tensor, NdSbp]) -> Iterator[None]:
    """For the block (build), each parameter kept in parts is read in its former layout; its gradient arrives in parts (ZERO-PARAMETER)."""
    leaves = [(p, p.value) for p in params if p in layouts]
    for p, leaf in leaves:
        wanted = layouts[p]
        assert leaf.meta.sbp is not None
        p._value = to_global(leaf, placement=leaf.meta.placement, sbp=(*wanted, *leaf.meta.sbp[len(wanted) :]))
    yield
    for p, leaf in leaves:
        p._value = leaf
