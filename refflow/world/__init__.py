"""Who is here and how bytes travel: virtual, MPI and lockstep worlds.

Implements WORLD-VIRTUAL, WORLD-MPI and WORLD-RANK of spec/text/worlds.md for users; each world has a module of its own.
"""

from __future__ import annotations

from ..errors import WorldError
from ..state import Override, settings
from .base import Transfer, World
from .detect import default_world
from .devices import backend, bind_device
from .mpi import process_world
from .spmd import spmd
from .virtual import VirtualWorld


def current_world() -> World:
    """The world in force."""
    return settings().world


def virtual_world(size: int) -> Override:
    """Makes a world of `size` ranks in this process; a function (from now on) and a context manager (for a block).

    Where each process or thread owns one rank, the world stays as it is, so that a script runs unchanged under MPI.
    Errors: `WorldError` for a bad size, or one that is not that of the MPI or lockstep world, or that `refflow run --ranks`
    was told.  Source: WORLD-VIRTUAL.
    """
    wanted, present = VirtualWorld(size), current_world()
    if len(present.owned) == present.size and not getattr(present, "fixed", False):
        return Override(world=wanted)
    if size != present.size:
        raise WorldError(
            f"virtual_world({size}): the world is fixed, it has {present.size} ranks ({present.describe()}); "
            f"start the script with {size} ranks, or ask flow.get_world_size()"
        )
    return Override(world=present)


def mpi_world(size: int | None = None) -> Override:
    """Makes every MPI process a rank; a function and a context manager.  Under `mpiexec` it is the default.

    Errors: `WorldError` without mpi4py, or for a `size` other than the number of processes.  Source: WORLD-MPI.
    """
    world = process_world()
    if size not in (None, world.size):
        raise WorldError(
            f"mpi_world({size!r}): the ranks are the MPI processes, of which there are {world.size};"
            f" mpiexec -n {size} python -m mpi4py script.py would start {size}"
        )
    return Override(world=world)


def get_world_size() -> int:
    """The number of ranks."""
    return current_world().size


def get_rank() -> int:
    """The rank this process (MPI) or thread (`spmd`) computes for.

    Errors: `WorldError` in a virtual world of several ranks, where the script runs once for all.  Source: WORLD-RANK.
    """
    world = current_world()
    if len(world.owned) > 1:
        raise WorldError(
            f"get_rank: this is a {world.describe()}: the script runs once for all {world.size} ranks, so it has no rank"
            f" of its own; flow.per_rank(f) gives each rank its data, flow.spmd({world.size}, f) and mpiexec run code"
            " once per rank"
        )
    return world.owned[0]


def barrier() -> None:
    """Returns once every rank has called it (a collective).  Errors: `DivergenceError`.  Source: WORLD-RENDEZVOUS."""
    world = current_world()
    world.agree("barrier", dict.fromkeys(world.owned))


__all__ = ["Transfer", "VirtualWorld", "World", "backend", "barrier", "bind_device", "current_world", "default_world", "get_rank",
           "get_world_size", "mpi_world", "spmd", "virtual_world"]  # fmt: skip
