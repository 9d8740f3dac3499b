"""The sections of `refflow bench accel`: what is compared with what, on which shapes.

Each is a function of the number of threads, already pinned on both sides, that gives ratios.  PyTorch is imported where
it is the rival; `NEEDS_TORCH` names the sections that have no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from refflow.nn import functional as F
from refflow.numerics import same_bits
from refflow.world.devices import find_backend

from ..cpu import kernels  # noqa: F401  (fills the table)
from ..cpu.registry import NATIVE
from . import convolution, first_use, twins
from .matmul import SQUARES, TRAINING, Case
from .native import program_of, rows_of, rows_of_adamw
from .profile import Cost, profile
from .ratios import OURS, Ratio, compared, told
from .rounds import Recorded

Section = Callable[[int], Iterator[Ratio]]
WIDE = 1024  # rows and columns of what is summed, normalised, updated


def matmul(threads: int, cases: Sequence[Case] | None = None) -> Iterator[Ratio]:
    """Products against NumPy's BLAS, into arrays that exist."""
    for case in [*SQUARES, *TRAINING] if cases is None else cases:
        x, y = case.operands()
        out, call = np.matmul(x, y), Recorded()
        NATIVE["matmul"](call, x, y)
        contenders: dict[str, Callable[[], Any]] = {OURS: call.program(), "NumPy": partial(np.matmul, x, y, out=out)}
        yield from compared("matmul", f"matmul {case.name}", threads, contenders)


def reference(threads: int, n: int = 512) -> Iterator[Ratio]:
    """A product of n-cubed against the reference's kernel, which takes one thread: the same bits, and how much sooner."""
    case = Case(f"{n}^3", (), n, n, n)
    x, y = case.operands()
    contenders: dict[str, Callable[[], Any]] = {
        OURS: partial(find_backend("numba").kernel("matmul"), x, y),
        "reference": partial(find_backend("reference").kernel("matmul"), x, y),
    }
    if not same_bits(*(contender() for contender in contenders.values())):
        raise AssertionError(f"matmul {case.name}: not the reference's bits")
    yield from compared("reference", f"matmul {case.name}", threads, contenders, target=1000 if n == 512 else None)


def rows(threads: int, n: int = WIDE) -> Iterator[Ratio]:
    """Sums, softmax and layer norm of n rows and columns."""
    x = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
    one = np.ones(n, np.float32)
    out = np.empty(n, np.float32)
    cases: list[tuple[str, Callable[..., Any], tuple[Any, ...], Callable[[], Any] | None, Callable[..., Any]]] = [
        ("sum of rows", lambda x: x.sum(1), (x,), partial(np.sum, x, 1, out=out), lambda x: x.sum(1)),
        ("sum of columns", lambda x: x.sum(0), (x,), partial(np.sum, x, 0, out=out), lambda x: x.sum(0)),
        ("softmax", lambda x: F.softmax(x, 1), (x,), None, lambda x: x.softmax(1)),
        ("layer norm", lambda x, w, b: F.layer_norm(x, (n,), w, b), (x, one, one), None,
         lambda x, w, b: torch_functional().layer_norm(x, (n,), w, b)),
    ]  # fmt: skip
    for name, function, arrays, numpy, theirs in cases:
        rivals = {} if numpy is None else {"NumPy": numpy}
        yield from _with_torch("rows", f"{name}, {n} x {n}", threads, function, arrays, rivals, theirs)


def elementwise(threads: int, n: int = WIDE) -> Iterator[Ratio]:
    """exp, GELU, and AdamW's update, of n times n elements."""
    x = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
    rivals = {"NumPy": partial(np.exp, x, out=np.empty_like(x))}
    yield from _with_torch(
        "elementwise", f"exp, {n} x {n}", threads, lambda x: x.exp(), (x,), rivals, lambda x: x.exp()
    )
    yield from _with_torch(
        "elementwise", f"gelu, {n} x {n}", threads, F.gelu, (x,), {}, lambda x: torch_functional().gelu(x)
    )
    if has_torch():
        contenders: dict[str, Callable[[], Any]] = {OURS: rows_of_adamw(x)}
        contenders |= {"PyTorch": torch_adamw(x, False), "PyTorch fused": torch_adamw(x, True)}
        yield from compared("elementwise", f"AdamW, {n} x {n}", threads, contenders)


