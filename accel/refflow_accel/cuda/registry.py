"""The tables of the back end "cuda": every kernel there is, by family and key, and what computes each primitive.

Implements ACC-CUDA-KERNELS of spec/text/acceleration.md.  A family is one kernel text; a key (dtypes, a rank, a fold)
gives its names their meaning.  The gate on PTX compiles every family with its row of `keys.KEYS`; nothing is launched but
the same texts, with these or other keys.  A primitive is a Python function on `DeviceArray`s, or stands in HOST.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from . import target
from .memory import DeviceArray, current_stream

Made = tuple[Callable[..., Any], tuple[Any, ...]]  # a kernel and its signature
Fma = Callable[[tuple[Any, ...]], bool]  # whether the kernel of a key calls cuda.fma
Primitive = Callable[..., Any]
Function = TypeVar("Function", bound=Primitive)


class Family:
    """One kernel text for many keys: `make(*key)` gives the kernel and its signature."""

    def __init__(self, make: Callable[..., Made], fma: Fma, bounds: int | None) -> None:
        self.make, self.fma, self.bounds = make, fma, bounds
        self.name = make.__name__
        self._kernels: dict[tuple[Any, ...], Any] = {}

    def launch(self, key: tuple[Any, ...], grid: Any, block: Any, *arguments: Any) -> None:
        """Runs the kernel of `key` on the current stream; arrays are passed as the address of their first element."""
        kernel = self._kernels.get(key)
        if kernel is None:
            target.check()
            kernel = self._kernels[key] = target.kernel(*self.made(*key), self.bounds, f"{self.name} {key!r}")
        stream = current_stream()
        words = []
        for argument in arguments:
            if isinstance(argument, DeviceArray):
                argument.block.used_on(stream)
                words.append(argument.address())
            else:
                words.append(argument)
        kernel[grid, block, stream.handle](*words)

    def made(self, *key: Any) -> Made:
        """The kernel of a key, under the family's name, and its signature."""
        function, signature = self.make(*key)
        function.__name__ = function.__qualname__ = self.name
        return function, signature

    def ptx(self, key: tuple[Any, ...]) -> dict[tuple[int, int], str]:
        """PTX by architecture."""
        function, signature = self.made(*key)
        return target.ptx(function, signature, self.bounds)


FAMILIES: dict[str, Family] = {}
PRIMITIVES: dict[str, Primitive] = {}
HOST: dict[str, str] = {}  # primitive -> why it is computed by the reference on host copies


def family(fma: Fma = lambda key: False, bounds: int | None = 256) -> Callable[[Callable[..., Made]], Family]:
    """Enters a family, whose kernels have at most `bounds` threads to a block; `fma` says which keys call `cuda.fma`."""

    def enter(make: Callable[..., Made]) -> Family:
        if make.__name__ in FAMILIES:
            raise ValueError(f"kernel family {make.__name__!r} is registered twice")
        FAMILIES[make.__name__] = made = Family(make, fma, bounds)
        return made

    return enter


def primitive(function: Function) -> Function:
    """Enters what computes a primitive, under its own name less a trailing underscore.

    It may return NotImplemented for operands it does not serve: then the reference computes on host copies.
    """
    return register(function.__name__.rstrip("_"), function)


def register(name: str, function: Function) -> Function:
    """Enters what computes primitive `name`; a second one is a programming error."""
    if name in PRIMITIVES:
        raise ValueError(f"primitive {name!r} is registered twice")
    PRIMITIVES[name] = function
    return function


class Refused(Exception):
    """A kernel found bad data; the reference's kernel, on host copies, tells which."""
