"""What one MPI process of the tests of exchanges runs: `python -m mpi4py exchange_program.py FOLDER CASE BACKEND`.

Jobs of compiled graphs whose records must be those of the reference in one process; calls that fail, or differ, on one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import refflow as flow
from refflow import nn
from refflow.graph.api import Graph
from tests.graph import mpi_errors
from tests.graph.mpi_program import record
from tests.graph.nets import NETS, Told, Train, adamw, descent, digest, dropped, mlp, momentum, run
from tests.graph.running import B, S

JOBS: dict[int, list[tuple[Any, Any, Told]]] = {
    2: [
        (mlp, momentum, Told((2,))), (dropped, momentum, Told((2,))), (mlp, adamw, Told((2,), tensor=True)),
        (dropped, adamw, Told((2,), micro=4, zero=1)), (dropped, adamw, Told((2,), micro=2, zero=3)),
        (dropped, adamw, Told(stages=2, micro=4)),
    ],
    4: [
        (mlp, adamw, Told((2, 2), tensor=True, micro=2)), (dropped, momentum, Told((4,), micro=2)),
        (dropped, momentum, Told((2,), micro=2)),  # two processes have nothing to do
        (dropped, adamw, Told((4,), zero=3)), (dropped, adamw, Told((2,), stages=2, micro=4)),
    ],
}  # fmt: skip

WRONG: dict[int, list[tuple[Told, tuple[int, ...]]]] = {  # how it is told, which rows of 128 have a label that is none
    2: [(Told((2,)), (70,)), (Told((2,), micro=2, zero=3), (5, 40, 70)), (Told(stages=2, micro=2), (100,))],
    4: [(Told((2,)), (70,)), (Told((2,), stages=2, micro=2), (40, 100))],
}


def programs(graph: Graph) -> list[Any]:
    """The compiled programs of a graph that have run natively."""
    made = [program for traced in graph._traced.values() for _, program in traced.programs.values()]
    return [program for program in made if program._runner is not None]


def exchanges(net: Any, optimizer: Any, told: Told) -> int:
    """How many exchanges the program of a job makes in a native call; none if there was no such call."""
    with flow.state.Override(generator=flow.Generator()):
        graph = run(net, told, optimizer=optimizer, clip=0.5).graph
    assert graph is not None
    return sum(call.effect for program in programs(graph) for call in program._recorded.program.calls)


def compiled(told: Told) -> Told:
    return replace(told, runtime="compiled")


def jobs() -> Any:
    """Records, and exchanges in a native call."""
    mine = [(net, optimizer, compiled(told)) for net, optimizer, told in JOBS[flow.get_world_size()]]
    return [[record(*job) for job in mine], [exchanges(*job) for job in mine]]


def wrong() -> Any:
    """What calls with bad data on some ranks leave behind."""
    stories = [mpi_errors.story(compiled(told), rows) for told, rows in WRONG[flow.get_world_size()]]
    return [stories, division("compiled")]


def division(runtime: str) -> Any:
    """Quotients, three times of four: in the second call the last rank divides by zero before it sends."""
    size = flow.get_world_size()
    ranks = flow.placement("cpu", range(size))

    class Divide(Graph):
        def build(self, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
            return (x // y).to_global(sbp=B) * 2

    graph = Divide()
    graph.config.runtime = runtime
    found: list[Any] = []
    for step in range(4):
        divisors = np.arange(1, 2 * size + 1)
        divisors[-1] *= step != 1
        x, y = (flow.tensor(a, placement=ranks, sbp=S(0)) for a in (np.full(2 * size, 7 + step), divisors))
        try:
            found.append(graph(x, y).numpy().tolist())
        except flow.errors.RefflowError as error:
            found.append([type(error).__name__, str(error)])
    return found


class Learning:
    """A training step of a small net, and its data."""

    def __init__(self, told: Told, net: Callable[[], Any] = mlp, rate: float = 0.2) -> None:
        flow.manual_seed(0)
        self.model = net().to_global(told.placement(0), B)
        if told.tensor:
            for block in self.model:
                block.to_global(told.placement(0), told.weight_sbp)
        optimizer = descent(self.model.parameters())
        optimizer.param_groups[0]["lr"] = rate
        self.graph = Train(self.model, optimizer, None, None, compiled(told))
        self.x = flow.tensor(NETS[mlp], placement=told.placement(0), sbp=told.input_sbp())
        self.y = flow.tensor(np.arange(128) * 5 % 4, placement=told.placement(0), sbp=told.input_sbp())

    def __call__(self) -> str:
        return digest(self.graph(self.x, self.y))

    def weights(self) -> list[str]:
        return list(map(digest, self.model.parameters()))


def tanh() -> Any:
    """As `mlp`, of the same shapes, with other functions between them."""
    net = mlp()
    for i in range(3):
        net[i][1] = nn.Tanh()
    return net


def diverging() -> Any:
    """The last rank calls another graph than the others, or with another rate; then all go on together."""
    size = flow.get_world_size()
    last = flow.get_rank() == size - 1
    told = Told((size,))
    first = Learning(told)
    found: list[Any] = [[first() for _ in range(3)]]
    for other in (Learning(told, tanh), Learning(replace(told, tensor=True)), flow.barrier):
        if other is not flow.barrier:
            assert len({other() for _ in range(2)}) == 2  # recorded, then natively
        before = first.weights()
        try:
            (other if last else first)()
            found.append("no error")
        except flow.errors.DivergenceError as error:
            found.append(str(error).splitlines()[0])
        assert first.weights() == before
    group = first.graph._optimizers[0][0].param_groups[0]
    group["lr"] = 0.3 if last else 0.2
    try:
        found.append(first())
    except flow.errors.DivergenceError as error:
        found.append(str(error).splitlines()[0])
    group["lr"] = 0.2
    new = Learning(told, tanh if last else mlp)  # not even recorded
    try:
        found.append(new())
    except flow.errors.DivergenceError:
        found.append("DivergenceError")
    return [*found, [first() for _ in range(2)], first.weights(), len(programs(first.graph))]


def together(size: int) -> Any:
    """What `first` of `diverging` gives where nothing goes wrong."""
    first = Learning(Told((size,)))
    first.graph.config.runtime = "sequential"
    return [[first() for _ in range(3)], [first() for _ in range(2)], first.weights()]


def killed() -> Any:
    """The last rank is killed in the middle of a native call."""
    from refflow_accel.program import lower  # late: it compiles for the CPU

    plain, count = lower.exchange, 0

    def exchange(*arrays: Any, **attrs: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3 and flow.get_rank() == flow.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*arrays, **attrs)

    lower.exchange = exchange
    learning = Learning(Told((flow.get_world_size(),)))
    return [learning() for _ in range(100)]


def tiny(runtime: str = "compiled") -> Any:
    """Losses, weights and whether natively: few numbers, for a simulated device; the last rank's labels are wrong once."""
    size = flow.get_world_size()
    ranks = flow.placement("cpu", range(size))
    flow.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Dropout(0.3), nn.Linear(4, 2)).to_global(ranks, B)
    graph = Train(model, momentum(model.parameters()), None, 0.5, Told(zero=2, runtime=runtime))
    x = flow.tensor(np.arange(12 * size, dtype=np.float32).reshape(4 * size, 3) / 7, placement=ranks, sbp=S(0))
    found: list[Any] = []
    for step in range(4):
        labels = np.arange(4 * size) % 2
        labels[-1] += 2 * (step == 2)
        try:
            found.append(digest(graph(x, flow.tensor(labels, placement=ranks, sbp=S(0)))))
        except flow.errors.RefflowError as error:
            found.append([type(error).__name__, str(error)])
    return [found, list(map(digest, model.parameters())), len(programs(graph)) if runtime == "compiled" else 1]


CASES = {case.__name__: case for case in (jobs, wrong, diverging, killed, tiny)}


def main(folder: str, case: str, backend: str) -> None:
    with flow.backend(backend):
        found = CASES[case]()
    Path(folder, f"{flow.get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
