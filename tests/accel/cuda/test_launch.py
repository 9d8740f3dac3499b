"""The host's side of launches, without a device or the simulator: what Numba's own code makes of every argument.

The driver is replaced by one that holds no memory; kernels are not run.  What is left is all that a device would see of
the host: grids, argument types and values (ACC-CUDA-KERNELS), and the code that a launch, not only the gate, compiles
(ACC-CUDA-COMPILE).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda")
if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator has a driver", allow_module_level=True)

from refflow_accel.cuda import backend, cases, gate, keys, memory, registry, target

LIMITS = {"uint32": (0, 2**32 - 1), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


class Raw:
    """Device memory that is not there: reads give zeros."""

    def __init__(self, size: int, dtype: Any = np.uint8, stream: Any = 0) -> None:
        self.size = size
        self.device_ctypes_pointer = ctypes.c_size_t(1 << 40)

    def __getitem__(self, part: slice) -> Raw:
        return Raw(len(range(*part.indices(self.size))))

    def copy_to_device(self, host: Any, stream: Any = 0) -> None:
        assert host.nbytes == self.size and host.flags.c_contiguous

    def copy_to_host(self, host: Any, stream: Any = 0) -> None:
        assert host.nbytes == self.size
        host[...] = 0


class Driver:
    """The part of numba.cuda that memory.py uses."""

    def __init__(self) -> None:
        self.device_array = Raw
        self.default_stream = lambda: SimpleNamespace(synchronize=lambda: None)
        self.event = lambda timing: SimpleNamespace(
            record=lambda stream: None, wait=lambda stream: None, synchronize=lambda: None
        )

    def pinned_array(self, size: int, dtype: Any) -> Any:
        return np.zeros(size, dtype)

    def synchronize(self) -> None:
        return


def leaves(value: Any) -> list[Any]:
    """The fields of a record (or of its type), those of records in it in their place; anything else as it is."""
    return [leaf for field in value for leaf in leaves(field)] if isinstance(value, tuple | target.cuda.types.BaseTuple) else [value]


def fits(kind: Any, value: Any) -> bool:
    """Whether an argument is what its type says: a number in the type's range, an address."""
    if str(kind) in LIMITS:
        low, high = LIMITS[str(kind)]
        return low <= int(value) <= high
    return not isinstance(kind, target.cuda.types.CPointer) or (type(value) is int and value >= 1 << 40)


class Launched:
    """Takes launches: each argument goes through Numba's own marshalling."""

    def __init__(self, function: Any, signature: Any, bounds: int | None, mark: str) -> None:
        self.signature, self.bounds = signature, bounds

    def __getitem__(self, configuration: Any) -> Any:
        from numba.cuda.dispatcher import _Kernel

        grid, block, stream = configuration
        across = grid if isinstance(grid, tuple) else (grid,)
        assert (
            0 < across[0] < 2**31
            and all(0 < n <= 65535 for n in across[1:])
            and 0 < block <= min(self.bounds or 1024, 1024)
        )
        assert stream == 0

        def call(*arguments: Any) -> None:
            kernel = SimpleNamespace(extensions=[])
            kernel._prepare_args = partial(_Kernel._prepare_args, kernel)  # it calls itself for each field of a record
            assert len(arguments) == len(self.signature)
            for kind, value in zip(self.signature, arguments):
                made: list[Any] = []
                kernel._prepare_args(kind, value, 0, [], made)
                flat = list(zip(leaves(kind), leaves(value), strict=True))
                assert len(made) == len(flat)
                for (one, number), passed in zip(flat, made):
                    assert fits(one, number) and (str(one) not in LIMITS or passed.value == int(number))

        return call


@pytest.fixture
def driverless(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(memory, "cuda", Driver())
    monkeypatch.setattr(memory, "POOL", memory.Pool())
    monkeypatch.setattr(memory, "STAGING", memory.Staging())
    monkeypatch.setattr(target, "kernel", Launched)
    one = SimpleNamespace(is_available=lambda: True, gpus=[0], select_device=lambda ordinal: None)
    monkeypatch.setattr(backend, "cuda", one)
    for family in registry.FAMILIES.values():
        monkeypatch.setattr(family, "_kernels", {})
    return backend.CudaBackend()


@pytest.mark.parametrize("n", [9, 150, 3000])
@pytest.mark.parametrize("chapter", cases.CHAPTERS, ids=lambda chapter: chapter.__name__)
def test_every_launch_fits_its_signature(chapter: Any, n: int, driverless: Any) -> None:  # ACC-CUDA-KERNELS
    for how, case in zip(
        cases.LAYOUTS * 1000, chapter(np.random.default_rng(n), n if chapter is not cases.contractions else n // 9)
    ):
        arrays = [cases.lay(driverless, x, how) for x in case.arrays]
        with contextlib.suppress(IndexError):  # the host's part of an index that reads as 0
            driverless.kernel(case.name)(*arrays, **case.attrs)


def test_large_matrices_take_the_large_tile(driverless: Any) -> None:  # ACC-CUDA-KERNELS
    from refflow_accel.cuda.kernels.tiles import LARGE, SMALL

    rows = [
        ((2048, 512), (512, 2048), LARGE),
        ((33, 100000), (100000, 7), SMALL),
        ((70000, 3, 4), (70000, 4, 5), SMALL),
    ]
    for a, b, tile in rows:
        family = registry.FAMILIES["product"]
        family._kernels.clear()
        driverless.kernel("matmul")(memory.empty(a, np.float32), memory.empty(b, np.float32))
        assert [key[2] for key in family._kernels] == [tile]


def test_a_launch_compiles_what_the_gate_saw(monkeypatch: pytest.MonkeyPatch) -> None:  # ACC-CUDA-COMPILE
    """`target.kernel` itself, up to the driver: with the switches, and without link-time optimisation."""
    from numba.cuda import codegen, dispatcher

    monkeypatch.setattr(codegen.CUDACodeLibrary, "_ensure_cc", lambda self, cc: cc or (8, 0))
    monkeypatch.setattr(dispatcher._Kernel, "bind", lambda self: None)  # would load it
    for name, key in (
        ("product", keys.KEYS["product"][0]),
        ("fold_threads", ("float32", "sum", "float32")),
    ):
        family = registry.FAMILIES[name]
        with target._without_a_device():
            made = target.kernel(*family.made(*key), family.bounds)
        (kernel,) = made.overloads.values()
        assert made.specialized and not kernel._codelibrary._lto
        text = kernel.inspect_asm((8, 0))
        assert gate.faults(text, family.fma(key)) == []
        assert f".maxntid {family.bounds}" in text
