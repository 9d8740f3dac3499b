"""The border between local and global tensors: primitives that relabel what the ranks hold, and check it.

Implements BORDER-* of spec/text/border.md and LAY-REPLICA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import LocalGlobalError, ReplicaError, ShapeError
from ..ir import SPECIAL, Meta, Node, Primitive, Value, no_rule, refuse_sum_of_bools, to_global
from ..layout import Broadcast, NdSbp, Placement, Split, box_shape, boxes, dual, partial_axes
from ..numerics import digest, first_difference, same_bits
from ..state import settings
from ..world.base import refuse_foreign

Attrs = Mapping[str, Any]


# --- local -> global ------------------------------------------------------------------------------------------------


def _local_to_global(inputs: tuple[Value, ...], attrs: Attrs) -> tuple[Value, ...]:
    """BORDER-LOCAL-TO-GLOBAL: nothing moves; with `check_meta` ranks compare shapes, dtypes and replicas."""
    value = inputs[0]
    placement, sbp, check = attrs["placement"], attrs["sbp"], attrs["check_meta"]
    refuse_sum_of_bools(value.meta, sbp)
    state = settings()
    backend = state.backend("cpu")
    refuse_foreign("to_global", 0, value.shards, state.world.owned, state.world)
    mine = {rank: backend.shape(value.shards[rank]) for rank in state.world.owned if rank in placement}
    if check:
        told = state.world.agree(
            "to_global: shapes and dtypes", {r: (shape, value.meta.dtype.name) for r, shape in mine.items()}
        )
        shapes = _agreed_shapes(told, placement)
        shape = logical_shape(shapes, placement, sbp)
        _check_parts(shapes, shape, placement, sbp)
    else:
        shape = _assumed_shape(next(iter(mine.values()), value.meta.shape), placement, sbp)
    shards = {rank: value.shards[rank] for rank in mine}
    if check:
        check_replicas("to_global", shards, placement, sbp)
    target = state.backend(placement.type)
    if target is not backend:
        shards = {rank: target.from_host(backend.to_host(array)) for rank, array in shards.items()}
    return (Value(Meta(shape, value.meta.dtype, placement, sbp), shards),)


def _agreed_shapes(told: Mapping[int, tuple[tuple[int, ...], str]], placement: Placement) -> dict[int, tuple[int, ...]]:
    """rank -> local shape, of what ranks told; `ShapeError` unless dtypes and numbers of dimensions agree."""
    dtypes = {told[rank][1] for rank in placement}
    ndims = {len(told[rank][0]) for rank in placement}
    if len(dtypes) > 1 or len(ndims) > 1:
        listing = ", ".join(f"rank {rank}: {told[rank][1]}{list(told[rank][0])}" for rank in placement)
        raise ShapeError(f"to_global: local tensors must have one dtype and one number of dimensions, found {listing}")
    return {rank: told[rank][0] for rank in placement}


def logical_shape(shapes: Mapping[int, tuple[int, ...]], placement: Placement, sbp: NdSbp) -> tuple[int, ...]:
    """The logical shape local parts add up to: along each split dimension the sum over the mesh axes that split it."""
    first = shapes[placement.ranks[0]]
    total = []
    for d, n in enumerate(first):
        axes = [a for a, one in enumerate(sbp) if one == Split(d)]
        if axes:
            n = sum(
                shapes[r][d]
                for r in placement
                if all(c == 0 for a, c in enumerate(placement.coords(r)) if a not in axes)
            )
        total.append(n)
    return tuple(total)


def _assumed_shape(own: tuple[int, ...], placement: Placement, sbp: NdSbp) -> tuple[int, ...]:
    """Without check_meta: every rank is taken to hold as much as this one."""
    shape = list(own)
    for parts, one in zip(placement.mesh, sbp, strict=True):
        if isinstance(one, Split):
            shape[one.axis] *= parts
    return tuple(shape)


def _check_parts(
    shapes: Mapping[int, tuple[int, ...]], shape: tuple[int, ...], placement: Placement, sbp: NdSbp
) -> None:
    """`ShapeError` unless every rank holds its part of the balanced split (LAY-BALANCED)."""
    for rank, box in boxes(shape, placement, sbp).items():
        if shapes[rank] != box_shape(box):
            raise ShapeError(
                f"to_global: the parts add up to {shape}, of which rank {rank} must hold {box_shape(box)} under {sbp}"
                f" (balanced split), found {shapes[rank]}"
            )


def check_replicas(name: str, shards: Mapping[int, Any], placement: Placement, sbp: NdSbp) -> None:
    """`ReplicaError`, the same on every rank, unless ranks along each B axis hold equal bits (LAY-REPLICA)."""
    axes = [a for a, one in enumerate(sbp) if isinstance(one, Broadcast) and placement.mesh[a] > 1]
    if not axes:
        return
    state = settings()
    backend = state.backend("cpu")
    whole = len(state.world.owned) == state.world.size
    marks = {rank: id(array) if whole else digest(backend.to_host(array)) for rank, array in shards.items()}
    marks = dict(state.world.agree(f"{name}: replicas", marks))
    first_of: dict[tuple[int, ...], int] = {}
    for rank in placement:
        group = tuple(-1 if a in axes else c for a, c in enumerate(placement.coords(rank)))
        first = first_of.setdefault(group, rank)
        if marks[rank] == marks[first]:
            continue
        if whole and same_bits(backend.to_host(shards[rank]), backend.to_host(shards[first])):
            continue
        held = dict(state.world.agree(f"{name}: unequal replicas", {r: backend.to_host(a) for r, a in shards.items()}))
        index = first_difference(held[first], held[rank])
        where = tuple(int(i) for i in index) if index is not None else ()
        raise ReplicaError(
            f"{name}: sbp {sbp} needs equal bits on ranks {first} and {rank}; they first differ at {where}:"
            f" {held[first][where]!r} and {held[rank][where]!r} (check_meta=False takes them as they are)"
        )


def _local_to_global_vjp(node: Node, g: Value) -> list[Value | None]:
    """The gradient in the dual layout, cut into local parts (BORDER-DUAL).

    S: its own part, P: everything everywhere, B: all of it on the first rank.  Ranks outside the placement had no part
    in it: zeros.
    """
    placement, sbp = node.attrs["placement"], node.attrs["sbp"]
    backend = settings().backend("cpu")
    mine = node.inputs[0].shards
    outside = tuple((rank, backend.shape(array)) for rank, array in mine.items() if rank not in placement)
    return [to_local(to_global(g, placement=placement, sbp=dual(sbp)), outside=outside)]


local_to_global = Primitive(
    "local_to_global", no_rule, _local_to_global_vjp, doc="local tensors as the parts of a global one"
)
SPECIAL["local_to_global"] = _local_to_global

# --- global -> local ------------------------------------------------------------------------------------------------


def _to_local(inputs: tuple[Value, ...], attrs: Attrs) -> tuple[Value, ...]:
    """BORDER-TO-LOCAL: nothing moves; a rank outside the placement gets zeros of `outside`, by default none."""
    value = inputs[0]
    placement = value.meta.placement
    if placement is None:
        raise LocalGlobalError("to_local: the tensor is local already")
    state = settings()
    here = [rank for rank in state.world.owned if rank in placement]
    refuse_foreign("to_local", placement.top, value.shards, here, state.world)
    source, local = state.backend(placement.type), state.backend("cpu")
    shards = dict(value.shards)
    if source is not local:
        shards = {rank: local.from_host(source.to_host(array)) for rank, array in shards.items()}
    full = local.kernel("full")
    absent = dict(attrs.get("outside", ()))  # rank -> shape of the zeros it gets; by default nothing, size 0
    held = {
        rank: shards[rank] if rank in shards else full(shape=absent.get(rank, (0,)), value=0.0, dtype=value.meta.dtype)
        for rank in state.world.owned
    }
    shapes = [local.shape(array) for array in held.values()]
    return (Value(Meta(shapes[0], value.meta.dtype), held, ragged=len(set(shapes)) > 1),)


def _to_local_vjp(node: Node, g: Value) -> list[Value | None]:
    meta = node.inputs[0].meta
    assert meta.placement is not None and meta.sbp is not None
    return [local_to_global(g, placement=meta.placement, sbp=dual(meta.sbp), check_meta=True)]


to_local = Primitive("to_local", no_rule, _to_local_vjp, doc="what each rank holds, as local tensors")
SPECIAL["to_local"] = _to_local


def is_partial(sbp: NdSbp | None) -> bool:
    """Whether some mesh axis is partial."""
    return sbp is not None and bool(partial_axes(sbp))
