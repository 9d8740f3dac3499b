"""The pictures of boxing plans show the plan's own moves and bytes: PIC-BOXING, PIC-README."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow.boxing import Layout, plan
from refflow.errors import LocalGlobalError, SbpError
from refflow.layout import boxes, volume
from refflow.pictures import plan_svg, plan_text
from refflow.pictures.__main__ import main
from refflow.pictures.boxing import stages, travels
from refflow.pictures.readme import ADDENDS, WAYS, X, readme_picture
from tests.checkpoint.trees import layouts
from tests.pictures.test_layout import texts

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
FOUR = flow.placement("cpu", [0, 1, 2, 3])


@given(data=st.data(), shape=st.lists(st.integers(0, 6), max_size=3).map(tuple), itemsize=st.sampled_from([1, 2, 8]))
def test_the_bytes_are_the_plans(data: st.DataObject, shape: tuple[int, ...], itemsize: int) -> None:
    """PIC-BOXING: what the arrows carry adds up to the plan's bytes, in text and picture; the last column is the target."""
    source, target = (Layout(*data.draw(layouts(shape, 4))) for _ in range(2))
    moves = plan(shape, source, target)
    text, svg = plan_text(moves, itemsize), plan_svg(moves, itemsize)
    carried = sum(int(n) for n in re.findall(r"rank \d+ -> rank \d+ +(\d+) bytes", text))
    assert carried == moves.elements * itemsize
    assert text.splitlines()[0].endswith(f": {moves.elements * itemsize} bytes")
    assert sum(int(w[:-2]) for w in texts(svg) if re.fullmatch(r"\d+ B", w)) == carried
    columns = stages(moves)
    assert columns[-1].held == boxes(shape, target.placement, target.sbp) and len(columns) == max(len(moves.steps), 1) + 1
    for column, step in zip(columns, moves.steps):
        for (rank, _), parts in travels(step, column.held).items():
            assert all(lo <= a <= b <= hi for part in parts for (a, b), (lo, hi) in zip(part, column.held[rank], strict=True))


def test_a_reduction_in_two_steps() -> None:
    """PIC-BOXING"""
    text = plan_text(plan((4, 3), Layout(FOUR, (P,)), Layout(FOUR, (B,))), 4)
    assert "step 1 of 2: reduce_scatter, 144 bytes" in text and "step 2 of 2: all_gather, 144 bytes" in text
    assert "folds the addends of its part in the canonical order" in text
    titles = [stage.title for stage in stages(plan((4, 3), Layout(FOUR, (P,)), Layout(FOUR, (B,))))]
    assert titles == ["before: P(sum)", "between", "after: B"]


def test_a_new_partial_is_the_value_once_and_neutral_elsewhere() -> None:
    """PIC-BOXING"""
    words = texts(plan_svg(plan((4, 6), Layout(FOUR, (B,)), Layout(FOUR, (P,)))))
    assert words.count("neutral: adds nothing") == 3 and "nothing travels" in " ".join(words)


def test_many_ranks_are_summed_up() -> None:
    """PIC-BOXING: above eight ranks one label per rank."""
    many = flow.placement("cpu", list(range(12)))
    moves = plan((24, 4), Layout(many, (S(0),)), Layout(many, (B,)))
    assert "    11 ranks -> rank 3        352 bytes" in plan_text(moves).splitlines()
    assert texts(plan_svg(moves)).count("352 B") == 12


def test_draw_boxing_takes_a_tensor() -> None:
    """PIC-BOXING: the bytes are those comm_log counts."""
    with flow.virtual_world(4):
        x = flow.ones(6, 5, dtype=flow.float16, placement=FOUR, sbp=S(0))
        picture = flow.draw_boxing(x, flow.placement("cpu", [[3, 1]]), (B, S(1)))
        with flow.comm_log() as log:
            x.to_global(flow.placement("cpu", [[3, 1]]), (B, S(1)))
        assert str(picture).splitlines()[0].endswith(f": {log.bytes} bytes") and ET.fromstring(picture.svg) is not None
        assert "nothing moves between ranks" in str(flow.draw_boxing(x))
        with pytest.raises(SbpError, match="draw_boxing"):
            flow.draw_boxing(x, sbp=S(2))
        with pytest.raises(LocalGlobalError):
            flow.draw_boxing(flow.ones(2), sbp=B)


def test_the_front_page_picture_is_up_to_date(tmp_path: Path) -> None:
    """PIC-README: the command in the file makes the file."""
    committed = Path(__file__).parents[2] / "docs" / "global_tensor.svg"
    text = committed.read_text(encoding="utf-8")
    command = re.search(r"<!-- Made by: python -m (refflow\.pictures) readme docs/global_tensor\.svg -->", text)
    assert command is not None
    made = tmp_path / "p.svg"
    subprocess.run([sys.executable, "-m", command[1], "readme", str(made)], check=True, cwd=committed.parents[1])
    assert made.read_text(encoding="utf-8") == text
    ET.parse(committed)


def test_what_the_front_page_says_is_so() -> None:
    """PIC-README: the addends add up to x, the table is what moving it costs."""
    with flow.virtual_world(4):
        x = flow.per_rank(lambda r: ADDENDS[r].astype("float32")).to_global(FOUR, P)
        assert x.numpy().tolist() == X.tolist()
        for (a, _, _), row in zip(WAYS, str(readme_picture()).splitlines()[-4:]):
            for (b, _, _), amount in zip(WAYS, row.split()[1:]):
                before = x.to_global(sbp=a)
                with flow.comm_log() as log:
                    before.to_global(sbp=b)
                assert log.bytes == int(amount)
    assert volume(((0, 4), (0, 4))) * 4 == 64


def test_the_command_refuses_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PIC-README"""
    assert main([]) == 2 and "usage: python -m refflow.pictures readme" in capsys.readouterr().err
    assert main(["readme", str(tmp_path / "no" / "f")]) == 1 and "cannot be written" in capsys.readouterr().err
