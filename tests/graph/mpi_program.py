"""What one MPI process of the graph tests runs: `python -m mpi4py mpi_program.py FOLDER graphs`.

Jobs whose records must be those of eager training on one rank in the virtual world.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import refflow as flow
from refflow.runtime import Newest, Random
from tests.graph.nets import Told, adamw, cnn, dropped, momentum, run
from tests.graph.test_parts import trained

JOBS: dict[int, list[tuple[Any, Any, Told]]] = {
    2: [
        (dropped, momentum, Told((2,))), (dropped, adamw, Told((2,), micro=4, zero=3)), (cnn, momentum, Told((2,), tensor=True)),
        (dropped, adamw, Told(stages=2, micro=4, schedule=Newest)), (dropped, momentum, Told((2,), micro=2, runtime="sequential")),
    ],
    4: [
        (dropped, momentum, Told((2,), micro=2)),  # two processes have nothing to do
        (dropped, momentum, Told((4,), micro=2)), (dropped, adamw, Told((2,), stages=2, micro=4)), (cnn, adamw, Told((4,), zero=3)),
        (dropped, adamw, Told(stages=4, micro=4, recompute=True, schedule=lambda: Random(7))),
    ],
}  # fmt: skip


PARTS = {2: Told(stages=2, micro=4), 4: Told((2,), stages=2, micro=2, zero=3)}


def parts(told: Told) -> list[Any]:
    """The parts of a job's results."""
    with flow.state.Override(generator=flow.Generator()):
        return trained(told)[0]


def record(net: Any, optimizer: Any, told: Told | None) -> Any:
    """A job's record in a form that JSON keeps."""
    with flow.state.Override(generator=flow.Generator()):
        found = run(net, told, optimizer=optimizer, clip=0.5)
    plain = {name: value for name, value in vars(found).items() if name != "graph"}
    return json.loads(json.dumps(plain))


def main(folder: str) -> None:
    size = flow.get_world_size()
    found = {"jobs": [record(*job) for job in JOBS[size]], "parts": parts(PARTS[size])}
    Path(folder, f"{flow.get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
