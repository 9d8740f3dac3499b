"""The one calling convention of CPU kernels, and the native loop that runs a list of them.

Implements ACC-ABI and ACC-THREADS of spec/text/acceleration.md.  A kernel is a C function
``int64 (int64 words, int64 lo, int64 hi)``: `words` is the address of its arguments (an address for each array, a number
for each scalar), and it does the independent tasks [lo, hi) (rows, tiles, blocks).  No two tasks write one element, so
neither threads nor the cut into ranges can change a bit.  It returns 0, or a positive status where data are bad.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from llvmlite import ir
from numba import cfunc, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from refflow.errors import BackendError

from ..launchers import count_here

_I64 = ir.IntType(64)
_UNBOUNDED = 1 << 40  # the length a flat array claims: kernels index by their own bounds, never from the end


# --- reading arguments, in kernels ------------------------------------------------------------------------------------


def _flat(dtype: Any) -> Any:
    """The intrinsic (words, i) -> the flat array whose address is the i-th word."""
    element = types.Array(dtype, 1, "C")

    @intrinsic
    def array(context: Any, words: Any, i: Any) -> Any:
        def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
            where = b.inttoptr(args[0], _I64.as_pointer())
            data = b.inttoptr(b.load(b.gep(where, [args[1]])), context.get_data_type(dtype).as_pointer())
            made = context.make_array(element)(context, b)
            size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(dtype)))
            count = context.get_constant(types.intp, _UNBOUNDED)
            shape, strides = (cgutils.pack_array(b, [value]) for value in (count, size))
            context.populate_array(made, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
            return made._getvalue()

        return element(types.int64, types.int64), build

    return array


f32s, f64s = _flat(types.float32), _flat(types.float64)
i8s, i32s, i64s, u8s, u16s, u32s = map(
    _flat, (types.int8, types.int32, types.int64, types.uint8, types.uint16, types.uint32)
)


def _scalar(dtype: Any, llvm: Any) -> Any:
    """The intrinsic (words, i) -> the i-th word as a number."""

    @intrinsic
    def number(context: Any, words: Any, i: Any) -> Any:
        def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
            where = b.gep(b.inttoptr(args[0], _I64.as_pointer()), [args[1]])
            return b.load(b.bitcast(where, llvm.as_pointer()))

        return dtype(types.int64, types.int64), build

    return number


i64, f32, f64 = _scalar(types.int64, _I64), _scalar(types.float32, ir.FloatType()), _scalar(types.float64, ir.DoubleType())


@intrinsic
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """The exact fused multiply-add of three float32 (or float64): one rounding."""
    return a(a, a, a), lambda context, builder, signature, args: builder.fma(*args)


# --- declaring kernels ------------------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "nogil": True}


class Entry:
    """A kernel that can be launched: compiled (or loaded) at first use."""

    def __init__(self, function: Callable[[Any, int, int], int]) -> None:
        self.function = function
        self.name = function.__name__
        self._compiled: Any = None

    @property
    def compiled(self) -> Any:
        """Numba's C function."""
        if self._compiled is None:
            self._compiled = cfunc(types.int64(types.int64, types.int64, types.int64), **OPTIONS)(self.function)
        return self._compiled

    @property
    def address(self) -> int:
        """Where the machine code starts."""
        return int(self.compiled.address)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


def entry(function: Callable[[Any, int, int], int]) -> Entry:
    """Declares a kernel ``name(words, lo, hi) -> status``."""
    return Entry(function)


# --- running them -----------------------------------------------------------------------------------------------------


@intrinsic
def _call(context: Any, address: Any, words: Any, lo: Any, hi: Any) -> Any:
    """The kernel at an address, called."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I64, [_I64, _I64, _I64])
        return b.call(b.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), build


@njit(types.int64(types.int64[:, ::1]), cache=True, nogil=True)
def run_serial(rows: Any) -> int:
    """Runs rows of (address, words, tasks, ranges) in order, on this thread; the row that refused its data, or -1."""
    for r in range(rows.shape[0]):
        if _call(rows[r, 0], rows[r, 1], 0, rows[r, 2]) != 0:
            return r
    return -1


@njit(types.int64(types.int64[:, ::1], types.int64, types.int64[::1]), cache=True, nogil=True, parallel=True)
def run_parallel(rows: Any, threads: int, statuses: Any) -> int:
    """As `run_serial`, with the tasks of a row cut into up to `threads` ranges if the row says so."""
    for r in range(rows.shape[0]):
        address, words, tasks = rows[r, 0], rows[r, 1], rows[r, 2]
        parts = min(threads, rows[r, 3], tasks)
        if parts <= 1:
            if _call(address, words, 0, tasks) != 0:
                return r
        else:
            for p in prange(parts):
                statuses[p] = _call(address, words, tasks * p // parts, tasks * (p + 1) // parts)
            for p in range(parts):
                if statuses[p] != 0:
                    return r
    return -1


_MAX_THREADS = 64
# A pool of GNU's OpenMP waits awake for 300,000 turns, a millisecond.  Where processors are shared with other programs, a step
# then takes ten times as long; a thirtieth of it costs no step anything.  Read when the pool starts.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
_pool = threading.Lock()  # Numba's simplest pool may serve one caller at a time
_statuses = np.zeros(_MAX_THREADS, np.int64)
WORTH = 30_000.0  # ns of work for a second thread to be worth waking it


def threads() -> int:
    """How many threads a kernel may use: REFFLOW_THREADS, or this process's share of the processors at hand."""
    return _threads


