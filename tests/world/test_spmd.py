"""The lockstep world: one thread per rank, rank-dependent code, divergence and errors told to all."""

from __future__ import annotations

import re
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import DivergenceError, ShapeError, WorldError
from refflow.world import current_world
from tests.world.programs import EXPECTED, PROGRAMS, Texts, misbehave

S, B = flow.sbp.split, flow.sbp.broadcast


def row() -> flow.Tensor:
    return flow.ones(4, 4, placement=flow.Placement.all("cpu"), sbp=S(0))


def union(parts: list[Texts]) -> Texts:
    """What all ranks found; where two found the same thing, they must agree."""
    whole: Texts = {}
    for part in parts:
        for name, text in part.items():
            assert whole.setdefault(name, text) == text, name
    return whole


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_lockstep_ranks_compute_what_the_virtual_world_does(name: str, size: int) -> None:
    """WORLD-SPMD"""
    with flow.virtual_world(size):
        expected = PROGRAMS[name]()
    assert union(flow.spmd(size, PROGRAMS[name])) == expected


def test_every_rank_is_told_what_went_wrong() -> None:
    """ERR-DIVERGENCE, ERR-AGREED, WORLD-HISTORY: the same error, in the same words, on every rank."""
    told = flow.spmd(3, misbehave)
    for case, (kind, message) in EXPECTED.items():
        found = {(one[case][0], re.sub(r", this is rank \d", "", one[case][1])) for one in told}
        assert len(found) == 1, case
        ((found_kind, text),) = found
        assert found_kind == kind and re.search(message, text, re.DOTALL), (case, found)


def test_ranks_run_in_order_between_collectives() -> None:
    """WORLD-SPMD: one at a time, so what they do has one order."""
    seen: list[tuple[int, int]] = []

    def program() -> str:
        for step in range(3):
            seen.append((step, flow.get_rank()))
            flow.barrier()
        return threading.current_thread().name

    assert flow.spmd(3, program) == ["rank 0", "rank 1", "rank 2"]
    assert seen == [(step, rank) for step in range(3) for rank in range(3)]


def test_arguments_and_results() -> None:
    """WORLD-SPMD, WORLD-RANK"""

    def program(x: int, *, y: int) -> tuple[int, int, int]:
        return flow.get_rank(), flow.get_world_size(), x + y

    assert flow.spmd(2, program, 3, y=4) == [(0, 2, 7), (1, 2, 7)]


def test_settings_and_generator_are_the_rank_s_own() -> None:
    """WORLD-SPMD, STATE-CONTEXT: settings start as the caller's; changes stay inside."""

    def program() -> tuple[str, list[float]]:
        policy = flow.state.settings().signatures
        flow.signatures("exact")
        flow.rand(2)
        return policy, flow.rand(2, placement=flow.Placement.all("cpu"), sbp=B).tolist()

    with flow.signatures("cheap"):
        flow.manual_seed(5)
        before = flow.default_generator().state
        first, second = flow.spmd(2, program)
        assert first == second == ("cheap", first[1])
        assert flow.default_generator().state == before
        assert flow.state.settings().signatures == "cheap"
        assert first[1] == flow.rand(2, placement=flow.placement("cpu", [0]), sbp=B).tolist()


def test_the_caller_s_log_lists_each_move_once() -> None:
    """WORLD-SPMD, BOX-LOG"""
    with flow.comm_log() as log:
        flow.spmd(2, lambda: row().to_global(sbp=B))
    assert [(move.kind, move.bytes) for move in log] == [("all_gather", 64)]


def test_an_error_on_one_rank_is_raised_here() -> None:
    """ERR-LEFT: with the rank named; what the others say about it is not."""
    others: list[str] = []

    def program() -> None:
        x = row()
        if flow.get_rank() == 1:
            raise KeyError("mine")
        try:
            x.numpy()
        except DivergenceError as error:
            others.append(str(error))
            raise

    with pytest.raises(KeyError, match="mine") as caught:
        flow.spmd(3, program)
    assert caught.value.__notes__ == ["raised by rank 1 of 3 (spmd)"]
    assert len(others) == 2 and "rank 1: failed: KeyError: 'mine'" in others[0] and others[0] == others[1]
    assert "ranks 0, 2: all_gather S(0)" in others[0]


def test_an_error_on_every_rank_is_raised_once() -> None:
    """ERR-LEFT"""
    with pytest.raises(ShapeError, match="16 elements") as caught:
        flow.spmd(3, lambda: row().reshape(3, 3))
    assert caught.value.__notes__ == ["raised by every rank of 3 (spmd)"]


def test_two_errors_on_two_ranks() -> None:
    """ERR-LEFT"""

    def program() -> None:
        raise ValueError("zero") if flow.get_rank() == 0 else KeyError("one")

    with pytest.raises(ValueError, match="zero") as caught:
        flow.spmd(2, program)
    assert caught.value.__notes__ == ["raised by rank 0 of 2 (spmd); rank 1 raised KeyError: 'one'"]


@pytest.mark.parametrize("early", [0, 1, 2])
def test_a_rank_that_returns_early_is_named(early: int) -> None:
    """ERR-LEFT"""

    def program() -> None:
        x = row()
        flow.barrier()
        if flow.get_rank() != early:
            x.numpy()

    with pytest.raises(DivergenceError, match=rf"rank {early}: left: its function returned"):
        flow.spmd(3, program)


