"""The sections of `refflow bench accel`: what is compared with what, on which shapes.

Each is a function of the sides, which have as many threads, that gives ratios; what a side does is made in its process.
PyTorch is imported there and nowhere else; `NEEDS_TORCH` names the sections that have no other rival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from refflow.numerics import same_bits

from . import convolution, first_use, functions, matmul, peak, twins
from .functions import FUNCTIONS
from .matmul import SQUARES, TRAINING, Case
from .native import program_of
from .process import Make, Sides
from .profile import Cost, profile
from .ratios import OURS, Ratio, compared, raced, told
from .rounds import race

Section = Callable[[Sides], Iterator[Ratio]]
WIDE = 1024  # rows and columns of what is summed, normalised, updated


def products(sides: Sides, cases: Sequence[Case] = (*SQUARES, *TRAINING)) -> Iterator[Ratio]:
    """Products against NumPy's BLAS, into arrays that exist."""
    for case in cases:
        work: dict[str, Make] = {OURS: partial(matmul.native, case), "NumPy": partial(matmul.numpy, case)}
        yield from compared("matmul", f"matmul {case.name}", sides, work)


def reference(sides: Sides, n: int = 512) -> Iterator[Ratio]:
    """A product against the reference's kernel, which takes one thread: the same bits, and how much sooner.

    Beside it, how much sooner it could be at most: with the operations a second of a kernel that fetches nothing.
    """
    case = Case(f"{n}^3", (), n, n, n)
    kernels = {OURS: "numba", "reference": "reference"}
    names = sides.give({side: partial(matmul.eager, case, backend) for side, backend in kernels.items()})
    if not same_bits(*(sides[name].ask(result) for name in names)):
        raise AssertionError(f"matmul {case.name}: not the reference's bits")
    (found,) = raced("reference", f"matmul {case.name}", sides, names)
    yield found
    best = race(sides, sides.give({OURS: peak.work}), patience=3)[OURS]
    rate = peak.FLOPS / best.seconds
    name = f"the same at the processor's peak, measured: {rate / 1e9:.0f} Gflop/s"
    yield Ratio(
        "reference", name, sides.threads, case.flops / rate, found.rival, found.rival_seconds, max(best.spread, found.spread)
    )  # fmt: skip


def result(work: Callable[[], Any]) -> Any:
    """What it gives."""
    return work()


def rows(sides: Sides, n: int = WIDE) -> Iterator[Ratio]:
    """Sums, softmax and layer norm of n rows and columns."""
    for name in ("sum of rows", "sum of columns", "softmax", "layer norm"):
        yield from _function("rows", name, sides, n)


def elementwise(sides: Sides, n: int = WIDE) -> Iterator[Ratio]:
    """exp, GELU, and AdamW's update, of n times n elements."""
    for name in ("exp", "gelu"):
        yield from _function("elementwise", name, sides, n)
    if has_torch():
        work: dict[str, Make] = {OURS: partial(functions.native_adamw, n)}
        work |= {"PyTorch": partial(functions.torch_adamw, n, False)}
        work |= {"PyTorch fused": partial(functions.torch_adamw, n, True)}
        yield from compared("elementwise", f"AdamW, {n} x {n}", sides, work)


def _function(section: str, name: str, sides: Sides, n: int) -> Iterator[Ratio]:
    """Ours as native rows, NumPy where it has one function for it, PyTorch where it is installed."""
    work: dict[str, Make] = {OURS: partial(functions.native, name, n)}
    if FUNCTIONS[name].numpy is not None:
        work["NumPy"] = partial(functions.numpy, name, n)
    if has_torch():
        work["PyTorch"] = partial(functions.torch, name, n)
    if len(work) > 1:
        yield from compared(section, f"{name}, {n} x {n}", sides, work)


def conv(sides: Sides, cases: Sequence[convolution.Case] = convolution.CASES) -> Iterator[Ratio]:
    """Convolutions of the digits' CNN and a few larger, and their gradients."""
    for case in cases:
        n, c, size, o, taps, *_ = case
        for name in convolution.PRIMITIVES:
            label = f"{name} {n} x {c} x {size} x {size}, {o} of {taps} x {taps}"
            work = {OURS: partial(convolution.native, case, name), "PyTorch": partial(convolution.torch, case, name)}
            yield from compared("conv", label, sides, work, patience=2)


def training(sides: Sides, chosen: Sequence[twins.Twin] = twins.TWINS) -> Iterator[Ratio]:
    """Whole training steps: the compiled graph, with all that Python does, against PyTorch's eager step."""
    for twin in chosen:
        (ours,) = sides.give({OURS: partial(twins.ours, twin)})
        (theirs,) = sides.give({"PyTorch": partial(twins.theirs, twin, sides[ours].ask(twins.weights))})
        a, b = (sides[name].ask(twins.loss) for name in (ours, theirs))
        if not abs(a - b) < 1e-3 * abs(b):
            raise AssertionError(f"{twin.name}: a loss of {a} here, {b} in PyTorch, from the same weights")
        yield from raced("training", twin.name, sides, [ours, theirs], target=twin.target, patience=8)


def compiling(sides: Sides, steps: int = 3) -> Iterator[Ratio]:
    """`refflow train digits` with nothing compiled yet, and again.  Processor time, with one thread."""
    if sides.threads == 1:
        for name, target, times in first_use.measured(steps):
            label = f"{name} ({told(times.wall)} by the clock)"
            yield Ratio("compiling", label, 1, times.processor, target=target)


def profiles(which: str) -> Iterator[tuple[str, list[Cost]]]:
    """The costs of a training step of each twin whose name contains `which`."""
    for twin in twins.TWINS:
        if which.lower() in twin.name.lower():
            training = twins.ours(twin)
            training()
            yield twin.name, profile(program_of(training.graph))


SECTIONS: dict[str, Section] = {
    "matmul": products, "reference": reference, "rows": rows, "elementwise": elementwise, "conv": conv, "training": training,
    "compiling": compiling,
}  # fmt: skip
NEEDS_TORCH = ("conv", "training")


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    return find_spec("torch") is not None
