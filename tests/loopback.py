"""A back end whose arrays are opaque: whatever above the kernels reads one without asking the back end, breaks.

Its kernels are the reference's; what it proves is that everything else goes through the protocol (KER-PROTOCOL).  One
kind of it lets MPI read and write its arrays' memory, which is the host's, so that any MPI can (KER-WIRE).
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from refflow.kernels import Backend, Kernel, ReferenceBackend
from refflow.kernels.wire import Wire


class Opaque:
    """An array nobody can look into: no shape, no dtype, no arithmetic, no conversion, no comparison, no length."""

    __slots__ = ("__weakref__", "_hidden")

    def __init__(self, hidden: np.ndarray[Any, Any]) -> None:
        self._hidden = hidden

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError("an array was touched without its back end")

    __array__ = __array_ufunc__ = __array_function__ = __len__ = __iter__ = __getitem__ = __bool__ = _refuse
    __eq__ = __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __neg__ = __float__ = __int__ = _refuse  # type: ignore[assignment]
    __reduce__ = __copy__ = __deepcopy__ = _refuse  # type: ignore[assignment]
    __hash__ = object.__hash__


class LoopbackBackend:
    """The reference back end behind opaque arrays; `called` counts kernel calls."""

    def __init__(self, name: str = "loopback") -> None:
        self.name = name
        self.called: dict[str, int] = {}
        self._inner: Backend = ReferenceBackend()

    def kernel(self, name: str) -> Kernel:
        kernel = self._inner.kernel(name)

        def run(*arrays: Opaque, **attrs: Any) -> Any:
            assert all(type(array) is Opaque for array in arrays), f"{name} was given an array of another back end"
            self.called[name] = self.called.get(name, 0) + 1
            result = kernel(*[array._hidden for array in arrays], **attrs)
            return tuple(map(Opaque, result)) if isinstance(result, tuple) else Opaque(result)

        return run

    def from_host(self, array: np.ndarray[Any, Any]) -> Opaque:
        assert isinstance(array, np.ndarray)
        return Opaque(array)

    def to_host(self, array: Opaque) -> np.ndarray[Any, Any]:
        assert type(array) is Opaque
        return np.asarray(array._hidden)

    def shape(self, array: Opaque) -> tuple[int, ...]:
        assert type(array) is Opaque
        return tuple(array._hidden.shape)


class WiredBackend(LoopbackBackend):
    """Opaque arrays that MPI reads and writes; `sent` and `landed` count the bytes, `copied` host copies."""

    def __init__(self, name: str = "wired") -> None:
        super().__init__(name)
        self.sent = self.landed = self.copied = 0

    def from_host(self, array: np.ndarray[Any, Any]) -> Opaque:
        self.copied += 1
        return super().from_host(array)

    def to_host(self, array: Opaque) -> np.ndarray[Any, Any]:
        self.copied += 1
        return super().to_host(array)

    def wire(self, array: Opaque) -> Wire:
        assert type(array) is Opaque
        packed = np.ascontiguousarray(array._hidden)
        self.sent += packed.nbytes
        return Wire(packed, packed.ctypes.data, packed.nbytes)

    def landing(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Opaque, Wire]:
        made = np.empty(shape, dtype)
        made.reshape(-1).view(np.uint8)[...] = 0xA5  # what MPI does not write, is seen
        self.landed += made.nbytes
        return Opaque(made), Wire(made, made.ctypes.data, made.nbytes)
