"""Packets between the actors of different MPI processes: non-blocking, in order on each edge.

Implements ACT-MPI of spec/text/actors.md.  A process runs the actors of its rank and takes what arrives as it comes.
One whose run fails tells the others to stop; all meet, done or not, and take what is still under way, so that every
rank raises and the next call finds nothing of this one.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .. import errors
from ..errors import DataError, DivergenceError, GraphError, RefflowError, WorldError
from ..world import World
from .run import Packet, Result, Run

_TAG = 11
_NAP = 100e-6  # seconds between looks when nothing has arrived: there may be fewer CPUs than processes
_ADRIFT: list[deque[tuple[Any, bytes]]] = []  # sent to processes that diverged: MPI may yet read these bytes


class _Stopped(Exception):
    """Another process's part of the run failed."""


class MpiTransport:
    """Carries the packets of one run over the communicator of an MPI world.

    `call` is the collective with which the run ends; a transport is made right after a collective, whose number the
    packets bear, so that what a run that diverged has left behind is nobody's.
    """

    def __init__(self, world: Any, call: str) -> None:
        self._world, self._comm, self.call = world, world.communicator, call
        self._run: int = world.number
        self._sent: deque[tuple[Any, bytes]] = deque()
        self.sent: Counter[int] = Counter()  # packets, by the rank they went to
        self._taken: Counter[int] = Counter()  # packets, by the rank they came from

    def send(self, rank: int, packet: Packet) -> None:
        """Takes a packet for the process that owns `rank`; never waits."""
        if rank == self._world.rank:
            raise GraphError(f"a packet from rank {rank} to itself does not travel")
        self._post(rank, packet)
        self.delivered()

    def stop(self) -> None:
        """Tells every other process that this one's part has failed."""
        for rank in range(self._world.size):
            if rank != self._world.rank:
                self._post(rank, None)

    def receive(self) -> Iterable[Packet]:
        """What has arrived; never waits.  Errors: `DivergenceError` if a process has left, failed or gone elsewhere."""
        for packet in self._arrived():
            if packet is None:
                raise _Stopped
            yield packet
        self._world.look(self.call)

    def delivered(self) -> bool:
        """Whether everything sent is on its way; never waits."""
        while self._sent and self._sent[0][0].Test():
            self._sent.popleft()
        return not self._sent

    def drain(self, expected: Mapping[int, int]) -> None:
        """Takes and drops what is under way: `expected` packets from each rank since the beginning."""
        while not self.delivered() or any(self._taken[rank] < number for rank, number in expected.items()):
            if not any(True for _ in self._arrived()):
                time.sleep(_NAP)

    def abandon(self) -> None:
        """Gives up what is under way: nobody may ever take it."""
        _ADRIFT.append(self._sent)

    def _post(self, rank: int, packet: Packet | None) -> None:
        data = pickle.dumps((self._run, packet and tuple(packet)), pickle.HIGHEST_PROTOCOL)
        self._sent.append((self._comm.Isend(data, dest=rank, tag=_TAG), data))
        self.sent[rank] += 1

    def _arrived(self) -> Iterator[Packet | None]:
        """The packets of this run that have arrived; None is word to stop."""
        from mpi4py import MPI

        status = MPI.Status()
        while (handle := self._comm.Improbe(tag=_TAG, status=status)) is not None:
            buffer, source = bytearray(status.Get_count(MPI.BYTE)), status.Get_source()
            handle.Recv(buffer)
            run, content = pickle.loads(bytes(buffer))
            if run == self._run:
                self._taken[source] += 1
                yield content and Packet(*content)


class _Failure(NamedTuple):
    """What the others are told of an exception."""

    kind: str
    text: str
    data: bool  # whether it is a `DataError`


def run_part(run: Run, world: World, transport: MpiTransport) -> Result:
    """Runs this process's part of a plan to its end, then meets the others.

    Errors: if parts failed, every process raises, its world in order: its own exception, or what `_raise` makes of the
    others'; the same `DataError` everywhere if all are such.  `DivergenceError` if a process is not in this run any more.
    """
    error: Exception | None = None
    try:
        try:
            while run.exchange() or not transport.delivered():
                time.sleep(_NAP)
            run.check_done()
        except _Stopped:
            pass
        except DivergenceError:
            raise
        except Exception as failure:
            error = failure
            transport.stop()
        told = _Failure(type(error).__name__, str(error), isinstance(error, DataError)) if error is not None else None
        parts = world.agree(transport.call, dict.fromkeys(world.owned, (told, dict(transport.sent))))
        (me,) = world.owned
        transport.drain({rank: sent.get(me, 0) for rank, (_, sent) in parts.items()})
    except BaseException:
        transport.abandon()
        raise
    failures = {rank: failure for rank, (failure, _) in parts.items() if failure is not None}
    if failures:
        _raise(run.plan.name, failures, error)
    return run.result()


def _raise(name: str, failures: Mapping[int, _Failure], own: Exception | None) -> None:
    """One error for all: the first rank's that is no `DataError`, else the first; who has its own of that kind raises it."""
    rank, (kind, text, data) = min(failures.items(), key=lambda item: (item[1].data, item[0]))
    if own is not None and not data and not isinstance(own, DataError):
        raise own
    known = getattr(errors, kind, DataError if data else None)
    if isinstance(known, type) and issubclass(known, RefflowError):
        raise known(f"{text} (on rank {rank})") from own
    raise WorldError(f"plan {name} failed on rank {rank}: {kind}: {text}") from own
