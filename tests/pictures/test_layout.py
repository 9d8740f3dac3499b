"""The pictures of layouts say what the layout says: PIC-LAYOUT, PIC-TEXT, PIC-COLOUR."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow.errors import LocalGlobalError, PlacementError, SbpError
from refflow.layout import box_shape, boxes, volume
from refflow.pictures import layout_svg, layout_text
from refflow.pictures.ink import PALETTE, Drawing, mixed, tint
from refflow.pictures.parts import drawn_shape, regions
from tests.checkpoint.trees import layouts

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
FOUR = flow.placement("cpu", [0, 1, 2, 3])
SQUARE = flow.placement("cpu", [[0, 1], [2, 3]])


def texts(svg: str) -> list[str]:
    """The words in an SVG document, title and description left out."""
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@given(data=st.data(), shape=st.lists(st.integers(0, 7), max_size=4).map(tuple))
def test_the_parts_tile_what_is_drawn(data: st.DataObject, shape: tuple[int, ...]) -> None:
    """PIC-LAYOUT: regions do not overlap and cover the drawing; each names exactly the ranks that hold it."""
    where, sbp = data.draw(layouts(shape, 4))
    found = regions(shape, where, sbp)
    cells = [(r, c) for (r0, r1), (c0, c1) in found for r in range(r0, r1) for c in range(c0, c1)]
    rows, columns = drawn_shape(shape)
    total = rows * columns if all(shape) else 0
    assert len(cells) == len(set(cells)) == total
    named = [int(n) for text in found.values() for n in re.findall(r"\d+", text)]
    assert sorted(named) == sorted(rank for rank, box in boxes(shape, where, sbp).items() if volume(box))
    text, svg = layout_text(shape, where, sbp), layout_svg(shape, where, sbp)
    words = texts(svg)
    for rank, box in boxes(shape, where, sbp).items():
        assert f"rank {rank}" in words and f"rank {rank}  " in text
        assert ("holds nothing" in _line(text, rank)) == (volume(box) == 0)


def _line(text: str, rank: int) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"  rank {rank} "))


@pytest.mark.parametrize(
    ("shape", "where", "sbp", "expressions"),
    [
        ((5, 6), FOUR, S(0), ["0", "1", "2", "3"]),
        ((3,), FOUR, S(0), ["0", "1", "2"]),
        ((2, 2), FOUR, B, ["0 = 1 = 2 = 3"]),
        ((2, 2), FOUR, P, ["0 + 1 + 2 + 3"]),
        ((2, 2), FOUR, flow.sbp.partial_max, ["max(0, 1, 2, 3)"]),
        ((6, 6), SQUARE, (S(0), B), ["0 = 1", "2 = 3"]),
        ((6, 6), SQUARE, (S(1), P), ["0 + 1", "2 + 3"]),
        ((6, 6), SQUARE, (B, P), ["(0 + 1) = (2 + 3)"]),
        ((6, 6), SQUARE, (P, B), ["(0 = 1) + (2 = 3)"]),
        ((6, 6), SQUARE, (B, flow.sbp.partial_min), ["min(0, 1) = min(2, 3)"]),
        ((6, 6), SQUARE, (P, P), ["(0 + 1) + (2 + 3)"]),
        ((2, 2, 3), FOUR, S(2), ["0 | 1 | 2"]),
        ((2, 2), flow.placement("cpu", [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]), (P, B, P), ["((0 + 1) = (2 + 3)) + ((4 + 5) = (6 + 7))"]),
        ((0, 3), FOUR, B, []),
    ],
)
def test_expressions(shape: Any, where: Any, sbp: Any, expressions: list[str]) -> None:
    """PIC-LAYOUT: = for equal bits, + and max for what is folded, | for parts of a dimension not drawn."""
    nd_sbp = sbp if isinstance(sbp, tuple) else (sbp,)
    assert list(regions(shape, where, nd_sbp).values()) == expressions


def test_replicas_and_partials_in_words() -> None:
    """PIC-LAYOUT"""
    text = layout_text((4, 4), flow.placement("cpu", [[0, 1], [2, 3]]), (B, P))
    assert _line(text, 0).endswith("addend 1 of 2, the first copy") and _line(text, 3).endswith("addend 2 of 2, copy of rank 1")
    assert "term 2 of 4" in _line(layout_text((4,), FOUR, flow.sbp.partial_max), 1)
    assert "mesh axis 1, P(sum): each of 2 ranks holds a whole addend" in text


def test_partials_are_hatched_and_replicas_are_not() -> None:
    """PIC-LAYOUT: a hatch is a path of several strokes."""
    hatches = [len(re.findall(r'<path d="(?:M[^M"]+){2,}"', layout_svg((4, 4), FOUR, sbp))) for sbp in (S(0), B, P)]
    assert hatches[:2] == [0, 0] and hatches[2] == 5  # four ranks and the whole


def test_a_small_tensor_shows_its_numbers() -> None:
    """PIC-LAYOUT: each rank's own, also where they are addends."""
    with flow.virtual_world(4):
        x = flow.per_rank(lambda r: [[float(r), 0.5], [float("nan"), -100.0 * r]]).to_global(FOUR, P)
        words = texts(flow.draw_layout(x).svg)
        assert [w for w in words if w in ("0.5", "nan")] == ["0.5", "nan"] * 4
        assert {"-100", "-200", "-300", "3"} <= set(words)
        flags = texts(flow.draw_layout(flow.tensor([True, False, True], placement=FOUR, sbp=S(0))).svg)
        assert [w for w in flags if w in "TF"] == ["T", "F", "T"]
        big = flow.zeros(9, 2, placement=FOUR, sbp=B)
        assert "0" not in texts(flow.draw_layout(big).svg)
        elsewhere = flow.draw_layout(x, sbp=B)  # another layout than its own: no numbers
        assert "0.5" not in texts(elsewhere.svg) and "float32, shape (2, 2): B on" in str(elsewhere)


