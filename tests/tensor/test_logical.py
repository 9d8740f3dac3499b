"""What a program can read of a tensor is its logical value, in every layout.

Checks TENSOR-LOGICAL and TENSOR-CELL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import AutogradError, LocalGlobalError, ShapeError
from tests.tensor.layouts import (
    LINE2,
    LINE4,
    MATRIX_LAYOUTS,
    MESH,
    PMAX,
    B,
    P,
    S,
    dense_partial,
    fresh_world,
    in_layout,
    laid,
    layout_id,
    numbers,
)


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_every_reader_sees_the_logical_value(layout: Any) -> None:
    """numpy, tolist, printing, iteration, len and comparison (TENSOR-LOGICAL)."""
    whole = numbers(5, 6)
    x = in_layout(whole, *layout)
    assert flow.same_bits(x.numpy(), whole)
    assert x.tolist() == whole.tolist()
    assert str(x).split("], pl")[0] == str(flow.tensor(whole)).split("], dt")[0]
    assert [row.tolist() for row in x] == whole.tolist() and len(x) == 5
    assert flow.equal(x, in_layout(whole, *layout)) and not flow.equal(x, in_layout(whole + 1, *layout))
    assert (x.shape, x.ndim, x.dim(), x.numel(), x.nelement()) == ((5, 6), 2, 2, 30, 30)
    assert x.size() == (5, 6) and x.size(-1) == 6 and x.element_size() == 4


@pytest.mark.parametrize("placement", [LINE2, LINE4])
def test_scalars_of_a_partial(placement: Any) -> None:
    """item, float, int, bool and index of P reduce first (TENSOR-LOGICAL)."""
    x = dense_partial(np.int64(3), placement, P)
    assert all(array != 3 for array in x.local_arrays().values())
    assert (x.item(), int(x), float(x), bool(x), [0, 1, 2, 7][x]) == (3, 3, 3.0, True, 7)
    assert list(range(x)) == [0, 1, 2]
    zero = dense_partial(np.float32(0), placement, P)
    assert not zero and zero.item() == 0


def test_partial_of_an_extreme() -> None:
    """P(max): the logical value is the largest part."""
    x = flow.per_rank(lambda rank: np.float32([rank, -rank])).to_global(LINE4, PMAX)
    assert x.tolist() == [3, 0] and x.amax().item() == 3
    assert x.to_global(sbp=P).tolist() == [3, 0]


def test_what_has_no_single_value_says_so() -> None:
    """Errors of item, bool, len, index and numpy name what was found (ERR-TYPES)."""
    x = laid(numbers(2, 3), LINE4, B)
    with pytest.raises(ShapeError, match=r"one element, found shape \(2, 3\)"):
        x.item()
    with pytest.raises(ShapeError, match=r"any\(\) or all\(\)"):
        bool(x)
    with pytest.raises(TypeError, match="0-d"):
        len(laid(1.0, LINE4, B))
    with pytest.raises(TypeError, match="float32"):
        range(laid(1.0, LINE4, B))  # type: ignore[call-overload]
    with pytest.raises(AutogradError, match=r"detach\(\)"):
        laid([1.0], LINE4, B, grad=True).numpy()


def test_empty_tensors() -> None:
    """Size 0 is legal and its sum prints as 0."""
    x = laid(np.zeros((0, 3), np.float32), LINE4, S(0))
    assert x.tolist() == [] and x.sum(0).tolist() == [0, 0, 0] and (x + 1).shape == (0, 3)
    assert str(x.sum()).startswith("tensor(0.,")


def test_numpy_gives_a_copy_and_local_arrays_are_read_only() -> None:
    """Values never change behind a tensor's back (TENSOR-CELL)."""
    for x in (flow.tensor([1.0, 2.0]), laid([1.0, 2.0], LINE4, B), laid([1.0, 2.0], LINE4, P)):
        again = x.reshape(2, 1)
        x.numpy()[0] = 9
        with pytest.raises(ValueError, match="read-only"):
            x.local_arrays()[0][0] = 9
        assert x.tolist() == [1, 2] and again.tolist() == [[1], [2]]
    source = np.float32([1, 2])
    made = [flow.tensor(source), flow.from_numpy(source), laid(source, LINE2, S(0)), flow.per_rank(lambda rank: source)]
    source[0] = 9
    assert all(x.tolist() == [1, 2] for x in made)


def test_printing() -> None:
    """The text names layout, dtype and gradient; of local tensors that differ it shows every rank."""
    assert str(laid([1.5, -0.0], LINE2, S(0))) == (
        'tensor([1.5, 0. ], placement=placement("cpu", [0, 1]), sbp=S(0), dtype=float32)'
    )
    assert "sbp=(S(0), P(sum))" in str(laid(numbers(4), MESH, S(0), P))
    assert str(flow.tensor([1, 2])) == "tensor([1, 2], dtype=int64)"
    assert "requires_grad=True" in str(flow.tensor([1.0], requires_grad=True))
    assert "grad_fn=mul" in str(flow.tensor([1.0], requires_grad=True) * 2)
    text = str(flow.per_rank(lambda rank: np.int64([rank] * rank)))
    assert [line.strip() for line in text.splitlines()][1:] == [
        "rank 0: []", "rank 1: [1]", "rank 2: [2, 2]", "rank 3: [3, 3, 3]",
    ]  # fmt: skip


def test_local_tensors_that_differ_have_no_logical_value() -> None:
    """numpy, item and tolist of a local tensor need equal ranks (TENSOR-LOGICAL)."""
    x = flow.per_rank(lambda rank: np.float32([rank]))
    for read in (x.numpy, x.item, x.tolist):
        with pytest.raises(LocalGlobalError, match="different local values"):
            read()
    assert flow.per_rank(lambda rank: 2.0).item() == 2
    with pytest.raises(LocalGlobalError, match="to_global"):
        x.placement  # noqa: B018
    with pytest.raises(LocalGlobalError, match="to_global"):
        x.sbp  # noqa: B018


def test_readers_work_while_boxing_is_explicit() -> None:
    """Reading is no implicit boxing (SIG-EXPLICIT)."""
    x = dense_partial(numbers(3), LINE4, P)
    with flow.boxing("explicit"):
        assert x.tolist() == [0, 1, 2] and "0., 1., 2." in str(x)
    with flow.comm_log() as log:
        x.numpy()
    assert len(log) == 0  # and no move of the program


def test_one_rank_worlds() -> None:
    """A world of one rank runs the same program."""
    with fresh_world(1):
        line = flow.placement("cpu", [0])
        for sbp in (S(0), B, P):
            assert (laid(numbers(3), line, sbp) * 2).sum().item() == 6
