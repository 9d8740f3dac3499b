"""The MPI world: one rank is one process; the script runs once in each.

Implements WORLD-MPI, ERR-LEFT, WORLD-WIRE and, with direct.py, WORLD-DIRECT of spec/text/worlds.md.  At a collective
every process sends every other one message: its letter (rendezvous.py), then the bytes meant for that process.  A
process that ends sends a letter that says so in place of its next call.  So whatever the others do, each waits for
exactly one message from each, reads what they say before it goes on, and never waits for one that will not come.
"""

from __future__ import annotations

import atexit
import math
import os
import pickle
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from ..errors import DivergenceError, WorldError
from ..kernels.wire import Wire
from .base import Transfer
from .direct import Posted, cuda_aware
from .rendezvous import History, Letter, compare_ends, reason

T = TypeVar("T")
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_TAG = 7
_ALIGN = 16  # pieces of a message start at multiples of this, so that arrays can be read where they lie
_YIELDS = (300, 20)  # polls that only offer the CPU to others, before naps between polls: CPUs for all, or fewer
_NAPS = (50e-6, 1e-3)  # seconds slept between polls: at first, at most
_NAP_GROWTH = 1.2
_GRACE = 15.0  # seconds a failing process waits for the others to notice, before it ends and MPI with it


class MpiWorld:
    """The processes `mpiexec` started, as ranks 0 .. size - 1; this process owns one."""

    def __init__(self) -> None:
        mpi = _import_mpi()
        self._bytes, self._status, self._delivered = mpi.BYTE, mpi.Status(), mpi.Request.Testall
        self._comm = mpi.COMM_WORLD.Dup()  # no message of ours meets one of the user's
        self.size: int = self._comm.Get_size()
        self.rank: int = self._comm.Get_rank()
        self.owned: tuple[int, ...] = (self.rank,)
        self._peers = tuple(rank for rank in range(self.size) if rank != self.rank)
        self._mail: dict[int, deque[Bytes]] = {rank: deque() for rank in self._peers}
        self._farewells: list[tuple[Any, Bytes]] = []
        self._number, self._history = 0, History()
        self._under_way: list[Bytes] = []
        self._gone: dict[int, Letter] = {}  # processes that said they left or failed
        self._farewell: Letter | None = None  # what this process said when it did
        self._direct: bool | None = None  # not known yet
        self._pid = os.getpid()
        self._yields = _YIELDS[self.size > (os.cpu_count() or 1)]
        if self._peers:
            _at_end_of_process(self)

    def describe(self) -> str:
        return f"MPI world of {self.size} process{'es' if self.size > 1 else ''}, this is rank {self.rank}"

    def saw(self, name: str, mark: int) -> None:
        self._history.saw(name, mark)

    def transfer(self, call: str, transfers: Sequence[Transfer], outgoing: Mapping[int, Any]) -> Mapping[int, Any]:
        me = self.rank
        kept = {i: outgoing[i] for i, t in enumerate(transfers) if t.source == me == t.target}
        parcels: dict[int, list[Any]] = {}
        expected: dict[int, list[tuple[int, Transfer]]] = {}
        for i, t in enumerate(transfers):
            if t.source == me != t.target:
                parcels.setdefault(t.target, []).append(outgoing[i])
            elif t.target == me != t.source:
                expected.setdefault(t.source, []).append((i, t))
        received = self._meet(call, lambda rank: parcels.get(rank, ()))
        for source, pieces in expected.items():
            kept.update(_read(received[source], pieces))
        return kept

    def agree(self, call: str, mine: Mapping[int, T]) -> Mapping[int, T]:
        told = np.frombuffer(pickle.dumps(dict(mine), pickle.HIGHEST_PROTOCOL), np.uint8)
        entries = dict(mine)
        for content in self._meet(call, lambda rank: (told,)).values():
            entries.update(pickle.loads(content.tobytes()))
        return dict(sorted(entries.items()))

    # --- between devices --------------------------------------------------------------------------------------------

    @property
    def direct(self) -> bool:
        """Whether MPI may be given the memory of devices."""
        if self._direct is None:
            self._direct = cuda_aware().found
        return self._direct

    def transfer_direct(
        self, call: str, transfers: Sequence[Transfer], outgoing: Mapping[int, Wire], landings: Mapping[int, Wire]
    ) -> None:
        """As `transfer`, for transfers between two processes, from memory to memory (WORLD-DIRECT)."""
        call = f"{call}, device to device (REFFLOW_CUDA_AWARE)"
        self._meet(call, lambda rank: ())
        posted, number = Posted(self, self._number, self._bytes), self._number
        try:
            posted.post(transfers, outgoing, landings)
        except BaseException as error:  # the others wait for what this process will not send
            self.say_farewell(self._history.letter("failed", number, reason(error)))
            posted.abandon()
            raise

        def over() -> bool:
            waited_for = posted.waited_for()
            for rank in waited_for:
                letter = Letter.unpack(self._mail[rank][0].tobytes()) if self._mail[rank] else None
                if letter is not None and letter.kind != "call" and letter.number <= number:
                    own = self._history.letter("call", number, call)  # which is what all have said
                    self._hear({**dict.fromkeys(self._peers, own), rank: letter}, own)
            return not waited_for

        try:
            self._poll(over)
        except BaseException:
            posted.abandon()
            raise

    # --- the rendezvous ---------------------------------------------------------------------------------------------

    def _meet(self, call: str, parcel: Callable[[int], Sequence[Any]]) -> dict[int, Bytes]:
        """Sends `parcel(rank)`, arrays, to each other process; what each sent to this one (WORLD-RENDEZVOUS)."""
        self._number += 1
        letter = self._history.letter("call", self._number, call)
        if self._gone or self._farewell is not None:
            self._history.compare({**self._gone, self.rank: self._farewell or letter})
        head = letter.pack()
        sent = [self._send(rank, _message(head, parcel(rank))) for rank in self._peers]
        # Not before all is delivered too: MPI may need this process to deliver, and it is about to compute.
        self._poll(lambda: all(self._mail.values()) and self._delivered([request for request, _ in sent]))
        self._under_way.clear()
        messages = {rank: box.popleft() for rank, box in self._mail.items()}
        if any(message[: len(head)].tobytes() != head for message in messages.values()):
            self._hear({rank: Letter.unpack(message.tobytes()) for rank, message in messages.items()}, letter)
        start = _aligned(len(head))
        return {rank: message[start:] for rank, message in messages.items()}

    @property
    def communicator(self) -> Any:
        """The communicator of this world, for those who send messages of their own (another tag than `_TAG`)."""
        return self._comm

    @property
    def number(self) -> int:
        """How many collectives there were: the same in every process after one that succeeded."""
        return self._number

    def look(self, call: str) -> None:
        """Takes in letters that have arrived, without waiting, on the way to `call`.

        Errors: `DivergenceError`, on every rank, if a process has left or failed or makes another call.
        """
        self._take_mail()
        for box in self._mail.values():
            if box:
                letter = Letter.unpack(box[0].tobytes())
                if (letter.kind, letter.text) != ("call", call):
                    self.agree(call, {})  # what it says differs, so this raises, as it does where the others wait

    def _take_mail(self) -> bool:
        """One letter that has arrived, if any, into its box; whether there was one."""
        handle = self._comm.Improbe(tag=_TAG, status=self._status)
        if handle is None:
            return False
        message: Bytes = np.empty(self._status.Get_count(self._bytes), np.uint8)
        source = self._status.Get_source()
        handle.Recv((message, self._bytes))
        self._mail[source].append(message)
        return True

    def _hear(self, said: dict[int, Letter], own: Letter) -> None:
        """Others say something else: notes who is gone, raises `DivergenceError`."""
        self._gone.update({rank: letter for rank, letter in said.items() if letter.kind != "call"})
        self._history.compare({**said, self.rank: own})

    def _send(self, rank: int, message: Bytes) -> tuple[Any, Bytes]:
        self._under_way.append(message)  # MPI may still read it when an interrupt has ended the collective
        return self._comm.Isend((message, self._bytes), dest=rank, tag=_TAG), message

    def _poll(self, done: Callable[[], bool]) -> None:
        """Takes messages as they come until `done`; gives the CPU away meanwhile: there may be fewer than processes."""
        idle, nap = 0, _NAPS[0]
        while not done():
            if self._take_mail():
                idle, nap = 0, _NAPS[0]
            elif idle < self._yields:
                idle += 1
                _yield_cpu()
            else:
                time.sleep(nap)
                nap = min(_NAP_GROWTH * nap, _NAPS[1])

    # --- the end ----------------------------------------------------------------------------------------------------

    def say_farewell(self, letter: Letter) -> None:
        """Tells the others, once, that this process takes part no more."""
        if self._farewell is None:
            _flush()  # once all have heard it, MPI may end every process
            self._farewell = letter
            message = _message(letter.pack(), ())
            self._farewells = [self._send(rank, message) for rank in self._peers]

    def failed(self, error: BaseException) -> None:
        """This process ends with an uncaught exception."""
        self.say_farewell(self._history.letter("failed", self._number + 1, reason(error)))

    def leave(self) -> None:
        """Says farewell and waits for everybody's; where something is wrong, for the grace time at most."""
        if os.getpid() != self._pid:
            return  # a fork
        self.say_farewell(self._history.letter("left", self._number + 1, "its program ended"))
        assert self._farewell is not None
        wrong = self._farewell.kind != "left" or bool(self._gone)
        deadline = time.monotonic() + _GRACE if wrong else math.inf

        def heard() -> bool:
            nonlocal wrong, deadline
            for rank, box in self._mail.items():
                while box:
                    letter = Letter.unpack(box.popleft().tobytes())
                    if letter.kind != "call":
                        self._gone[rank] = letter
                    if letter.kind != "left" and not wrong:  # a call: our farewell tells it that it diverged
                        wrong, deadline = True, time.monotonic() + _GRACE
            return len(self._gone) == len(self._peers) or time.monotonic() > deadline

        self._poll(heard)
        if not wrong:
            self._compare_ends({**self._gone, self.rank: self._farewell})

    def _compare_ends(self, letters: Mapping[int, Letter]) -> None:
        """Nobody is left to raise an error in: says so, and lets the process end as one that failed."""
        try:
            compare_ends(letters)
        except DivergenceError as error:
            from mpi4py.run import set_abort_status

            print(f"refflow: {error}", file=sys.stderr, flush=True)
            set_abort_status(1)


