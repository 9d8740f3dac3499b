"""`python -m refflow_accel.gpu_check --minutes 8 --out DIR`: does this GPU give refflow's bits, and how fast?

Implements ACC-GPU-CHECK of spec/text/acceleration.md.  First canaries (is fma one rounding, are products and sums two,
are subnormals kept, do division and square root round, one chain, one matmul) and, where its switches say that MPI reads
the device's memory, a message to itself, then random calls of every kernel against
the reference until half the time is gone, then whole runs, eager and compiled, whose weights must have the reference's
hash, then speed.  The report in DIR/gpu_check.json is written again after each stage: one that is cut off loses itself only.

It runs from a checkout, with the wheels of the extra `cuda` carried along:

    python -m pip install --no-index --find-links WHEELS numba-cuda[cu12]==0.30.4 cuda-toolkit==12.9.* ml_dtypes mpmath ...
    PYTHONPATH=.:accel python -m refflow_accel.gpu_check --minutes 8 --out DIR

Exit status: 0 all bits agree, 1 some do not, 2 there is no device (or no supported numba-cuda, or a wrong setting).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from refflow.errors import BackendError, WorldError
from refflow.numerics import PROFILE, digest_many

Row = dict[str, Any]
Device = Any  # a CudaBackend
KEPT = 40  # differences told in full


class Clock:
    """How much of the time budget is gone."""

    def __init__(self, seconds: float) -> None:
        self.start, self.seconds = time.monotonic(), seconds

    @property
    def spent(self) -> float:
        """As a share of the budget."""
        return (time.monotonic() - self.start) / self.seconds

    @property
    def left(self) -> float:
        """In seconds."""
        return self.seconds - (time.monotonic() - self.start)


# --- every kernel -----------------------------------------------------------------------------------------------------


def share(worker: int, workers: int, seconds: float, scales: Sequence[int]) -> Row:
    """This worker's part of the cases, at growing scales and with new seeds, until the time is over."""
    from .cuda import cases
    from .cuda.backend import CudaBackend

    backend, clock = CudaBackend(), Clock(max(seconds, 1e-3))
    done: Counter[str] = Counter()
    wrong: list[str] = []
    seed = 0
    while clock.left > 0:
        for index, (case, how) in enumerate(cases.every_case(seed, scales[min(seed, len(scales) - 1)])):
            if clock.left <= 0:
                break
            if index % workers != worker:
                continue
            try:
                found = cases.difference(backend, case, how)
            except Exception as error:
                found = f"{case} ({how}): {type(error).__name__}: {error}"
            done[case.name] += 1
            if found and len(wrong) < KEPT:
                wrong.append(found)
        seed += 1
    return {"cases": dict(done), "differences": wrong, "passes": seed}


def properties(seconds: float, workers: int, scales: Sequence[int]) -> Row:
    """Every kernel on random operands; several processes, since each compiles for itself."""
    if workers == 1:
        parts = [share(0, 1, seconds, scales)]
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            parts = [f.result() for f in [pool.submit(share, w, workers, seconds, scales) for w in range(workers)]]
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part["cases"])
    from refflow.kernels.reference import KERNELS

    return {
        "cases": sum(total.values()), "by_kernel": dict(sorted(total.items())),
        "untested": sorted(set(KERNELS) - set(total)), "workers": workers,
        "differences": [line for part in parts for line in part["differences"]][:KEPT],
    }  # fmt: skip


# --- whole runs -------------------------------------------------------------------------------------------------------


Program = Callable[[bool], str]  # by a graph, which the device compiles, or eagerly


def programs(simulated: bool) -> dict[str, Program]:
    """name -> a training run, from the first weight to a hash of the last ones, on the back end in force."""
    if simulated:
        return {"digits mlp, 3 steps of 2": partial(_digits, "mlp", 3, 2)}
    return {
        "digits mlp, 60 steps of 128": partial(_digits, "mlp", 60, 128),
        "digits cnn, 10 steps of 128": partial(_digits, "cnn", 10, 128),
        "gpt, 4 steps of 4": _gpt,
    }


def _digits(model: str, steps: int, batch: int, graph: bool) -> str:
    from refflow.boxing import CommLog
    from refflow.cli.arrangement import arrange
    from refflow.cli.digits import Recipe, Run
    from refflow.cli.steps import Execution

    run = Run(Recipe(model=model, batch=batch), arrange("data"), Execution(graph=graph))
    run.until(steps, CommLog())
    return run.sha256()


def _gpt(graph: bool) -> str:
    model, step = language_model(graph, vocabulary=65, context=32, layers=2, width=64, rows=4)
    for _ in range(4):
        step()
    return digest_many({name: value.numpy() for name, value in model.state_dict().items()})


