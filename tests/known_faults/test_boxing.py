"""Public reports about redistribution, uneven splits and placement order; refflow gathers to the single-device value.

Checks BOX-PLAN, BOX-FOLD-ORDER, LAY-BALANCED, LAY-ND-SPLIT and LAY-MESH-ORDER.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import refflow as flow
from refflow.errors import PlacementError
from tests.tensor.layouts import LINE2, LINE4, MESH, MESH_T, B, P, S, laid, locals_of, numbers


def test_pytorch_103306_uneven_round_trip() -> None:
    """pytorch/pytorch#103306: (5, 10) came back from S(0) over 4 ranks as (8, 10)."""
    x = laid(numbers(5), LINE4, B).to_global(sbp=S(0))
    assert locals_of(x) == {0: [0, 1], 1: [2], 2: [3], 3: [4]}
    assert x.to_global(sbp=B).tolist() == [0, 1, 2, 3, 4]
    wide = laid(numbers(5, 10), LINE4, B)
    back = wide.to_global(sbp=S(0)).to_global(sbp=B)
    assert back.shape == (5, 10) and set(back.shapes.values()) == {(5, 10)}
    assert flow.same_bits(back.numpy(), numbers(5, 10))


def test_pytorch_194457_nested_split_is_not_one_flat_split() -> None:
    """pytorch/pytorch PR 194457: [S0, S0] -> [B, B] of (5, 3) on 2 x 2 lost its last row in one flat gather."""
    x = laid(numbers(5, 3), MESH, S(0), S(0))
    assert {rank: shape[0] for rank, shape in x.shapes.items()} == {0: 2, 1: 1, 2: 1, 3: 1}
    flat = laid(numbers(5, 3), LINE4, S(0))  # that a flat mesh of the same ranks is in use changes nothing
    assert flow.same_bits(x.to_global(sbp=(B, B)).numpy(), flat.to_global(sbp=B).numpy())
    six = laid(numbers(6), MESH, S(0), S(0))  # here the nested cut differs from the flat one: 2,1,2,1 and 2,2,1,1
    assert locals_of(six) == {0: [0, 1], 1: [2], 2: [3, 4], 3: [5]}
    assert six.to_global(LINE4, S(0)).shapes == {0: (2,), 1: (2,), 2: (1,), 3: (1,)}
    assert six.to_global(LINE4, S(0)).tolist() == [0, 1, 2, 3, 4, 5]


def test_pytorch_168134_strided_ownership_of_an_uneven_split() -> None:
    """pytorch/pytorch#168134: who owns what of arange(5) when the outer cut is the inner rank order must be defined."""
    x = laid(numbers(5), MESH_T, S(0), S(0))  # mesh position decides: [[0, 2], [1, 3]] hold 2, 1 | 1, 1
    assert locals_of(x) == {0: [0, 1], 2: [2], 1: [3], 3: [4]}
    assert x.to_global(sbp=(B, B)).tolist() == [0, 1, 2, 3, 4]


def test_pytorch_118836_short_shard_is_the_right_columns() -> None:
    """pytorch/pytorch#118836: rank 1's (3, 4) part of a (3, 9) tensor reported the stride of its neighbour."""
    x = laid(numbers(3, 9), LINE2, S(1))
    flat = x.to_local()
    assert flat.shapes == {0: (3, 5), 1: (3, 4), 2: (0,), 3: (0,)}
    assert x.local_arrays()[1].ravel().tolist() == numbers(3, 9)[:, 5:].ravel().tolist()
    assert (flat * 1.0).local_arrays()[1].strides == (4 * 4, 4)


def test_pytorch_166598_matmul_with_another_shard_order() -> None:
    """pytorch/pytorch#166598: contraction pieces of two different owner maps were multiplied."""
    a = numbers(4, 4)
    x = laid(a, MESH, S(1), S(1))
    for sbp in itertools.product((S(0), S(1), B), repeat=2):
        y = laid(a, MESH, *sbp) if sbp != (B, B) else laid(a, MESH_T, S(0), S(0)).to_global(MESH, sbp)
        assert (x @ y).tolist()[0] == [56, 62, 68, 74]
    with pytest.raises(PlacementError, match=r"\[\[0, 1\], \[2, 3\]\].*\[\[0, 2\], \[1, 3\]\]"):
        x @ laid(a, MESH_T, S(0), S(0))


@pytest.mark.parametrize("shape", [(5, 7), (1, 3), (4, 4), (0, 3)], ids=str)
def test_oneflow_7123_7768_9310_every_split_to_every_split(shape: tuple[int, int]) -> None:
    """OneFlow PRs 7123, 7768, 9310: multi-level S -> S assumed sizes that divide."""
    x = numbers(*shape)
    for source, target in itertools.product(itertools.product((S(0), S(1)), repeat=2), repeat=2):
        assert flow.same_bits(laid(x, MESH, *source).to_global(sbp=target).numpy(), x), (source, target)


def test_paddle_67756_uneven_rows_to_broadcast() -> None:
    """PaddlePaddle PR 67756: 1001 rows over 2 failed in the all-gather."""
    x = laid(np.arange(1001), LINE2, S(0))
    assert x.shapes == {0: (501,), 1: (500,)}
    assert x.to_global(sbp=B).tolist() == list(range(1001))


def test_xla_40034_two_partial_axes_to_split_and_broadcast() -> None:
    """openxla/xla#40034: [P, P] -> [S(0), B] must reduce over both axes."""
    x = flow.per_rank(lambda rank: np.ones(4, np.float32)).to_global(MESH, (P, P))
    y = x.to_global(sbp=(S(0), B))
    assert y.tolist() == [4, 4, 4, 4]
    assert locals_of(y) == {rank: [4, 4] for rank in range(4)}
