"""What a newcomer sees on the screen: short texts instead of dumps.  BOX-LOG, SIG-EXPLAIN, ERR-LEFT, ERR-DIVERGENCE."""

from __future__ import annotations

import re

import numpy as np
import pytest

import refflow as flow
from refflow.cli import main
from refflow.errors import DivergenceError
from tests.tensor.layouts import LINE4, B, S, laid, numbers


def test_a_log_is_its_lines() -> None:
    """BOX-LOG: the placement is said once where nothing leaves it."""
    with flow.comm_log() as log:
        x = laid(numbers(4, 4), LINE4, S(0)).to_global(sbp=S(1))
        x.to_global(placement=flow.placement("cpu", [0, 1]))
    first, second = repr(log).split("\n")
    assert re.fullmatch(r'all_to_all +48 B   S\(0\) -> S\(1\) on placement\("cpu", \[0, 1, 2, 3\]\)', first)
    assert second.count("placement") == 2
    assert repr(flow.comm_log()) == "nothing moved"


def test_explain_of_a_move() -> None:
    """SIG-EXPLAIN: where no signature was chosen it says so."""
    assert "draw_boxing" in repr(flow.explain(laid(numbers(4), LINE4, S(0)).to_global, sbp=B))


def test_short_texts() -> None:
    """What a prompt shows of settings, nodes and data is a line."""
    with flow.virtual_world(2) as world:
        assert "virtual world of 2 ranks" in repr(world) and "\n" not in repr(world)
    with flow.boxing("explicit") as setting:
        assert "boxing" in repr(setting)
    assert "mul" in repr((flow.ones(2, requires_grad=True) * 2).grad_fn)
    assert repr(flow.data.load_digits()) == "Digits(1437 images for training, 360 for testing)"


def test_printing_on_one_rank_only() -> None:
    """ERR-LEFT: the commonest way to leave early is named."""

    def one_prints() -> str:
        x = flow.ones(4, placement=flow.placement.all("cpu"), sbp=S(0))
        return str(x) if flow.get_rank() == 0 else ""

    with pytest.raises(DivergenceError, match="printing a global tensor"):
        flow.spmd(2, one_prints)


def test_divergence_behind_equal_names() -> None:
    """ERR-DIVERGENCE: ranks that did the same names with other shapes are told apart."""

    def shapes() -> None:
        flow.ones(2, 3 + flow.get_rank() // 2, placement=flow.placement.all("cpu"), sbp=B)

    with pytest.raises(DivergenceError) as caught:
        flow.spmd(4, shapes)
    assert "ranks 0, 1: " in str(caught.value) and "ranks 2, 3: " in str(caught.value)
    assert "a shape, sbp, attribute or seed differs" in str(caught.value)


def test_every_command_has_a_help_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-ARGUMENTS."""
    assert main(["check", "--help"]) == 0 and "to the bit" in capsys.readouterr().out
    assert main(["run", "--help"]) == 0 and "flow.spmd" in capsys.readouterr().out


def test_numpy_sees_the_logical_value() -> None:
    """TENSOR-LOGICAL: arrays of numbers, not of tensors; data sets take tensors."""
    x = laid(numbers(3, 2), LINE4, S(0))
    assert np.asarray(x).dtype == np.float32 and np.array_equal(np.asarray(x), numbers(3, 2))
    assert len(flow.data.TensorDataset(x, flow.ones(3))) == 3
