"""Passes on local programs: constants, products written transposed, and elementwise chains.

Implements ACC-FOLD, ACC-TRANSPOSED and ACC-FUSE of spec/text/acceleration.md.  Each is a function from program to
program that changes no bit: the same kernels see the same numbers in the same order.  Exchanges with other processes stay,
one after the other as they were recorded, so that all processes keep making the same ones (ACC-EXCHANGE).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from refflow.kernels import Array

from ..chains import Chain, Step
from ..expressions import OPERANDS, serves
from .local import LocalCall, LocalProgram

CHAIN = "chain"  # the name of a fused call; its attribute `chain` says what it does
MOST_INPUTS, MOST_STEPS = 14, 40  # of a chain: more would spill registers and compile long


def uniform(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of one value throughout as that value seen in every place: nothing to read from memory."""
    if array.size <= 1 or 0 in array.strides:
        return array
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")
    return np.broadcast_to(array.reshape(-1)[0:1].copy().reshape(()), array.shape) if (bits == bits[0]).all() else array


def anything(ops: Collection[str]) -> bool:
    """Whether these primitives may stand in one chain: on the CPU any may."""
    return True


def optimized(
    program: LocalProgram,
    of_constant: Callable[[Array], Array] = uniform,
    together: Callable[[Collection[str]], bool] = anything,
) -> LocalProgram:
    """All passes; a back end says how it holds a constant, and which primitives may stand in one chain."""
    program = without_values(fold_constants(program, of_constant))
    return fuse(drop_unused(transposed_products(program)), together)


def fold_constants(program: LocalProgram, of_constant: Callable[[Array], Array] = uniform) -> LocalProgram:
    """Drops calls on constants alone: their recorded results are what they would give again (ACC-FOLD).

    `of_constant` makes of a constant the array that the program keeps.
    """
    constants = set(program.constants)
    calls = []
    for call in program.calls:
        if call.random or call.effect or not constants.issuperset(call.inputs):
            calls.append(call)
        else:
            constants.update(call.outputs)
    arrays = [of_constant(a) if i in constants else a for i, a in enumerate(program.arrays)]
    return replace(program, arrays=arrays, calls=calls, constants=constants)


def without_values(program: LocalProgram) -> LocalProgram:
    """Forgets what the recorded call computed: of arrays that are no constants only shape and dtype are looked at."""
    arrays = [a if i in program.constants else blank(a.shape, a.dtype) for i, a in enumerate(program.arrays)]
    return replace(program, arrays=arrays)


