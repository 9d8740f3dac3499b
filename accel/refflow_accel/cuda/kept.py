"""Compiled kernels between processes: the PTX of each, in the cache's folder.

Implements ACC-CUDA-CACHE of spec/text/acceleration.md.  Most of a kernel's compilation is typing and libNVVM's work, which
ends in PTX; assembling it for the device is left to each process.  Numba's own cache cannot serve: it knows a function by
its file and its closure, and a closure with device functions in it looks another way in each process.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from .. import cache

_ENTRY = re.compile(r"^\s*\.visible\s+\.entry\s+([\w$]+)", re.MULTILINE)


def path_of(mark: str, architecture: tuple[Any, ...]) -> Path:
    """Where the kernel of a family and key (`mark`) is kept: the folder tells sources and compilers, the name the rest."""
    name = hashlib.sha256(f"{mark} {architecture}".encode()).hexdigest()[:32]
    return cache.folder("cuda") / f"{name}.ptx"


def architecture() -> tuple[Any, ...]:
    """What Numba compiles for on the current device."""
    from numba.cuda.codegen import CUDACodeLibrary

    found: tuple[Any, ...] = CUDACodeLibrary._ensure_cc(None, None)
    return found


def find(mark: str, signature: tuple[Any, ...]) -> Any:
    """Numba's kernel made of the PTX that is kept, or None where there is none or it is damaged."""
    here = architecture()
    try:
        head, _, text = path_of(mark, here).read_text().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    entries = _ENTRY.findall(text)
    if head != _seal(text) or len(entries) != 1:
        return None
    return _made(text, entries[0], signature, here)


def keep(mark: str, kernel: Any) -> None:
    """Writes the PTX of a kernel that Numba has compiled; not of one that needs anything beside it."""
    library = kernel._codelibrary
    here = architecture()
    parts = library.get_asm_strs(cc=here)
    if len(parts) == 1 and not library._linking_files and not library.use_cooperative:
        cache.write(path_of(mark, here), f"{_seal(parts[0])}\n{parts[0]}")


def _seal(text: str) -> str:
    """The first line of a file: whether the rest of it is whole."""
    return f"// {hashlib.sha256(text.encode()).hexdigest()}"


def _made(text: str, entry: str, signature: tuple[Any, ...], here: tuple[Any, ...]) -> Any:
    """As Numba makes a kernel of what its own cache holds."""
    from numba.cuda import types
    from numba.cuda.codegen import CUDACodeLibrary
    from numba.cuda.dispatcher import _Kernel

    library = CUDACodeLibrary._rebuild(
        codegen=None, name=entry, entry_name=entry, llvm_strs=[], ptx_cache={here: [text]}, cubin_cache={},
        linkerinfo_cache={}, max_registers=None, nvvm_options={}, needs_cudadevrt=False, nrt=False,
        use_cooperative=False, lto=False,
    )  # fmt: skip
    return _Kernel._rebuild(
        cooperative=False, name=entry, signature=types.void(*signature), codelibrary=library, debug=False,
        lineinfo=False, call_helper=None, extensions=[],
    )  # fmt: skip
