"""A back end whose arrays are opaque: whatever above the kernels reads one without asking the back end, breaks.

Its kernels are the reference's; what it proves is that everything else goes through the protocol (KER-PROTOCOL).
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from refflow.kernels import Backend, Kernel, ReferenceBackend


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
