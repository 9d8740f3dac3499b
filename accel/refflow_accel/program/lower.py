"""Lowering: a local program as rows of native kernels, with every address relative to some base.

Implements ACC-LOWER of spec/text/acceleration.md.  The kernels are the back end's own functions, given a `Call` that
writes launches down; what has no native kernel becomes a step on the host between two runs of rows.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from refflow.kernels import Backend

from ..chains import Chain
from ..cpu.abi import Call, Entry, address, parts, word
from ..cpu.chain import apply_chain
from ..cpu.registry import NATIVE, VIEWS
from .arena import Span, place
from .exchange import exchange
from .local import EXCHANGE, LocalCall, LocalProgram
from .passes import CHAIN

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class Base:
    """A piece of memory that addresses are relative to.

    `owner` None: it lives within a call only, in the arena.  Else who has it, and a number: ("input" | "scalar" |
    "variable" | "update", number of the array), ("constant", 0), ("numbers", index of the draw).
    """

    array: Array
    owner: tuple[str, int] | None = None
    first: int = -1  # rows that touch it; -1: none does
    last: int = -1

    def touched(self, row: int) -> None:
        """Notes that a row reads or writes it."""
        self.first = row if self.first < 0 else self.first
        self.last = row


@dataclass(eq=False)
class Row:
    """A launch: the kernel, its words, and which words are addresses (word, base, offset)."""

    kernel: Entry
    words: list[int]
    addresses: list[tuple[int, int, int]]
    tasks: int
    parts: int  # ranges that threads may share the tasks in
    call: LocalCall  # which it is of


class Place(NamedTuple):
    """Where an array lies: a base (-1: it has no bytes), an offset in bytes, an array of its shape, dtype and strides."""

    base: int
    offset: int
    example: Array


@dataclass(eq=False)
class HostStep:
    """A reference kernel, or an exchange with other processes, between rows."""

    kernel: Callable[..., Any]
    call: LocalCall
    operands: list[Place]
    results: list[Place]


@dataclass(eq=False)
class Lowered:
    """Rows and host steps in order, the bases, and of each draw the base of its seed and stream, and its relative stream."""

    items: list[Row | HostStep] = field(default_factory=list)
    bases: list[Base] = field(default_factory=list)
    draws: list[tuple[int, int]] = field(default_factory=list)

    def arena(self) -> tuple[dict[int, int], int]:
        """base -> its offset in the arena, and the arena's size, in bytes (ACC-ARENA)."""
        inner = [i for i, base in enumerate(self.bases) if base.owner is None and base.first >= 0]
        spans = [Span(self.bases[i].array.nbytes, self.bases[i].first, self.bases[i].last) for i in inner]
        offsets, size = place(spans)
        return dict(zip(inner, offsets, strict=True)), size


