"""DataLoader: batches of a dataset as tensors, in an order that is part of the bits.

Implements DATA-ORDER, DATA-BATCH and DATA-RESUME of spec/text/data.md.  A batch is one logical tensor per field; a
process reads only the samples its ranks hold of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..absent import absence
from ..errors import AttributeValueError, DtypeError, SbpError, ShapeError
from ..functional.creation import tensor
from ..ir import Meta, Value
from ..layout import NdSbp, Placement, boxes, normalize
from ..numerics import DTYPES
from ..ops.border import is_partial
from ..state import settings
from ..tensor.logical import check_ranks
from ..tensor.tensor import Tensor
from .dataset import Dataset, permutation

__all__ = ["SHUFFLE_STREAM", "DataLoader"]

# The shuffle of epoch e takes this stream + e: apart from the generator's calls, which count up from 0, and from splits.
SHUFFLE_STREAM = 2**63

Batch = tuple[Tensor, ...]


class DataLoader:
    """Iterates over `dataset` in batches: one tuple of tensors each, a tensor for every field of a sample.

    `shuffle`: in the order of the Philox permutation of (`seed`, epoch), else in order (DATA-ORDER); `drop_last` leaves
    out an incomplete last batch.  With `placement` and `sbp` (one for every field) batches are global, else local, the
    same on every rank.  Each `iter()` is a new epoch, except that the first after `load_state_dict` continues the one
    stored.  Arguments of other names are refused (ERR-ABSENT).  Errors: `AttributeValueError`, `SbpError`, `DtypeError`.

    >>> from refflow.data import TensorDataset
    >>> loader = DataLoader(TensorDataset(np.arange(5)), batch_size=2)
    >>> [batch.tolist() for batch, in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        drop_last: bool = False,
        seed: int = 0,
        placement: Placement | None = None,
        sbp: Any = None,
        **others: Any,
    ) -> None:
        for name in others:
            raise AttributeValueError(f"DataLoader: there is no argument {name!r}{absence('DataLoader', name)}")
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise AttributeValueError(f"DataLoader: batch_size must be an int of 1 or more, found {batch_size!r}")
        if (placement is None) != (sbp is None):
            raise SbpError("DataLoader: global batches need both placement and sbp, local ones neither")
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.seed, self.placement, self.sbp = seed, placement, sbp
        self.epoch = 0  # the epoch in progress, or the next
        self.position = 0  # batches of it given out
        self._continues = False
        self._fields: list[tuple[tuple[int, ...], np.dtype[Any]]] | None = None

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Batch]:
        if self.position and not self._continues:
            self.epoch, self.position = self.epoch + 1, 0
        self._continues = False
        return self._batches(self.order(self.epoch))

    def _batches(self, order: NDArray[np.int64]) -> Iterator[Batch]:
        while self.position < len(self):
            first = self.position * self.batch_size
            self.position += 1
            yield self._batch(order[first : first + self.batch_size])
        self.epoch, self.position = self.epoch + 1, 0

    def order(self, epoch: int) -> NDArray[np.int64]:
        """The numbers of the samples in the order epoch `epoch` takes them, int64 (len(dataset),)  (DATA-ORDER)."""
        n = len(self.dataset)
        return permutation(n, self.seed, SHUFFLE_STREAM + epoch) if self.shuffle else np.arange(n, dtype=np.int64)

    def set_epoch(self, epoch: int) -> None:
        """The next `iter()` begins epoch number `epoch`."""
        self.epoch, self.position, self._continues = epoch, 0, False

    def state_dict(self) -> dict[str, int]:
        """Where the iteration is: the epoch, how many of its batches were given out, and what the order rests on."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed, "batch_size": self.batch_size}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next `iter()` continues there, under any placement (DATA-RESUME).

        Errors: `AttributeValueError` where batches are of another size, since the positions would not be the same.
        """
        if int(state_dict["batch_size"]) != self.batch_size:
            found = f"{state_dict['batch_size']}, this loader's are of {self.batch_size}"
            raise AttributeValueError(f"DataLoader.load_state_dict: the state counts batches of {found}")
        self.seed = int(state_dict["seed"])
        self.epoch, self.position = int(state_dict["epoch"]), int(state_dict["position"])
        self._continues = True

    def _batch(self, indices: NDArray[np.int64]) -> Batch:
        """The samples at `indices`, in the loader's layout."""
        if self.placement is None:
            return tuple(tensor(field) for field in self.dataset.batch(indices))
        check_ranks("DataLoader", self.placement)
        shapes = [(len(indices), *shape) for shape, _ in self.fields()]
        mesh = self.placement.mesh
        layouts = [normalize(self.sbp, mesh, shape, f"DataLoader: field {i}") for i, shape in enumerate(shapes)]
        if any(map(is_partial, layouts)):
            raise SbpError(f"DataLoader: batches can be S or B, found {self.sbp}; to_global brings one to P")
        reader = _Reader(self.dataset, indices, [dtype for _, dtype in self.fields()], shapes)
        return tuple(Tensor(reader.field(i, self.placement, layout)) for i, layout in enumerate(layouts))

    def fields(self) -> Sequence[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each field of a sample (of the first: all must be alike)."""
        if self._fields is None:
            self._fields = [(field.shape, field.dtype) for field in map(np.asarray, self.dataset[0])]
            for i, (_, dtype) in enumerate(self._fields):
                if dtype not in DTYPES:
                    names = ", ".join(d.name for d in DTYPES)
                    raise DtypeError(f"DataLoader: field {i} is {dtype.name}; must be one of {names}")
        return self._fields


class _Reader:
    """One batch of a dataset, of which only the rows are read that an owned rank holds, each range of rows once."""

    def __init__(
        self,
        dataset: Dataset,
        indices: NDArray[np.int64],
        dtypes: Sequence[np.dtype[Any]],
        shapes: Sequence[tuple[int, ...]],
    ) -> None:
        self.dataset, self.indices, self.dtypes, self.shapes = dataset, indices, dtypes, shapes
        self._read: dict[tuple[int, int], tuple[NDArray[Any], ...]] = {}

    def rows(self, lo: int, hi: int) -> tuple[NDArray[Any], ...]:
        """Rows lo to hi - 1 of every field."""
        if (lo, hi) not in self._read:
            wanted = [((hi - lo, *shape[1:]), dtype) for shape, dtype in zip(self.shapes, self.dtypes, strict=True)]
            if lo == hi:
                self._read[lo, hi] = tuple(np.empty(shape, dtype) for shape, dtype in wanted)
            else:
                self._read[lo, hi] = self.dataset.batch(self.indices[lo:hi])
            found = [(field.shape, field.dtype) for field in self._read[lo, hi]]
            if found != wanted:
                raise ShapeError(f"DataLoader: samples must be like sample 0, fields {wanted}; found {found}")
        return self._read[lo, hi]

    def field(self, i: int, placement: Placement, sbp: NdSbp) -> Value:
        """Field `i` as a value: each owned rank's box of it; ranks with one box share one array."""
        state = settings()
        backend = state.backend(placement.type)
        held: dict[Any, Any] = {}
        shards = {}
        for rank, box in boxes(self.shapes[i], placement, sbp).items():
            if rank in state.world.owned:
                if box not in held:
                    rest = tuple(slice(lo, hi) for lo, hi in box[1:])
                    held[box] = backend.from_host(np.ascontiguousarray(self.rows(*box[0])[i][:, *rest]))
                shards[rank] = held[box]
        return Value(Meta(self.shapes[i], self.dtypes[i], placement, sbp), shards)
