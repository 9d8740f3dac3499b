"""`python -m refflow_accel.gpu_check`."""

import sys

from .command import main

if __name__ == "__main__":  # processes that call kernels import this module again
    sys.exit(main())
