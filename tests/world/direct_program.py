"""What one MPI process of test_direct.py runs: `python -m mpi4py direct_program.py FOLDER CASE`.

The back end that computes on "cpu" hands MPI its arrays' memory.  Each process writes what it found to FOLDER/RANK.json.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import refflow as flow
from refflow.errors import OutOfMemory
from refflow.graph.time import TimeWorld
from refflow.kernels.wire import Wire
from refflow.world import current_world, direct
from tests.graph.mpi_program import record
from tests.graph.nets import Told, adamw, dropped, momentum
from tests.loopback import WiredBackend
from tests.world.programs import PROGRAMS, misbehave, training

S, B, P = flow.sbp.split, flow.sbp.broadcast, flow.sbp.partial_sum
GRAPHS = {
    "actors": (dropped, momentum, Told((2,))), "pipeline": (dropped, adamw, Told(stages=2, micro=4)),
    "micro-steps": (dropped, momentum, Told((2,), micro=2, runtime="sequential")),
}  # fmt: skip
LARGE = 3 << 20  # bytes from each rank to each: more than MPI sends before the receiver is known to wait


def count(backend: WiredBackend) -> dict[str, int]:
    return {"sent": backend.sent, "landed": backend.landed, "copied": backend.copied}


def programs() -> dict[str, Any]:
    """All that must come out as in the virtual world."""
    backend = WiredBackend()
    with flow.bind_device("cpu", backend):
        found: dict[str, Any] = {name: program() for name, program in PROGRAMS.items()}
        if flow.get_world_size() == 3:
            found["misbehave"] = misbehave()
    return {**found, "count": count(backend)}


def moves() -> dict[str, Any]:
    """One move by one: its bytes in each direction, and that no host copy is made."""
    backend, found = WiredBackend(), {}
    n = flow.get_world_size()
    with flow.bind_device("cpu", backend):
        where = flow.Placement.all("cpu")
        for name, shape, dtype, source, target in (
            ("all_gather", (2 * n, 3), flow.float32, S(0), B),
            ("all_to_all", (2 * n, 2 * n), flow.bfloat16, S(0), S(1)),
            ("all_reduce", (2 * n,), flow.float32, P, B),
            ("empty shards", (1, 4), flow.bool, S(0), B),
            ("empty", (0, 4), flow.float32, S(0), B),
        ):
            x = flow.ones(shape, dtype=dtype, placement=where, sbp=source)
            before = count(backend)
            x.to_global(sbp=target)
            found[name] = {what: number - before[what] for what, number in count(backend).items()}
    return found


def simulated() -> dict[str, Any]:
    """The CUDA back end in Numba's simulator: three steps of training, and a few moves."""
    from refflow_accel.cuda.backend import CudaBackend

    sent: list[int] = []

    class Counted(CudaBackend):
        def wire(self, array: Any) -> Wire:
            made = super().wire(array)
            sent.append(made.nbytes)
            return made

    with flow.bind_device("cpu", Counted()):
        found: dict[str, Any] = {"training": training(), "tensor parallel": training(B, S(1)), "moved": moved()}
        sent.clear()
        moved()
    return {**found, "sent": sum(sent)}


def moved() -> dict[str, str]:
    """Digests after moves of narrow dtypes, of pieces with gaps between their elements and of empty ones."""
    where, found = flow.Placement.all("cpu"), {}
    for dtype in (flow.float32, flow.bfloat16, flow.bool, flow.int64):
        for rows in (5, 1, 0):
            x = flow.tensor([[(i * j) % 3 for j in range(6)] for i in range(rows)], dtype=dtype) if rows else None
            x = flow.zeros(0, 6, dtype=dtype) if x is None else x
            whole = flow.tensor(x.numpy(), placement=where, sbp=B)
            for layouts in ((S(0), S(1), B), (S(1), S(0), S(1)), (P, S(1)) if dtype != flow.bool else ()):
                y = whole
                for sbp in layouts:
                    y = y.to_global(sbp=sbp)
                found[f"{dtype.name} {rows} {layouts}"] = flow.digest(y.numpy())
    return found


def graphs() -> dict[str, Any]:
    """Graphs by actors, whose packets are host copies, and node by node, with micro-steps."""
    found: dict[str, Any] = {}
    original, calls = TimeWorld.transfer_direct, [0]

    def counted(self: Any, *given: Any) -> None:
        calls[0] += 1
        original(self, *given)

    TimeWorld.transfer_direct = counted  # type: ignore[method-assign]
    with flow.bind_device("cpu", WiredBackend()):
        for name, job in GRAPHS.items():
            calls[0] = 0
            found[name] = [record(*job), calls[0] > 0]
    return found


