"""SBP as users write it: LAY-SBP."""

from __future__ import annotations

import pytest

import refflow as flow
from refflow.errors import SbpError
from refflow.layout import Partial, Split, broadcast, normalize

S = flow.sbp.split


def test_negative_axes_count_from_the_end() -> None:
    assert normalize(S(-1), (2,), (4, 6), "x") == (Split(1),)
    assert normalize([S(-2), broadcast], (2, 2), (4, 6), "x") == (Split(0), broadcast)


def test_names() -> None:
    assert [str(one) for one in (S(1), flow.sbp.broadcast, flow.sbp.partial_sum, flow.sbp.partial_max)] == [
        "S(1)",
        "B",
        "P(sum)",
        "P(max)",
    ]
    assert flow.sbp.partial_min == Partial("min")


@pytest.mark.parametrize("axis", [2, -3, 7])
def test_an_axis_out_of_range_says_what_would_do(axis: int) -> None:
    with pytest.raises(SbpError, match=r"must be in \[-2, 2\)"):
        normalize(S(axis), (2,), (8, 16), "matmul: x")


def test_a_scalar_cannot_be_split() -> None:
    with pytest.raises(SbpError, match="needs at least one dimension"):
        normalize(S(0), (2,), (), "x")


def test_one_sbp_per_mesh_axis() -> None:
    with pytest.raises(SbpError, match="one sbp per mesh axis"):
        normalize(S(0), (2, 2), (8,), "x")
    with pytest.raises(SbpError, match="one sbp per mesh axis"):
        normalize((S(0), S(0)), (4,), (8,), "x")


@pytest.mark.parametrize("wrong", ["S(0)", None, 0])
def test_other_things_are_refused(wrong: object) -> None:
    with pytest.raises(SbpError, match="expected sbp"):
        normalize((wrong,), (2,), (8,), "x")


@pytest.mark.parametrize(("text", "written"), [
    ("S(0)", r"split\(0\)"), ("S(-1)", r"split\(-1\)"), ("split(dim=2)", r"split\(2\)"), ("split", r"split\(0\)"),
    ("splitt", r"split\(0\)"), ("B", "broadcast"), ("broadcast", "broadcast"), ("brodcast", "broadcast"), ("P", "partial_sum"),
    ("P(max)", "partial_max"), ("partial_sum", "partial_sum"), ("partial_mean", "partial_m.."),
])  # fmt: skip
def test_an_sbp_as_text_is_refused_with_how_it_is_written(text: str, written: str) -> None:
    """LAY-SBP, ERR-TYPES: of tensors and of modules, which counted the letters."""
    where = flow.placement("cpu", [0])
    calls = [
        lambda: flow.zeros(8, placement=where, sbp=text),
        lambda: flow.zeros(8, placement=where, sbp=[text]),
        lambda: flow.nn.Linear(2, 2).to_global(where, text),
    ]
    for call in calls:
        with pytest.raises(SbpError, match=rf"expected sbp.split\(i\), .*, found '.*; an sbp is no text: write flow.sbp.{written}$"):
            call()


def test_a_split_without_its_dimension() -> None:
    with pytest.raises(SbpError, match=r"which needs a dimension: flow.sbp.split\(0\)$"):
        normalize(Split, (2,), (8,), "x")


@pytest.mark.parametrize(("name", "meant"), [("brodcast", "broadcast"), ("splitt", "split"), ("partial", "partial_sum")])
def test_a_name_misspelt(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; did you mean flow.sbp.{meant}\?$"):
        getattr(flow.sbp, name)
    with pytest.raises(AttributeError, match="no attribute 'zzz'$"):
        flow.sbp.zzz  # noqa: B018


def test_malformed_sbp_are_refused_at_once() -> None:
    with pytest.raises(SbpError, match="must be an int"):
        S(1.0)  # type: ignore[arg-type]
    with pytest.raises(SbpError, match="must be an int"):
        S(True)
    with pytest.raises(SbpError, match="kind"):
        Partial("mean")  # type: ignore[arg-type]
