"""Local programs: the kernel calls of one graph call, in order, on numbered arrays.

Implements ACC-RECORD of spec/text/acceleration.md.  What the interpreter of graphs asks of the back end while it carries
a graph out is written down; boxing, micro-steps and the ranks of this process are in it like anything else.  Everything
above the kernels depends on metas only, so the same list serves every later call.  What processes send each other is in it
too (`exchange`, ACC-EXCHANGE).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from refflow.ir import Meta, Value
from refflow.kernels import Array, Backend, Kernel

Where = tuple[str, int, int]  # "input", "scalar" or "variable"; its index; the rank
Results = Mapping[tuple[str, int], tuple[Meta, dict[int, int]]]  # of "output" or "update", index: meta, number by rank
Done = tuple[list[Value], dict[int, Value]]  # outputs, and the next values of the variables by index
Ordinals = tuple[int, int]  # of the generator's next global and next local draw
EXCHANGE = "exchange"  # the name of a call that sends arrays to other processes and receives theirs


@dataclass(frozen=True, eq=False)
class LocalCall:
    """A kernel on arrays, by number; `random` calls carry a stream relative to the first draw of the graph call."""

    name: str
    inputs: tuple[int, ...]
    attrs: Mapping[str, Any]
    outputs: tuple[int, ...]

    @property
    def random(self) -> bool:
        """Whether the call draws numbers."""
        return "stream" in self.attrs

    def drawn(self, seed: int, ordinals: Ordinals) -> Mapping[str, Any]:
        """The attributes of a `random` call in a graph call whose draws begin at these ordinals."""
        return {**self.attrs, "seed": seed, "stream": stream_at(self.attrs["stream"], ordinals)}

    @property
    def effect(self) -> bool:
        """Whether other processes take part: such calls stay, in their order, whoever reads what they give."""
        return self.name == EXCHANGE


def stream_at(relative: int, ordinals: Ordinals) -> int:
    """The stream of a draw in a graph call whose draws begin at these ordinals: even ones are global (RNG-STREAM)."""
    return relative + 2 * ordinals[relative % 2]


def values_of(results: Results, arrays: Mapping[str, Any]) -> Done:
    """What a graph call returns; `arrays` has for "output" and "update" the array of each number."""
    outputs: list[Value] = []
    updates: dict[int, Value] = {}
    for (kind, index), (meta, shards) in results.items():
        of_kind = arrays[kind]
        value = Value(meta, {rank: of_kind[number] for rank, number in shards.items()})
        if kind == "output":
            outputs.append(value)
        else:
            updates[index] = value
    return outputs, updates


@dataclass(eq=False)
class LocalProgram:
    """Calls in order; `arrays` holds an example of each numbered array (of a constant, its value)."""

    arrays: list[Array]
    calls: list[LocalCall]
    constants: set[int] = field(default_factory=set)
    results: list[int] = field(default_factory=list)  # arrays that must exist after the calls

    def add(self, example: Array) -> int:
        """A new numbered array like `example`."""
        self.arrays.append(example)
        return len(self.arrays) - 1

    def uses(self) -> dict[int, list[int]]:
        """array -> the indices of the calls that read it."""
        read: dict[int, list[int]] = {}
        for i, call in enumerate(self.calls):
            for number in dict.fromkeys(call.inputs):
                read.setdefault(number, []).append(i)
        return read

    def makers(self) -> dict[int, int]:
        """array -> the index of the call that makes it."""
        return {number: i for i, call in enumerate(self.calls) for number in call.outputs}


class RecordingBackend:
    """Computes with another back end and writes its calls down."""

    def __init__(self, inner: Backend, given: list[Array], ordinals: Ordinals) -> None:
        self.name = inner.name
        self.program = LocalProgram([], [])
        self.told = False  # whether other processes told something that another call might be told differently
        self._inner = inner
        self._ordinals = ordinals
        self._number: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no two arrays ever have one id
        self._read: list[tuple[Array, int]] = []  # host copies, of which array each, that nobody has sent
        for array in given:
            self._enter(array)

    def _enter(self, array: Array) -> int:
        self._alive.append(array)
        self._number[id(array)] = number = self.program.add(array)
        return number

    def number(self, array: Array) -> int:
        """The number of an array; one never seen before is a constant."""
        if id(array) not in self._number:
            self.program.constants.add(self._enter(array))
        return self._number[id(array)]

    def kernel(self, name: str) -> Kernel:
        inner = self._inner.kernel(name)

        def run(*arrays: Array, **attrs: Any) -> Any:
            made = inner(*arrays, **attrs)
            results = made if isinstance(made, tuple) else (made,)
            if all(any(result is array for array in arrays) for result in results):
                return made  # nothing to do, such as putting together one whole part
            inputs = tuple(self.number(array) for array in arrays)
            outputs = tuple(self._enter(result) for result in results)
            if "stream" in attrs:
                attrs = {**attrs, "stream": attrs["stream"] - 2 * self._ordinals[attrs["stream"] % 2]}
            self.program.calls.append(LocalCall(name, inputs, attrs, outputs))
            return made

        return run

    def from_host(self, array: Array) -> Array:
        made: Array = self._inner.from_host(array)
        if id(array) in self._number:  # it was received
            self._name(made, self._number[id(array)])
        return made

    def to_host(self, array: Array) -> Array:
        host: Array = self._inner.to_host(array)
        self._read.append((host, self.number(array)))
        return host

    @property
    def looked(self) -> bool:
        """Whether somebody read numbers, which another call might read differently; who sends them does not look."""
        return self.told or bool(self._read)

    def sent(self, host: Array) -> int:
        """The number of the array of which `host` is the copy, made to be sent."""
        index = next(i for i, (copy, _) in enumerate(self._read) if copy is host)
        number = self._read.pop(index)[1]
        self._name(host, number)
        return number

    def received(self, host: Array) -> int:
        """A number for an array that another process sent."""
        return self._enter(host)

    def _name(self, array: Array, number: int) -> None:
        self._alive.append(array)
        self._number[id(array)] = number

    def shape(self, array: Array) -> tuple[int, ...]:
        return self._inner.shape(array)
