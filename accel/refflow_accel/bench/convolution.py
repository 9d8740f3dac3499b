"""float32 convolutions against PyTorch: ``python -m refflow_accel.bench.convolution [--threads 1 2]``; needs torch.

The convolutions of a CNN on 8 x 8 digits, and some larger; forward, and the gradients to input and filter.  `native` runs
the kernels as a compiled program does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from ..cpu import kernels  # noqa: F401  (fills the table)
from ..cpu.registry import NATIVE
from .rounds import Recorded, pinned, race

# n, c, size, o, taps, padding, stride
CASES = [
    (64, 1, 8, 16, 3, 1, 1),
    (64, 16, 8, 32, 3, 1, 1),
    (64, 16, 4, 32, 3, 1, 1),
    (64, 8, 8, 16, 3, 1, 1),
    (16, 3, 32, 32, 3, 1, 1),
    (16, 32, 32, 64, 3, 1, 1),
    (8, 64, 14, 128, 3, 1, 2),
]


def contenders(case: tuple[int, ...]) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """For each of the three primitives, PyTorch's function and ours."""
    import torch

    n, c, size, o, taps, padding, stride = case
    x, w = torch.randn(n, c, size, size), torch.randn(o, c, taps, taps)
    g = torch.randn_like(torch.nn.functional.conv2d(x, w, padding=padding, stride=stride))
    back = torch.ops.aten.convolution_backward

    def gradient(which: list[bool]) -> Callable[[], Any]:
        return lambda: back(g, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, which)

    geometry = {"stride": (stride, stride), "padding": (padding, padding), "dilation": (1, 1), "groups": 1}
    theirs: list[Callable[[], Any]] = [
        lambda: torch.nn.functional.conv2d(x, w, padding=padding, stride=stride),
        gradient([True, False, False]),
        gradient([False, True, False]),
    ]
    a, b, d = (np.asarray(tensor) for tensor in (x, w, g))
    made = {}
    for name, operands, size_, their in zip(
        ("conv2d", "conv2d_input", "conv2d_filter"),
        ((a, b), (d, b), (a, d)),
        (None, (size, size), (taps, taps)),
        theirs,
    ):
        call = Recorded()
        NATIVE[name](call, *operands, **geometry, **({} if size_ is None else {"size": size_}))
        made[name] = (their, call.program())
    return made


def table(threads: int) -> Table:
    """The cases' times and ratios."""
    import torch

    torch.set_num_threads(threads)
    made = Table(title=f"float32 convolutions, {threads} thread(s), against PyTorch {torch.__version__}")
    for heading in ("n, c, size, o, taps, padding, stride", "primitive", "PyTorch µs", "native µs", "native / PyTorch"):
        made.add_column(heading)
    with pinned(threads):
        for case in CASES:
            for name, (theirs, ours) in contenders(case).items():
                t = {
                    k: found.seconds * 1e6
                    for k, found in race({"torch": theirs, "native": ours}, threads, 0.01).items()
                }
                ratio = f"{t['torch'] / t['native']:.2f}"
                made.add_row(str(case), name, f"{t['torch']:.0f}", f"{t['native']:.0f}", ratio)
    return made


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    for threads in parser.parse_args(arguments).threads:
        Console(width=120).print(table(threads))


if __name__ == "__main__":
    main()
