"""Public reports about random numbers on several ranks: values belong to the logical index.

Checks RNG-INDEX and RNG-STREAM.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import refflow as flow
from tests.tensor.layouts import LINE4, MESH, B, P, S, fresh_world, laid

dropout = pytest.importorskip("refflow.nn.functional").dropout


def test_jax_40232_normal_values_do_not_depend_on_the_shard_count() -> None:
    """jax-ml/jax#40232: a report that normal() differs with the number of shards."""
    seen = []
    for size in (1, 2, 3, 4):
        with fresh_world(size):
            line = flow.placement("cpu", list(range(size)))
            for sbp in (S(0), S(1), B):
                flow.manual_seed(11)
                seen.append(flow.randn(6, 5, placement=line, sbp=sbp).numpy())
    assert all(flow.same_bits(one, seen[0]) for one in seen)


def test_tt_metal_55947_dropout_masks_on_data_and_tensor_axes() -> None:
    """tenstorrent/tt-metal#55947, ecmwf/anemoi-core#595, NVIDIA/Fuser#3123: equal in a replica group, else different."""
    x = laid(np.ones((8, 16), np.float32), MESH, S(0), B)
    kept = {rank: array != 0 for rank, array in dropout(x, 0.5).local_arrays().items()}
    assert (kept[0] == kept[1]).all() and (kept[2] == kept[3]).all()
    assert (kept[0] != kept[2]).any()


def test_oneflow_dropout_mask_differs_between_shards() -> None:
    """OneFlow 0.9.0, found by running (also #3974, #9941): dropout under S(0) used one mask on every shard."""
    masks = {}
    for sbp in (S(0), B):
        flow.manual_seed(5)
        masks[sbp] = dropout(laid(np.ones((8, 16), np.float32), LINE4, sbp), 0.5)
    shards = [array.tobytes() for array in masks[S(0)].local_arrays().values()]
    assert len(set(shards)) == 4
    assert flow.same_bits(masks[S(0)].numpy(), masks[B].numpy())
    flow.manual_seed(5)
    ones = laid(np.ones((8, 16), np.float32), LINE4, B)
    first, second = dropout(ones, 0.5), dropout(ones, 0.5)
    assert not flow.same_bits(first.numpy(), second.numpy())  # another call, another mask


def test_oneflow_random_split_on_ranks_1_and_3() -> None:
    """OneFlow 0.9.0, found by running (also #7638, #7571, #7340): S(0) on ranks [1, 3] gave both the same values."""
    x = flow.rand(8, placement=flow.placement("cpu", [1, 3]), sbp=S(0))
    first, second = x.local_arrays().values()
    assert first.shape == second.shape == (4,) and (first != second).any()
    flow.manual_seed(0)
    assert flow.same_bits(x.numpy(), flow.rand(8, placement=LINE4, sbp=B).numpy())


def test_oneflow_8465_random_replicas_are_equal() -> None:
    """Oneflow#8465: randn under B differed among the ranks."""
    for make in (flow.randn, flow.rand):
        arrays = list(make(3, 3, placement=LINE4, sbp=B).local_arrays().values())
        assert all(flow.same_bits(array, arrays[0]) for array in arrays)


def test_oneflow_random_partial_is_refused() -> None:
    """OneFlow refuses P for random sources; so does refflow, in words."""
    for make, sbp in itertools.product((flow.rand, flow.randn), (P, flow.sbp.partial_max)):
        with pytest.raises(flow.errors.SbpError, match="S or B"):
            make(4, placement=LINE4, sbp=sbp)
