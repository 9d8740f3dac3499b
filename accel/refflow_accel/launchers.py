"""What launchers of MPI tell a process about its machine, before MPI starts: MPICH and Intel MPI, Open MPI, MVAPICH, Slurm.

Used by ACC-THREADS and ACC-CUDA-DEVICE of spec/text/acceleration.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

NUMBERS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
COUNTS = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")


def number_here(environ: Mapping[str, str]) -> int:
    """The number of this process among those of its machine; 0 where no launcher tells."""
    return _told(environ, NUMBERS, 0)


def count_here(environ: Mapping[str, str]) -> int:
    """How many processes of the job this machine has; 1 where no launcher tells."""
    return max(1, _told(environ, COUNTS, 1))


def _told(environ: Mapping[str, str], names: Sequence[str], otherwise: int) -> int:
    return next((int(environ[name]) for name in names if environ.get(name, "").isdecimal()), otherwise)
