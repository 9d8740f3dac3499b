"""How CUDA kernels are compiled, so that each operation rounds once and nothing is contracted; and the simulator's traps.

Implements ACC-CUDA-COMPILE of spec/text/acceleration.md.  Numba-CUDA has no public switch against contraction: libNVVM's
are set where every compilation passes (`nvvm.compile_ir`), and link-time optimisation, which would contract again
behind that point, is off.  Names that kernels use (`cuda`, `u32`, `f32`, ...) come from here, and the scalar functions
`S`; under NUMBA_ENABLE_CUDASIM=1 they mean NumPy and Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import FunctionType, SimpleNamespace
from typing import Any

from refflow.errors import BackendError

from ..scalar.instantiate import Python, instantiate
from .simulator import Simulated

SUPPORTED = "0.30.4"
ARCHITECTURES = ((7, 0), (8, 0), (9, 0))  # what the gate compiles for; CUDA 13's libNVVM no longer knows the first
SWITCHES = {"fma": 0, "ftz": 0, "prec_div": 1, "prec_sqrt": 1}


def _numba_cuda() -> Any:
    """numba.cuda of the one release whose internals are used here; `BackendError` otherwise."""
    try:
        import numba_cuda  # type: ignore[import-untyped]
        from numba import cuda
    except ImportError as error:
        raise BackendError(f"the back end 'cuda' needs numba-cuda {SUPPORTED}: pip install 'refflow[cuda]'") from error
    if numba_cuda.__version__ != SUPPORTED:
        raise BackendError(
            f"the back end 'cuda' needs numba-cuda {SUPPORTED}, found {numba_cuda.__version__}: the switches against"
            " contraction are set through internals of that release; pip install 'refflow[cuda]'"
        )
    return cuda


_found: Any = _numba_cuda()
SIMULATED: bool = bool(_found.core.config.ENABLE_CUDASIM)
cuda: Any = Simulated() if SIMULATED else _found


# --- compilation ------------------------------------------------------------------------------------------------------


def _set_switches() -> None:
    """Every module that Numba-CUDA hands to libNVVM is compiled without contraction, flushing or approximation."""
    from numba.cuda.cudadrv import nvvm

    original = nvvm.compile_ir
    if getattr(original, "refflow", False):
        return

    def compile_ir(llvmir: Any, **options: Any) -> Any:
        options.pop("fastmath", None)  # it would be put in after the switches
        return original(llvmir, **{**options, **SWITCHES})

    compile_ir.refflow = True  # type: ignore[attr-defined]
    nvvm.compile_ir = compile_ir


@contextmanager
def _without_a_device() -> Iterator[None]:
    """Device functions ask the driver which device they are for, though their IR does not depend on it."""
    from numba.cuda import dispatcher

    original = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=ARCHITECTURES[0])
    try:
        yield
    finally:
        dispatcher.get_current_device = original


def architectures() -> list[tuple[int, int]]:
    """Those of ARCHITECTURES that the installed toolkit compiles for."""
    from numba.cuda.cudadrv import nvrtc

    known = {tuple(cc)[:2] for cc in nvrtc.get_supported_ccs()}
    return [cc for cc in ARCHITECTURES if cc in known]


def ptx(
    function: Callable[..., Any], signature: tuple[Any, ...], bounds: int | None = None
) -> dict[tuple[int, int], str]:
    """The PTX of a kernel for each architecture the toolkit knows: typed once, no device needed."""
    from numba.cuda import compiler

    with _without_a_device():
        library, _ = compiler._compile_pyfunc_with_fixup(
            function, cuda.types.void(*signature), cc=ARCHITECTURES[-1], device=False, abi="numba", launch_bounds=bounds
        )
        return {cc: "\n".join(library.get_asm_strs(cc=cc)) for cc in architectures()}


def kernel(
    function: Callable[..., Any], signature: tuple[Any, ...], bounds: int | None = None, mark: str | None = None
) -> Any:
    """The kernel to launch: ``kernel(...)[grid, block, stream](*arguments)``; one with a mark is kept (ACC-CUDA-CACHE)."""
    if SIMULATED:
        return cuda.jit(function)
    from . import kept

    found = None if mark is None else kept.find(mark, signature)
    if found is None:
        # lto: nvJitLink would compile the IR once more, with contraction as its own default.
        made = cuda.jit(cuda.types.void(*signature), lto=False, launch_bounds=bounds)(function)
        if mark is not None:
            kept.keep(mark, next(iter(made.overloads.values())))
        return made
    found.bind()
    made = cuda.jit(lto=False, launch_bounds=bounds)(function)
    made.add_overload(found, signature)
    made._specialized = True  # for the one signature, as Numba's decorator leaves it
    made.disable_compile()
    return made


def device(function: Any) -> Any:
    """A function that kernels call."""
    return function if SIMULATED else cuda.jit(device=True, lto=False)(function)


# --- names in kernels -------------------------------------------------------------------------------------------------


def pointer(element: Any) -> Any:
    """The type of a kernel's array argument: an address, to be indexed by u32; kernels keep their own bounds."""
    return None if SIMULATED else cuda.types.CPointer(element)


