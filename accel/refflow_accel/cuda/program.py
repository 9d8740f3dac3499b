"""Compiled programs on CUDA: a recorded call's kernels, launched again in order, elementwise chains as one kernel each.

Implements ACC-CUDA-PROGRAM and ACC-EXCHANGE of spec/text/acceleration.md.  Everything goes to the current stream.  Arrays
are let go behind their last reader, so that the next call is given the same blocks; none is ever written a second time
while somebody holds it, so variables and results need no copies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refflow.errors import DataError
from refflow.graph.logical import LogicalGraph
from refflow.ir import Value
from refflow.kernels import Backend
from refflow.numerics import cast
from refflow.state import settings

from ..chains import Chain
from ..program import passes
from ..program.exchange import anybody_refused, exchange
from ..program.local import EXCHANGE, Done, LocalCall, LocalProgram, Ordinals, Results, Where, values_of
from . import elementwise
from .backend import to_host
from .memory import DeviceArray, from_host
from .registry import Refused

Arrays = list[DeviceArray | None]  # by number; None before it is made and after its last use


class Replay:
    """Launches the kernels of a local program again.  `given` says where its first arrays come from."""

    def __init__(self, program: LocalProgram, given: Sequence[Where], results: Results, backend: Backend) -> None:
        self._results = results
        read = set(program.results).union(*[call.inputs for call in program.calls])
        self._start: Arrays = [
            array if number in program.constants and number in read else None
            for number, array in enumerate(program.arrays)
        ]
        entering = [(number, *where) for number, where in enumerate(given) if number in read]
        self._inputs = [(number, index, rank) for number, kind, index, rank in entering if kind == "input"]
        self._variables = [(number, index, rank) for number, kind, index, rank in entering if kind == "variable"]
        self._scalars = [
            (number, index, np.dtype(program.arrays[number].dtype))
            for number, kind, index, _ in entering
            if kind == "scalar"
        ]
        self._fed: tuple[bytes, dict[int, DeviceArray]] = b"", {}  # bits of the last call's numbers, and their arrays
        self._launches = launches(program, backend)

    def __call__(self, graph: LogicalGraph, inputs: Sequence[Value], scalars: Sequence[float]) -> Done | None:
        """One call; None if a kernel of any process refused its data: nothing has changed then."""
        generator = settings().generator
        ordinals = generator.next_global, generator.next_local
        arrays = self._entering(graph, inputs, scalars)
        refused = False
        for launch in self._launches:
            if refused and not launch.call.effect:
                continue
            try:  # the others wait for what a process sends, if only zeros
                launch([None] * len(arrays) if refused else arrays, generator.seed, ordinals)
            except (Refused, DataError):
                refused = True
        if anybody_refused(refused):
            return None
        generator.next_global += graph.draws[0]
        generator.next_local += graph.draws[1]
        return values_of(self._results, {"output": arrays, "update": arrays})

    def _entering(self, graph: LogicalGraph, inputs: Sequence[Value], scalars: Sequence[float]) -> Arrays:
        """The arrays there are before the first launch."""
        arrays = self._start.copy()
        for number, index, rank in self._inputs:
            arrays[number] = inputs[index].shards[rank]
        for number, index, rank in self._variables:
            arrays[number] = graph.variables[index].cell.value.shards[rank]
        for number, array in self._numbers(scalars).items():
            arrays[number] = array
        return arrays

    def _numbers(self, scalars: Sequence[float]) -> dict[int, DeviceArray]:
        """The scalars on the device: one copy for each dtype, and none where the bits are the last call's."""
        bits = np.array(scalars, np.float64).tobytes()
        if not self._scalars or bits == self._fed[0]:
            return self._fed[1]
        made: dict[int, DeviceArray] = {}
        for dtype in dict.fromkeys(dtype for _, _, dtype in self._scalars):
            mine = [(number, index) for number, index, own in self._scalars if own == dtype]
            together = from_host(np.stack([cast(np.asarray(scalars[index]), dtype) for _, index in mine]))
            made.update({number: together.view((), (), k) for k, (number, _) in enumerate(mine)})
        self._fed = bits, made
        return made


@dataclass(frozen=True)
class Launch:
    """One call of a program: its kernel, and the arrays that nobody reads afterwards."""

    kernel: Callable[..., Any]
    call: LocalCall
    attrs: Mapping[str, Any]
    gone: tuple[int, ...]

    def __call__(self, arrays: Arrays, seed: int, ordinals: Ordinals) -> None:
        """Runs the kernel; the draws of the graph call begin at the generator's `ordinals`."""
        attrs = self.call.drawn(seed, ordinals) if self.call.random else self.attrs
        made = self.kernel(*[arrays[number] for number in self.call.inputs], **attrs)
        for number, array in zip(self.call.outputs, made if isinstance(made, tuple) else (made,), strict=True):
            arrays[number] = array
        for number in self.gone:
            arrays[number] = None


def launches(program: LocalProgram, backend: Backend) -> list[Launch]:
    """The calls of a program in order, each with what it is the last to touch; constants and results stay."""
    needed = program.constants.union(program.results)
    made: list[Launch] = []
    for call in reversed(program.calls):
        gone = tuple(dict.fromkeys(n for n in (*call.inputs, *call.outputs) if n not in needed))
        needed.update(gone)
        if call.name == passes.CHAIN:
            made.append(Launch(partial(_chain, call.attrs["chain"]), call, {}, gone))
        elif call.name == EXCHANGE:
            zeros = [np.zeros(program.arrays[n].shape, program.arrays[n].dtype) for n in call.inputs]
            made.append(Launch(partial(_exchange, zeros), call, call.attrs, gone))
        else:
            made.append(Launch(backend.kernel(call.name), call, call.attrs, gone))
    return made[::-1]


def _chain(chain: Chain, *arrays: DeviceArray) -> tuple[DeviceArray, ...]:
    return tuple(elementwise.run(chain, arrays))


def _exchange(zeros: Sequence[np.ndarray[Any, Any]], *arrays: DeviceArray | None, **attrs: Any) -> tuple[DeviceArray, ...]:
    """An exchange of host copies; what is not there is sent as zeros."""
    hosts = [zero if array is None else to_host(array) for zero, array in zip(zeros, arrays, strict=True)]
    return tuple(map(from_host, exchange(*hosts, **attrs)))


# --- what the passes are told of CUDA ---------------------------------------------------------------------------------


def optimized(program: LocalProgram) -> LocalProgram:
    """The passes, for device arrays."""
    return passes.optimized(program, uniform, together)


def uniform(array: DeviceArray) -> DeviceArray:
    """An array of one value throughout as that value seen in every place."""
    if array.size <= 1 or 0 in array.strides:
        return array
    host = to_host(array)
    if 0 not in passes.uniform(host).strides:
        return array
    return from_host(host.reshape(-1)[:1]).view(array.shape, (0,) * array.ndim)


def together(ops: Collection[str]) -> bool:
    """Whether the tables of these primitives fit a kernel's constants."""
    return sum(elementwise.TABLES.get(op, 0) for op in ops) <= elementwise.CONSTANTS
