"""The CUDA target: device functions of numba-cuda, without contraction, approximations or flushing to zero.

`Cuda` is the target; `strictly` is how anything of it must be compiled, because numba-cuda has no public option against
contraction; `ptx` compiles one function without a GPU, for tests.  Back ends may wrap `Cuda` in a target of their own.
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from numba import cuda, float32, int32, int64
from numba.cuda import libdevice

STRICT = {"fma": 0, "ftz": 0, "prec_div": 1, "prec_sqrt": 1}  # options of libNVVM


@contextmanager
def strictly(capability: tuple[int, int] | None = None) -> Iterator[None]:
    """Compile what is compiled inside by STRICT; with a `capability`, also without asking a driver for the device's."""
    import numba.cuda.dispatcher as dispatcher
    from numba.cuda.cudadrv import nvvm

    compile_ir, device = nvvm.compile_ir, dispatcher.get_current_device

    def strict(text: Any, **options: Any) -> Any:
        return compile_ir(text, **{**options, **STRICT})

    nvvm.compile_ir = strict
    if capability is not None:
        dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        nvvm.compile_ir, dispatcher.get_current_device = compile_ir, device


def _device(function: types.FunctionType) -> Any:
    return cuda.jit(device=True)(function)


def _bits64(x: Any) -> Any:
    return libdevice.double_as_longlong(x)


def _from64(i: Any) -> Any:
    return libdevice.longlong_as_double(i)


def _bits32(x: Any) -> Any:
    return int64(libdevice.float_as_int(x)) & 0xFFFFFFFF


def _from32(i: Any) -> Any:
    return libdevice.int_as_float(int32(i))


def _sqrt(x: Any) -> Any:
    return math.sqrt(x)


def _fma32(a: Any, b: Any, c: Any) -> Any:
    return libdevice.fmaf_rn(float32(a), float32(b), float32(c))


class Cuda:
    """Device functions, compiled when a kernel calls them."""

    primitives: Mapping[str, Any] = {
        "bits64": _device(_bits64),
        "from64": _device(_from64),
        "bits32": _device(_bits32),
        "from32": _device(_from32),
        "sqrt64": _device(_sqrt),
        "sqrt32": _device(_sqrt),
        "fma32": _device(_fma32),
    }

    def jit(self, function: types.FunctionType) -> Any:
        """Return the device function."""
        return _device(function)

    def table(self, array: Any) -> Any:
        """Return the array: numba-cuda makes a global one a constant of the module."""
        return array


def ptx(function: Any, signature: Any, capability: tuple[int, int] = (8, 0)) -> str:
    """Return the PTX of a kernel `function` of argument types `signature`, for sm_80 unless told otherwise."""
    with strictly(capability):
        text, _ = cuda.compile_ptx(function, signature, cc=capability)
    return str(text)