def _import_mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise WorldError(f"mpi_world: mpi4py cannot be imported ({error}); pip install 'refflow[mpi]'") from error
    return MPI


@lru_cache(maxsize=1)
def process_world() -> MpiWorld:
    """The MPI world this process is part of; there is one."""
    return MpiWorld()


def _at_end_of_process(world: MpiWorld) -> None:
    """However this process ends, the others are told."""
    hook = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if hook is sys.__excepthook__ and sys.stderr is not None:
            # In one piece, so that the processes' tracebacks do not mix.
            sys.stderr.write("".join(traceback.format_exception(kind, error, trace)))
        else:
            hook(kind, error, trace)
        world.failed(error)

    sys.excepthook = tell
    atexit.register(world.leave)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


_yield_cpu: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def _message(head: bytes, arrays: Sequence[Any]) -> Bytes:
    """The letter `head`, then the bytes of each array (WORLD-WIRE)."""
    pieces = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (np.frombuffer(head, np.uint8), *arrays)]
    message: Bytes = np.empty(sum(_aligned(piece.size) for piece in pieces), np.uint8)
    offset = 0
    for piece in pieces:
        message[offset : offset + piece.size] = piece
        offset += _aligned(piece.size)
    return message


def _read(content: Bytes, pieces: Sequence[tuple[int, Transfer]]) -> dict[int, Any]:
    """The arrays in what one process sent, by index of their transfer."""
    arrays, offset = {}, 0
    for index, t in pieces:
        size = math.prod(t.shape) * t.dtype.itemsize
        arrays[index] = content[offset : offset + size].view(t.dtype).reshape(t.shape)
        offset += _aligned(size)
    return arrays