def language_model(
    graph: bool, *, vocabulary: int, context: int, layers: int, width: int, rows: int
) -> tuple[Any, Callable[[], Any]]:
    """A small GPT, and a step of its training on random characters, new ones each time."""
    from refflow.functional.creation import tensor
    from refflow.graph.api import Graph
    from refflow.layout import Placement, broadcast
    from refflow.models import GPT
    from refflow.nn.functional import cross_entropy
    from refflow.optim import AdamW
    from refflow.state import manual_seed

    manual_seed(0)
    where = Placement("cpu", [0])
    model = GPT(vocabulary=vocabulary, context=context, layers=layers, width=width, heads=4).to_global(where, broadcast)
    optimizer, rng = AdamW(model.parameters(), lr=1e-3), np.random.default_rng(0)

    def loss_of(tokens: Any, targets: Any) -> Any:
        loss = cross_entropy(model(tokens).reshape(-1, vocabulary), targets)
        loss.backward()
        return loss

    class Train(Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, tokens: Any, targets: Any) -> Any:
            return loss_of(tokens, targets)

    def eager(tokens: Any, targets: Any) -> None:
        optimizer.zero_grad()
        loss_of(tokens, targets)
        optimizer.step()

    carry_out = Train() if graph else eager

    def step() -> None:
        drawn = rng.integers(0, vocabulary, (rows, context + 1))
        given = (drawn[:, :-1], drawn[:, 1:].reshape(-1))
        carry_out(*[tensor(array, placement=where, sbp=broadcast) for array in given])

    return model, step


def runs(backend: Device, clock: Clock, until: float, simulated: bool) -> Iterator[Row]:
    """Each program on the device, eagerly and compiled, and on the reference; those there is no time for are told so."""
    from refflow.random import Generator
    from refflow.state import Override
    from refflow.world import backend as computes

    for name, program in programs(simulated).items():
        if clock.spent > until:
            yield {"name": name, "passed": None, "found": "left out: no time"}
            continue
        row: Row = {"name": name}
        try:
            hashes = []
            ways = ("device", backend, False), ("compiled", backend, True), ("reference", "reference", False)
            for way, one, graph in ways:
                started = time.monotonic()
                with Override(generator=Generator()), computes(one):
                    hashes.append(program(graph))
                row[f"{way}_seconds"] = round(time.monotonic() - started, 2)
            row.update(zip(("sha256", "compiled_sha256", "reference_sha256"), hashes), passed=len(set(hashes)) == 1)
        except Exception as error:
            row.update(passed=False, found=f"{type(error).__name__}: {error}")
        yield row


# --- speed ------------------------------------------------------------------------------------------------------------


SIZES = {"vocabulary": 65, "context": 64, "layers": 4, "width": 128, "rows": 16}  # those of `refflow train gpt`


def _seconds(action: Callable[[], Any], wait: Callable[[], Any], repeats: int) -> float:
    """The best of a few timings of `action`, after one to warm up."""
    best = float("inf")
    for repeat in range(repeats + 1):
        wait()
        started = time.perf_counter()
        action()
        wait()
        if repeat:
            best = min(best, time.perf_counter() - started)
    return best