def test_every_process_draws_the_same_picture() -> None:
    """PIC-LAYOUT: where each rank holds its own shard only, the picture is a collective."""

    def program() -> str:
        return flow.draw_layout(flow.tensor([[1, 2, 3], [4, 5, 6]], placement=flow.placement("cpu", [2, 0]), sbp=S(1))).svg

    with flow.virtual_world(3):
        expected = program()
    assert list(flow.spmd(3, program)) == [expected] * 3


def test_a_picture(tmp_path: Path) -> None:
    """PIC-TEXT: text for a terminal, SVG for a notebook, the text again for a screen reader."""
    picture = flow.draw_layout((4, 6), FOUR, S(1))
    assert str(picture) == repr(picture) == layout_text((4, 6), FOUR, S(1)) and picture._repr_svg_() == picture.svg
    root = ET.fromstring(picture.svg)
    assert root.get("role") == "img" and [child.tag.split("}")[1] for child in root][:2] == ["title", "desc"]
    assert root[1].text == str(picture)
    picture.save(tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_text(encoding="utf-8") == picture.svg
    assert " id=" not in picture.svg and "<style" not in picture.svg  # several pictures can stand in one page


def test_what_cannot_be_drawn() -> None:
    """PIC-LAYOUT"""
    with pytest.raises(PlacementError, match="a shape needs a placement"):
        flow.draw_layout((2, 3))
    with pytest.raises(SbpError, match="draw_layout: S\\(2\\) of a tensor of 2 dimensions"):
        flow.draw_layout((2, 3), FOUR, S(2))
    with pytest.raises(LocalGlobalError):
        flow.draw_layout(flow.ones(2))
    with pytest.raises(PlacementError, match="names ranks"):
        flow.draw_layout(flow.ones(2, placement=flow.placement("cpu", 0), sbp=B), FOUR, B)
    assert box_shape(((0, 2),)) == (2,)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_words_stand_out_from_every_colour() -> None:
    """PIC-COLOUR: WCAG 2.1 contrast of at least 7 to 1 on every fill, 4.5 for the small print on the ground."""
    for rank in range(len(PALETTE)):
        assert (_luminance(tint(rank)) + 0.05) / (_luminance("#1F2328") + 0.05) >= 7
    assert (_luminance("#FCFCFA") + 0.05) / (_luminance("#59626B") + 0.05) >= 4.5
    assert len({*PALETTE}) == len(PALETTE) and mixed("#000000", "#FFFFFF", 0.5) == "#808080"


def test_markup_in_words_is_escaped() -> None:
    """PIC-TEXT"""
    drawing = Drawing()
    drawing.text(0, 0, "a < b & c")
    assert texts(drawing.document("<t>", "<d> & e", "note")) == ["a < b & c"]
