"""Arrays on the device: strided views of blocks from a caching allocator, copied to and from the host through pinned memory.

Implements ACC-CUDA-MEMORY of spec/text/acceleration.md.  A block belongs to the stream it was made on.  When nobody
holds it any more it goes to that stream's free list of its size class and is given out again on that stream only, whose
order then keeps new writes behind old reads; a stream that used the block meanwhile is waited for first (`used_on`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np

from refflow.errors import BackendError
from refflow.kernels.wire import Wire

from .simulator import Flat
from .target import SIMULATED, cuda

Host = np.ndarray[Any, Any]
LIMIT = (1 << 31) - 1  # elements of one array: kernels index by u32, with room for the last stride of a grid
STORED = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}  # how kernels see elements; others as they are


# --- streams ----------------------------------------------------------------------------------------------------------


class Stream:
    """One order of work; `handle` is Numba's."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def wait_for(self, other: Stream) -> None:
        """Work put here from now on starts after what `other` holds so far."""
        event = cuda.event() if SIMULATED else cuda.event(timing=False)  # the simulator's takes no arguments
        event.record(other.handle)
        event.wait(self.handle)

    def synchronize(self) -> None:
        """Waits until the work put here so far is done."""
        if self.handle == 0:
            cuda.default_stream().synchronize()
        else:
            self.handle.synchronize()


DEFAULT = Stream(0)
_stream: ContextVar[Stream] = ContextVar("refflow_cuda_stream", default=DEFAULT)


def current_stream() -> Stream:
    """The stream that kernels and copies go to in this context."""
    return _stream.get()


@cache
def named_stream(name: str) -> Stream:
    """The stream of a plan's stream: one for each name."""
    return Stream(cuda.stream())


@contextmanager
def using(stream: Stream) -> Iterator[None]:
    """Kernels and copies of this context go to `stream`."""
    token = _stream.set(stream)
    try:
        yield
    finally:
        _stream.reset(token)


# --- blocks -----------------------------------------------------------------------------------------------------------


