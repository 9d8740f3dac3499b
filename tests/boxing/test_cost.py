"""What a plan costs and how it prints: BOX-COST, BOX-LOG, BOX-PLAN.

T elements, p producers, q consumers.  On the same devices: B->S 0; S->S T(p-1)/p; P->S and S->B T(p-1); P->B 2T(p-1);
anything to P 0.  On others: T, and (q-1)T more to B, and (p-1)T more from P.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow.boxing import Layout, elements_moved, plan
from refflow.layout import Broadcast, Partial, Split, broadcast, partial_sum
from tests.strategies import examples, mesh_of, placements, sbps, shapes

SHAPE, T = (12, 24), 288
S0, S1, B, P = Split(0), Split(1), broadcast, partial_sum


def cost(p: int, source: object, target: object) -> int:
    """The table, same devices."""
    if isinstance(target, Partial) or source == target or isinstance(source, Broadcast):
        return 0
    if isinstance(source, Split) and isinstance(target, Split):
        return T * (p - 1) // p
    return T * (p - 1) * (2 if isinstance(source, Partial) and isinstance(target, Broadcast) else 1)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_same_devices(p: int) -> None:
    where = mesh_of((p,), [6, 1, 4, 3])
    for source, target in itertools.product((S0, S1, B, P), repeat=2):
        found = plan(SHAPE, Layout(where, (source,)), Layout(where, (target,))).elements
        assert found == cost(p, source, target), f"{source} -> {target} on {p}"


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("q", [1, 2, 3, 4])
def test_other_devices(p: int, q: int) -> None:
    here, there = mesh_of((p,), [0, 1, 2, 3]), mesh_of((q,), [7, 5, 6, 4])
    for source, target in itertools.product((S0, S1, B, P), repeat=2):
        expected = T + (q - 1) * T * (target == B) + (p - 1) * T * (source == P)
        assert plan(SHAPE, Layout(here, (source,)), Layout(there, (target,))).elements == expected, (
            f"{source} -> {target}"
        )


@examples(200)
@given(st.data())
def test_what_moves_is_counted_without_the_plan(data: st.DataObject) -> None:
    """BOX-COST: the count that signatures are chosen by is that of the plan, uneven, empty, partial or elsewhere."""
    shape, here = data.draw(shapes()), data.draw(placements())
    there = here if data.draw(st.booleans()) else data.draw(placements())
    source, target = Layout(here, data.draw(sbps(here, len(shape)))), Layout(there, data.draw(sbps(there, len(shape))))
    assert elements_moved(shape, source, target) == plan(shape, source, target).elements


def test_the_same_layout_has_no_steps() -> None:
    layout = Layout(mesh_of((2, 2)), (S0, P))
    assert plan(SHAPE, layout, layout).steps == ()


def test_a_partial_axis_that_stays_is_not_folded() -> None:
    """(P, S0) -> (P, B): the outer P stays, an all_gather within each group of two."""
    where = mesh_of((2, 2))
    found = plan(SHAPE, Layout(where, (P, S0)), Layout(where, (P, B)))
    assert (found.elements, [step.folds for step in found.steps]) == (2 * T, [()])


def test_folding_the_outer_axis_folds_the_inner_one_too() -> None:
    """(P, P) -> (B, P): inner first, then both; the inner P is made anew (BOX-FOLD-ORDER)."""
    where = mesh_of((2, 2))
    found = plan(SHAPE, Layout(where, (P, P)), Layout(where, (B, P)))
    assert found.steps[0].folds == ((2, "sum"), (2, "sum"))


def test_a_plan_prints_steps_and_bytes() -> None:
    where = mesh_of((2,))
    text = plan((4,), Layout(where, (P,)), Layout(where, (B,))).describe(4)
    assert text.splitlines() == [
        'P(sum) on placement("cpu", [0, 1]) -> B on placement("cpu", [0, 1]), shape (4,): 32 bytes',
        "  reduce_scatter: 16 bytes",
        "  all_gather: 16 bytes",
    ]
    assert "nothing moves" in plan((4,), Layout(where, (B,)), Layout(where, (B,))).describe(4)


@pytest.mark.parametrize(
    ("source", "target", "kinds"),
    [(B, S0, ["slice"]), (S0, S1, ["all_to_all"]), (S0, B, ["all_gather"]), (P, S0, ["reduce_scatter"])],
)
def test_the_log_names_each_collective_and_its_bytes(source: object, target: object, kinds: list[str]) -> None:
    where = mesh_of((4,))
    x = flow.tensor(np.ones(SHAPE, np.float32), placement=where, sbp=source)
    with flow.comm_log() as log:
        x.to_global(sbp=target)
    assert [move.kind for move in log] == kinds
    assert log.bytes == 4 * cost(4, source, target)
    assert all(kind in str(log) for kind in kinds)
    assert log.by_kind() == {kinds[0]: (1, log.bytes)}


def test_sends_between_devices_are_named_so() -> None:
    found = plan((4,), Layout(mesh_of((2,)), (S0,)), Layout(mesh_of((2,), [2, 3]), (S0,)))
    assert [step.kind for step in found.steps] == ["send"]