def set_threads(number: int) -> int:
    """Sets that number; returns the one before.  Bits do not depend on it (ACC-THREADS)."""
    global _threads
    before, _threads = _threads, 1 if _forked else max(1, min(int(number), _MAX_THREADS))
    if _threads > 1:
        import numba

        numba.set_num_threads(min(_threads, numba.config.NUMBA_NUM_THREADS))
    return before


def threads_asked_for(environ: Mapping[str, str]) -> int:
    """REFFLOW_THREADS, or the processors that this process may use, shared with the job's others on the machine.

    Errors: `BackendError` for a value that is no number.
    """
    at_hand = len(os.sched_getaffinity(0))
    share = (os.cpu_count() or at_hand) // count_here(environ)
    asked = environ.get("REFFLOW_THREADS") or str(min(at_hand, share))
    try:
        return max(1, min(int(asked), _MAX_THREADS))
    except ValueError:
        raise BackendError(f"REFFLOW_THREADS: must be a number of threads, found {asked!r}") from None


def _after_fork() -> None:
    """A forked process has none of the pool's threads, and OpenMP ends it if it asks for them: it uses its own alone."""
    global _threads, _forked, _pool
    _pool = threading.Lock()  # another thread may have held it
    if _pool_started:
        _threads, _forked = 1, True


_threads = threads_asked_for(os.environ)
_pool_started = _forked = False
os.register_at_fork(after_in_child=_after_fork)


def parts(tasks: int, cost: float) -> int:
    """Into how many ranges `tasks` of `cost` ns each are worth cutting."""
    return max(1, min(int(tasks * cost / WORTH), tasks, _MAX_THREADS))


def run(rows: np.ndarray[Any, Any]) -> int:
    """Runs rows of (address, words, tasks, ranges); the index of the row that refused its data, or -1."""
    global _pool_started
    if _threads == 1 or (len(rows) == 1 and rows[0, 3] <= 1):
        return int(run_serial(rows))
    with _pool:
        _pool_started = True
        return int(run_parallel(rows, _threads, _statuses))


# --- arguments --------------------------------------------------------------------------------------------------------


def address(array: np.ndarray[Any, Any]) -> int:
    """Where the first element of an array lies."""
    return int(array.__array_interface__["data"][0])


def word(value: Any) -> int:
    """An argument as the word a kernel reads: an array's address, an int, or a NumPy float's bits."""
    if isinstance(value, np.ndarray):
        return address(value)
    if isinstance(value, np.float32):
        return int(value.view(np.uint32))
    if isinstance(value, (float, np.float64)):
        return int(np.float64(value).view(np.int64))
    return int(value)


class Refused(Exception):
    """A kernel found bad data; the reference's kernel tells which."""


class Call:
    """What a kernel of a primitive is written against: here it runs at once; a compiled program records it instead."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """An output."""
        return np.empty(shape, dtype)

    def scratch(self, shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
        """A work array, needed until the kernel function returns."""
        return np.empty(shape, dtype)

    def launch(self, kernel: Entry, *arguments: Any, tasks: int, cost: float) -> None:
        """Runs `kernel` on its `tasks`, each of about `cost` ns."""
        if tasks <= 0:
            return
        words = np.array([word(argument) for argument in arguments], np.int64)
        rows = np.array([[kernel.address, address(words), tasks, parts(tasks, cost)]], np.int64)
        if run(rows) != -1:
            raise Refused(kernel.name)

    def table(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """An array made of shapes and attributes alone, the same in every call."""
        return array

    def numbers(self, *values: int) -> np.ndarray[Any, Any]:
        """Integers that change from step to step (a seed and a stream), as an array that kernels read."""
        return np.array([value % 2**64 for value in values], np.uint64).view(np.int64)


CALL = Call()
