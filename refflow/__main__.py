"""``python -m refflow`` is the command `refflow`; under MPI, ``mpiexec -n R python -m mpi4py -m refflow …``."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
