"""`refflow bench eager`: a training step, one operation, the import; each the best of several tries.

Implements no rule: times are not part of the meaning.  Nothing here decides an exit code, since machines differ.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..functional.arithmetic import add
from ..functional.creation import randint, randn
from ..layout import Placement, Split, broadcast
from ..nn import Linear, ReLU, Sequential
from ..nn.functional import cross_entropy
from ..optim import SGD
from ..state import manual_seed
from ..world import virtual_world

BATCH = 64


@dataclass(frozen=True)
class Measure:
    """One number, in `unit`, beside what the project asks for."""

    name: str
    found: float
    target: float
    unit: str
    more_is_better: bool

    @property
    def met(self) -> bool:
        """Whether the target is reached."""
        return self.found >= self.target if self.more_is_better else self.found < self.target


def eager() -> list[Measure]:
    """Steps a second of an MLP 64-32-10 at batch 64, time of a small sum, time of the import."""
    return [
        Measure("MLP 64-32-10, batch 64, 1 rank", steps_per_second(1), 25, "steps/s", True),
        Measure("MLP 64-32-10, batch 64, 4 virtual ranks, data parallel", steps_per_second(4), 8, "steps/s", True),
        Measure("sum of two 8 x 8 tensors", 1e6 * seconds_of_add(), 60, "us", False),
        Measure("import of refflow beyond NumPy's own", seconds_of_import(), 0.4, "s", False),
    ]


def training_step(ranks: int) -> Callable[[], None]:
    """One step of the MLP on `ranks` ranks: forward, backward, SGD with momentum.  In the world in force."""
    manual_seed(0)
    where = Placement("cpu", list(range(ranks)))
    model = Sequential(Linear(64, 32), ReLU(), Linear(32, 10))
    model.to_global(where, broadcast)
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = randn(BATCH, 64, placement=where, sbp=Split(0))
    labels = randint(0, 10, (BATCH,), placement=where, sbp=Split(0))

    def step() -> None:
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def steps_per_second(ranks: int) -> float:
    """The best of five stretches of ten steps."""
    with virtual_world(ranks):
        return 1 / best(training_step(ranks), tries=5, times=10)


def seconds_of_add() -> float:
    """Seconds of x + y for two local 8 x 8 tensors."""
    x, y = randn(8, 8), randn(8, 8)
    return best(lambda: add(x, y), tries=5, times=500)


def best(function: Callable[[], object], tries: int, times: int) -> float:
    """Seconds of one call: the best mean over `times` calls, after one call that fills the caches."""
    function()
    stretches = []
    for _ in range(tries):
        begin = time.perf_counter()
        for _ in range(times):
            function()
        stretches.append((time.perf_counter() - begin) / times)
    return min(stretches)


_IMPORT = "import time; import numpy; begin = time.perf_counter(); import refflow; print(time.perf_counter() - begin)"


def seconds_of_import(tries: int = 5) -> float:
    """Seconds of `import refflow` in a fresh process that has NumPy already, the best of some tries."""
    run = [sys.executable, "-c", _IMPORT]
    return min(float(subprocess.run(run, capture_output=True, text=True, check=True).stdout) for _ in range(tries))
