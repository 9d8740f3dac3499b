"""A process for each side of a comparison: it makes a piece of work, runs it when asked, and waits at a pipe in between.

In one process the thread pools of two libraries hinder each other; here the side whose turn it is has the processors to
itself.  All sides get the same cores, as many threads, a thread to each core, and pools that soon sleep when they have
nothing to do; settings of the user's that a library reads when it is loaded reach none.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

Make = Callable[[], Callable[[], Any]]  # what a process is sent: names of functions, numbers, arrays

LEFT_OUT = ("OPENBLAS_", "OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "NUMBA_NUM_THREADS", "REFFLOW_THREADS")
COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "REFFLOW_THREADS")
SHORT = {"GOMP_SPINCOUNT": "30000", "KMP_BLOCKTIME": "1", "OPENBLAS_THREAD_TIMEOUT": "20"}
"""How long idle threads keep a core busy: about a millisecond, which spans the gaps inside a step and no turn of others.

To sleep at once (OMP_WAIT_POLICY=passive) would bill a step for waking them at each loop, as no user's run is.
"""


def cores(threads: int) -> list[int]:
    """The processors that every side has: the first of those at hand."""
    return sorted(os.sched_getaffinity(0))[:threads]


def environment(threads: int) -> dict[str, str]:
    """The variables of every side."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)},
        **dict.fromkeys(COUNTS, str(threads)),
        **SHORT,
        "OMP_PROC_BIND": "true",
        "OMP_PLACES": ",".join(f"{{{core}}}" for core in cores(threads)),
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),  # of a checkout, too
    }


class Side:
    """One such process, from the outside."""

    def __init__(self, threads: int) -> None:
        command = [sys.executable, "-m", __name__, *map(str, cores(threads))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment(threads))

    def make(self, make: Make) -> None:
        """Makes the work that is asked about from now on."""
        self._answer(make, None)

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function says of the work, with further arguments.  Raises what it raises there."""
        return self._answer(function, arguments)

    def _answer(self, function: Callable[..., Any], arguments: tuple[Any, ...] | None) -> Any:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        pickle.dump((function, arguments), to)
        to.flush()
        try:
            raised, value = pickle.load(back)
        except EOFError:
            raise ChildProcessError(f"a process of the comparison ended with {self._process.wait()}") from None
        if raised:
            raise value
        return value

    def close(self) -> None:
        """Lets the process end."""
        self._process.communicate()


class Sides:
    """The processes of one number of threads by name, each started when it is first wanted."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._started: dict[str, Side] = {}

    def __getitem__(self, name: str) -> Side:
        if name not in self._started:
            self._started[name] = Side(self.threads)
        return self._started[name]

    def give(self, work: Mapping[str, Make]) -> list[str]:
        """Gives each side its work; their names."""
        for name, make in work.items():
            self[name].make(make)
        return list(work)

    def __enter__(self) -> Sides:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for side in self._started.values():
            side.close()


def serve(cores: list[int]) -> None:
    """The inside: answers until the pipe is closed, in a world of one rank under the back end "numba"."""
    os.sched_setaffinity(0, cores)  # before anything starts threads
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer

    from refflow.world import backend, virtual_world

    work: Any = None
    with virtual_world(1), backend("numba"):
        while True:
            try:
                function, arguments = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            try:
                if arguments is None:
                    work = None  # frees the last one first
                    work, value = function(), None
                else:
                    value = function(work, *arguments)
                answer = pickle.dumps((False, value))
            except Exception as error:
                answer = pickle.dumps((True, error))
            answers.write(answer)
            answers.flush()


if __name__ == "__main__":
    serve([int(core) for core in sys.argv[1:]])
