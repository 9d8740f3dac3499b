"""float32 matrix products: the shapes, and the work of each side on one, its operands always the same numbers.

`native` runs the kernels as a compiled program does, `eager` as one primitive of a back end, NumPy's function into an array
that exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refflow.world.devices import find_backend

from ..cpu import kernels  # noqa: F401  (fills the table)
from ..cpu.registry import NATIVE
from .rounds import Recorded

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """x (..., m, k) times y (..., k, n); a factor may be stored transposed."""

    name: str
    batch: Shape
    m: int
    k: int
    n: int
    turned: str = ""

    def operands(self) -> list[np.ndarray[Any, Any]]:
        rng = np.random.default_rng(0)
        made = []
        for letter, (rows, columns) in zip("xy", ((self.m, self.k), (self.k, self.n))):
            turned = letter in self.turned
            x = rng.standard_normal((*self.batch, *((columns, rows) if turned else (rows, columns)))).astype(np.float32)
            made.append(x.mT if turned else x)
        return made

    @property
    def flops(self) -> int:
        """Operations of float32."""
        return 2 * int(np.prod(self.batch, initial=1)) * self.m * self.k * self.n


SQUARES = [Case(f"{n}^3", (), n, n, n) for n in (256, 512, 1024, 2048)]
TRAINING = [
    Case("64x64x32", (), 64, 64, 32),
    Case("64x32x10", (), 64, 32, 10),
    Case("64x64x32, x^T", (), 64, 64, 32, "x"),
    Case("64x32x64, y^T", (), 64, 32, 64, "y"),
    Case("32x64x10, x^T", (), 32, 64, 10, "x"),
    Case("64x784x256", (), 64, 784, 256),
    Case("784x64x256, x^T", (), 784, 64, 256, "x"),
    Case("1024x128x512", (), 1024, 128, 512),
    Case("1024x128x384", (), 1024, 128, 384),
    Case("1024x512x128", (), 1024, 512, 128),
    Case("128x1024x512, x^T", (), 128, 1024, 512, "x"),
    Case("1024x128x80", (), 1024, 128, 80),
    Case("64 x 64x32x64", (64,), 64, 32, 64),
    Case("64 x 64x32x64, y^T", (64,), 64, 32, 64, "y"),
]


def native(case: Case) -> Callable[[], Any]:
    """The compiled kernels alone."""
    call = Recorded()
    NATIVE["matmul"](call, *case.operands())
    return call.program()


def eager(case: Case, backend: str) -> Callable[[], np.ndarray[Any, Any]]:
    """The kernel of a back end."""
    return partial(find_backend(backend).kernel("matmul"), *case.operands())


def numpy(case: Case) -> Callable[[], Any]:
    """NumPy's BLAS."""
    x, y = case.operands()
    return partial(np.matmul, x, y, out=np.matmul(x, y))
