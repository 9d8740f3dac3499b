"""Where compiled kernels are kept between processes.

Implements ACC-CACHE of spec/text/acceleration.md.  Numba looks only at the file of a function, not at what the function
calls, to tell whether a kept copy is still good; so the folder's name is a digest of everything that may change code.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import shutil
import sys
import tempfile
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any


@lru_cache(maxsize=2)
def folder(kind: str = "cpu") -> Path:
    """The folder of this version's compiled kernels for "cpu" or "cuda"; REFFLOW_CACHE moves its parent."""
    import llvmlite
    import numba

    package = Path(__file__).parent
    digest = hashlib.sha256()
    for source in _sources(package, kind):
        digest.update(source.relative_to(package).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    machine = (platform.machine(), _processor()) if kind == "cpu" else (_toolkit(),)
    for part in (numba.__version__, llvmlite.__version__, sys.version, *machine):
        digest.update(part.encode() + b"\0")
    return _writable(parent() / digest.hexdigest()[:16])


def write(path: Path, text: str) -> None:
    """Writes a file in the folder, whole or not at all, whoever else writes it at the time.

    Where it cannot be written (a full disk) there is none: what was to be kept is made again by the next process.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _writable(wanted: Path) -> Path:
    """That folder; where nothing can be written in it, one that lasts as long as this process."""
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError:
        made = Path(tempfile.mkdtemp(prefix="refflow-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        return made / wanted.name


def _sources(package: Path, kind: str) -> list[Path]:
    """What kernels are made of: their own files, the scalar functions and tables, the chains' expressions."""
    inside = [path for part in (kind, "scalar") for path in (package / part).rglob("*") if path.suffix in (".py", ".npz")]
    return sorted([*inside, package / "chains.py", package / "expressions.py"])


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


def _toolkit() -> str:
    """What turns CUDA kernels into PTX."""
    import numba_cuda  # type: ignore[import-untyped]
    from numba.cuda.cudadrv import nvrtc, nvvm

    return f"{numba_cuda.__version__} {nvvm.NVVM().get_version()} {nvrtc._get_nvrtc_version()}"


def use() -> None:
    """Lets Numba keep its compiled functions there; called before the first function is declared."""
    from numba import config

    config.CACHE_DIR = str(folder())
    config.DISABLE_INTEL_SVML = True  # its functions are not correctly rounded
    _forgive_damage()


def _forgive_damage() -> None:
    """Lets Numba compile anew what it cannot read in our folder (a file cut short), where it would raise for ever."""
    from numba.core.caching import IndexDataCacheFile

    load = IndexDataCacheFile.load
    if hasattr(load, "__wrapped__"):
        return

    @wraps(load)
    def forgiving(self: Any, key: Any) -> Any:
        try:
            return load(self, key)
        except OSError:
            raise
        except Exception:
            index = Path(self._index_path)
            if folder() not in index.parents:
                raise
            index.unlink(missing_ok=True)
            return None

    IndexDataCacheFile.load = forgiving