def _with_torch(
    section: str, name: str, threads: int, ours: Callable[..., Any], arrays: tuple[Any, ...],
    rivals: Mapping[str, Callable[[], Any]], theirs: Callable[..., Any],
) -> Iterator[Ratio]:  # fmt: skip
    """Ours as native rows, NumPy where it has one function for it, PyTorch where it is installed."""
    contenders: dict[str, Callable[[], Any]] = {OURS: rows_of(ours, *arrays), **rivals}
    if has_torch():
        import torch

        contenders["PyTorch"] = partial(theirs, *map(torch.from_numpy, arrays))
    if len(contenders) > 1:
        yield from compared(section, name, threads, contenders)


def conv(threads: int, cases: Sequence[tuple[int, ...]] | None = None) -> Iterator[Ratio]:
    """Convolutions of the digits' CNN and a few larger, and their gradients."""
    for case in convolution.CASES if cases is None else cases:
        n, c, size, o, taps, *_ = case
        for name, (theirs, ours) in convolution.contenders(case).items():
            label = f"{name} {n} x {c} x {size} x {size}, {o} of {taps} x {taps}"
            yield from compared("conv", label, threads, {OURS: ours, "PyTorch": theirs}, patience=2)


def training(threads: int, chosen: Sequence[twins.Twin] | None = None) -> Iterator[Ratio]:
    """Whole training steps: the compiled graph, with all that Python does, against PyTorch's eager step."""
    for twin in twins.TWINS if chosen is None else chosen:
        graph, step = twins.ours(twin)
        rival = twins.theirs(twin, [parameter.detach().numpy() for parameter in graph.model.parameters()])
        a, b = step().item(), rival().item()
        if not abs(a - b) < 1e-3 * abs(b):
            raise AssertionError(f"{twin.name}: a loss of {a} here, {b} in PyTorch, from the same weights")
        contenders = {OURS: step, "PyTorch": rival}
        yield from compared("training", twin.name, threads, contenders, target=twin.target, patience=8)


def compiling(threads: int, steps: int = 3) -> Iterator[Ratio]:
    """`refflow train digits` with nothing compiled yet, and again.  Processor time; independent of `threads`."""
    if threads == 1:
        for name, target, times in first_use.measured(steps):
            label = f"{name} ({told(times.wall)} by the clock)"
            yield Ratio("compiling", label, 1, times.processor, target=target)


def profiles(which: str) -> Iterator[tuple[str, list[Cost]]]:
    """The costs of a training step of each twin whose name contains `which`."""
    for twin in twins.TWINS:
        if which.lower() in twin.name.lower():
            graph, step = twins.ours(twin)
            step()
            yield twin.name, profile(program_of(graph))


SECTIONS: dict[str, Section] = {
    "matmul": matmul, "reference": reference, "rows": rows, "elementwise": elementwise, "conv": conv, "training": training,
    "compiling": compiling,
}  # fmt: skip
NEEDS_TORCH = ("conv", "training")


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    from importlib.util import find_spec

    return find_spec("torch") is not None


def torch_functional() -> Any:
    """torch.nn.functional."""
    from torch.nn import functional

    return functional


def torch_adamw(x: np.ndarray[Any, Any], fused: bool) -> Callable[[], Any]:
    """A step of AdamW on one parameter whose gradient stays."""
    import torch

    parameter = torch.nn.Parameter(torch.from_numpy(x.copy()))
    parameter.grad = torch.from_numpy(x.copy())
    step: Callable[[], Any] = torch.optim.AdamW([parameter], fused=fused).step
    return step
