"""OneFlow 0.9.0, found by running: many user errors abort the whole process; here each is a Python exception.

Checks ERR-TYPES.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import refflow as flow
from refflow.errors import PlacementError, RefflowError, SbpError
from tests.tensor.layouts import LINE4, B, S, laid, numbers

ABORTS: dict[str, tuple[Callable[[], object], type[RefflowError], str]] = {
    "split axis in a factory": (lambda: flow.zeros(4, placement=LINE4, sbp=S(1)), SbpError, r"S\(1\).*1 dim.*\[-1, 1\)"),
    "split axis of a 0-d tensor": (lambda: flow.full((), 1.0, placement=LINE4, sbp=S(0)), SbpError, r"S\(0\).*0 dim"),
    "duplicate ranks": (lambda: flow.placement("cpu", [0, 0]), PlacementError, r"\[0\] more than once"),
    "absent rank": (lambda: flow.zeros(4, placement=flow.placement("cpu", [0, 9]), sbp=B), PlacementError, r"\[9\].*0\.\.3"),
    "split axis in to_global": (lambda: laid(numbers(4), LINE4, B).to_global(sbp=S(3)), SbpError, r"S\(3\)"),
    "sbp for another mesh": (lambda: flow.zeros(4, placement=LINE4, sbp=(B, B)), SbpError, "one sbp per mesh axis"),
}  # fmt: skip


@pytest.mark.parametrize("name", ABORTS)
def test_oneflow_user_error_is_an_exception(name: str) -> None:
    call, error, words = ABORTS[name]
    with pytest.raises(error, match=words):
        call()
    assert laid(numbers(4), LINE4, S(0)).sum().item() == 6  # and the program goes on


def test_oneflow_empty_shards_are_legal() -> None:
    """An empty shard aborted the process; here it is a shard of size 0."""
    x = flow.zeros(2, 3, placement=LINE4, sbp=S(0))
    assert x.shapes == {0: (1, 3), 1: (1, 3), 2: (0, 3), 3: (0, 3)}
    assert (x + 1.0).sum().item() == 6
