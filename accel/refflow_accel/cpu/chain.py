"""Elementwise chains on the CPU: how operands lie, which kernel that needs, and its launch.

Implements ACC-CHAIN and ACC-GENERATED of spec/text/acceleration.md.  A kernel's source is a file named by its content
in the cache's folder, so that processes share it and Numba's compiled copy of it; `chain_source` writes the text.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import cache as remembered
from importlib.util import module_from_spec, spec_from_file_location
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from refflow.numerics import dtypes

from .. import cache
from ..chains import Chain
from ..expressions import BLOCKS, REFUSED, serves
from .abi import Call, Entry
from .chain_source import FLAT, ONE, SPREAD, source

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

MOST_WAYS = 4096  # remembered for each chain

DTYPES = {dtype.name: dtype for dtype in dtypes.DTYPES}


def chain_serves(chain: Chain) -> bool:
    """Whether every step of a chain can be compiled; `apply_chain` returns NotImplemented if not."""
    return all(serves(step.op, tuple(map(chain.dtype, step.operands)), step.dtype) for step in chain.steps)


def apply_chain(call: Call, chain: Chain, *arrays: Array) -> Any:
    """The results of `chain`, a tuple of fresh contiguous arrays of the operands' broadcast shape.

    Returns NotImplemented if a step has no expression (`chain_serves`); raises Refused (or the program's own) for data
    that a step refuses.
    """
    prepared = prepare(chain)
    return NotImplemented if prepared is None else prepared(call, arrays)


@remembered
def prepare(chain: Chain) -> Prepared | None:
    """A chain made ready, or None if a step cannot be compiled."""
    return Prepared(chain) if chain_serves(chain) else None


@dataclass(frozen=True)
class Way:
    """How a chain is carried out for operands of certain shapes and strides; without a kernel it is not."""

    shape: Shape
    entry: Entry | None
    tasks: int
    cost: float
    numbers: tuple[int, ...]  # the words after the arrays


class Prepared:
    """A chain with its kernels, one for each way its operands have lain."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.results = [DTYPES[chain.dtype(value)] for value in chain.outputs]
        self.cost = _cost(chain)
        self._ways: dict[Any, Way] = {}
        self._kernels: dict[tuple[str, ...], tuple[Entry, int, tuple[int, ...]]] = {}

    def kernel(self, layouts: tuple[str, ...]) -> tuple[Entry, int, tuple[int, ...]]:
        """The kernel for these layouts, the elements of its tasks, and the addresses of its heavy functions."""
        if layouts not in self._kernels:
            from .chain_scope import HEAVY  # late: it needs the table of kernels, which needs this module

            written = source(self.chain, layouts)
            addresses = tuple(HEAVY[op].address for op in written.heavy)
            self._kernels[layouts] = (load(written.text), written.block, addresses)
        return self._kernels[layouts]

    def __call__(self, call: Call, arrays: tuple[Array, ...]) -> Any:
        key = tuple([(array.shape, array.strides) for array in arrays])
        way = self._ways.get(key)
        if way is None:
            way = self._ways[key] = self._way(arrays)
        if way.entry is None:
            return NotImplemented
        made = tuple([call.empty(way.shape, dtype) for dtype in self.results])
        if way.tasks:
            call.launch(way.entry, *arrays, *made, *way.numbers, tasks=way.tasks, cost=way.cost)
        return made

    def _way(self, arrays: tuple[Array, ...]) -> Way:
        """How to carry the chain out on arrays of these shapes and strides."""
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        n = prod(shape)
        lies = [lie(array, shape) for array in arrays]
        if any(found is None for found in lies):
            return Way(shape, None, 0, 0.0, ())
        found = [each for each in lies if each is not None]
        entry, block, heavy = self.kernel(tuple(layout for layout, _ in found))
        described = [numbers for _, numbers in found if numbers]
        words = [n, *heavy]
        position = len(arrays) + len(self.results) + len(words) + len(described)
        for numbers in described:
            words.append(position)
            position += len(numbers)
        words += [number for numbers in described for number in numbers]
        if len(self._ways) >= MOST_WAYS:
            self._ways.clear()
        return Way(shape, entry, -(-n // block), self.cost * min(n, block), tuple(words))


def lie(array: Array, shape: Shape) -> tuple[str, tuple[int, ...]] | None:
    """How an operand lies in `shape`, and for one to be spread: the number of dims, extents, strides in elements.

    Dims that one stride can walk through are one.  None if the strides are no whole elements.
    """
    n, size = prod(shape), array.itemsize
    if array.size == n and array.flags.c_contiguous:
        return FLAT, ()
    strides = [0] * (len(shape) - array.ndim)
    strides += [0 if own == 1 else stride for own, stride in zip(array.shape, array.strides)]
    dims: list[list[int]] = []
    for extent, stride in zip(shape, strides):
        if stride % size:
            return None
        if extent == 1:
            continue
        if dims and dims[-1][1] == stride // size * extent:
            dims[-1] = [dims[-1][0] * extent, stride // size]
        else:
            dims.append([extent, stride // size])
    if not any(stride for _, stride in dims):
        return ONE, ()
    return SPREAD, (len(dims), *(extent for extent, _ in dims), *(stride for _, stride in dims))


def _cost(chain: Chain) -> float:
    """About how many ns an element takes."""
    cost = 0.1 * (len(chain.inputs) + len(chain.outputs))
    for step in chain.steps:
        heavy = 8.0 if step.op == "pow" else 1.5 if step.op in BLOCKS else 2.0 if step.op in REFUSED else 0.05
        cost += heavy + 0.3 * (step.dtype in ("float16", "bfloat16"))
    return cost


# --- sources as files -------------------------------------------------------------------------------------------------


def path_of(text: str) -> Path:
    """Where the source `text` is kept: a name made of its content."""
    return cache.folder() / "generated" / f"chain_{hashlib.sha256(text.encode()).hexdigest()[:20]}.py"


def keep(text: str) -> Path:
    """Writes a source where it is not yet; whole or not at all, whoever else writes it at the time."""
    path = path_of(text)
    if not (path.exists() and path.read_bytes() == text.encode()):  # a disk that ran full or lost power leaves less
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.utime(temporary, (0, 0))  # Numba takes a file with another time for another text
        os.replace(temporary, path)
    return path


def load(text: str) -> Entry:
    """The kernel of a source, from its file."""
    path = keep(text)
    name = f"refflow_{path.stem}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    made: Entry = sys.modules[name].chain
    return made
