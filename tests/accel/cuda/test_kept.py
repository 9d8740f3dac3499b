"""Kernels kept between processes as PTX, without a device: up to the cubin, which nvJitLink makes (ACC-CUDA-CACHE)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba_cuda")
if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

from refflow_accel import cache
from refflow_accel.cuda import gate, kept, keys, registry, target
from refflow_accel.cuda import kernels as kernels

ROOT = Path(__file__).parents[3]
HERE = (8, 0)
KEYS = [("fold_threads", ("float32", "sum", "float32")), ("chain", keys.KEYS["chain"][0])]  # closure, text


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of kernels, and Numba without a device: kernels are assembled, not loaded."""
    from numba.cuda import codegen, dispatcher

    monkeypatch.setattr(cache, "folder", lambda kind: tmp_path)
    monkeypatch.setattr(codegen.CUDACodeLibrary, "_ensure_cc", lambda self, cc: cc or HERE)
    monkeypatch.setattr(dispatcher._Kernel, "bind", lambda self: self._codelibrary.get_cubin())
    return tmp_path


def kernel(name: str, key: Any) -> Any:
    """The kernel of a family, as a launch makes it."""
    family = registry.FAMILIES[name]
    with target._without_a_device():
        return target.kernel(*family.made(*key), family.bounds, f"{name} {key!r}")


def code(made: Any) -> str:
    """The PTX of a kernel."""
    (compiled,) = made.overloads.values()
    return str(compiled.inspect_asm(HERE))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that Numba compiles."""
    from numba.cuda import dispatcher

    names: list[str] = []
    make = dispatcher._Kernel.__init__

    def counted(self: Any, function: Any, *rest: Any, **options: Any) -> None:
        names.append(function.__name__)
        make(self, function, *rest, **options)

    monkeypatch.setattr(dispatcher._Kernel, "__init__", counted)
    return names


@pytest.mark.parametrize("name, key", KEYS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_kernel_is_compiled_once(name: str, key: Any, folder: Path, compiled: list[str]) -> None:  # ACC-CUDA-CACHE
    first, second = kernel(name, key), kernel(name, key)
    assert compiled == [name] and code(first) == code(second)
    (a,), (b,) = first.overloads.values(), second.overloads.values()
    assert second.specialized and a.argument_types == b.argument_types and a.entry_name == b.entry_name
    assert f".maxntid {registry.FAMILIES[name].bounds}" in code(second) and not b._codelibrary._lto
    assert gate.faults(code(second), registry.FAMILIES[name].fma(key)) == []
    assert len(list(folder.iterdir())) == 1


def _half(text: str) -> str:
    return text[: len(text) // 2]


@pytest.mark.parametrize("damage", [_half, lambda text: "", lambda text: text.replace(".rn", "", 1)])
def test_what_is_damaged_is_compiled_again(damage: Any, folder: Path, compiled: list[str]) -> None:  # ACC-CUDA-CACHE
    name, key = KEYS[0]
    whole = code(kernel(name, key))
    (path,) = folder.iterdir()
    path.write_text(damage(path.read_text()))
    assert code(kernel(name, key)).count(".rn") == whole.count(".rn") and compiled == [name] * 2
    assert kept.find(f"{name} {key!r}", ()) is not None


def test_another_architecture_is_another_file(folder: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """ACC-CUDA-CACHE"""
    from numba.cuda import codegen

    kernel(*KEYS[0])
    monkeypatch.setattr(codegen.CUDACodeLibrary, "_ensure_cc", lambda self, cc: cc or (9, 0))
    kernel(*KEYS[0])
    assert len(compiled) == 2 and len(list(folder.iterdir())) == 2


def test_names_are_the_same_in_each_process() -> None:  # ACC-CUDA-CACHE
    marks = [f"{name} {key!r}" for name, rows in keys.KEYS.items() for key in rows]
    assert len(set(marks)) == len(marks) and not any(" at 0x" in mark for mark in marks)
    path = os.pathsep.join([str(ROOT), str(ROOT / "accel"), os.environ.get("PYTHONPATH", "")])
    program = (
        "from refflow_accel.cuda import kernels, kept, keys\n"
        "print(*[kept.path_of(f'{n} {k!r}', (9, 0)) for n, rows in keys.KEYS.items() for k in rows], sep='\\n')"
    )
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [str(kept.path_of(mark, (9, 0))) for mark in marks]


def test_cuda_kernels_have_a_folder_of_their_own() -> None:  # ACC-CUDA-CACHE, ACC-CACHE
    assert cache.folder("cuda") != cache.folder() and cache.folder("cuda").parent == cache.folder().parent
