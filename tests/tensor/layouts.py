"""Placements of a world of four ranks, and tensors laid out on them, for the tests of tensors, autograd and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.layout import NdSbp, Partial, Placement, boxes, normalize
from refflow.random import Generator
from refflow.state import Override
from refflow.world import VirtualWorld

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
PMAX, PMIN = flow.sbp.partial_max, flow.sbp.partial_min
LINE1 = flow.placement("cpu", [0])
LINE2 = flow.placement("cpu", [0, 1])
LINE4 = flow.placement("cpu", [0, 1, 2, 3])
BACK4 = flow.placement("cpu", [3, 1, 2, 0])
MESH = flow.placement("cpu", [[0, 1], [2, 3]])
MESH_T = flow.placement("cpu", [[0, 2], [1, 3]])

Array = np.ndarray[Any, Any]


def fresh_world(size: int) -> Override:
    """A virtual world of `size` ranks with a generator of its own."""
    return Override(world=VirtualWorld(size), generator=Generator())


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    """Every test runs in its own world of four ranks."""
    with fresh_world(4):
        yield


def numbers(*shape: int, dtype: Any = np.float32) -> Array:
    """0, 1, 2, … in a shape."""
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


def laid(array: Any, placement: Placement, *sbp: Any, grad: bool = False) -> flow.Tensor:
    """A global tensor with this logical value."""
    return flow.tensor(array, placement=placement, sbp=sbp, requires_grad=grad)


def dense_partial(array: Any, placement: Placement, *sbp: Any, seed: int = 0) -> flow.Tensor:
    """A global tensor with this logical value whose P addends are all non-zero integers (a B -> P would hide bugs)."""
    whole = np.asarray(array)
    layout = normalize(sbp, placement.mesh, whole.shape, "dense_partial")
    rng = np.random.default_rng(seed)
    addends = _addends(whole, placement, layout, rng)
    box = boxes(whole.shape, placement, layout)
    local = {r: addends[r][tuple(slice(*b) for b in box[r])] for r in placement}
    spare = np.zeros(0, whole.dtype)
    return flow.per_rank(lambda r: local.get(r, spare)).to_global(placement, layout)


def _addends(whole: Array, placement: Placement, sbp: NdSbp, rng: np.random.Generator) -> dict[int, Array]:
    """For each rank the whole-shaped addend of its coordinates on the P axes; on other axes neighbours share it."""
    axes = [a for a, one in enumerate(sbp) if isinstance(one, Partial)]
    keys = {r: tuple(placement.coords(r)[a] for a in axes) for r in placement}
    order = sorted(set(keys.values()))
    parts = {key: rng.integers(1, 9, whole.shape).astype(whole.dtype) for key in order[1:]}
    rest = whole.copy()
    for part in parts.values():
        rest = rest - part
    parts[order[0]] = rest
    return {r: parts[key] for r, key in keys.items()}


ONE_AXIS = [(S(0),), (S(1),), (B,), (P,)]
"""Every sbp of a matrix on one mesh axis."""

MATRIX_LAYOUTS = [
    *[(LINE4, sbp) for sbp in ONE_AXIS],
    (LINE2, (S(0),)),
    (BACK4, (S(1),)),
    (MESH, (S(0), S(0))),
    (MESH, (S(1), S(0))),
    (MESH, (S(0), P)),
    (MESH, (P, B)),
    (MESH_T, (P, P)),
]
"""A selection of layouts of a matrix: one and two mesh axes, uneven, with and without P."""


def layout_id(case: Any) -> str:
    """The name of a layout in test ids."""
    placement, sbp = case
    return f"{'x'.join(map(str, placement.mesh))}r{placement.ranks[0]}-{','.join(map(str, sbp))}"


def in_layout(array: Any, placement: Placement, sbp: Any) -> flow.Tensor:
    """`laid`, with dense addends where there is P."""
    if any(isinstance(one, Partial) for one in sbp):
        return dense_partial(array, placement, *sbp)
    return laid(array, placement, *sbp)


def locals_of(x: flow.Tensor) -> dict[int, list[Any]]:
    """rank -> what it holds, as lists."""
    return {rank: array.tolist() for rank, array in x.local_arrays().items()}
