"""The gate on PTX: what may stand in a kernel's code, and the kernels it is asked of.

Implements ACC-CUDA-PTX of spec/text/acceleration.md.  PTX says of every operation how it rounds: `mul.rn.f32` is a
product of its own whatever ptxas does with what follows, where a bare `mul.f32` may be contracted.  Where ptxas is at
hand it must take the code for sm_90 as well: what it refuses no device would load.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

_OPERATION = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)", re.MULTILINE)
_FLOAT = re.compile(r"\.(f16|f32|f64|bf16)\b")
WIDENING = ("chain", "draw")  # their scalar functions compute in float64; elsewhere Numba made it of mixed integers
_ROUNDED = ("add", "sub", "mul", "div", "sqrt", "rcp", "fma", "mad")


def operations(text: str) -> set[str]:
    """The instructions of a PTX text, each with its modifiers, once."""
    return set(_OPERATION.findall(text))


def faults(text: str, fma: bool) -> list[str]:
    """What must not stand in a kernel's PTX; `fma` says that it is declared to use `cuda.fma`."""
    found = operations(text)
    floats = {op for op in found if _FLOAT.search(op)}
    wrong = {op for op in floats if op.split(".")[0] in _ROUNDED and op.split(".")[1] != "rn"}
    wrong |= {op for op in found if ".approx" in op or ".ftz" in op or ".full" in op or op.split(".")[0] == "call"}
    fused = {op for op in floats if op.split(".")[0] in ("fma", "mad")}
    wrong |= fused - ({"fma.rn.f32"} if fma else set())
    if fma and "fma.rn.f32" not in fused:
        wrong.add("no fma.rn.f32, though the kernel is declared to use it")
    if re.search(r"\.extern\s+\.func", text):
        wrong.add("an external function")
    return sorted(wrong)


@cache
def assembler() -> str | None:
    """The path of ptxas, which the wheels of CUDA 12 bring, or None."""
    found = find_spec("nvidia")
    for folder in found.submodule_search_locations or () if found else ():
        for path in (Path(folder, "cuda_nvcc/bin/ptxas"), Path(folder, "cu13/bin/ptxas")):
            if path.exists():
                return str(path)
    return which("ptxas")


def refused(text: str, architecture: str) -> list[str]:
    """What ptxas has against a PTX text: too many constants, say.  Nothing where there is no ptxas."""
    path = assembler()
    if path is None:
        return []
    with TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(text)
        command = [path, f"-arch={architecture}", "-O0", "-o", str(source.with_suffix(".cubin")), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
    return [line for line in done.stderr.splitlines() if "error" in line or "fatal" in line] if done.returncode else []


@dataclass(frozen=True)
class Examined:
    """A kernel of the gate: its family and key, and for each architecture (as "sm_80") what is wrong with its code."""

    family: str
    index: int
    key: str
    faults: dict[str, list[str]]


def rows() -> Iterator[tuple[str, int]]:
    """(family, number of the key) of all kernels of the gate."""
    from . import kernels  # noqa: F401  (fills the tables)
    from .keys import KEYS
    from .registry import FAMILIES

    for name in FAMILIES:
        for index in range(len(KEYS[name])):
            yield name, index


def examine(row: tuple[str, int]) -> Examined:
    """Compiles one kernel for all architectures and looks at its code."""
    from . import kernels  # noqa: F401  (fills the tables)
    from .keys import KEYS
    from .registry import FAMILIES

    name, index = row
    family, key = FAMILIES[name], KEYS[name][index]
    texts = family.ptx(key)
    found = {f"sm_{a}{b}": faults(text, family.fma(key)) for (a, b), text in texts.items()}
    if name not in WIDENING and "float64" not in repr(key):
        for (a, b), text in texts.items():
            found[f"sm_{a}{b}"] += [f"{op}: an index in float64?" for op in sorted(operations(text)) if ".f64" in op]
    found["sm_90"] += refused(texts[9, 0], "sm_90")
    return Examined(name, index, repr(key), found)


def examine_all(processes: int = 2) -> list[Examined]:
    """All of them; compiling is slow and by one process each, so several share it."""
    every = list(rows())
    if processes == 1:
        return [examine(row) for row in every]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(examine, every, chunksize=2))
