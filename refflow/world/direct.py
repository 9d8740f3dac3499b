"""Messages straight between the arrays of two processes, where MPI reads the memory of devices.

Implements WORLD-DIRECT and WORLD-CUDA-AWARE of spec/text/worlds.md.  The world agrees on the call first
(WORLD-RENDEZVOUS); then each pair of processes knows from the transfers which messages there are, and of what size.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

from ..errors import WorldError
from ..kernels.wire import Wire
from .base import Transfer, World

_SWITCH = "REFFLOW_CUDA_AWARE"
_SWITCHES = {"MPICH_GPU_SUPPORT_ENABLED": "1", "MV2_USE_CUDA": "1", "OMPI_MCA_opal_cuda_support": "true"}
_FIRST_TAG, _TAGS = 64, 32_000  # tags bear the number of the collective; every MPI has them up to 32767
_ADRIFT: list[Posted] = []  # given up: MPI may yet read and write this memory


@dataclass(frozen=True)
class Support:
    """Whether MPI reads the memory of devices, and how that is known."""

    found: bool
    how: str


def cuda_aware() -> Support:
    """What the switches of MPI libraries say, as no standard call does; REFFLOW_CUDA_AWARE=1 or 0 says it for them.

    Errors: `WorldError` for another value of it.
    """
    told = os.environ.get(_SWITCH, "")
    if told not in ("", "0", "1"):
        raise WorldError(f"the environment variable {_SWITCH} must be 1 or 0, found {told!r}; unset, MPI's own switches decide")
    if told:
        return Support(told == "1", f"{_SWITCH}={told}")
    if importlib.util.find_spec("mpi4py") is None:
        return Support(False, "mpi4py is not installed")
    for name, on in _SWITCHES.items():
        if os.environ.get(name, "").lower() == on:
            return Support(True, f"{name}={on}")
    return Support(False, f"none of {', '.join(_SWITCHES)} is set")


class DirectWorld(World, Protocol):
    """A world that moves memory of devices, as long as `direct` is true; the same in all its processes."""

    @property
    def direct(self) -> bool: ...

    def transfer_direct(
        self, call: str, transfers: Sequence[Transfer], outgoing: Mapping[int, Wire], landings: Mapping[int, Wire]
    ) -> None:
        """Moves memory: `outgoing` maps the index of a transfer from an owned rank to one that is not to what is read,
        `landings` that of one the other way to what is written.

        A collective like `transfer`.
        """
        ...


def moves_memory(world: World) -> TypeGuard[DirectWorld]:
    """Whether a world moves memory of devices.  Errors: those of `cuda_aware`."""
    return bool(getattr(world, "direct", False))


class Posted:
    """The messages of one collective of this process, under way; empty pieces need none."""

    def __init__(self, world: Any, number: int, kind: Any) -> None:
        self._comm, self._tag, self._kind = world.communicator, _FIRST_TAG + number % _TAGS, kind
        self._rank: int = world.rank
        self._under_way: list[tuple[int, Any, Wire]] = []  # who has the other end, request, memory

    def post(self, transfers: Sequence[Transfer], outgoing: Mapping[int, Wire], landings: Mapping[int, Wire]) -> None:
        """Posts all of them, receptions first; MPI keeps those of a pair in order, which is that of the transfers."""
        for i, t in enumerate(transfers):
            if i in landings and landings[i].nbytes:
                request = self._comm.Irecv([landings[i], self._kind], source=t.source, tag=self._tag)
                self._under_way.append((t.source, request, landings[i]))
        for i, t in enumerate(transfers):
            if i in outgoing and outgoing[i].nbytes:
                request = self._comm.Isend([outgoing[i], self._kind], dest=t.target, tag=self._tag)
                self._under_way.append((t.target, request, outgoing[i]))

    def waited_for(self) -> set[int]:
        """The processes at the other end of what is not over yet."""
        self._under_way = [message for message in self._under_way if not message[1].Test()]
        return {peer for peer, _, _ in self._under_way}

    def abandon(self) -> None:
        """Gives up: what is posted may still go through, for the sake of those who wait for it."""
        _ADRIFT.append(self)
