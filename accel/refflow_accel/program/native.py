"""The native form of a local program: rows of kernels, one arena, and the arrays that come and go with each call.

Implements ACC-PROGRAM, ACC-ARENA and ACC-EXCHANGE of spec/text/acceleration.md.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from refflow.errors import DataError
from refflow.graph.logical import LogicalGraph
from refflow.ir import Value
from refflow.kernels import Backend
from refflow.numerics import cast
from refflow.state import settings

from ..cpu.abi import address, run
from .exchange import anybody_refused
from .layout import ALIGN
from .local import LocalCall, LocalProgram, Results, Where
from .lower import HostStep, Lowering, Row, arena

Array = np.ndarray[Any, Any]
Place = tuple[int, int, Array]  # a base, an offset in it in bytes, an array of the same shape, dtype and strides


class Native:
    """Runs a local program.  `given` says where its first arrays come from; `results` are metas and numbers by rank.

    Values stay immutable: the next value of a variable is written into a buffer that nobody holds any more.
    """

    def __init__(self, program: LocalProgram, given: Sequence[Where], results: Results, backend: Backend) -> None:
        lowering = Lowering(program, {n: (where[0], n) for n, where in enumerate(given)}, backend)
        lowered = lowering.lower()
        self._items = lowered.items
        self._results, self._draws, self._bases = results, lowered.draws, lowered.bases
        base_of = {base.owner[1]: i for i, base in enumerate(lowered.bases) if base.owner and base.owner[0] in FROM_OUTSIDE}
        used = [(where, base_of[n]) for n, where in enumerate(given) if n in base_of]
        places = [(where, lowered.bases[base].array) for where, base in used]
        self._inputs = [(index, rank, buffer) for (kind, index, rank), buffer in places if kind == "input"]
        self._scalars: dict[int, list[Array]] = {}
        for (kind, index, _), buffer in places:
            if kind == "scalar":
                self._scalars.setdefault(index, []).append(buffer)
        self._variables = [(where[1], where[2], base) for where, base in used if where[0] == "variable"]
        self._updates: dict[int, int] = {}  # number -> the base that becomes the value
        self._copied_out: dict[str, dict[int, Place]] = {"output": {}, "update": {}}
        for (kind, _), (_, shards) in results.items():
            for number in dict.fromkeys(shards.values()):
                array = lowering.arrays[number]
                place = (*lowering.where(array), array)
                if place[0] < 0:
                    self._copied_out[kind][number] = place
                elif kind == "update" and number not in self._updates and _whole(place, lowered.bases[place[0]]):
                    lowered.bases[place[0]].owner = ("update", number)
                    self._updates[number] = place[0]
                elif number not in self._updates or kind == "output":
                    self._copied_out[kind][number] = place
                    lowered.bases[place[0]].touched(len(lowered.items))
        self._buffers: dict[int, list[Array]] = {number: [] for number in self._updates}
        self._address: dict[int, int] = {}  # id of a buffer -> where it lies
        self._numbers: Array = np.zeros(0, np.int64)  # the bits of the last call's
        self._moving = [base for _, _, base in self._variables] + list(self._updates.values())
        self._bound: dict[tuple[int, ...], tuple[Array, list[Any]]] = {}
        self._one_call = threading.Lock()  # arena, inputs and numbers are those of one call
        self._lay_out(lowered.items, *arena(lowered))

    def _lay_out(self, items: Sequence[Row | HostStep], offsets: Mapping[int, int], size: int) -> None:
        """The arena, the address of every base that stays where it is, and rows and words in one piece."""
        self._arena = np.zeros(size + ALIGN, np.uint8)
        start = -address(self._arena) % ALIGN
        self._starts = np.zeros(len(self._bases), np.int64)
        for i, base in enumerate(self._bases):
            if i in offsets:
                base.array = self._arena[start + offsets[i] : start + offsets[i] + base.array.nbytes]
            if base.owner is None or base.owner[0] not in ("variable", "update"):
                self._starts[i] = address(base.array)
        words: list[int] = []
        rows: list[tuple[int, int, int, int]] = []
        moved: list[tuple[int, int, int]] = []
        self._segments: list[HostStep | tuple[int, int]] = []
        for item in items:
            if isinstance(item, HostStep):
                self._segments.append(item)
                continue
            moved += [(len(words) + word, base, offset) for word, base, offset in item.addresses]
            rows.append((item.kernel.address, 8 * len(words), item.tasks, item.parts))
            words += item.words
            last = self._segments[-1] if self._segments else None
            if isinstance(last, tuple):
                self._segments[-1] = (last[0], len(rows))
            else:
                self._segments.append((len(rows) - 1, len(rows)))
        self._rows = np.array(rows, np.int64).reshape(-1, 4)
        self._words = np.array(words, np.int64)
        self._moved = np.array(moved, np.int64).reshape(-1, 3)

    def __call__(
        self, graph: LogicalGraph, inputs: Sequence[Value], scalars: Sequence[float]
    ) -> tuple[list[Value], dict[int, Value]] | None:
        """One call, one at a time; None if a kernel refused its data: nothing has changed then."""
        with self._one_call:
            return self._call(graph, inputs, scalars)

    def _call(
        self, graph: LogicalGraph, inputs: Sequence[Value], scalars: Sequence[float]
    ) -> tuple[list[Value], dict[int, Value]] | None:
        self._feed(inputs, scalars)
        held = [graph.variables[i].cell.value.shards[rank] for i, rank, _ in self._variables]
        entering = [array if array.flags.c_contiguous else np.ascontiguousarray(array) for array in held]
        leaving = {number: self._free(number) for number in self._updates}
        moving = [*entering, *leaving.values()]
        known = self._address
        marks = tuple([known[id(a)] if id(a) in known else address(a) for a in moving])
        here = dict(zip(self._moving, moving, strict=True))
        if self._refused(self._pointed(marks), here):
            return None
        generator = settings().generator
        generator.next_global += graph.draws[0]
        generator.next_local += graph.draws[1]
        values = {kind: {n: self._array(p, here).copy() for n, p in p_of.items()} for kind, p_of in self._copied_out.items()}
        values["update"].update(leaving)
        outputs: list[Value] = []
        updates: dict[int, Value] = {}
        for (kind, index), (meta, shards) in self._results.items():
            arrays = values[kind]
            value = Value(meta, {rank: arrays[number] for rank, number in shards.items()})
            if kind == "output":
                outputs.append(value)
            else:
                updates[index] = value
        return outputs, updates

    def _refused(self, segments: Sequence[Any], here: Mapping[int, Array]) -> bool:
        """Carries out rows and host steps; whether a kernel of any process refused its data (ERR-AGREED).

        The others wait for what this process sends.  So if its own data are bad it computes no more, and sends zeros.
        """
        refused = False
        for segment in segments:
            if not isinstance(segment, HostStep):
                refused = refused or run(segment) != -1
            elif segment.call.effect or not refused:
                try:
                    self._on_host(segment, here, refused)
                except DataError:
                    refused = True
        return anybody_refused(refused)

    def _feed(self, inputs: Sequence[Value], scalars: Sequence[float]) -> None:
        """What is copied into place: inputs, scalars that changed, seed and stream of every draw."""
        for index, rank, buffer in self._inputs:
            np.copyto(buffer, inputs[index].shards[rank])
        if self._scalars:
            self._feed_scalars(scalars)
        if self._draws:
            generator = settings().generator
            first = (generator.next_global, generator.next_local)
            for base, stream, local in self._draws:
                told = self._bases[base].array.view(np.uint64)
                told[0], told[1] = generator.seed, 2 * (stream + first[local]) + local

    def _feed_scalars(self, scalars: Sequence[float]) -> None:
        """The numbers whose bits are others than in the last call; many are one number, which is rounded once."""
        bits = np.array(scalars, np.float64).view(np.int64)
        fresh = np.flatnonzero(bits != self._numbers) if len(self._numbers) else np.arange(len(bits))
        self._numbers = np.zeros(0, np.int64)  # unknown, should this be interrupted
        rounded: dict[tuple[float, Any], Array] = {}
        for index in fresh.tolist():
            for buffer in self._scalars.get(index, ()):
                mark = (int(bits[index]), buffer.dtype)
                if mark not in rounded:
                    rounded[mark] = cast(np.asarray(scalars[index]), buffer.dtype)
                buffer[...] = rounded[mark]
        self._numbers = bits

    def _free(self, number: int) -> Array:
        """A buffer for the next value of a variable that nobody holds; a new one if there is none."""
        buffers = self._buffers[number]
        free = _unheld(buffers)
        if free is None:
            example = self._bases[self._updates[number]].array
            free = np.empty(example.shape, example.dtype)
            if len(buffers) >= MOST_BUFFERS:  # whoever kept the oldest has it to himself
                del self._address[id(buffers.pop(0))]
            buffers.append(free)
            self._address[id(free)] = address(free)
        return free

    def pieces(self) -> list[tuple[LocalCall, str, Callable[[], Any]]]:
        """What the last call ran, each row and host step alone and as often as one likes: its call, its name, itself."""
        marks, (_, segments) = next(reversed(self._bound.items()))
        kept = {address(array): array for buffers in self._buffers.values() for array in buffers}
        here = {base: kept[mark] for base, mark in zip(self._moving, marks, strict=True) if mark in kept}
        runs: list[Callable[[], Any]] = []
        for segment in segments:
            if isinstance(segment, HostStep):
                runs.append(partial(self._on_host, segment, here))
            else:
                runs += [partial(run, segment[i : i + 1]) for i in range(len(segment))]
        names = ["on the host" if isinstance(item, HostStep) else item.kernel.name for item in self._items]
        return [(item.call, name, piece) for item, name, piece in zip(self._items, names, runs, strict=True)]

    def _pointed(self, marks: tuple[int, ...]) -> list[Any]:
        """Rows and host steps with every address filled in, for variables and next values at these addresses."""
        if marks not in self._bound:
            if len(self._bound) >= 8:  # a training loop needs two
                self._bound.clear()
            self._starts[self._moving] = marks
            words, rows = self._words.copy(), self._rows.copy()
            words[self._moved[:, 0]] = self._starts[self._moved[:, 1]] + self._moved[:, 2]
            rows[:, 1] += address(words)
            self._bound[marks] = words, [s if isinstance(s, HostStep) else rows[s[0] : s[1]] for s in self._segments]
        return self._bound[marks][1]

    def _on_host(self, step: HostStep, here: Mapping[int, Array], zeros: bool = False) -> None:
        """A reference kernel on what the rows before it left, its results where the rows after it look."""
        attrs = step.call.attrs
        if step.call.random:
            generator = settings().generator
            first = (generator.next_global, generator.next_local)[attrs["stream"] % 2]
            attrs = {**attrs, "seed": generator.seed, "stream": attrs["stream"] + 2 * first}
        operands = [self._array(place, here) for place in step.operands]
        made = step.kernel(*map(np.zeros_like, operands) if zeros else operands, **attrs)
        for place, result in zip(step.results, made if isinstance(made, tuple) else (made,), strict=True):
            self._array(place, here)[...] = result

    def _array(self, place: Place, here: Mapping[int, Array]) -> Array:
        """The array at a place, in this call."""
        base, offset, example = place
        if base < 0:
            return np.empty(example.shape, example.dtype)
        memory = here[base] if base in here else self._bases[base].array
        flat = memory.reshape(-1).view(np.uint8)
        return np.ndarray(example.shape, example.dtype, flat.data, offset, example.strides)


MOST_BUFFERS = 4  # remembered for each next value: a training loop needs two
FROM_OUTSIDE = ("input", "scalar", "variable")


def _whole(place: Place, base: Any) -> bool:
    """Whether an array is all of a piece of memory that only this program has."""
    array = place[2]
    same = (array.shape, array.dtype) == (base.array.shape, base.array.dtype)
    return base.owner is None and same and array.flags.c_contiguous


def _unheld(buffers: list[Array]) -> Array | None:
    """The first array that nothing but this list refers to."""
    for buffer in buffers:
        if sys.getrefcount(buffer) <= _ALONE:
            return buffer
    return None


_ALONE = next(sys.getrefcount(buffer) for buffer in [np.empty(0)])