class Lowering(Call):
    """A `Call` that writes launches down."""

    def __init__(self, program: LocalProgram, owners: dict[int, tuple[str, int]], backend: Backend) -> None:
        self.out = Lowered()
        self._program, self._backend = program, backend
        self._starts: list[tuple[int, int]] = []  # (address, base), sorted
        self.arrays: dict[int, Array] = {}
        self._call: LocalCall | None = None
        for number, owner in owners.items():
            self.arrays[number] = self._own(np.empty(program.arrays[number].shape, program.arrays[number].dtype), owner)
        for number in program.constants:
            self.arrays[number] = self._constant(program.arrays[number])

    def _constant(self, array: Array) -> Array:
        """A constant in memory of its own; one of a single value is one number seen in every place."""
        if array.size > 1 and not any(array.strides):
            cell = self._own(np.array(array[(0,) * array.ndim]), ("constant", 0))
            return np.broadcast_to(cell, array.shape)
        return self._own(np.array(array, order="C"), ("constant", 0))

    def _own(self, array: Array, owner: tuple[str, int] | None) -> Array:
        if array.size:
            insort(self._starts, (address(array), len(self.out.bases)))
            self.out.bases.append(Base(array, owner))
        return array

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return self._own(np.empty(shape, dtype), None)

    def scratch(self, shape: Any, dtype: Any) -> Array:
        return self._own(np.empty(shape, dtype), None)

    def table(self, array: Array) -> Array:
        return self._own(array, ("constant", 0))

    def numbers(self, *values: int) -> Array:
        array = self._own(super().numbers(*values), ("numbers", len(self.out.draws)))
        assert self._call is not None
        self.out.draws.append((len(self.out.bases) - 1, self._call.attrs["stream"]))
        return array

    def place(self, array: Array) -> Place:
        """Where an array lies."""
        if not array.size:
            return Place(-1, 0, array)
        start = address(array)
        found, base = self._starts[bisect_right(self._starts, (start, len(self.out.bases))) - 1]
        assert found <= start < found + self.out.bases[base].array.nbytes, "an array from nowhere"
        return Place(base, start - found, array)

    def launch(self, kernel: Entry, *arguments: Any, tasks: int, cost: float) -> None:
        if tasks <= 0:
            return
        assert self._call is not None
        row = Row(kernel, [], [], tasks, parts(tasks, cost), self._call)
        for i, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                base, offset, _ = self.place(argument)
                if base >= 0:
                    row.addresses.append((i, base, offset))
                    self.out.bases[base].touched(len(self.out.items))
                row.words.append(0)
            else:
                row.words.append(word(argument))
        self.out.items.append(row)

    def lower(self) -> Lowered:
        """Every call in order."""
        for call in self._program.calls:
            self._call = call
            operands = [self.arrays[number] for number in call.inputs]
            made = self._carry_out(call, operands)
            for number, array in zip(call.outputs, made, strict=True):
                self.arrays[number] = array
        return self.out

    def _carry_out(self, call: LocalCall, operands: list[Array]) -> Sequence[Array]:
        if call.name == CHAIN:
            return self._chain(call, operands)
        made: Any = NotImplemented
        if call.name in VIEWS:
            made = self._backend.kernel(call.name)(*operands, **call.attrs)
        elif call.name in NATIVE:
            made = NATIVE[call.name](self, *operands, **call.attrs)
        if made is NotImplemented:
            return self._on_host(call, operands)
        return made if isinstance(made, tuple) else (made,)

    def _chain(self, call: LocalCall, operands: list[Array]) -> Sequence[Array]:
        made = apply_chain(self, call.attrs["chain"], *operands)
        results: Sequence[Array] = self._on_host(call, operands) if made is NotImplemented else made
        return results

    def _on_host(self, call: LocalCall, operands: list[Array]) -> list[Array]:
        """A step of the host, its results in arrays of their own."""
        at = len(self.out.items)
        results = [self.empty(self._program.arrays[n].shape, self._program.arrays[n].dtype) for n in call.outputs]
        special: dict[str, Callable[..., Any]] = {CHAIN: partial(step_by_step, self._backend), EXCHANGE: exchange}
        kernel = special.get(call.name) or self._backend.kernel(call.name)
        step = HostStep(kernel, call, [], [])
        for arrays, into in ((operands, step.operands), (results, step.results)):
            for array in arrays:
                into.append(self.place(array))
                if into[-1].base >= 0:
                    self.out.bases[into[-1].base].touched(at)
        self.out.items.append(step)
        return results


def step_by_step(backend: Backend, *arrays: Array, chain: Chain) -> tuple[Array, ...]:
    """What a chain means: its steps, one after the other, by the kernels of their primitives."""
    values = list(arrays)
    for step in chain.steps:
        attrs = {"dtype": np.dtype(step.dtype)} if step.op == "cast" else {}
        values.append(backend.kernel(step.op)(*[values[i] for i in step.operands], **attrs))
    return tuple(values[i] for i in chain.outputs)
