"""The same error on every rank: what is wrong with one rank's data is told to all.

Checks ERR-AGREED and WORLD-SPMD.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import IndexOutOfRange, RefflowError, ReplicaError, ShapeError
from tests.tensor.layouts import LINE4, B, P, S, laid, numbers


def _uneven(rank: int) -> Any:
    return flow.per_rank(lambda r: np.zeros(r + 1)).to_global(LINE4, S(0))


def _replicas(rank: int) -> Any:
    return flow.per_rank(lambda r: np.float32([1, r == 2])).to_global(LINE4, B)


def _index(rank: int) -> Any:
    """Only rank 3's part of the index is bad."""
    return laid(numbers(6, 2), LINE4, B).index_select(0, laid([0, 1, 2, 6], LINE4, S(0)))


def _partial(rank: int) -> Any:
    return flow.per_rank(lambda r: np.zeros(1 + (r == 1))).to_global(LINE4, P)


CASES: list[tuple[Callable[[int], Any], type[RefflowError], str]] = [
    (_uneven, ShapeError, r"add up to \(10,\)"),
    (_replicas, ReplicaError, r"ranks 0 and 2; they first differ at \(1,\)"),
    (_index, IndexOutOfRange, "index 6"),
    (_partial, ShapeError, "rank 1"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__.strip("_"))
def test_every_rank_raises_the_same(case: Any) -> None:
    """Run once per rank in lockstep, all ranks see one error and one message (ERR-AGREED)."""
    call, error, words = case
    with pytest.raises(error, match=words) as alone:
        call(0)

    def program(rank: int) -> str:
        try:
            call(rank)
        except RefflowError as found:
            return f"{type(found).__name__}: {found}"
        return "no error"

    told = flow.spmd(4, lambda: program(flow.get_rank()))
    assert set(told) == {f"{error.__name__}: {alone.value}"}