def record(made: Any, fields: tuple[Any, ...]) -> Any:
    """The type of a kernel's argument that is a named tuple; it is passed by its fields, one after the other."""
    return None if SIMULATED else cuda.types.BaseTuple.from_types(fields, made)


class Cuda:
    """The scalar sources' target: device functions."""

    def __init__(self) -> None:
        from llvmlite import ir
        from numba.cuda.extending import intrinsic

        t = cuda.types

        def bitcast(result: Any, argument: Any, build: Callable[[Any, Any], Any]) -> Any:
            @intrinsic
            def convert(typing: Any, x: Any) -> Any:
                return result(argument), lambda context, b, signature, args: build(b, args[0])

            return convert

        word = ir.IntType(32)
        self.primitives: Mapping[str, Any] = {
            "bits64": bitcast(t.int64, t.float64, lambda b, x: b.bitcast(x, ir.IntType(64))),
            "from64": bitcast(t.float64, t.int64, lambda b, x: b.bitcast(x, ir.DoubleType())),
            "bits32": bitcast(t.int64, t.float32, lambda b, x: b.zext(b.bitcast(x, word), ir.IntType(64))),
            "from32": bitcast(t.float32, t.int64, lambda b, x: b.bitcast(b.trunc(x, word), ir.FloatType())),
            "sqrt64": device(lambda x: math.sqrt(x)),
            "sqrt32": device(lambda x: math.sqrt(x)),
            "fma32": device(lambda a, b, c: cuda.fma(a, b, c)),
        }

    def jit(self, function: FunctionType) -> Any:
        """A device function."""
        return device(function)

    def table(self, array: Any) -> Any:
        """The array itself: a global one becomes a constant of the module."""
        return array


if SIMULATED:
    from . import simulator

    simulator.mend()
    u32 = i32 = int  # indices: faster than NumPy's
    i64, f32, f64 = simulator.i64, simulator.f32, simulator.f64
    u8, i8, u16, s32, s64 = simulator.u8, simulator.i8, simulator.u16, simulator.s32, simulator.i64
    S: Any = SimpleNamespace(**Python.primitives, **instantiate(Python()))
else:
    _set_switches()
    # small grids are meant, and a warning each costs more than a launch
    cuda.core.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    _t = cuda.types
    u32, i32, i64, f32, f64 = _t.uint32, _t.int32, _t.int64, _t.float32, _t.float64
    u8, i8, u16, s32, s64 = _t.uint8, _t.int8, _t.uint16, _t.int32, _t.int64
    _scalars = Cuda()
    S = SimpleNamespace(**_scalars.primitives, **instantiate(_scalars))


@lru_cache(maxsize=1)
def check() -> None:
    """Raises `BackendError` unless a product and a sum stay two operations: the switches reached libNVVM."""
    if SIMULATED:
        return

    def probe(a: Any, b: Any, c: Any, out: Any) -> None:
        out[0] = a[0] * b[0] + c[0]

    for cc, text in ptx(probe, (pointer(f32),) * 4).items():
        if "fma" in text or "mul.rn.f32" not in text:
            raise BackendError(
                f"numba-cuda contracts a * b + c for sm_{cc[0]}{cc[1]}: its internals are not as expected"
            )
