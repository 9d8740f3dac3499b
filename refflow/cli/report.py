"""What the commands show: a progress bar, tables, JSON.

Implements CLI-RESULT and CLI-PLOT of spec/text/jobs.md.  Results go to standard output, the progress bar to standard error.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..numerics import LEAF, PROFILE, CheckResult
from .training import speed

if TYPE_CHECKING:
    from ..tensor.tensor import Tensor
    from .bench import Measure
    from .training import Result, Run

WIDE = 160  # columns
SHOWN_EVERY = 5  # steps between looks at the loss: each is a collective


class progress:
    """A bar that follows a `Run`; when not shown it does nothing, so that ranks without a screen keep in step."""

    def __init__(self, shown: bool) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   TimeRemainingColumn(), TextColumn("{task.fields[loss]}"))  # fmt: skip
        console = Console(stderr=True)
        if not console.is_terminal:
            console = Console(stderr=True, width=WIDE)  # a log has no edge to keep to
        self._bar = Progress(*columns, console=console, disable=not shown)
        self._task: Any = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, run: Run, goal: int) -> None:
        """Shows a bar of `goal` steps, at the step `run` is at."""
        what = f"{run.arrangement.parallel} parallel, ranks: {run.arrangement.placement.size}"
        self._task = self._bar.add_task(what, total=goal, completed=run.step, loss=run.first_step)
        self._began, self._begun, self._goal = time.perf_counter(), run.step, goal

    def each(self, run: Run, loss: Tensor) -> None:
        """One step is done.  Every rank looks at the loss, shown or not: that is a collective."""
        if run.step == self._begun + 1:  # the speed is that of the others
            self._began = time.perf_counter()
            self._bar.update(self._task, loss=f"loss {loss.item():.4f}")
        elif run.step % SHOWN_EVERY == 0 or run.step == self._goal:
            fast = speed(run, run.step - self._begun - 1, time.perf_counter() - self._began)
            self._bar.update(self._task, loss=f"loss {loss.item():.4f}, {fast}")
        self._bar.update(self._task, completed=run.step)


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.lstrip(">"), justify=justify, overflow="fold")
    return table


def _console() -> Console:
    """Standard output, never narrower than a digest: a hash that is cut cannot be compared."""
    console = Console(highlight=False)
    return console if console.width >= 100 else Console(highlight=False, width=100)


def print_result(result: Result, files: Mapping[str, str]) -> None:
    """Outcome, digest and communication of a run, and the files it wrote, as text."""
    console = _console()
    last = "" if result.loss is None else f", last loss {result.loss:.6f}"
    rows = {
        "model": str(result.recipe),
        "ranks": str(result.arrangement),
        "execution": f"{result.execution}; back end {result.backend}",
        "steps": f"{result.steps}, {result.seconds:.1f} s" + (f", {result.speed}" if result.speed else "") + last,
        **result.outcome.rows,
        "SHA-256 of the weights": result.sha256,
        "arithmetic profile": PROFILE,
    }
    if result.recipe.amp == "f16":
        rows["steps skipped"] = f"{result.skipped}, by overflow"
    table = _table("", "")
    table.show_header = False
    for name, value in {**rows, **files}.items():
        table.add_row(name, Text(value))
    console.print(table)
    moves = _table("collective", ">times", ">bytes moved", title="communication of training")
    for kind, (count, size) in sorted(result.comm.items()):
        moves.add_row(kind, f"{count:,}", f"{size:,}")
    moves.add_row("all", f"{sum(c for c, _ in result.comm.values()):,}", f"{sum(b for _, b in result.comm.values()):,}")
    console.print(moves)


def written(result: Result, saved: str | None, plot: str | None) -> dict[str, str]:
    """Draws the curve if there is a file for it; the files of a run by what they hold (CLI-PLOT)."""
    files = {}
    if saved is not None:
        files["saved to"] = saved
    if plot is not None and result.curve:
        from ..pictures.curve import draw_curve

        draw_curve(result.curve, str(result.recipe)).save(plot)
        files["loss curve"] = plot
    return files


def print_json(result: Result, files: Mapping[str, str]) -> None:
    """The same as one JSON object on one line."""
    placement = result.arrangement.placement
    print(json.dumps({
        **asdict(result.recipe), "parallel": result.arrangement.parallel, "mesh": list(placement.mesh),
        "stages": result.arrangement.stages, **asdict(result.execution), "backend": result.backend,
        "skipped": result.skipped, "ranks": placement.size, "steps": result.steps, "loss": result.loss,
        **result.outcome.json, "sha256": result.sha256, "profile": PROFILE,
        "comm": {kind: {"times": count, "bytes": size} for kind, (count, size) in sorted(result.comm.items())},
        "seconds": round(result.seconds, 3), "saved": files.get("saved to"),
        "plot": files.get("loss curve"),
    }))  # fmt: skip


def print_checks(results: Sequence[CheckResult]) -> None:
    """The profile, the versions in use, and each check."""
    from .. import __version__

    console = _console()
    console.print(f"arithmetic profile {PROFILE} (leaves of {LEAF} terms)")
    names = ("numpy", "ml_dtypes", "mpmath", "safetensors", "rich", "mpi4py")
    found = ", ".join(f"{name} {_version(name)}" for name in names)
    console.print(f"refflow {__version__} on Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    console.print(found)
    table = _table("check", "result", "covers, or what is wrong")
    for result in results:
        table.add_row(result.name, "passed" if result.passed else "FAILED", result.detail)
    console.print(table)
    failed = [result.name for result in results if not result.passed]
    console.print(f"FAILED: {', '.join(failed)}: results here will not have refflow's bits" if failed else "all passed")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def print_measures(measures: Sequence[Measure], as_json: bool) -> None:
    """What `bench` measured, beside the targets."""
    if as_json:
        print(json.dumps([asdict(measure) for measure in measures]))
        return
    table = _table("measured", ">found", ">target", "unit", "")
    for m in measures:
        bound = f"{'>=' if m.more_is_better else '<'} {m.target:g}"
        table.add_row(m.name, f"{m.found:.3g}", bound, m.unit, "met" if m.met else "missed")
    _console().print(table)
