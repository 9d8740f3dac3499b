"""The border between local and global tensors, both ways, and its gradients.

Checks LOCAL-FAMILY, LOCAL-RAGGED, BORDER-LOCAL-TO-GLOBAL, BORDER-TO-LOCAL, BORDER-DUAL and LAY-REPLICA.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.errors import DtypeError, LocalGlobalError, ReplicaError, SbpError, ShapeError
from refflow.layout import boxes
from tests.tensor.layouts import (
    BACK4,
    LINE2,
    LINE4,
    MATRIX_LAYOUTS,
    MESH,
    PMAX,
    B,
    P,
    S,
    fresh_world,
    in_layout,
    laid,
    layout_id,
    locals_of,
    numbers,
)


def ranks(*per: Any, dtype: Any = np.float32, grad: bool = False) -> flow.Tensor:
    """A local tensor: one array per rank."""
    x = flow.per_rank(lambda rank: np.array(per[rank], dtype))
    return x.requires_grad_() if grad else x


# --- local tensors --------------------------------------------------------------------------------------------------


def test_per_rank() -> None:
    """One array per rank, computed on rank by rank (LOCAL-FAMILY)."""
    x = flow.per_rank(lambda rank: [rank, 2 * rank])
    assert (x.is_local, x.is_global, x.shape, x.dtype, x.device) == (True, False, (2,), flow.int64, "cpu")
    assert locals_of(x * x + 1) == {r: [r * r + 1, 4 * r * r + 1] for r in range(4)}
    assert locals_of(x.sum()) == {r: 3 * r for r in range(4)}
    assert locals_of(flow.per_rank(lambda rank: flow.tensor([rank]))) == {r: [r] for r in range(4)}
    assert locals_of(flow.per_rank(lambda rank: rank / 2)) == {0: 0, 1: 0.5, 2: 1, 3: 1.5}
    with pytest.raises(DtypeError, match="one dtype, found float32, int64"):
        flow.per_rank(lambda rank: rank if rank else 0.5)


def test_ragged() -> None:
    """Ranks may hold different shapes: `.shapes` tells, `.shape` refuses, each rank computes for itself."""
    x = flow.per_rank(lambda rank: np.ones((rank, 2), np.float32))
    assert x.shapes == {r: (r, 2) for r in range(4)} and x.dtype == flow.float32
    for read in (lambda: x.shape, x.numel, lambda: x.size(0), lambda: len(x), lambda: x.reshape(-1)):
        with pytest.raises(ShapeError, match=r"\.shapes"):
            read()
    assert (x * 2 + x).shapes == x.shapes
    assert locals_of(x.sum(0)) == {r: [r, r] for r in range(4)}  # one shape again
    assert x.sum(0).shape == (2,) and (x @ flow.ones(2, 3)).shapes == {r: (r, 3) for r in range(4)}
    with pytest.raises(ShapeError, match="do not broadcast"):
        x + flow.per_rank(lambda rank: np.ones((3, 2), np.float32))


# --- local -> global ------------------------------------------------------------------------------------------------


def test_local_to_global() -> None:
    """S: the parts side by side, B: what all hold, P: the addends (BORDER-LOCAL-TO-GLOBAL)."""
    x = ranks([1, 2], [3, 4], [5, 6], [7, 8])
    assert x.to_global(LINE4, S(0)).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert x.to_global(BACK4, S(0)).tolist() == [7, 8, 3, 4, 5, 6, 1, 2]
    assert x.to_global(LINE4, P).tolist() == [16, 20] and x.to_global(LINE4, PMAX).tolist() == [7, 8]
    assert x.to_global(MESH, (S(0), P)).tolist() == [4, 6, 12, 14]
    assert x.to_global(LINE2, S(-1)).sbp == (S(0),)
    rows = flow.per_rank(lambda rank: np.full((1, 2), rank, np.float32))
    assert rows.to_global(LINE4, S(1)).tolist() == [[0, 0, 1, 1, 2, 2, 3, 3]]
    assert rows.to_global(MESH, (S(0), S(1))).tolist() == [[0, 0, 1, 1], [2, 2, 3, 3]]
    same = ranks(*[[1, 2]] * 4)
    assert same.to_global(MESH, (B, B)).tolist() == [1, 2]


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_round_trip(layout: Any) -> None:
    """to_local then to_global in the same layout gives the same bits, uneven and empty parts included."""
    for shape in ((5, 6), (1, 3), (0, 2)):
        x = in_layout(numbers(*shape), *layout)
        back = x.to_local().to_global(*layout)
        assert flow.same_bits(back.numpy(), numbers(*shape)) and (back.placement, back.sbp) == layout


def test_uneven_parts_must_be_the_balanced_split() -> None:
    """Which rank must hold what is in the message (LAY-BALANCED)."""
    assert ranks([0, 1], [2, 3], [4], [5]).to_global(LINE4, S(0)).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ShapeError, match=r"add up to \(6,\).*rank 0 must hold \(2,\).*found \(1,\)"):
        ranks([0], [1], [2, 3], [4, 5]).to_global(LINE4, S(0))
    with pytest.raises(ShapeError, match=r"rank 1 must hold \(2, 1\).*found \(3, 1\)"):
        ranks([[0], [1]], [[2], [3], [4]], [[5]], [[6]]).to_global(LINE2, S(1))


def test_check_meta() -> None:
    """Shapes, dtypes and replicas are compared over the ranks, unless the check is switched off."""
    with pytest.raises(ShapeError, match=r"rank 0: float32\[1\], rank 1: float32\[1, 1\]"):
        ranks([0], [[1]], [2], [3]).to_global(LINE4, S(0))
    with pytest.raises(ShapeError, match=r"rank 1"):
        ranks([0], [1, 2], [2], [3]).to_global(LINE4, P)
    with pytest.raises(ReplicaError, match=r"ranks 0 and 3; they first differ at \(1,\): .*5\.0.* and .*-0\.0"):
        ranks([0, 5], [0, 5], [0, 5], [0, -0.0]).to_global(LINE4, B)
    with pytest.raises(ReplicaError, match=r"ranks 2 and 3; they first differ at \(\)"):
        ranks(1, 1, 2, 3).to_global(MESH, (P, B))
    with pytest.raises(ReplicaError, match=r"ranks 3 and 1"):
        ranks([1], [2], [1], [1]).to_global(BACK4, B)
    unchecked = ranks([0.0], [1.0], [2.0], [3.0]).to_global(LINE4, B, check_meta=False)
    assert unchecked.sbp == (B,) and locals_of(unchecked) == {r: [r] for r in range(4)}
    assert ranks(np.nan, np.nan, np.nan, np.nan).to_global(LINE4, B).shape == ()  # every NaN is one value
    zeros = ranks(0.0, -0.0, 0.0, 0.0)
    with pytest.raises(ReplicaError, match=r"0\.0.*-0\.0"):
        zeros.to_global(LINE4, B)


def test_border_errors() -> None:
    """What is missing or does not belong is named."""
    x = ranks(*[[1, 2]] * 4)
    for arguments in ({"placement": LINE4}, {"sbp": B}, {}):
        with pytest.raises(LocalGlobalError, match="both placement and sbp"):
            x.to_global(**arguments)
    with pytest.raises(SbpError, match="grad_sbp"):
        x.to_global(LINE4, B, grad_sbp=P)
    with pytest.raises(LocalGlobalError, match="local already"):
        x.to_local()
    with pytest.raises(SbpError, match=r"S\(1\)"):
        x.to_global(LINE4, S(1))


# --- global -> local ------------------------------------------------------------------------------------------------


def test_to_local_outside_the_placement_is_size_0() -> None:
    """(BORDER-TO-LOCAL)"""
    x = laid(numbers(5, 2), flow.placement("cpu", [2, 1]), S(0)).to_local()
    assert x.is_local and x.shapes == {0: (0,), 1: (2, 2), 2: (3, 2), 3: (0,)}
    assert x.dtype == flow.float32
    with fresh_world(1):
        assert laid([1.0], flow.placement("cpu", [0]), S(0)).to_local().shape == (1,)


@pytest.mark.parametrize("layout", MATRIX_LAYOUTS, ids=layout_id)
def test_to_local_is_the_rank_s_part(layout: Any) -> None:
    """Rank r gets the box the layout gives it."""
    placement, sbp = layout
    x = laid(numbers(5, 6), placement, *sbp)
    held = x.to_local().local_arrays()
    for rank, box in boxes((5, 6), placement, sbp).items():
        assert held[rank].shape == tuple(hi - lo for lo, hi in box)
        if P not in sbp:
            assert held[rank].tolist() == numbers(5, 6)[tuple(slice(*b) for b in box)].tolist()


# --- gradients ------------------------------------------------------------------------------------------------------


def leaf_gradient(x: flow.Tensor) -> flow.Tensor:
    assert x.grad is not None
    return x.grad


def test_gradient_of_to_local() -> None:
    """The local gradients come back in the dual layout: of B they are summed, of S side by side, of P one for all."""
    weight = flow.per_rank(lambda rank: np.float32(rank + 1))
    for sbp, plain, weighted in ((B, [4, 4, 4, 4], [10] * 4), (S(0), [1] * 4, [1, 2, 3, 4]), (P, [1] * 4, None)):
        x = laid(numbers(4), LINE4, sbp, grad=True)
        x.to_local().sum().backward()
        assert leaf_gradient(x).tolist() == plain
        assert leaf_gradient(x).sbp == (B if sbp == P else sbp,)  # the leaf's own layout, P reduced
        y = laid(numbers(4), LINE4, sbp, grad=True)
        loss = (y.to_local() * weight).sum()
        if weighted is None:
            with pytest.raises(ReplicaError, match="ranks 0 and 1"):  # the addends of one value have one gradient
                loss.backward()
        else:
            loss.backward()
            assert leaf_gradient(y).tolist() == weighted


def test_gradient_of_to_global() -> None:
    """B: all of it on the first rank, zeros on the others; S: the own part; P: all of it on every rank."""
    weight = np.float32([1, 2, 3, 4, 5, 6, 7, 8])
    x = ranks(*[[1, 2]] * 4, grad=True)
    (x.to_global(LINE4, B) * laid(weight[:2], LINE4, B)).sum().backward()
    assert locals_of(leaf_gradient(x)) == {0: [1, 2], 1: [0, 0], 2: [0, 0], 3: [0, 0]}
    x = ranks(*[[1, 2]] * 4, grad=True)
    (x.to_global(LINE4, S(0)) * laid(weight, LINE4, B)).sum().backward()
    assert locals_of(leaf_gradient(x)) == {0: [1, 2], 1: [3, 4], 2: [5, 6], 3: [7, 8]}
    x = ranks(*[[1, 2]] * 4, grad=True)
    (x.to_global(LINE4, P) * laid(weight[:2], LINE4, B)).sum().backward()
    assert locals_of(leaf_gradient(x)) == {r: [1, 2] for r in range(4)}
    x = ranks([1, 2], [3], [4], [5], grad=True)
    (x.to_global(LINE4, S(0)) * laid(weight[:5], LINE4, B)).sum().backward()
    assert locals_of(leaf_gradient(x)) == {0: [1, 2], 1: [3], 2: [4], 3: [5]}


def test_gradient_of_to_global_on_some_ranks() -> None:
    """Ranks outside the placement had no part in it: their gradient is zeros of their shape, and it accumulates."""
    x = ranks(*[[1, 2]] * 4, grad=True)
    for times in (1, 2):
        x.to_global(flow.placement("cpu", [2, 1]), P).sum().backward()
        assert locals_of(leaf_gradient(x)) == {0: [0, 0], 1: [times] * 2, 2: [times] * 2, 3: [0, 0]}
    (x * 1.0).sum().backward()
    assert locals_of(leaf_gradient(x)) == {0: [1, 1], 1: [3, 3], 2: [3, 3], 3: [1, 1]}


def test_there_and_back_is_the_identity_for_gradients() -> None:
    """Through to_local and to_global in one layout the gradient is what it would be without them."""
    weight = laid(numbers(6) + 1, LINE4, B)
    for placement, sbp in ((LINE4, (S(0),)), (LINE4, (B,)), (LINE4, (P,)), (MESH, (S(0), S(0))), (MESH, (S(0), P))):
        x = laid(numbers(6), placement, *sbp, grad=True)
        y = (x * 2.0).to_global(sbp=sbp).to_local().to_global(placement, sbp)
        (y * weight.to_global(placement, [B] * placement.ndim)).sum().backward()
        assert leaf_gradient(x).tolist() == [2, 4, 6, 8, 10, 12], sbp
        assert leaf_gradient(x).sbp == tuple(B if s == P else s for s in sbp)


def test_grad_sbp() -> None:
    """The gradient is brought to grad_sbp on its way back; the leaf gets its own layout whatever it was."""
    for wanted in (S(0), B, P):
        x = laid(numbers(4), LINE4, B, grad=True)
        seen: list[Any] = []
        middle = x * 1.0
        y = middle.to_global(sbp=S(0), grad_sbp=wanted)
        with flow.comm_log() as log:
            (y * y).sum().backward()
        seen.append(len(log))
        assert leaf_gradient(x).tolist() == [0, 2, 4, 6] and leaf_gradient(x).sbp == (B,)
    with pytest.raises(SbpError, match="grad_sbp"):
        laid(numbers(4), LINE4, B).to_global(sbp=S(0), grad_sbp=S(2))


def test_gradient_across_placements() -> None:
    """Each gradient goes back to the placement its tensor came from."""
    x = laid(numbers(4), LINE2, S(0), grad=True)
    y = x.to_global(flow.placement("cpu", [3, 2]), P)
    z = (y * y).to_global(MESH, (S(0), B))
    z.sum().backward()
    grad = leaf_gradient(x)
    assert (grad.placement, grad.sbp, grad.tolist()) == (LINE2, (S(0),), [0, 2, 4, 6])