def test_once_a_rank_is_gone_every_later_collective_says_so() -> None:
    """ERR-LEFT"""
    told: list[tuple[int, str]] = []

    def program() -> None:
        x = row()
        if flow.get_rank() == 2:
            return
        for _ in range(3):
            try:
                (x + 1).numpy()
            except DivergenceError as error:
                told.append((flow.get_rank(), str(error).splitlines()[-2]))

    flow.spmd(3, program)
    assert sorted(told) == [(rank, "  rank 2: left: its function returned") for rank in (0, 0, 0, 1, 1, 1)]


def test_ranks_that_end_after_different_operations() -> None:
    """WORLD-HISTORY: though no collective followed."""

    def program() -> None:
        x = row()
        _ = x + 1 if flow.get_rank() == 0 else x * 2

    with pytest.raises(DivergenceError, match=r"(?s)ended after different operations.*rank 0: .* add\n.*rank 1: .* mul"):
        flow.spmd(2, program)


def test_a_random_draw_on_one_rank_alone_is_noticed() -> None:
    """WORLD-HISTORY: the generators have come apart, though no bytes have moved yet."""

    def program() -> None:
        where = flow.Placement.all("cpu")
        if flow.get_rank() == 0:
            flow.rand(3, placement=where, sbp=B)
        flow.rand(3, placement=where, sbp=S(0)).numpy()

    with pytest.raises(DivergenceError, match="same call by different operations"):
        flow.spmd(2, program)


def test_local_tensors_are_the_rank_s_own_business() -> None:
    """WORLD-HISTORY: what a rank does with local tensors, checked operations too, is compared with nobody's."""

    def program() -> float:
        total = 0.0
        if flow.get_rank() == 1:
            total = (flow.arange(4).index_select(0, flow.tensor([3, 1])) % 2).sum().item()
        flow.barrier()
        return total

    assert flow.spmd(2, program) == [0, 2]


def test_a_bad_index_in_a_local_tensor_is_that_rank_s_error() -> None:
    """ERR-LEFT"""

    def program() -> None:
        flow.arange(4).index_select(0, flow.tensor([4 * (flow.get_rank() == 1)]))
        flow.barrier()

    with pytest.raises(flow.errors.IndexOutOfRange) as caught:
        flow.spmd(2, program)
    assert caught.value.__notes__ == ["raised by rank 1 of 2 (spmd)"]


def test_get_rank() -> None:
    """WORLD-RANK"""
    assert flow.get_rank() == 0 and flow.get_world_size() == 1
    with flow.virtual_world(4), pytest.raises(WorldError, match="the script runs once for all 4 ranks"):
        flow.get_rank()
    flow.barrier()


def test_a_virtual_world_inside_a_lockstep_one() -> None:
    """WORLD-VIRTUAL: a script that asks for the size there is runs unchanged."""

    def program() -> tuple[int, ...]:
        with flow.virtual_world(2):
            return current_world().owned

    assert flow.spmd(2, program) == [(0,), (1,)]


def test_lockstep_inside_lockstep() -> None:
    """WORLD-SPMD"""

    def inner() -> float:
        return row().sum().item() + flow.get_rank()

    def outer() -> list[float]:
        found = flow.spmd(2, inner)
        flow.barrier()
        return found

    assert flow.spmd(3, outer) == [[16.0, 17.0]] * 3


@pytest.mark.parametrize("size", [0, -1, True, 2.0, "2"])
def test_bad_sizes(size: Any) -> None:
    """WORLD-SPMD, WORLD-VIRTUAL"""
    for world in (lambda: flow.spmd(size, print), lambda: flow.virtual_world(size)):
        with pytest.raises(WorldError, match="number of ranks must be an int >= 1"):
            world()


def test_an_interrupted_caller_ends_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """WORLD-SPMD: Ctrl-C while the ranks run in circles."""
    module = sys.modules["refflow.world.spmd"]  # the package's attribute of that name is the function
    started = threading.Event()
    join = module._join

    def interrupted(threads: Any) -> None:
        monkeypatch.setattr(module, "_join", join)
        started.wait()
        raise KeyboardInterrupt

    def program() -> None:
        while True:
            started.set()
            time.sleep(0.001)
            flow.barrier()

    monkeypatch.setattr(module, "_join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        flow.spmd(3, program)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rank ")]


def test_no_threads_stay_behind() -> None:
    """WORLD-SPMD"""
    before = threading.active_count()
    flow.spmd(8, flow.barrier)
    with pytest.raises(ZeroDivisionError):
        flow.spmd(8, lambda: 1 / (flow.get_rank() - 3))
    assert threading.active_count() == before


def test_arrays_arrive_with_their_bits() -> None:
    """WORLD-CALL: every dtype, 0-d and empty ones too."""

    def program() -> None:
        where = flow.Placement.all("cpu")
        for dtype in flow.numerics.DTYPES:
            for shape in ((), (0,), (5,), (2, 3)):
                array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) - 1).astype(dtype)
                x = flow.tensor(array, placement=flow.placement("cpu", [0]), sbp=B).to_global(placement=where, sbp=B)
                assert flow.same_bits(x.local_arrays()[flow.get_rank()], array)

    flow.spmd(3, program)

