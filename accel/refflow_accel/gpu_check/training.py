"""Training runs on the device, eager and compiled, and on the reference: their weights must have one hash.

Part of ACC-GPU-CHECK of spec/text/acceleration.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from refflow.numerics import digest_many

from .clock import Clock
from .report import Row

if TYPE_CHECKING:  # its module needs numba-cuda
    from ..cuda.backend import CudaBackend

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


def runs(backend: CudaBackend, clock: Clock, until: float, simulated: bool) -> Iterator[Row]:
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
