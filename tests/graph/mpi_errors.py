"""What one MPI process of the tests of failing calls runs: `python -m mpi4py mpi_errors.py FOLDER`.

A training of four steps, one of which fails, and what it leaves behind; the script catches the error and goes on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import refflow as flow
from refflow import nn
from refflow.graph.module import GraphModule
from refflow.runtime.schedules import Canonical
from tests.graph.nets import Told, Train, adamw, digest, rows
from tests.graph.running import B

JOBS: dict[int, list[tuple[Told, tuple[int, ...]]]] = {  # how it is told, which rows of 128 have a label that is none
    2: [
        (Told((2,)), (70,)), (Told((2,)), (3, 70)), (Told((2,), micro=2, zero=3), (5, 40, 70)),
        (Told(stages=2, micro=2), (100,)),  # the first stage's packets are larger than MPI sends without being asked
    ],
    4: [(Told((2,)), (70,)), (Told((2,), stages=2, micro=2), (40, 100))],
}  # fmt: skip
CRASHES = (KeyError("lost"), MemoryError("none"), flow.errors.OutOfMemory("none left"), KeyboardInterrupt())


class Crashing(Canonical):
    """A schedule that raises after so many steps."""

    def __init__(self, left: int, error: BaseException) -> None:
        super().__init__()
        self.left, self.error = left, error

    def take(self) -> Any:
        """The next step."""
        self.left -= 1
        if not self.left:
            raise self.error
        return super().take()


def story(told: Told, wrong: Sequence[int] = (), crash: BaseException | None = None) -> Any:
    """Each step's loss or error, then weights and draws; step 1 has labels that are none, or crashes on the last rank."""
    flow.manual_seed(0)
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 512), nn.Dropout(0.5)), nn.Linear(512, 4))
    for i, block in enumerate(model):
        stage = i * (told.stages - 1)
        block.to_global(told.placement(stage), told.weight_sbp)
        if told.stages > 1:
            block.to(GraphModule).set_stage(stage, told.placement(stage))
    graph = Train(model, adamw(model.parameters()), None, None, told)
    x = flow.tensor(rows(128, 8), placement=told.placement(0), sbp=told.input_sbp())
    found: list[Any] = []
    for step in range(4):
        labels = np.arange(128) * 5 % 4
        labels[list(wrong) if step == 1 else []] = 7
        y = flow.tensor(labels, placement=told.placement(told.stages - 1), sbp=told.input_sbp())
        strikes = crash is not None and step == 1 and flow.get_rank() == flow.get_world_size() - 1
        graph.config.schedule = (lambda: Crashing(60, crash)) if strikes else told.schedule  # type: ignore[arg-type]
        try:
            found.append(digest(graph(x, y)))
        except (Exception, KeyboardInterrupt) as error:
            found.append([type(error).__name__, str(error)])
            if isinstance(error, KeyboardInterrupt):
                try:
                    flow.barrier()
                except flow.errors.DivergenceError as divergence:
                    found[-1] = [type(error).__name__, str(divergence)]
    return json.loads(json.dumps([found, list(map(digest, model.parameters())), flow.default_generator().state]))


def diverged() -> Any:
    """The last process calls a graph of the same name and shapes with another function, then the same as the others."""
    steps = []
    for function in (nn.ReLU(), nn.Tanh()):
        flow.manual_seed(0)
        told = Told((flow.get_world_size(),))
        model = nn.Sequential(nn.Linear(8, 16), function, nn.Linear(16, 4)).to_global(told.placement(0), B)
        steps.append(Train(model, adamw(model.parameters()), None, None, told))
    x = flow.tensor(rows(128, 8), placement=told.placement(0), sbp=told.input_sbp())
    y = flow.tensor(np.arange(128) * 5 % 4, placement=told.placement(0), sbp=told.input_sbp())
    for step in steps:
        step(x, y)  # AdamW makes its state, then the graph is traced as it stays
        step(x, y)
    try:
        digest(steps[flow.get_rank() == flow.get_world_size() - 1](x, y))
    except flow.errors.DivergenceError as error:
        return [str(error).splitlines()[0], digest(steps[0](x, y))]
    return "no error"


def main(folder: str) -> None:
    jobs = [story(told, wrong) for told, wrong in JOBS[flow.get_world_size()]]
    crashes = [story(Told((flow.get_world_size(),)), crash=error) for error in CRASHES]
    Path(folder, f"{flow.get_rank()}.json").write_text(json.dumps({"jobs": jobs, "crashes": crashes, "diverged": diverged()}))


if __name__ == "__main__":
    main(sys.argv[1])
