"""Placements: LAY-PLACEMENT, LAY-MESH-ORDER."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given

import refflow as flow
from refflow.errors import PlacementError
from refflow.layout import Placement
from tests.strategies import mesh_of, placements


@given(placements())
def test_coordinates_and_ranks_are_inverse(placement: Placement) -> None:
    for coords, rank in zip(itertools.product(*map(range, placement.mesh)), placement.ranks):
        assert placement.coords(rank) == coords
        assert placement.rank_at(coords) == rank
        assert rank in placement
    assert list(placement) == list(placement.ranks)
    assert placement.size == len(placement.ranks)
    assert placement.ndim == len(placement.mesh)


@given(placements())
def test_a_placement_is_its_printed_form(placement: Placement) -> None:
    again = eval(repr(placement), {"placement": flow.placement})
    assert again == placement
    assert hash(again) == hash(placement)


def test_rank_order_is_kept() -> None:
    """LAY-MESH-ORDER: [3, 0] is not [0, 3], and its first rank holds the first part."""
    p = flow.placement("cpu", [3, 0])
    assert (p.ranks, p) != ((0, 3), flow.placement("cpu", [0, 3]))
    with flow.virtual_world(4):
        x = flow.tensor(np.arange(4.0), placement=p, sbp=flow.sbp.split(0))
        assert {rank: list(part) for rank, part in x.local_arrays().items()} == {3: [0.0, 1.0], 0: [2.0, 3.0]}


def test_type_and_mesh_enter_equality() -> None:
    assert flow.placement("cpu", [0, 1]) != flow.placement("cuda", [0, 1])
    assert flow.placement("cpu", [[0, 1]]) != flow.placement("cpu", [0, 1])


@pytest.mark.parametrize("ranks", [range(4), (0, 1, 2, 3), np.arange(4), [np.int64(0), 1, np.int32(2), 3]])
def test_ranks_may_be_any_sequence_of_integers(ranks: object) -> None:
    assert flow.placement("cpu", ranks) == mesh_of((4,))


def test_one_rank_and_deep_meshes() -> None:
    assert flow.placement("cpu", 3).mesh == (1,)
    assert flow.placement("cpu", np.arange(8).reshape(2, 2, 2)).mesh == (2, 2, 2)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([0, 1, 0], "more than once"),
        ([0, -1], ">= 0"),
        ([], "at least one rank"),
        ([[]], "at least one rank"),
        ([[0, 1], [2]], "rectangular"),
        ([0, [1, 2]], "rectangular"),
        ([0, True], "rectangular|ints"),
        ("01", "list of ints"),
        (1.5, "list of ints"),
        ([0.5, 1], "list of ints"),
        (True, "list of ints"),
    ],
)
def test_malformed_ranks_are_refused(ranks: object, words: str) -> None:
    with pytest.raises(PlacementError, match=words):
        flow.placement("cpu", ranks)


def test_a_device_type_is_a_word() -> None:
    with pytest.raises(PlacementError, match="device type"):
        flow.placement("", [0])


def test_absent_ranks_are_named() -> None:
    with flow.virtual_world(2), pytest.raises(PlacementError, match=r"\[2, 5\]"):
        flow.zeros(3, placement=flow.placement("cpu", [0, 2, 5]), sbp=flow.sbp.broadcast)
    with pytest.raises(PlacementError, match="rank 7 is not in"):
        mesh_of((2,)).coords(7)
