"""The logical value of a tensor on the host, and how its digits show.

Implements TENSOR-LOGICAL of spec/text/tensors.md and PART-READ of spec/text/partial.md.  Looking is a collective where
the value is global, and is not logged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import LocalGlobalError, PlacementError
from ..ir import Value, to_global
from ..layout import Placement, broadcast
from ..numerics import is_float, same_bits
from ..state import Override, settings

Array = np.ndarray[Any, Any]


def read_only(array: Array) -> Array:
    """A view nobody can write through: values never change."""
    shown = array.view()
    shown.flags.writeable = False
    return shown


def digits(array: Array) -> str:
    """The elements as text; an empty sum's -0 shows as 0."""
    shown = array + np.zeros((), array.dtype) if is_float(array.dtype) else array
    return np.array2string(shown, separator=", ", prefix="tensor(", threshold=200, precision=4)


def check_ranks(what: str, placement: Placement) -> None:
    """`PlacementError` if the world lacks a rank of `placement`."""
    if not isinstance(placement, Placement):
        raise PlacementError(f"{what}: needs a placement such as flow.placement('cpu', [0, 1]), found {placement!r}")
    size = settings().world.size
    absent = [rank for rank in placement if rank >= size]
    if absent:
        raise PlacementError(
            f"{what}: {placement} names ranks {absent}, the world has ranks 0..{size - 1} ({settings().world.describe()})"
        )


def same_everywhere(value: Value) -> bool:
    """Whether the owned ranks hold one and the same local value."""
    arrays = list(value.shards.values())
    backend = settings().backend("cpu")
    return all(a is arrays[0] or same_bits(backend.to_host(a), backend.to_host(arrays[0])) for a in arrays[1:])


def logical_array(value: Value) -> Array:
    """The logical value on the host, everywhere (TENSOR-LOGICAL); P is folded first (PART-READ)."""
    meta, state = value.meta, settings()
    if meta.placement is None:
        if not same_everywhere(value):
            raise LocalGlobalError("the ranks hold different local values; to_global first, or look at local_arrays()")
        return state.backend("cpu").to_host(next(iter(value.shards.values())))
    own = state.world.owned
    ranks = [own[0]] if len(own) == state.world.size else list(range(state.world.size))
    target = Placement(meta.placement.type, ranks)
    if (meta.placement, meta.sbp) != (target, (broadcast,)):
        with Override(grad=False, logs=()):
            value = to_global(value, placement=target, sbp=(broadcast,))
    return state.backend(target.type).to_host(value.shards[own[0]])
