"""Training steps in graphs leave what eager training on one rank leaves: losses, weights, optimizer state, draws.

GRAPH-OPTIMIZER, GRAPH-STATE, GRAPH-STAGE, GRAPH-RANDOM, TIME-AXIS, ZERO-SHARD, ZERO-STATE, ZERO-GRADIENT, ZERO-PARAMETER,
PASS-RECOMPUTE, PASS-RECOMPUTE-SCOPE, PLAN-TIME, PLAN-BOXING, ACT-SAME.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from refflow import nn
from refflow.runtime import Newest, Random
from tests.graph.nets import Record, Told, adamw, attention, cnn, descent, dropped, mlp, momentum, run
from tests.graph.running import proved

Net = Callable[[], nn.Sequential]


@lru_cache
def eager(net: Net, optimizer: Any, clip: float | None = None) -> Record:
    """The record of eager training on one rank."""
    return run(net, optimizer=optimizer, clip=clip)


def check(net: Net, told: Told, optimizer: Any = momentum, clip: float | None = None) -> Record:
    """The job told this way leaves the record of eager training, and its plans are sound."""
    found = run(net, told, optimizer=optimizer, clip=clip)
    assert found == eager(net, optimizer, clip)
    assert found.graph is not None
    proved(found.graph)
    return found


LAYOUTS = [
    Told(), Told((2,)), Told((4,)), Told((2,), tensor=True), Told((2, 2), tensor=True), Told((3,)), Told((2,), zero=1),
    Told((2,), zero=2), Told((3,), zero=3), Told((2,), recompute=True, zero=2),
]  # fmt: skip


@pytest.mark.parametrize("told", LAYOUTS, ids=str)
def test_layouts(told: Told) -> None:
    """Data, tensor and hybrid parallel, ZeRO, recomputation."""
    check(mlp, told, descent if told.mesh == (2, 2) else momentum)


@pytest.mark.parametrize("told", [Told((2,)), Told((2,), tensor=True), Told((2,), zero=3, recompute=True)], ids=str)
def test_attention(told: Told) -> None:
    check(attention, told, descent)


@pytest.mark.parametrize("told", [Told((2,)), Told((2,), tensor=True), Told((2,), zero=3, recompute=True)], ids=str)
def test_convolutions(told: Told) -> None:
    check(cnn, told, adamw)


CUT = [
    Told(micro=2), Told(micro=8), Told((2,), micro=4), Told((4,), micro=2), Told((2,), micro=2, zero=1),
    Told((2,), micro=4, zero=2), Told((4,), micro=2, zero=3), Told(micro=4, recompute=True),
    Told((2,), micro=2, zero=3, recompute=True), Told((2, 2), tensor=True, micro=2),
]  # fmt: skip


@pytest.mark.parametrize("told", CUT, ids=str)
def test_micro_batches(told: Told) -> None:
    """Ranks times micro-batches up to 8; gradients are clipped by a norm that folds over the micro-batches first."""
    check(dropped, told, descent, clip=0.5)


PIPELINES = [
    Told(stages=stages, micro=micro, mesh=mesh)
    for stages in (2, 4)
    for mesh, micros in (((1,), (1, 2, 4)), ((2,), (1, 2, 4)))
    for micro in micros
]


@pytest.mark.parametrize("told", PIPELINES, ids=str)
def test_pipelines(told: Told) -> None:
    """Stages of one rank and of two."""
    check(dropped, told, descent)


@pytest.mark.parametrize("net", [cnn, attention], ids=lambda net: net.__name__)
@pytest.mark.parametrize(
    "told", [Told((2,), stages=2, micro=2, zero=3), Told(stages=4, micro=4, recompute=True)], ids=str
)
def test_pipelines_of_other_nets(net: Net, told: Told) -> None:
    check(net, told, descent if net is attention else adamw)


@pytest.mark.parametrize("told", [Told((2, 2), tensor=True, stages=2, micro=2), Told((2,), stages=4, micro=4)], ids=str)
def test_pipelines_with_state(told: Told) -> None:
    """Eight ranks; tensor parallel inside stages; moments held where the stage is."""
    check(dropped, told, adamw)


@pytest.mark.parametrize("optimizer", [momentum, adamw], ids=lambda o: o.__name__)
@pytest.mark.parametrize("runtime", ["actors", "sequential"])
def test_optimizers(optimizer: Any, runtime: str) -> None:
    """Momentum, Nesterov, weight decay and bias corrections, with a rate that changes every step."""
    check(mlp, Told((2,), micro=2, zero=2, runtime=runtime), optimizer, 0.1)


@pytest.mark.parametrize("schedule", [Newest, lambda: Random(5)], ids=["newest", "random"])
@pytest.mark.parametrize("told", [Told((2,), stages=2, micro=4), Told((4,), micro=2, zero=3)], ids=str)
def test_schedules(told: Told, schedule: Any) -> None:
    """ACT-SAME: whatever happens first."""
    from dataclasses import replace

    check(dropped, replace(told, schedule=schedule), descent)
