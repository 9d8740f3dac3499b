"""DATA-SET and DATA-SPLIT: indexing, batches, subsets and splits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.data import Dataset, Subset, TensorDataset, permutation, random_split
from refflow.errors import AttributeValueError, DtypeError, IndexOutOfRange, ShapeError


class Squares(Dataset):
    """A dataset of the kind users write: samples made on demand."""

    def __len__(self):
        return 6

    def __getitem__(self, index, /):
        number = range(6)[index]
        return np.array([number, number * number], np.float32), np.array(number % 2)


def pairs(n: int = 5) -> TensorDataset:
    return TensorDataset(np.arange(2 * n, dtype=np.float32).reshape(n, 2), np.arange(n))


def equal(a, b) -> bool:
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.shape == y.shape and np.array_equal(x, y) for x, y in zip(a, b)
    )


def test_a_sample_is_a_tuple_of_arrays():
    row, label = pairs()[3]
    assert isinstance(row, np.ndarray) and row.tolist() == [6, 7]
    assert isinstance(label, np.ndarray) and label.shape == () and label == 3
    assert equal(pairs()[-1], pairs()[4])
    assert equal(pairs()[np.int32(2)], pairs()[2])


@pytest.mark.parametrize("index", [5, -6, 10**30])
def test_an_index_outside_is_an_index_error(index):
    with pytest.raises(IndexOutOfRange, match="5 samples") as caught:
        pairs()[index]
    assert isinstance(caught.value, IndexError)


def test_iteration_ends_and_keeps_order():
    assert [int(label) for _, label in pairs()] == [0, 1, 2, 3, 4]
    assert len(list(Squares())) == 6


def test_arrays_are_kept_not_copied():
    array = np.zeros(3)
    assert TensorDataset(array).arrays[0] is array


def test_bfloat16_arrays_are_welcome():
    data = TensorDataset(np.ones(3, ml_dtypes.bfloat16))
    assert data[0][0].dtype == ml_dtypes.bfloat16


def test_malformed_arrays_are_refused():
    with pytest.raises(ShapeError, match="at least one"):
        TensorDataset()
    with pytest.raises(ShapeError, match=r"found \[3, 4\]"):
        TensorDataset(np.zeros(3), np.zeros(4))
    with pytest.raises(ShapeError, match="array 1 has no dimensions"):
        TensorDataset(np.zeros(3), 1.0)
    with pytest.raises(DtypeError, match="array 0 holds"):
        TensorDataset(["a", "b"])


@given(st.lists(st.integers(-6, 5), min_size=1, max_size=12))
def test_a_batch_is_its_samples_stacked(indices):
    for data in (Squares(), pairs(6), Subset(Squares(), [5, 4, 3, 2, 1, 0]), Subset(pairs(9), [8, 8, 0, 1, 2, 3])):
        samples = [data[index] for index in indices]
        stacked = tuple(np.stack(fields) for fields in zip(*samples))
        assert equal(data.batch(indices), stacked)
        assert equal(data.batch(np.array(indices)), stacked)


def test_batches_of_arrays_do_not_share_memory():
    data = pairs()
    data.batch([0, 1])[0][:] = 9
    assert data[0][0].tolist() == [0, 1]


def test_empty_batches():
    rows, labels = pairs().batch([])
    assert rows.shape == (0, 2) and labels.shape == (0,)
    assert Subset(pairs(), []).batch([])[0].shape == (0, 2)
    with pytest.raises(AttributeValueError, match="no indices"):
        Squares().batch([])


def test_batches_refuse_what_they_cannot_take():
    with pytest.raises(IndexOutOfRange, match=r"index 7 \(position 1\)"):
        pairs().batch([0, 7])
    with pytest.raises(IndexOutOfRange, match="position 0"):
        pairs().batch(np.array([2**64 - 1], np.uint64))
    with pytest.raises(DtypeError, match="float64"):
        pairs().batch(np.array([0.0]))
    with pytest.raises(DtypeError, match="bool"):
        pairs().batch(np.array([True]))

    class Ragged(Squares):
        def __getitem__(self, index, /):
            return (np.zeros(index),)

    with pytest.raises(ShapeError, match="sample 1 is .*sample 2 is"):
        Ragged().batch([1, 2])


def test_subsets_nest_and_repeat():
    inner = Subset(pairs(), [4, 2, 2, -5])
    outer = Subset(inner, [3, 0])
    assert [int(label) for _, label in inner] == [4, 2, 2, 0]
    assert outer.batch([0, 1])[1].tolist() == [0, 4]
    with pytest.raises(IndexOutOfRange, match="position 1"):
        Subset(pairs(), [0, 5])
    with pytest.raises(IndexOutOfRange, match="2 samples"):
        outer[2]


@given(st.integers(0, 200), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_permutation_holds_each_index_once(n, seed, stream):
    order = permutation(n, seed, stream)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(n))
    assert np.array_equal(order, permutation(n, seed, stream))


def test_permutations_are_the_order_of_philox_words():
    # Random123's known answer for a zero counter and key: the words of block 0, so of elements 0 to 3.
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert permutation(4).tolist() == sorted(range(4), key=words.__getitem__)
    assert permutation(100, seed=1).tolist() != permutation(100, seed=2).tolist()
    with pytest.raises(AttributeValueError, match="n is -1"):
        permutation(-1)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=5), st.integers(0, 9))
def test_a_split_holds_each_sample_once(lengths, seed):
    data = TensorDataset(np.arange(sum(lengths)))
    parts = random_split(data, lengths, seed)
    assert [len(part) for part in parts] == lengths
    taken = [int(sample[0]) for part in parts for sample in part]
    assert sorted(taken) == list(range(sum(lengths)))


@pytest.mark.parametrize(
    ("fractions", "n", "lengths"),
    [([0.75, 0.25], 10, [8, 2]), ([0.1] * 10, 7, [1] * 7 + [0] * 3), ([1.0], 3, [3]), ([0.5, 0.5], 0, [0, 0])],
)
def test_fractions_become_counts(fractions, n, lengths):
    assert [len(part) for part in random_split(TensorDataset(np.arange(n)), fractions)] == lengths


@pytest.mark.parametrize("lengths", [[], [3, 3], [6, -1], [0.5, 0.4], [float("nan"), 1.0], [1.5, -0.5]])
def test_lengths_that_do_not_fit_are_refused(lengths):
    with pytest.raises(AttributeValueError, match="random_split"):
        random_split(pairs(), lengths)