# --- what goes wrong ------------------------------------------------------------------------------------------------


def step(nbytes: int = 64) -> None:
    """One collective of so many bytes from each rank to each."""
    flow.ones(nbytes // 4 * flow.get_world_size(), placement=flow.Placement.all("cpu"), sbp=S(0)).to_global(sbp=B)


def in_rank_1(name: str, instead: Callable[..., Any]) -> None:
    """Another method of `Posted` on rank 1 from now on; it is given the one it replaces."""
    original = getattr(direct.Posted, name)
    if flow.get_rank() == 1:
        setattr(direct.Posted, name, lambda self, *rest: instead(original, self, *rest))


def failing() -> None:
    """Rank 1 fails after all have agreed, before it sends."""

    def fail(*_: Any) -> None:
        raise KeyError("only here")

    step(LARGE)
    in_rank_1("post", fail)
    step(LARGE)


def half() -> None:
    """Rank 1 sends to one of the others, then fails."""

    def fail(post: Any, self: Any, transfers: Any, outgoing: Any, landings: Any) -> None:
        first = min(outgoing, key=lambda i: transfers[i].target)
        post(self, transfers, {first: outgoing[first]}, landings)
        raise KeyError("only here")

    step(LARGE)
    in_rank_1("post", fail)
    step(LARGE)


def leaving() -> None:
    """Rank 1 ends its program where it should send."""
    step()
    in_rank_1("post", lambda *_: sys.exit(0))
    step()


def going_on() -> list[str]:
    """Every rank catches its error and goes on, in vain."""

    def fail(*_: Any) -> None:
        raise KeyError("only here")

    in_rank_1("post", fail)
    told = []
    for _ in range(3):
        try:
            step(LARGE)
        except (KeyError, flow.RefflowError) as error:
            told.append(f"{type(error).__name__}: {error}")
    return told


def interrupted() -> list[str]:
    """Rank 1 is interrupted while it waits; what it has posted goes through."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    step(LARGE)
    if flow.get_rank() == 1:
        in_rank_1("waited_for", interrupt)
        step(LARGE)
    x = flow.ones(LARGE // 4 * flow.get_world_size(), placement=flow.Placement.all("cpu"), sbp=S(0)).to_global(sbp=B)
    told = [str(float(x.to_local().sum().local_arrays()[flow.get_rank()]))]
    try:
        step()
    except flow.RefflowError as error:
        told.append(f"{type(error).__name__}: {error}")
    return told


def without_memory() -> None:
    """Rank 1 has no room for what it is to receive: before all have agreed."""
    step()
    if flow.get_rank() == 1:
        WiredBackend.landing = lambda *_: (_ for _ in ()).throw(OutOfMemory("no room"))  # type: ignore[method-assign]
    step()


def early() -> None:
    """Rank 1 leaves; fifty collectives are waiting for it."""
    step()
    if flow.get_rank() == 1:
        sys.exit(0)
    for _ in range(50):
        step()


def diverging() -> None:
    step()
    if flow.get_rank() == 1:
        flow.barrier()
    step()


def switched_off() -> None:
    """Rank 1 was told that MPI does not read the memory of devices, the others that it does."""
    os.environ["REFFLOW_CUDA_AWARE"] = str(int(flow.get_rank() != 1))
    step()


def wrong_switch() -> None:
    os.environ["REFFLOW_CUDA_AWARE"] = "yes"
    step()


def switch() -> bool:
    step()
    return bool(current_world().direct)  # type: ignore[attr-defined]


MISHAPS: tuple[Callable[[], Any], ...] = (
    failing, half, leaving, going_on, interrupted, without_memory, early, diverging, switched_off, wrong_switch, switch,
)  # fmt: skip
CASES: dict[str, Callable[[], Any]] = {f.__name__: f for f in (programs, moves, simulated, graphs, *MISHAPS)}

if __name__ == "__main__":
    folder, case = sys.argv[1:]
    report = Path(folder, f"{flow.get_rank()}.json")
    if CASES[case] in MISHAPS:
        flow.bind_device("cpu", WiredBackend())
    try:
        result = CASES[case]()
    except flow.RefflowError as error:
        report.write_text(json.dumps([type(error).__name__, str(error)]))
        raise
    report.write_text(json.dumps(result))
