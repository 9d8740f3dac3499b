"""`refflow run`: a script in the world in force, as if Python had been given it.

Implements CLI-RUN of spec/text/jobs.md.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from ..errors import AttributeValueError


def require_script(script: str) -> None:
    """`AttributeValueError` if there is no such file."""
    if not os.path.isfile(script):
        raise AttributeValueError(f"run: there is no file '{script}'")


def run_script(script: str, args: Sequence[str]) -> int:
    """Runs the file `script` as `__main__` with `args`; returns the code it exits with.  Its exceptions pass through."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as exit:
        if exit.code is None or isinstance(exit.code, int):
            return exit.code or 0
        print(exit.code, file=sys.stderr)
        return 1
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0
