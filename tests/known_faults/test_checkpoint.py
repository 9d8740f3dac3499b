"""Public reports about checkpoints of split tensors, by the layout functions and by save/load.

Checks LAY-INDEX, LAY-ND-SPLIT and CKPT-RESHARD.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import refflow as flow
from refflow.layout import boxes, volume
from tests.tensor.layouts import LINE1, LINE2, LINE4, MESH, MESH_T, B, S, laid, numbers

CUBE = flow.placement("cpu", [[[0, 1], [2, 3]], [[4, 5], [6, 7]]])


@pytest.mark.parametrize("shape", [(5, 7), (8, 2), (1, 3), (0, 4)], ids=str)
def test_pytorch_126595_chunks_cover_the_tensor_exactly_once(shape: tuple[int, int]) -> None:
    """pytorch/pytorch#126595: with three mesh axes the save plan saw half of the volume."""
    for placement in (LINE1, LINE4, MESH, MESH_T, CUBE):
        for sbp in itertools.product((S(0), S(1), B), repeat=placement.ndim):
            chunks = {box for box in boxes(shape, placement, sbp).values() if volume(box)}
            assert sum(map(volume, chunks)) == shape[0] * shape[1], (placement, sbp)
            seen = np.zeros(shape, int)
            for box in chunks:
                seen[tuple(slice(*bounds) for bounds in box)] += 1
            assert (seen == 1).all()


def test_megatron_lm_63_fused_weight_at_another_degree(tmp_path: Path) -> None:
    """ROCm/Megatron-LM PR 63; ColossalAI#817; Megatron-LM PR 5714; pytorch PR 149701; sglang PR 34529.

    The rows of W = [gate; up] came back as 0, 2, 4, ..; the fused layout is a dimension of its own, split inside.
    """
    w = numbers(8, 3)
    split = laid(w.reshape(2, 4, 3), LINE2, S(1))  # (gate | up, rows, columns)
    assert split.local_arrays()[0].reshape(-1, 3).tolist() == w[[0, 1, 4, 5]].tolist()  # [g0, g1, u0, u1]
    path = tmp_path / "fused.safetensors"
    flow.save({"w": split}, str(path))
    for placement, sbp in ((LINE1, B), (LINE4, S(1)), (LINE2, S(0))):
        back = flow.load(str(path), placement=placement, sbp=sbp)["w"]
        assert flow.same_bits(back.reshape(8, 3).numpy(), w)
