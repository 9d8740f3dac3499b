"""Streams of a back end: the actors carry every task out on its plan's stream (KER-STREAM)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import refflow as flow
from refflow.kernels import Kernel, ReferenceBackend
from tests.graph.running import B, Of, S, bits


class Streams(ReferenceBackend):
    """The reference, noting on which stream each kernel was called."""

    name = "streams"

    def __init__(self) -> None:
        super().__init__()
        self.now = ""
        self.seen: set[tuple[str, str]] = set()

    def kernel(self, name: str) -> Kernel:
        inner = super().kernel(name)

        def run(*arrays: Any, **attrs: Any) -> Any:
            self.seen.add((self.now, name))
            return inner(*arrays, **attrs)

        return run

    @contextmanager
    def stream(self, name: str) -> Iterator[None]:
        before, self.now = self.now, name
        try:
            yield
        finally:
            self.now = before


def test_every_task_runs_on_its_stream() -> None:
    pair = flow.placement("cpu", [0, 1])
    with flow.backend(Streams()) as _:
        backend: Any = flow.state.settings().backend("cpu")
        graph = Of(lambda x, w: (x @ w).to_global(pair, B).exp(), 1, "actors")
        x, w = flow.randn(8, 4, placement=pair, sbp=S(0)), flow.randn(4, 4, placement=pair, sbp=B)
        backend.seen.clear()
        graph(x, w)
        called, tasks = set(backend.seen), [task for task in graph.plan.tasks if task.payload]
        assert bits(graph(x, w)) == bits((x @ w).to_global(pair, B).exp())
    assert {name for _, name in called} >= {"matmul", "exp", "slice_box", "assemble"}
    for stream, name in called:
        assert stream in {task.stream for task in tasks if name in task.name or task.name.startswith("all_gather")}
