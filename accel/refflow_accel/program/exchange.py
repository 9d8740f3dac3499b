"""Exchanges: what a graph's call sends to other processes and receives from them, as calls of its local program.

Implements ACC-EXCHANGE of spec/text/acceleration.md.  All processes make the same exchanges in the order of the program,
whatever each computes between them, so none waits for one that another does not make; the world's rendezvous compares
them as it does everywhere (WORLD-RENDEZVOUS), and each call is in the history that it compares (WORLD-HISTORY).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from zlib import crc32

import numpy as np

from refflow.graph.logical import LogicalGraph
from refflow.state import settings
from refflow.world import Transfer, World

from .local import EXCHANGE, LocalCall, LocalProgram, RecordingBackend

T = TypeVar("T")
Array = np.ndarray[Any, Any]


class RecordingWorld:
    """A world whose transfers between processes are written down in the program of a recording back end."""

    def __init__(self, base: World, recorder: RecordingBackend) -> None:
        self._base, self._recorder = base, recorder
        self.size, self.owned = base.size, base.owned

    def transfer(self, call: str, transfers: Sequence[Transfer], outgoing: Mapping[int, Any]) -> Mapping[int, Any]:
        arrived = self._base.transfer(call, transfers, outgoing)
        if len(self.owned) == self.size:  # all ranks are here
            return arrived
        numbers = {i: self._recorder.sent(host) for i, host in outgoing.items()}
        crossing = [i for i, t in enumerate(transfers) if t.source != t.target]  # the same in every process
        place = {i: n for n, i in enumerate(crossing)}
        sent = [i for i in crossing if transfers[i].source in self.owned]
        received = [i for i in crossing if transfers[i].target in self.owned]
        attrs = {
            "call": call,
            "transfers": tuple(transfers[i] for i in crossing),
            "sent": tuple(place[i] for i in sent),
            "received": tuple(place[i] for i in received),
        }
        outputs = tuple(self._recorder.received(arrived[i]) for i in received)
        if crossing:
            program = self._recorder.program
            program.calls.append(LocalCall(EXCHANGE, tuple(numbers[i] for i in sent), attrs, outputs))
        return arrived

    def agree(self, call: str, mine: Mapping[int, T]) -> Mapping[int, T]:
        """Not in the program: a check that all is well, which it makes once, at its end; told anything else, it has looked."""
        entries = self._base.agree(call, mine)
        self._recorder.told |= not all(map(_says_nothing, entries.values()))
        return entries

    def saw(self, name: str, mark: int) -> None:
        self._base.saw(name, mark)

    def describe(self) -> str:
        return self._base.describe()


def _says_nothing(entry: Any) -> bool:
    """Whether an entry is None; a rank's entry in a graph is one for each of its micro-steps."""
    return entry is None or (isinstance(entry, dict) and all(value is None for value in entry.values()))


def exchange(
    *arrays: Array, call: str, transfers: Sequence[Transfer], sent: Sequence[int], received: Sequence[int]
) -> tuple[Array, ...]:
    """Sends `arrays` as the transfers of the indices `sent`; what arrives of those of `received`.

    Errors: `DivergenceError` unless every process makes the same exchange.
    """
    arrived = settings().world.transfer(call, transfers, dict(zip(sent, arrays, strict=True)))
    return tuple(arrived[i] for i in received)


def all_can_compile(recorder: RecordingBackend) -> bool:
    """Whether every process has recorded a program, with the same exchanges; a collective where there are several."""
    if alone():
        return not recorder.looked
    world = settings().world
    mine = None if recorder.looked else digest(recorder.program)
    told = set(world.agree("graph: exchanges of the compiled program", dict.fromkeys(world.owned, mine)).values())
    return len(told) == 1 and None not in told


def digest(program: LocalProgram) -> str:
    """A digest of the exchanges of a program: call, and what goes from whom to whom, in order."""
    seen = [(c.attrs["call"], [str(t) for t in c.attrs["transfers"]]) for c in program.calls if c.effect]
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def alone() -> bool:
    """Whether all ranks are in this process."""
    world = settings().world
    return len(world.owned) == world.size


def enter_history(graph: LogicalGraph, mark: int, scalars: Sequence[float]) -> None:
    """Notes a call of a compiled graph: `mark` is a checksum of the graph, numbers and beginning of its draws join it.

    Processes that call other graphs may make the same exchanges, so the next collective compares this too.
    """
    generator = settings().generator
    draws = (generator.seed, generator.next_global) if graph.draws[0] else ()
    mark = crc32(repr(draws).encode(), crc32(np.array(scalars, np.float64).tobytes(), mark))
    settings().world.saw(f"graph {graph.name}", mark)


def anybody_refused(refused: bool) -> bool:
    """Whether a kernel of any process refused its data; a collective where there are several (ERR-AGREED)."""
    if alone():
        return refused
    world = settings().world
    return any(world.agree("graph: data check", dict.fromkeys(world.owned, refused)).values())
