"""DATA-ORDER, DATA-BATCH, DATA-RESUME: batches are one logical tensor each, in an order that is part of the bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refflow as flow
from refflow.data import DataLoader, Dataset, TensorDataset, permutation
from refflow.data.loader import SHUFFLE_STREAM
from refflow.errors import AttributeValueError, DtypeError, SbpError, ShapeError
from tests.strategies import mesh_of

B, S = flow.sbp.broadcast, flow.sbp.split
ROWS = TensorDataset(np.arange(21.0, dtype=np.float32).reshape(7, 3), np.arange(7))


class Watched(Dataset):
    """Samples made one by one; notes which were read."""

    def __init__(self, n: int) -> None:
        self.n, self.read = n, []

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: Any) -> tuple[np.ndarray[Any, Any], ...]:
        self.read.append(int(index))
        return np.full((2,), index, np.float32), np.asarray(index, np.int64)


def labels(loader: DataLoader) -> list[list[int]]:
    return [batch[1].tolist() for batch in loader]


def test_batches_in_order_with_and_without_the_last():
    assert labels(DataLoader(ROWS, 3)) == [[0, 1, 2], [3, 4, 5], [6]] and len(DataLoader(ROWS, 3)) == 3
    assert labels(DataLoader(ROWS, 3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]] and len(DataLoader(ROWS, 3, drop_last=True)) == 2
    x, y = next(iter(DataLoader(ROWS, 3)))
    assert x.is_local and x.dtype == flow.float32 and y.dtype == flow.int64
    assert x.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_the_order_is_the_permutation_of_seed_and_epoch():
    """DATA-ORDER."""
    loader = DataLoader(ROWS, 3, shuffle=True, seed=5)
    for epoch in range(3):
        wanted = permutation(7, 5, SHUFFLE_STREAM + epoch).tolist()
        assert [i for batch in labels(loader) for i in batch] == wanted and loader.epoch == epoch + 1
    loader.set_epoch(1)
    assert [i for batch in labels(loader) for i in batch] == permutation(7, 5, SHUFFLE_STREAM + 1).tolist()


@given(mesh=st.sampled_from([(1,), (2,), (3,), (2, 2)]), data=st.data(), size=st.integers(1, 7), shuffle=st.booleans())
def test_a_batch_is_the_same_under_every_layout(mesh, data, size, shuffle):
    """DATA-BATCH, uneven and empty shards among them."""
    sbp = tuple(data.draw(st.sampled_from([B, S(0)])) for _ in mesh)
    with flow.virtual_world(4):
        where = {"placement": mesh_of(mesh), "sbp": sbp}
        split, whole = DataLoader(ROWS, size, shuffle, **where), DataLoader(ROWS, size, shuffle)
        for batch, wanted in zip(split, whole, strict=True):
            for x, y in zip(batch, wanted, strict=True):
                again = flow.tensor(y.numpy(), **where)
                assert x.sbp == sbp and x.dtype == y.dtype and x.shape == y.shape
                parts = again.local_arrays()
                assert all(flow.same_bits(a, parts[rank]) for rank, a in x.local_arrays().items())
                assert flow.same_bits(x.numpy(), y.numpy())


def test_a_process_reads_only_the_samples_of_its_ranks():
    """DATA-BATCH."""

    def rank_reads() -> None:
        data = Watched(8)
        loader = DataLoader(data, 4, placement=flow.placement("cpu", [0, 1]), sbp=S(0))
        list(loader)
        mine = [0, 1, 4, 5] if flow.get_rank() == 0 else [2, 3, 6, 7]
        assert data.read == [0, *mine]  # sample 0 tells the shapes

    flow.spmd(2, rank_reads)


def test_a_dimension_other_than_the_first_may_be_split():
    with flow.virtual_world(2):
        loader = DataLoader(TensorDataset(ROWS.arrays[0]), 4, placement=flow.placement("cpu", [0, 1]), sbp=S(1))
        (x,) = next(iter(loader))
        assert [a.shape for a in x.local_arrays().values()] == [(4, 2), (4, 1)]
        assert flow.same_bits(x.numpy(), ROWS.arrays[0][:4])


@pytest.mark.parametrize("taken", [0, 1, 2, 3, 4])
def test_iteration_goes_on_from_its_state(taken):
    """DATA-RESUME: on another placement, in the middle of an epoch or at its end."""
    first = DataLoader(ROWS, 3, shuffle=True, seed=3)
    wanted = labels(DataLoader(ROWS, 3, shuffle=True, seed=3)) + labels_of_epoch(1)
    found: list[list[int]] = []
    while len(found) < taken:
        for batch in first:
            found.append(batch[1].tolist())
            if len(found) == taken:
                break
    with flow.virtual_world(3):
        second = DataLoader(ROWS, 3, shuffle=True, placement=mesh_of((3,)), sbp=S(0))
        second.load_state_dict(first.state_dict())
        while len(found) < 6:
            found += labels(second)
    assert found[:6] == wanted[:6]


def labels_of_epoch(epoch: int) -> list[list[int]]:
    loader = DataLoader(ROWS, 3, shuffle=True, seed=3)
    loader.set_epoch(epoch)
    return labels(loader)


def test_an_iteration_left_early_is_not_gone_on_with():
    """DATA-ORDER: every iter() is a new epoch, unless a state was loaded."""
    loader = DataLoader(ROWS, 3, shuffle=True, seed=3)
    next(iter(loader))
    assert loader.state_dict() == {"epoch": 0, "position": 1, "seed": 3, "batch_size": 3}
    assert labels(loader) == labels_of_epoch(1)


def test_wrong_arguments_are_refused():
    for size in (0, -1, 2.0, True):
        with pytest.raises(AttributeValueError, match="batch_size"):
            DataLoader(ROWS, size)
    with pytest.raises(SbpError, match="both"):
        DataLoader(ROWS, 2, placement=flow.placement("cpu", [0]))
    with pytest.raises(AttributeValueError, match="batches of 2, this loader's are of 3"):
        DataLoader(ROWS, 3).load_state_dict(DataLoader(ROWS, 2).state_dict())
    where = {"placement": flow.placement("cpu", [0])}
    with pytest.raises(SbpError, match="field 1"):
        next(iter(DataLoader(ROWS, 2, **where, sbp=S(1))))
    with pytest.raises(SbpError, match="S or B"):
        next(iter(DataLoader(ROWS, 2, **where, sbp=flow.sbp.partial_sum)))
    with pytest.raises(DtypeError, match="uint16"):
        next(iter(DataLoader(TensorDataset(np.zeros(3, np.uint16)), 2, **where, sbp=B)))


def test_samples_that_do_not_stack_are_refused():
    class Ragged(Watched):
        def __getitem__(self, index: Any) -> tuple[np.ndarray[Any, Any], ...]:
            return (np.zeros(int(index) + 1, np.float32),)

    with pytest.raises(ShapeError, match="alike"):
        next(iter(DataLoader(Ragged(4), 4)))
    with pytest.raises(ShapeError, match="like sample 0"):
        list(DataLoader(Ragged(4), 1, placement=flow.placement("cpu", [0]), sbp=B))
