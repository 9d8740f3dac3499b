"""The native form of a local program: rows of kernels, one arena, and the arrays that come and go with each call.

Implements ACC-PROGRAM, ACC-ARENA and ACC-EXCHANGE of spec/text/acceleration.md.  `lower` gives every address as a base and
an offset.  Most bases stay where they are: the arena, constants, the copies of inputs and scalars, seeds and streams.
Those that move from call to call are the variables' values and the buffers of their next ones, so the rows are kept once
for each combination of their addresses.
"""

from __future__ import annotations

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
from .arena import ALIGN
from .buffers import Buffers
from .exchange import anybody_refused
from .local import Done, LocalCall, LocalProgram, Results, Where, stream_at, values_of
from .lower import Base, HostStep, Lowering, Place

Array = np.ndarray[Any, Any]
Moved = Mapping[int, Array]  # the arrays of this call by base, of bases that move
Segment = HostStep | Array  # a host step, or rows to run one after the other

FROM_OUTSIDE = ("input", "scalar", "variable")
MOST_BINDINGS = 8  # a training loop needs two


class Native:
    """Runs a local program.  `given` says where its first arrays come from; `results` are metas and numbers by rank."""

    def __init__(self, program: LocalProgram, given: Sequence[Where], results: Results, backend: Backend) -> None:
        lowering = Lowering(program, {n: (where[0], n) for n, where in enumerate(given)}, backend)
        lowered = lowering.lower()
        self._items, self._bases, self._draws, self._results = lowered.items, lowered.bases, lowered.draws, results
        self._inputs: list[tuple[int, int, Array]] = []  # (index, rank, where it is copied to)
        self._scalars: dict[int, list[Array]] = {}  # by index, where it is copied to
        self._variables: list[tuple[int, int, int]] = []  # (index, rank, base)
        self._enter(given)
        self._updates: dict[int, int] = {}  # number -> the base that becomes the next value of a variable
        self._copied_out: dict[str, dict[int, Place]] = {"output": {}, "update": {}}  # the other results
        self._leave(lowering)
        self._moving = [base for _, _, base in self._variables] + list(self._updates.values())
        self._buffers = Buffers({number: self._bases[base].array for number, base in self._updates.items()})
        self._last_scalars: Array = np.zeros(0, np.int64)  # the bits of the last call's
        self._bindings: dict[tuple[int, ...], tuple[Array, list[Segment]]] = {}  # by the addresses of what moves
        self._one_call = threading.Lock()  # arena, inputs and scalars are those of one call
        self._lay_out(*lowered.arena())

    def _enter(self, given: Sequence[Where]) -> None:
        """Which bases inputs, scalars and variables are; nobody reads the others."""
        base_of = {base.owner[1]: i for i, base in enumerate(self._bases) if base.owner and base.owner[0] in FROM_OUTSIDE}
        for number, (kind, index, rank) in enumerate(given):
            if number not in base_of:
                continue
            base = base_of[number]
            if kind == "input":
                self._inputs.append((index, rank, self._bases[base].array))
            elif kind == "scalar":
                self._scalars.setdefault(index, []).append(self._bases[base].array)
            else:
                self._variables.append((index, rank, base))

    def _leave(self, lowering: Lowering) -> None:
        """Which results are written where they will stay, and which are copied out at the end."""
        for (kind, _), (_, shards) in self._results.items():
            for number in dict.fromkeys(shards.values()):
                place = lowering.place(lowering.arrays[number])
                if place.base < 0:
                    self._copied_out[kind][number] = place
                elif kind == "update" and number not in self._updates and _is_all_of(place, self._bases[place.base]):
                    self._bases[place.base].owner = ("update", number)
                    self._updates[number] = place.base
                elif number not in self._updates or kind == "output":
                    self._copied_out[kind][number] = place
                    self._bases[place.base].touched(len(self._items))

    def _lay_out(self, offsets: Mapping[int, int], size: int) -> None:
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
        relative: list[tuple[int, int, int]] = []  # (word, base, offset)
        self._cuts: list[HostStep | tuple[int, int]] = []  # a segment each: a host step, or from which row to which
        for item in self._items:
            if isinstance(item, HostStep):
                self._cuts.append(item)
                continue
            relative += [(len(words) + word, base, offset) for word, base, offset in item.addresses]
            rows.append((item.kernel.address, 8 * len(words), item.tasks, item.parts))
            words += item.words
            last = self._cuts[-1] if self._cuts else None
            if isinstance(last, tuple):
                self._cuts[-1] = (last[0], len(rows))
            else:
                self._cuts.append((len(rows) - 1, len(rows)))
        self._rows = np.array(rows, np.int64).reshape(-1, 4)
        self._words = np.array(words, np.int64)
        self._relative = np.array(relative, np.int64).reshape(-1, 3)

    def __call__(self, graph: LogicalGraph, inputs: Sequence[Value], scalars: Sequence[float]) -> Done | None:
        """One call, one at a time; None if a kernel refused its data: nothing has changed then."""
        with self._one_call:
            return self._call(graph, inputs, scalars)

    def _call(self, graph: LogicalGraph, inputs: Sequence[Value], scalars: Sequence[float]) -> Done | None:
        self._copy_in(inputs, scalars)
        held = [graph.variables[i].cell.value.shards[rank] for i, rank, _ in self._variables]
        entering = [array if array.flags.c_contiguous else np.ascontiguousarray(array) for array in held]
        leaving = {number: self._buffers.free(number) for number in self._updates}
        moving = [*entering, *leaving.values()]
        moved = dict(zip(self._moving, moving, strict=True))
        segments = self._bound(self._buffers.addresses(moving))
        if self._refused(segments, moved):
            return None
        generator = settings().generator
        generator.next_global += graph.draws[0]
        generator.next_local += graph.draws[1]
        arrays = {kind: {n: self._array(p, moved).copy() for n, p in of.items()} for kind, of in self._copied_out.items()}
        arrays["update"].update(leaving)
        return values_of(self._results, arrays)

    # --- what comes in ------------------------------------------------------------------------------------------------

    def _copy_in(self, inputs: Sequence[Value], scalars: Sequence[float]) -> None:
        """Inputs, scalars that changed, seed and stream of every draw."""
        for index, rank, to in self._inputs:
            np.copyto(to, inputs[index].shards[rank])
        if self._scalars:
            self._copy_scalars(scalars)
        if self._draws:
            generator = settings().generator
            ordinals = generator.next_global, generator.next_local
            for base, stream in self._draws:
                words = self._bases[base].array.view(np.uint64)
                words[0], words[1] = generator.seed, stream_at(stream, ordinals)

    def _copy_scalars(self, scalars: Sequence[float]) -> None:
        """Those whose bits are others than in the last call; many are one number, which is rounded once."""
        bits = np.array(scalars, np.float64).view(np.int64)
        last = self._last_scalars
        changed = np.flatnonzero(bits != last) if len(last) else np.arange(len(bits))
        self._last_scalars = np.zeros(0, np.int64)  # unknown, should this be interrupted
        rounded: dict[tuple[int, Any], Array] = {}  # by bits and dtype
        for index in changed.tolist():
            for to in self._scalars.get(index, ()):
                key = (int(bits[index]), to.dtype)
                if key not in rounded:
                    rounded[key] = cast(np.asarray(scalars[index]), to.dtype)
                to[...] = rounded[key]
        self._last_scalars = bits

    # --- rows and host steps ------------------------------------------------------------------------------------------

    def _bound(self, addresses: tuple[int, ...]) -> list[Segment]:
        """The segments with every address filled in, what moves being at these addresses."""
        if addresses not in self._bindings:
            if len(self._bindings) >= MOST_BINDINGS:
                self._bindings.clear()
            self._starts[self._moving] = addresses
            words, rows = self._words.copy(), self._rows.copy()
            words[self._relative[:, 0]] = self._starts[self._relative[:, 1]] + self._relative[:, 2]
            rows[:, 1] += address(words)
            segments = [cut if isinstance(cut, HostStep) else rows[cut[0] : cut[1]] for cut in self._cuts]
            self._bindings[addresses] = words, segments  # the rows point to the words
        return self._bindings[addresses][1]

    def _refused(self, segments: Sequence[Segment], moved: Moved) -> bool:
        """Carries out rows and host steps; whether a kernel of any process refused its data (ERR-AGREED).

        The others wait for what this process sends.  So if its own data are bad it computes no more, and sends zeros.
        """
        refused = False
        for segment in segments:
            if not isinstance(segment, HostStep):
                refused = refused or run(segment) != -1
            elif segment.call.effect or not refused:
                try:
                    self._on_host(segment, moved, refused)
                except DataError:
                    refused = True
        return anybody_refused(refused)

    def _on_host(self, step: HostStep, moved: Moved, zeros: bool = False) -> None:
        """A host step on what the rows before it left (or on zeros), its results where the rows after it look."""
        attrs = step.call.attrs
        if step.call.random:
            generator = settings().generator
            attrs = step.call.drawn(generator.seed, (generator.next_global, generator.next_local))
        operands = [self._array(place, moved) for place in step.operands]
        made = step.kernel(*map(np.zeros_like, operands) if zeros else operands, **attrs)
        for place, result in zip(step.results, made if isinstance(made, tuple) else (made,), strict=True):
            self._array(place, moved)[...] = result

    def _array(self, place: Place, moved: Moved) -> Array:
        """The array at a place, in this call."""
        base, offset, example = place
        if base < 0:
            return np.empty(example.shape, example.dtype)
        memory = moved[base] if base in moved else self._bases[base].array
        flat = memory.reshape(-1).view(np.uint8)
        return np.ndarray(example.shape, example.dtype, flat.data, offset, example.strides)

    def pieces(self) -> list[tuple[LocalCall, str, Callable[[], Any]]]:
        """What the last call ran, each row and host step alone and as often as one likes: its call, its name, itself."""
        addresses, (_, segments) = next(reversed(self._bindings.items()))
        moved = self._buffers.at(dict(zip(self._moving, addresses, strict=True)))
        runs: list[Callable[[], Any]] = []
        for segment in segments:
            if isinstance(segment, HostStep):
                runs.append(partial(self._on_host, segment, moved))
            else:
                runs += [partial(run, segment[i : i + 1]) for i in range(len(segment))]
        names = ["on the host" if isinstance(item, HostStep) else item.kernel.name for item in self._items]
        return [(item.call, name, piece) for item, name, piece in zip(self._items, names, runs, strict=True)]


def _is_all_of(place: Place, base: Base) -> bool:
    """Whether the array at a place is all of a piece of memory that only this program has."""
    array = place.example
    same = (array.shape, array.dtype) == (base.array.shape, base.array.dtype)
    return base.owner is None and same and array.flags.c_contiguous