def _torch() -> Any:
    """PyTorch with a GPU and without TF32, or None."""
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def speed(backend: Device, clock: Clock, simulated: bool) -> Iterator[Row]:
    """Bandwidth of memory-bound kernels, GFLOP/s of matmul, beside PyTorch's (cuBLAS) where that is installed; and steps of
    training a second, eager and compiled (first: the clock may stop the rest)."""
    from refflow.world import backend as computes

    from .cuda import memory

    torch = _torch()
    wait = memory.current_stream().synchronize if not simulated else (lambda: None)
    rng = np.random.default_rng(0)

    def timed(name: str, unit: str, work: float, ours: Callable[[], Any], theirs: Callable[[], Any] | None) -> Row:
        row: Row = {"name": name, "unit": unit, "refflow": round(work / _seconds(ours, wait, 1 if simulated else 5) / 1e9, 2)}
        if theirs is not None:
            row["torch"] = round(work / _seconds(theirs, torch.cuda.synchronize, 5) / 1e9, 2)
        return row

    sizes = {"vocabulary": 3, "context": 2, "layers": 1, "width": 4, "rows": 1} if simulated else SIZES
    for way, graph in (("eager", False), ("compiled", True)):
        if clock.left <= 0:
            return
        with computes(backend):
            _, step = language_model(graph, **sizes)
            yield timed(f"gpt step, {way}", "steps/s", 1e9, step, None)
    n = 1 << (10 if simulated else 26)
    x = rng.standard_normal(n).astype(np.float32)
    a, square = backend.from_host(x), backend.from_host(x.reshape(-1, 1 << (n.bit_length() // 2)))
    t: Any = None if torch is None else torch.from_numpy(x).cuda()
    calls: list[tuple[str, float, Callable[[], Any], Callable[[], Any]]] = [
        ("add", 12.0 * n, lambda: backend.kernel("add")(a, a), lambda: t + t),
        ("exp", 8.0 * n, lambda: backend.kernel("exp")(a), lambda: torch.exp(t)),
        ("sum of rows", 4.0 * n, lambda: backend.kernel("sum")(square, dims=(1,)), lambda: t.view(square.shape).sum(1)),
        (
            "sum of columns",
            4.0 * n,
            lambda: backend.kernel("sum")(square, dims=(0,)),
            lambda: t.view(square.shape).sum(0),
        ),
    ]
    for name, work, ours, theirs in calls:
        if clock.left <= 0:
            return
        yield timed(name, "GB/s", work, ours, None if torch is None else theirs)
    for m in (4,) if simulated else (512, 1024, 2048, 4096):
        if clock.left <= 0:
            return
        host = rng.standard_normal((m, m)).astype(np.float32)
        p = backend.from_host(host)
        beside = None if torch is None else partial(torch.matmul, *[torch.from_numpy(host).cuda()] * 2)
        ours = partial(backend.kernel("matmul"), p, p)
        yield timed(f"matmul {m}", "GFLOP/s", 2.0 * m**3, ours, beside)


# --- the report -------------------------------------------------------------------------------------------------------


def description(simulated: bool) -> Row:
    """What computes, and with what."""
    import numba
    import numba_cuda  # type: ignore[import-untyped]

    from .cuda import target

    device = "Numba's simulator" if simulated else str(target.cuda.get_current_device().name)
    return {
        "device": device, "profile": PROFILE, "numba": numba.__version__, "numba_cuda": numba_cuda.__version__,
        "python": platform.python_version(), "numpy": np.__version__, "machine": platform.platform(),
        "compute_capability": None if simulated else list(target.cuda.get_current_device().compute_capability),
    }  # fmt: skip


def table(report: Row) -> str:
    """The report in a few lines."""
    told = {True: "same bits", False: "DIFFERS", None: "left out"}
    lines = [f"{report['device']}, numba-cuda {report['numba_cuda']}, {report['seconds']} s"]
    for row in (*report.get("canaries", []), *report.get("mpi", [])):
        lines.append(f"  canary {row['name']:28} {told[row['passed']]:10} {row['found'] or ''}")
    found = report.get("properties")
    if found:
        verdict = f"{len(found['differences'])} differ" if found["differences"] else "same bits"
        lines.append(f"  {found['cases']} calls of {len(found['by_kernel'])} kernels: {verdict}")
        lines += [f"    {line}" for line in found["differences"][:5]]
        if found["untested"]:
            lines.append(f"    not reached: {', '.join(found['untested'])}")
    for row in report.get("runs", []):
        lines.append(f"  run {row['name']:31} {told[row['passed']]:10} {row.get('sha256', row.get('found', ''))[:60]}")
    for row in report.get("speed", []):
        beside = f"   torch {row['torch']:>10}" if "torch" in row else ""
        lines.append(f"  {row['name']:35} {row['refflow']:>10} {row['unit']}{beside}")
    return "\n".join([*lines, "PASSED" if report["passed"] else "FAILED"])


def verdict(report: Row) -> bool:
    """Whether all that was looked at agrees."""
    looked = [row["passed"] for stage in ("canaries", "mpi", "runs") for row in report.get(stage, [])]
    return False not in looked and bool(looked) and not report.get("properties", {}).get("differences")


def check(minutes: float, out: Path, workers: int | None = None) -> Row:
    """All stages within `minutes`; the report, which is also in `out`.  Errors: `BackendError` without a device."""
    clock = Clock(60 * minutes)
    from .cuda.backend import CudaBackend
    from .cuda.canaries import canaries
    from .cuda.target import SIMULATED
    from .cuda.through_mpi import probe

    backend = CudaBackend()
    out.mkdir(parents=True, exist_ok=True)
    report: Row = {**description(SIMULATED), "minutes": minutes}

    def keep(stage: str, value: Any) -> None:
        report[stage] = value
        report["passed"] = verdict(report)
        report["seconds"] = round(clock.seconds - clock.left, 1)
        (out / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
        print(f"{report['seconds']:8.1f} s  {stage}", flush=True)

    keep("canaries", list(canaries(backend)))
    keep("mpi", [probe()])
    if workers is None:
        workers = 1 if SIMULATED else max(1, min(8, (os.cpu_count() or 2) // 2))
    scales = (9,) if SIMULATED else (9, 37, 130, 300, 5000)
    keep("properties", properties((0.5 - clock.spent) * clock.seconds, workers, scales))
    keep("runs", list(runs(backend, clock, 0.8, SIMULATED)))
    keep("speed", list(speed(backend, clock, SIMULATED)))
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m refflow_accel.gpu_check", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="how long it may take (default: 8)")
    parser.add_argument("--out", type=Path, default=Path("gpu_check"), help="folder of the report (default: gpu_check)")
    parser.add_argument(
        "--workers", type=int, help="processes that call kernels (default: half the processors, up to 8)"
    )
    asked = parser.parse_args(arguments)
    try:
        with np.errstate(all="ignore"):
            report = check(asked.minutes, asked.out, asked.workers)
    except (BackendError, WorldError) as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    print(table(report))
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
