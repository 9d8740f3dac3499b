"""Where compiled kernels are kept between processes.

Implements ACC-CACHE of spec/text/acceleration.md.  Numba looks only at the file of a function, not at what the function
calls, to tell whether a kept copy is still good; so the folder's name is a digest of everything that may change code.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def folder() -> Path:
    """The folder of this version's compiled kernels; REFFLOW_CACHE moves its parent."""
    import llvmlite
    import numba

    package = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted([*package.rglob("*.py"), *package.rglob("*.npz")]):  # tables too
        digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    for part in (numba.__version__, llvmlite.__version__, sys.version, platform.machine(), _processor()):
        digest.update(part.encode() + b"\0")
    return parent() / digest.hexdigest()[:16]


def parent() -> Path:
    """REFFLOW_CACHE, or `refflow` in the user's folder of caches."""
    if "REFFLOW_CACHE" in os.environ:
        return Path(os.environ["REFFLOW_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
    return Path(base) / "refflow"


def _processor() -> str:
    """What the compiler optimises for."""
    from llvmlite import binding

    return f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"


def use() -> None:
    """Lets Numba keep its compiled functions there; called before the first function is declared."""
    from numba import config

    config.CACHE_DIR = str(folder())
    config.DISABLE_INTEL_SVML = True  # its functions are not correctly rounded
