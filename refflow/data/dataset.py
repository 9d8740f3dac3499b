"""Datasets: numbered samples, each a tuple of NumPy arrays, under PyTorch's names.

Implements DATA-SET (indexing, batches) and DATA-SPLIT (which samples a random split takes) of spec/text/data.md.
Nothing here knows of ranks or tensors: which rank gets which sample is left to `refflow.data.loader`.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import AttributeValueError, DtypeError, IndexOutOfRange, ShapeError
from ..numerics import philox

__all__ = ["Dataset", "Subset", "TensorDataset", "permutation", "random_split"]

Sample: TypeAlias = tuple[NDArray[Any], ...]
Indices: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]

# Generator calls of a program count their streams up from 0; splits take the last one, so neither disturbs the other.
SPLIT_STREAM = 2**64 - 1


class Dataset(ABC):
    """Samples 0 to len - 1; a subclass says how many (`__len__`) and what each is (`__getitem__`) (DATA-SET)."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of samples."""

    @abstractmethod
    def __getitem__(self, index: SupportsIndex, /) -> Sample:
        """Sample `index`, a tuple of arrays; a negative index counts from the end.  Raises IndexOutOfRange."""

    def __iter__(self) -> Iterator[Sample]:
        """The samples in order."""
        return (self[index] for index in range(len(self)))

    def batch(self, indices: Indices) -> Sample:
        """The samples at `indices`, stacked field by field along a new first dimension, in the order asked.

        Raises AttributeValueError for no indices, IndexOutOfRange, and ShapeError for samples that do not stack.
        """
        chosen = sample_indices(indices, len(self))
        if not len(chosen):
            raise AttributeValueError("batch: no indices; a dataset of unknown fields cannot make an empty batch")
        samples = [self[index] for index in chosen.tolist()]
        layouts = [[(field.shape, field.dtype) for field in sample] for sample in samples]
        for index, layout in zip(chosen.tolist(), layouts, strict=True):
            if layout != layouts[0]:
                first = f"sample {chosen[0]} is {_spell(layouts[0])}"
                raise ShapeError(f"batch: samples must be alike to stack; {first}, sample {index} is {_spell(layout)}")
        return tuple(np.stack(fields) for fields in zip(*samples, strict=True))


class TensorDataset(Dataset):
    """Arrays whose first dimensions are equal; sample i is the tuple of their i-th rows (DATA-SET).

    The arrays are kept, not copied.  Raises ShapeError for no arrays, one without a first dimension, or unequal ones;
    DtypeError for elements that are not numbers or bools.

    >>> pairs = TensorDataset(np.arange(6).reshape(3, 2), np.array([10, 20, 30]))
    >>> pairs[-1]
    (array([4, 5]), array(30))
    >>> pairs.batch([2, 0])[1]
    array([30, 10])
    """

    def __init__(self, *arrays: ArrayLike) -> None:
        if not arrays:
            raise ShapeError("TensorDataset: needs at least one array")
        self.arrays: Sample = tuple(np.asarray(array) for array in arrays)
        for position, array in enumerate(self.arrays):
            if array.dtype.kind in "OSUMm":
                raise DtypeError(f"TensorDataset: array {position} holds {array.dtype}; needs numbers or bools")
            if array.ndim == 0:
                raise ShapeError(f"TensorDataset: array {position} has no dimensions; its first must count samples")
        lengths = [len(array) for array in self.arrays]
        if lengths.count(lengths[0]) != len(lengths):
            raise ShapeError(f"TensorDataset: first dimensions must be equal, found {lengths}")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: SupportsIndex, /) -> Sample:
        row = sample_index(index, len(self))
        return tuple(array[row, ...] for array in self.arrays)

    def batch(self, indices: Indices) -> Sample:
        """Rows `indices` of each array, as fresh arrays; no indices give empty ones.  Raises IndexOutOfRange."""
        chosen = sample_indices(indices, len(self))
        return tuple(array[chosen] for array in self.arrays)


