"""Which world a program starts in: MPI if `mpiexec` started it with several processes, else a virtual one of one rank.

Implements WORLD-DETECT of spec/text/worlds.md.
"""

from __future__ import annotations

import os
import sys

from ..errors import WorldError
from .base import World
from .mpi import process_world
from .virtual import VirtualWorld

# How launchers tell a process the number of processes: MPICH and Intel MPI (PMI), Open MPI, MVAPICH.
LAUNCHERS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def launched_size() -> int:
    """The number of MPI processes this program was started with, 1 without a launcher."""
    sizes = [os.environ.get(name, "") for name in LAUNCHERS]
    return max((int(size) for size in sizes if size.isdigit()), default=1)


def default_world() -> World:
    """The world of a program that asks for none.

    Errors: `WorldError` if a launcher started several processes and mpi4py is missing or belongs to another MPI.
    """
    launched = launched_size()
    if launched == 1 and not {"mpi4py.MPI", "mpi4py.run"} & sys.modules.keys():
        return VirtualWorld(1)
    world: World = process_world()
    if world.size < launched:
        raise WorldError(
            f"the launcher started {launched} processes, but mpi4py finds {world.size}: they belong to different MPIs;"
            " use the mpiexec of the MPI that mpi4py uses (pip install mpich puts one next to python)"
        )
    return world if world.size > 1 else VirtualWorld(1)
