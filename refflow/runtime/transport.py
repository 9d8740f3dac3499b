"""Packets between the actors of different MPI processes: non-blocking, in order on each edge.

Implements ACT-MPI of spec/text/actors.md.  A process runs the actors of its rank and takes what arrives as it comes;
one that fails says so, and the others raise instead of waiting.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from ..errors import GraphError
from ..world import World
from .run import Packet, Result, Run

_TAG = 11
_NAP = 100e-6  # seconds between looks when nothing has arrived: there may be fewer CPUs than processes


class MpiTransport:
    """Carries packets over the communicator of an MPI world."""

    def __init__(self, world: Any) -> None:
        self._world, self._comm = world, world.communicator
        self._sent: deque[tuple[Any, bytes]] = deque()

    def send(self, rank: int, packet: Packet) -> None:
        """Takes a packet for the process that owns `rank`; never waits."""
        if rank == self._world.rank:
            raise GraphError(f"a packet from rank {rank} to itself does not travel")
        data = pickle.dumps(tuple(packet), pickle.HIGHEST_PROTOCOL)
        self._sent.append((self._comm.Isend(data, dest=rank, tag=_TAG), data))
        while self._sent and self._sent[0][0].Test():
            self._sent.popleft()

    def receive(self) -> Iterable[Packet]:
        """What has arrived; never waits.  Errors: `DivergenceError` if a process has left or failed."""
        from mpi4py import MPI

        status = MPI.Status()
        while (handle := self._comm.Improbe(tag=_TAG, status=status)) is not None:
            buffer = bytearray(status.Get_count(MPI.BYTE))
            handle.Recv(buffer)
            yield Packet(*pickle.loads(bytes(buffer)))
        self._world.look()

    def flush(self) -> None:
        """Waits until everything sent is on its way."""
        while self._sent:
            if self._sent[0][0].Test():
                self._sent.popleft()
            else:
                self._world.look()
                time.sleep(_NAP)


def run_part(run: Run, world: World, transport: MpiTransport) -> Result:
    """Runs this process's part of a plan to its end, then meets the others."""
    while run.exchange():
        time.sleep(_NAP)
    transport.flush()
    world.agree(f"plan {run.plan.name}: done", dict.fromkeys(world.owned, run.acted))
    run.check_done()
    return run.result()