def blank(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An example that says a shape and a dtype only."""
    return np.broadcast_to(np.empty((), dtype), shape)


def drop_unused(program: LocalProgram) -> LocalProgram:
    """Drops calls whose results nobody reads, draws too: a draw's stream is its own, whatever was drawn before it."""
    needed = set(program.results)
    calls = []
    for call in reversed(program.calls):
        if call.effect or not needed.isdisjoint(call.outputs):
            needed.update(call.inputs)
            calls.append(call)
    return replace(program, calls=calls[::-1])


def transposed_products(program: LocalProgram) -> LocalProgram:
    """(x y)^T as y^T x^T where only the transpose is used: a product of two numbers does not depend on their order, nor
    a fused multiply-add on that of its factors (ACC-TRANSPOSED)."""
    uses, results = program.uses(), set(program.results)
    arrays: list[Array] = list(program.arrays)
    instead: dict[int, list[LocalCall]] = {}  # of a call, by index
    for i, call in enumerate(program.calls):
        if call.name != "matmul" or call.outputs[0] in results or any(arrays[n].ndim < 2 for n in call.inputs):
            continue
        readers = uses.get(call.outputs[0], [])
        if len(readers) == 1 and _turns_matrices(program, program.calls[readers[0]]):
            instead[i] = _product_of_transposes(arrays, call, program.calls[readers[0]].outputs)
            instead[readers[0]] = []
    calls = [made for i, call in enumerate(program.calls) for made in instead.get(i, [call])]
    return replace(program, arrays=arrays, calls=calls)


def _turns_matrices(program: LocalProgram, call: LocalCall) -> bool:
    """Whether a call transposes the last two dimensions of its operand, and no others."""
    rank = program.arrays[call.inputs[0]].ndim if call.inputs else 0
    return call.name == "transpose" and rank >= 2 and tuple(call.attrs["perm"]) == _matrices_turned(rank)


def _matrices_turned(rank: int) -> tuple[int, ...]:
    """The permutation that transposes the last two of `rank` dimensions."""
    return (*range(rank - 2), rank - 1, rank - 2)


def _product_of_transposes(arrays: list[Array], product: LocalCall, outputs: tuple[int, ...]) -> list[LocalCall]:
    """For x y the calls y^T, x^T and y^T x^T, whose result is `outputs`; the two transposes are added to `arrays`."""
    calls = []
    for number in reversed(product.inputs):
        *batch, m, n = arrays[number].shape
        arrays.append(blank((*batch, n, m), arrays[number].dtype))
        perm = _matrices_turned(len(batch) + 2)
        calls.append(LocalCall("transpose", (number,), {"perm": perm}, (len(arrays) - 1,)))
    turned = tuple(call.outputs[0] for call in calls)
    return [*calls, LocalCall("matmul", turned, product.attrs, outputs)]


def fuse(program: LocalProgram, together: Callable[[Collection[str]], bool] = anything) -> LocalProgram:
    """Puts elementwise calls of one shape together where no path leads out of a group and back into it (ACC-FUSE)."""
    groups = _Groups(program, together)
    calls = [
        _chain(program, members, groups.uses) if members[0] in groups.fitting else program.calls[members[0]]
        for members in groups.ordered()
    ]
    return replace(program, calls=calls)


class _Groups:
    """Which calls are carried out together; sets of groups are bits of an int."""

    def __init__(self, program: LocalProgram, together: Callable[[Collection[str]], bool]) -> None:
        self.together = together
        self.program, self.uses, self.makers = program, program.uses(), program.makers()
        self.members: dict[int, list[int]] = {}
        self.group: dict[int, int] = {}  # call -> group
        self.fitting = {i for i, call in enumerate(program.calls) if fits(program, call)}
        self.before: dict[int, int] = {}  # group -> the groups it depends on, however far
        last: list[int] = []  # the exchange before: the next comes after it
        for i, call in enumerate(program.calls):
            sources = [self.group[self.makers[n]] for n in dict.fromkeys(call.inputs) if n in self.makers]
            sources = list(dict.fromkeys(sources + last if call.effect else sources))
            last = [i] if call.effect else last
            if i in self.fitting:
                joined = next((g for g in reversed(sources) if self._may_join(g, i, sources)), None)
                if joined is not None:
                    self._join(joined, i, sources)
                    continue
            self.members[i], self.group[i] = [i], i
            self.before[i] = self._all_before(sources)

    def _all_before(self, sources: list[int]) -> int:
        before = 0
        for g in sources:
            before |= self.before[g] | 1 << g
        return before

    def _may_join(self, g: int, i: int, sources: list[int]) -> bool:
        calls, arrays = self.program.calls, self.program.arrays
        first = calls[self.members[g][0]]
        if g not in self.fitting or len(self.members[g]) >= MOST_STEPS:
            return False
        if arrays[first.outputs[0]].shape != arrays[calls[i].outputs[0]].shape:
            return False
        inside = {n for m in self.members[g] for n in calls[m].outputs}
        inputs = {n for m in (*self.members[g], i) for n in calls[m].inputs} - inside
        if len(inputs) > MOST_INPUTS or not self.together({calls[m].name for m in (*self.members[g], i)}):
            return False
        return not any(self.before[other] >> g & 1 for other in sources if other != g)

    def _join(self, g: int, i: int, sources: list[int]) -> None:
        self.members[g].append(i)
        self.group[i] = g
        gained = self._all_before([other for other in sources if other != g])
        if gained & ~self.before[g]:
            for other, before in self.before.items():
                if other == g or before >> g & 1:
                    self.before[other] = before | gained

    def ordered(self) -> list[list[int]]:
        """The groups, each after all it depends on, otherwise in program order."""
        waiting = sorted(self.members)
        done, order = 0, []
        while waiting:
            later = []
            for g in waiting:
                if self.before[g] & ~done:
                    later.append(g)
                else:
                    order.append(self.members[g])
                    done |= 1 << g
            assert len(later) < len(waiting), "a group depends on itself"
            waiting = later
        return order


def fits(program: LocalProgram, call: LocalCall) -> bool:
    """Whether a call can be a step of a chain."""
    if call.name not in OPERANDS or len(call.outputs) != 1:
        return False
    dtypes = tuple(program.arrays[n].dtype.name for n in call.inputs)
    return serves(call.name, dtypes, program.arrays[call.outputs[0]].dtype.name)


def _chain(program: LocalProgram, members: list[int], uses: dict[int, list[int]]) -> LocalCall:
    """The calls of one group as one."""
    calls = [program.calls[m] for m in members]
    inside = {call.outputs[0] for call in calls}
    inputs = list(dict.fromkeys(n for call in calls for n in call.inputs if n not in inside))
    index = {n: i for i, n in enumerate(inputs)}
    steps = []
    for call in calls:
        operands = tuple(index[n] for n in call.inputs)
        steps.append(Step(call.name, operands, program.arrays[call.outputs[0]].dtype.name))
        index[call.outputs[0]] = len(inputs) + len(steps) - 1
    own, results = set(members), set(program.results)
    outputs = [n for n in sorted(inside, key=index.__getitem__) if n in results or not own.issuperset(uses.get(n, ()))]
    chain = Chain(tuple(program.arrays[n].dtype.name for n in inputs), tuple(steps), tuple(index[n] for n in outputs))
    return LocalCall(CHAIN, tuple(inputs), {"chain": chain}, tuple(outputs))
