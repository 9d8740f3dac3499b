"""float32 matrix products against NumPy's BLAS: ``python -m refflow_accel.bench.matmul [--threads 1 2] [--quick]``.

`native` runs the kernels as a compiled program does, `call` as one eager primitive does, NumPy's function into an array
that exists.  Say which BLAS ran: OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE change it, so they should be unset.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from refflow.numerics.bits import same_bits

from ..cpu import abi, kernels  # noqa: F401  (fills the table)
from ..cpu.registry import NATIVE
from .rounds import Recorded, pinned, race

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


def measure(case: Case, threads: int) -> dict[str, float]:
    """Microseconds of NumPy, of the kernels alone, and of an eager call."""
    x, y = case.operands()
    matmul = NATIVE["matmul"]
    out, call = np.matmul(x, y), Recorded()
    made = matmul(call, x, y)
    program = call.program()
    program()
    if not same_bits(made, matmul(abi.CALL, x, y)):
        raise AssertionError(f"{case.name}: a recorded product differs from an eager one")
    contenders: dict[str, Callable[[], Any]] = {
        "numpy": lambda: np.matmul(x, y, out=out),
        "native": program,
        "call": lambda: matmul(abi.CALL, x, y),
    }
    return {name: found.seconds * 1e6 for name, found in race(contenders, threads).items()}


def table(cases: list[Case], threads: int) -> Table:
    """The cases' times and ratios."""
    with pinned(threads) as blas:
        made = Table(title=f"float32 matmul, {threads} thread(s), against {blas}")
        for heading in (
            "m x k x n",
            "NumPy µs",
            "GF/s",
            "native µs",
            "GF/s",
            "native / NumPy",
            "call µs",
            "call / NumPy",
        ):
            made.add_column(heading, justify="left" if heading.startswith("m") else "right")
        for case in cases:
            t = measure(case, threads)
            made.add_row(
                case.name, f"{t['numpy']:.1f}", f"{case.flops / t['numpy'] / 1e3:.0f}", f"{t['native']:.1f}",
                f"{case.flops / t['native'] / 1e3:.0f}", f"{t['numpy'] / t['native']:.2f}", f"{t['call']:.1f}",
                f"{t['numpy'] / t['call']:.2f}",
            )  # fmt: skip
    return made


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="leave out what takes more than a few ms")
    options = parser.parse_args(arguments)
    console = Console(width=130)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        if name in os.environ:
            console.print(f"note: {name}={os.environ[name]}")
    cases = [case for case in SQUARES + TRAINING if not options.quick or case.flops < 10**8]
    for threads in options.threads:
        console.print(table(cases, threads))


if __name__ == "__main__":
    main()
