"""`python -m refflow_accel.exhaust`."""

import sys

from .command import main

sys.exit(main())
