"""Every (placement, sbp) to every other keeps every bit: BOX-PLAN, BOX-RUN, BOX-FOLD-ORDER, BOX-B2P, BOX-S2P.

The addends of a P are dense; what arrives is gathered by the plain definitions of tests/strategies.py, in which mesh
axes fold from right to left and each is a tree over position.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow.layout import NdSbp, Partial, Placement, broadcast, partial_sum
from refflow.ops.border import to_global
from tests.laws.checking import check_value
from tests.strategies import (
    GRIDS,
    KINDS,
    LATTICE,
    MESHES,
    ROWS,
    Array,
    Shape,
    arbitrary,
    every_sbp,
    examples,
    given_array,
    global_from,
    logical,
    mesh_of,
    placements,
    sbps,
    seeds,
    shapes,
    special_values,
)

DTYPES = (flow.float32, flow.float64, flow.float16, flow.bfloat16, flow.int64, flow.uint8, flow.bool)


Where = tuple[Placement, NdSbp]


def moved(
    rng: np.random.Generator, shape: Shape, dtype: np.dtype[Any], source: Where, target: Where
) -> tuple[Array, Array]:
    """What stands there after the move, and what should."""
    value, array = global_from(lambda shape: arbitrary(rng, shape, dtype), shape, *source)
    there = to_global(value, placement=target[0], sbp=target[1])
    assert (there.meta.placement, there.meta.sbp) == target
    check_value("to_global", there)
    return logical(there), array


@pytest.mark.parametrize("mesh", [*ROWS, (2, 2), (2, 3)])
@pytest.mark.parametrize("shape", [(5, 3), (0, 3), (), (4,)])
def test_every_pair_on_one_placement(mesh: Shape, shape: Shape) -> None:
    rng = np.random.default_rng(11)
    placement = mesh_of(mesh, [5, 2, 7, 0, 3, 6])
    layouts = list(itertools.product(every_sbp(len(shape)), repeat=len(mesh)))
    for source, target in itertools.product(layouts, layouts):
        found, expected = moved(rng, shape, flow.float32, (placement, source), (placement, target))
        assert flow.same_bits(found, expected), f"{source} -> {target} of {shape} on {placement}: {found} {expected}"


@examples(600)
@given(st.data())
def test_between_any_two_placements(data: st.DataObject) -> None:
    """Meshes of any shape, overlapping or disjoint ranks in any order, uneven and empty tensors, every dtype."""
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = data.draw(shapes())
    kinds = LATTICE if dtype == flow.bool else KINDS
    source, target = (
        (placement, data.draw(sbps(placement, len(shape), kinds)))
        for placement in (data.draw(placements(MESHES)), data.draw(placements(MESHES)))
    )
    found, expected = moved(np.random.default_rng(data.draw(seeds)), shape, dtype, source, target)
    assert flow.same_bits(found, expected)


@pytest.mark.parametrize("mesh", [*ROWS, *GRIDS])
@pytest.mark.parametrize("kind", KINDS)
def test_by_way_of_partial_every_bit_comes_back(mesh: Shape, kind: str) -> None:
    """B -> P -> B keeps -0.0, NaN, infinities and subnormals."""
    placement = mesh_of(mesh)
    whole, partial = (broadcast,) * len(mesh), (Partial(kind),) * len(mesh)  # type: ignore[arg-type]
    for dtype in DTYPES[:4]:
        value, array = global_from(given_array(special_values(dtype)), (11,), placement, whole)
        there = to_global(value, placement=placement, sbp=partial)
        back = to_global(there, placement=placement, sbp=whole)
        assert flow.same_bits(logical(back), array), f"{dtype}: {logical(back)}"


def fold(parts: list[float], mesh: Shape) -> float:
    """The canonical fold of one number per rank, by refflow."""
    arrays = dict(enumerate(np.float32([part]) for part in parts))
    local = flow.per_rank(lambda rank: arrays.get(rank, np.float32([0])))
    return float(local.to_global(mesh_of(mesh), (partial_sum,) * len(mesh)).numpy()[0])


def test_fold_is_a_tree_over_position() -> None:
    """BOX-FOLD-ORDER: (a + b) + (c + d); a ring, ((a + b) + c) + d, would give 1."""
    assert fold([1e8, 1.0, -1e8, 1.0], (4,)) == 0.0


def test_three_ranks_fold_two_and_one() -> None:
    """The first ceil(3/2) first: (a + b) + c."""
    assert fold([1e8, 1.0, -1e8], (3,)) == 0.0
    assert fold([1.0, 1e8, -1e8], (3,)) == 0.0
    assert fold([1e8, -1e8, 1.0], (3,)) == 1.0


def test_innermost_axis_folds_first() -> None:
    """On a 2 x 3 mesh, rows of three first; the outer axis first, (a + d) + …, would give 2."""
    assert fold([1e8, 1.0, 0.0, -1e8, 1.0, 0.0], (2, 3)) == 0.0


def test_position_counts_not_rank() -> None:
    """BOX-FOLD-ORDER goes by place in the mesh: the same numbers on reordered ranks fold otherwise."""
    numbers = dict(zip([3, 1, 0, 2], [1e8, -1e8, 1.0, 1.0]))
    local = flow.per_rank(lambda rank: np.float32([numbers.get(rank, 0.0)]))
    placed = local.to_global(flow.placement("cpu", [3, 1, 0, 2]), flow.sbp.partial_sum)
    assert placed.numpy()[0] == 2.0


def test_kinds_may_mix_on_a_grid() -> None:
    """max outside, sum inside, and the other way round, made from B and folded again."""
    for kinds in itertools.product(KINDS, repeat=2):
        placement = mesh_of((2, 3))
        for shape, dtype in itertools.product([(4,), ()], [flow.float32, flow.int64]):
            rng = np.random.default_rng(3)
            value, array = global_from(given_array(arbitrary(rng, shape, dtype)), shape, placement, (broadcast,) * 2)
            there = to_global(value, placement=placement, sbp=tuple(Partial(kind) for kind in kinds))  # type: ignore[arg-type]
            assert flow.same_bits(logical(there), array), f"{kinds}: {there.shards}"
