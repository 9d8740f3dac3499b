"""The simulator is a choice of the whole process: its tests are collected only where it was made (see test_simulator.py)."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1" else ["simulated.py", "simulated_programs.py"]