class Subset(Dataset):
    """The samples of `dataset` at `indices`, in that order; repeats are allowed (DATA-SET).  Raises IndexOutOfRange."""

    def __init__(self, dataset: Dataset, indices: Indices) -> None:
        self.dataset = dataset
        self.indices: NDArray[np.int64] = sample_indices(indices, len(dataset))

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: SupportsIndex, /) -> Sample:
        return self.dataset[int(self.indices[sample_index(index, len(self))])]

    def batch(self, indices: Indices) -> Sample:
        """The batch of the underlying dataset at the positions that `indices` stand for."""
        return self.dataset.batch(self.indices[sample_indices(indices, len(self))])


def permutation(n: int, seed: int = 0, stream: int = 0) -> NDArray[np.int64]:
    """A permutation of 0 to n - 1, int64 (n,): the stable ascending order of the Philox words 0 to n - 1 (DATA-SPLIT).

    `seed` and `stream` are as in `refflow.numerics.philox`; equal words keep the lower index first.
    Raises AttributeValueError for a negative n.
    """
    if n < 0:
        raise AttributeValueError(f"permutation: n is {n}; must be 0 or more")
    words = philox.random_bits(np.arange(n, dtype=np.uint64), seed, stream)
    return np.argsort(words, kind="stable").astype(np.int64)


def random_split(dataset: Dataset, lengths: Sequence[int] | Sequence[float], seed: int = 0) -> list[Subset]:
    """Subsets of `lengths` samples that together hold each sample once, drawn by `seed` alone (DATA-SPLIT).

    Part k takes the next `lengths[k]` entries of `permutation(len(dataset), seed, SPLIT_STREAM)`.  Fractions that sum
    to 1 become floor(fraction * len(dataset)) each, and what is left goes one by one to the first parts.
    Raises AttributeValueError for lengths that are negative or do not sum to the dataset's.

    >>> train, test = random_split(TensorDataset(np.arange(10)), [0.75, 0.25])
    >>> len(train), len(test)
    (8, 2)
    """
    order = permutation(len(dataset), seed, SPLIT_STREAM)
    parts, begin = [], 0
    for length in _part_lengths(lengths, len(dataset)):
        parts.append(Subset(dataset, order[begin : begin + length]))
        begin += length
    return parts


def _part_lengths(lengths: Sequence[int] | Sequence[float], n: int) -> list[int]:
    """The lengths as counts that sum to n: given so, or as fractions of n."""
    if not lengths or any(not length >= 0 for length in lengths):
        raise AttributeValueError(f"random_split: lengths are {list(lengths)}; needs one or more, none negative")
    if all(isinstance(length, int | np.integer) for length in lengths):
        counts = [int(length) for length in lengths]
        if sum(counts) != n:
            raise AttributeValueError(f"random_split: lengths sum to {sum(counts)}, the dataset has {n} samples")
        return counts
    if not math.isclose(math.fsum(lengths), 1.0):
        raise AttributeValueError(f"random_split: fractions sum to {math.fsum(lengths)}; must sum to 1")
    counts = [math.floor(length * n) for length in lengths]
    left = n - sum(counts)
    return [count + (position < left) for position, count in enumerate(counts)]


def sample_index(index: SupportsIndex, n: int) -> int:
    """`index` as one of 0 to n - 1."""
    asked = operator.index(index)
    if not -n <= asked < n:
        raise IndexOutOfRange(f"dataset: index {asked} is outside a dataset of {n} samples")
    return asked + n if asked < 0 else asked


def sample_indices(indices: Indices, n: int) -> NDArray[np.int64]:
    """`indices` as an int64 (k,) array of values in 0 to n - 1."""
    asked = np.asarray(indices)
    if asked.size == 0:
        asked = asked.astype(np.int64)
    if asked.ndim != 1 or asked.dtype.kind not in "iu":
        raise DtypeError(f"dataset: indices are {asked.dtype} of shape {asked.shape}; needs a row of integers")
    wrong = (asked < -n) | (asked >= n)
    if wrong.any():
        position = int(np.argmax(wrong))
        found = f"index {asked[position]} (position {position})"
        raise IndexOutOfRange(f"dataset: {found} is outside a dataset of {n} samples")
    chosen = asked.astype(np.int64)
    return np.where(chosen < 0, chosen + n, chosen)


def _spell(layout: list[tuple[tuple[int, ...], np.dtype[Any]]]) -> str:
    return ", ".join(f"{dtype} {shape}" for shape, dtype in layout) or "empty"
