"""Who holds what: LAY-BALANCED, LAY-ND-SPLIT, LAY-INDEX."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow.layout import (
    Partial,
    Split,
    balanced,
    box_shape,
    boxes,
    broadcast,
    dual,
    intersect,
    locate,
    partial_axes,
    reduced,
    volume,
    within,
)
from tests.strategies import KINDS, cut, every_sbp, given_array, global_from, mesh_of, placements, sbps, shapes


@pytest.mark.parametrize(
    ("n", "parts", "sizes"),
    [(5, 4, [2, 1, 1, 1]), (7, 4, [2, 2, 2, 1]), (2, 3, [1, 1, 0]), (0, 2, [0, 0]), (6, 3, [2, 2, 2])],
)
def test_balanced_sizes(n: int, parts: int, sizes: list[int]) -> None:
    """The first n mod p parts have one more; a ceiling split of 5 over 4 would be 2, 2, 1, 0."""
    assert np.diff(balanced(0, n, parts)).tolist() == sizes


@given(st.integers(0, 50), st.integers(0, 100), st.integers(1, 9))
def test_balanced_parts_tile_and_differ_by_one(lo: int, n: int, parts: int) -> None:
    offsets = balanced(lo, lo + n, parts)
    sizes = np.diff(offsets)
    assert (offsets[0], offsets[-1], len(sizes)) == (lo, lo + n, parts)
    assert sizes.max() - sizes.min() <= 1
    assert sorted(sizes, reverse=True) == list(sizes)


def test_nested_splits_cut_what_is_left_from_left_to_right() -> None:
    """(S(0), S(0)) of 7 on 2 x 3: 4 + 3, then 2 + 1 + 1 and 1 + 1 + 1."""
    found = boxes((7,), mesh_of((2, 3)), (Split(0), Split(0)))
    assert [box[0] for box in found.values()] == [(0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]


@given(st.data())
def test_boxes_cover_every_element_once_per_replica(data: st.DataObject) -> None:
    shape, placement = data.draw(shapes()), data.draw(placements())
    sbp = data.draw(sbps(placement, len(shape)))
    count = np.zeros(shape, int)
    for box in boxes(shape, placement, sbp).values():
        count[within(box, tuple((0, n) for n in shape))] += 1
        assert volume(box) == math.prod(box_shape(box))
    replicas = math.prod(size for size, one in zip(placement.mesh, sbp) if not isinstance(one, Split))
    assert (count == replicas).all()


@given(st.data())
def test_boxes_are_the_plain_cut(data: st.DataObject) -> None:
    shape, placement = data.draw(shapes()), data.draw(placements())
    sbp = data.draw(sbps(placement, len(shape), ()))
    array = np.arange(math.prod(shape)).reshape(shape)
    value, _ = global_from(given_array(array), shape, placement, sbp)
    for rank, box in boxes(shape, placement, sbp).items():
        assert flow.same_bits(value.shards[rank], array[tuple(slice(lo, hi) for lo, hi in box)])


@given(st.data())
def test_locate_finds_every_holder(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 7), max_size=3).map(tuple))
    placement = data.draw(placements())
    sbp = data.draw(sbps(placement, len(shape)))
    array = np.arange(math.prod(shape)).reshape(shape)
    index = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    held = locate(index, shape, placement, sbp)
    for rank, local in held:
        part = array
        for size, position, one in zip(placement.mesh, placement.coords(rank), sbp):
            part = cut(part, one.axis, size, position) if isinstance(one, Split) else part
        assert part[local] == array[index]
    replicas = math.prod(size for size, one in zip(placement.mesh, sbp) if not isinstance(one, Split))
    assert len(held) == replicas


def test_intersect_and_within() -> None:
    a, b = ((0, 4), (2, 6)), ((3, 8), (0, 3))
    assert intersect(a, b) == ((3, 4), (2, 3))
    assert intersect(((0, 2),), ((2, 4),)) is None
    assert intersect((), ()) == ()
    assert within(((3, 4), (2, 3)), a) == (slice(3, 4), slice(0, 1))


def test_reduced_and_dual() -> None:
    sbp = (Split(1), broadcast, Partial("sum"))
    assert partial_axes(sbp) == (2,)
    assert reduced(sbp) == (Split(1), broadcast, broadcast)
    assert dual(sbp) == (Split(1), Partial("sum"), broadcast)


def test_every_sbp_of_the_tests() -> None:
    """What "all pairs" in the other tests means."""
    assert [str(one) for one in every_sbp(2)] == ["B", "S(0)", "S(1)", *(f"P({kind})" for kind in KINDS)]
    assert len(list(itertools.product(every_sbp(2), repeat=2))) == 36