def size_class(nbytes: int) -> int:
    """The bytes a block of `nbytes` takes: four classes to a power of two, so less than a fifth is lost."""
    if nbytes <= 512:
        return 512
    step = 1 << ((nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


class Pool:
    """Free blocks, by stream and size class."""

    def __init__(self) -> None:
        self._free: dict[tuple[Stream, int], list[Any]] = {}
        self._lock = threading.RLock()  # a block may be let go by the garbage collector while one is asked for
        self.held = 0  # bytes taken from the driver
        self.reused = 0  # how often a block was given out again

    def take(self, stream: Stream, nbytes: int) -> Any:
        """Memory of at least `nbytes`, fit for work on `stream`."""
        size = max(nbytes, 1) if SIMULATED else size_class(nbytes)  # simulated kernels are told of every step outside
        with self._lock:
            free = self._free.get((stream, size))
            if free:
                self.reused += 1
                return free.pop()
        try:
            raw = cuda.device_array(size, np.uint8)
        except Exception as error:
            if not self.trim():
                raise BackendError(f"the device has no room for {size} bytes; {self.held} are held") from error
            try:
                raw = cuda.device_array(size, np.uint8)
            except Exception as again:
                raise BackendError(f"the device has no room for {size} bytes; {self.held} are held") from again
        self.held += size
        return raw

    def give(self, stream: Stream, raw: Any) -> None:
        """Takes memory back; its next user works on `stream`."""
        with self._lock:
            self._free.setdefault((stream, int(raw.size)), []).append(raw)

    def trim(self) -> int:
        """Gives all free memory back to the driver; how many bytes that was."""
        with self._lock:
            freed = sum(int(raw.size) for raws in self._free.values() for raw in raws)
            if freed:
                cuda.synchronize()
                self._free.clear()
                self.held -= freed
            return freed


POOL = Pool()


class Block:
    """Memory of the device, given back when nobody holds it."""

    __slots__ = ("home", "raw", "users", "view")

    def __init__(self, nbytes: int) -> None:
        self.home = current_stream()
        self.users: set[Stream] | None = None
        self.raw = POOL.take(self.home, nbytes)
        self.view: Any = self.raw._ary if SIMULATED else int(self.raw.device_ctypes_pointer.value)

    def used_on(self, stream: Stream) -> None:
        """Orders work on `stream` behind what made the block, and the block's next life behind that work."""
        if stream is not self.home:
            stream.wait_for(self.home)
            self.users = {stream} if self.users is None else self.users | {stream}

    def __del__(self) -> None:
        try:
            for stream in self.users or ():
                self.home.wait_for(stream)
            POOL.give(self.home, self.raw)
        except Exception:  # the driver, or the interpreter, is going away
            return


# --- arrays -----------------------------------------------------------------------------------------------------------


def packed(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides, in elements, of a row-major array."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


class DeviceArray:
    """A strided view of a block: dtype, shape, strides and offset in elements.  Nobody writes into a finished one."""

    __slots__ = ("__weakref__", "block", "dtype", "offset", "shape", "strides")

    def __init__(
        self, block: Block, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
    ) -> None:
        self.block, self.dtype, self.shape, self.strides, self.offset = block, dtype, shape, strides, offset

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides)):
            if n == 0:
                return True
            if n != 1:
                if stride != step:
                    return False
                step *= n
        return True

    def view(
        self, shape: Sequence[int] | None = None, strides: Sequence[int] | None = None, offset: int = 0
    ) -> DeviceArray:
        """The same memory under another shape (else its own); `offset` counts from this array's first element."""
        shape = self.shape if shape is None else tuple(shape)
        strides = self.strides if strides is None else tuple(strides)
        return DeviceArray(self.block, self.dtype, shape, strides, self.offset + offset)

    def address(self) -> Any:
        """What a kernel is given: where the first element lies."""
        if SIMULATED:
            stored = np.dtype(STORED.get(self.dtype.name, self.dtype))
            whole = self.block.view
            elements = whole[: whole.size // stored.itemsize * stored.itemsize].view(stored)
            return Flat(elements[self.offset :])
        return self.block.view + self.offset * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<{self.dtype.name} array of shape {self.shape} on the device>"


def empty(shape: Sequence[int], dtype: Any) -> DeviceArray:
    """An array with undefined elements; `BackendError` beyond LIMIT elements."""
    shape, dtype = tuple(int(n) for n in shape), np.dtype(dtype)
    size = math.prod(shape)
    if size > LIMIT:
        raise BackendError(f"the back end 'cuda' has arrays of up to {LIMIT} elements, asked for {size} ({shape})")
    return DeviceArray(Block(size * dtype.itemsize), dtype, shape, packed(shape))


# --- memory for MPI ---------------------------------------------------------------------------------------------------


def wire(array: DeviceArray) -> Wire:
    """The memory of a contiguous array, once the current stream has no work left (KER-WIRE).

    MPI knows nothing of streams: it would read before the kernels that write are done, or write into memory that, given
    out anew, kernels of the array before still read.
    """
    stream = current_stream()
    array.block.used_on(stream)
    stream.synchronize()
    start = address_of(array.block.view) if SIMULATED else array.block.view
    return Wire(array, start + array.offset * array.dtype.itemsize, array.nbytes)


def address_of(host: Host) -> int:
    """Where the simulator's memory lies."""
    return int(host.__array_interface__["data"][0])


# --- host copies ------------------------------------------------------------------------------------------------------

_PINNED_UP_TO = 64 << 20  # beyond, pinning costs more than the driver's own staging


class Staging:
    """Pinned host memory by size class; a piece is given out again once the copy that read it is over."""

    def __init__(self) -> None:
        self._pieces: dict[int, list[tuple[Host, Any]]] = {}
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Host:
        """A pinned array of at least `nbytes` bytes that no copy reads any more."""
        size = size_class(nbytes)
        with self._lock:
            pieces = self._pieces.setdefault(size, [])
            piece = pieces.pop(0) if pieces else None
        if piece is None:
            made: Host = cuda.pinned_array(size, np.uint8)
            return made
        if piece[1] is not None:
            piece[1].synchronize()
        return piece[0]

    def give(self, pinned: Host, event: Any) -> None:
        """Takes a piece back; `event` marks the end of the copy that reads it."""
        with self._lock:
            self._pieces[pinned.size].append((pinned, event))


STAGING = Staging()


def from_host(array: Host) -> DeviceArray:
    """A device array with the bits of a NumPy array; the copy runs on the current stream."""
    array = np.asarray(array)
    made = empty(array.shape, array.dtype)
    if made.nbytes == 0:
        return made
    source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    stream = current_stream().handle
    if made.nbytes > _PINNED_UP_TO or SIMULATED:
        made.block.raw[: made.nbytes].copy_to_device(source, stream=stream)
        return made
    pinned = STAGING.take(made.nbytes)
    pinned[: made.nbytes] = source
    made.block.raw[: made.nbytes].copy_to_device(pinned[: made.nbytes], stream=stream)
    event = cuda.event(timing=False)
    event.record(stream)
    STAGING.give(pinned, event)
    return made


def read(array: DeviceArray) -> Host:
    """The NumPy array of a contiguous device array; waits for the current stream."""
    out = np.empty(array.shape, array.dtype)
    if array.nbytes == 0:
        return out
    stream = current_stream()
    array.block.used_on(stream)
    first = array.offset * array.dtype.itemsize
    piece = array.block.raw[first : first + array.nbytes]
    into = out.reshape(-1).view(np.uint8)
    if array.nbytes > _PINNED_UP_TO or SIMULATED:
        piece.copy_to_host(into, stream=stream.handle)
        stream.synchronize() if not SIMULATED else None
        return out
    pinned = STAGING.take(array.nbytes)
    piece.copy_to_host(pinned[: array.nbytes], stream=stream.handle)
    stream.synchronize()
    into[...] = pinned[: array.nbytes]
    STAGING.give(pinned, None)
    return out
