"""The arguments of the command `refflow`, and what each command does with them.

Implements CLI-ARGUMENTS, CLI-BACKEND and CLI-RANK0 of spec/text/jobs.md; the arguments of `train` are in `arguments`.  A
command is a function of its parsed arguments to an exit code: 0 done, 1 a check failed or a run broke, 2 the arguments make no sense.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import (
    AttributeValueError,
    BackendError,
    CheckpointError,
    DivergenceError,
    PlacementError,
    RefflowError,
    WorldError,
)
from ..state import Override
from ..world import VirtualWorld, backend, current_world, virtual_world
from .arguments import EPILOG, add_bench, add_train, count

if TYPE_CHECKING:
    from .training import Job

ASKED = (AttributeValueError, BackendError, PlacementError, WorldError, CheckpointError)  # what the user got wrong


class Parser(argparse.ArgumentParser):
    """One whose errors are one line, as all others are: the usage is what --help prints."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command given by `argv` (default: the program's own arguments) and returns its exit code."""
    try:
        args = make_parser().parse_args(argv)
        command: Callable[[argparse.Namespace], int] = args.command
        return command(args)
    except SystemExit as exit:  # what is wrong was said, or the help was printed
        return exit.code if isinstance(exit.code, int) else 2
    except KeyboardInterrupt:
        print("refflow: interrupted", file=sys.stderr)
        return 130


@contextmanager
def _errors_said() -> Iterator[None]:
    """Ends the command with one line instead of a traceback: code 2 for what the user asked, 1 for what happened."""
    try:
        yield
    except RefflowError as error:
        from ..graph.time import TooManySteps

        print(f"refflow: error: {error}", file=sys.stderr)
        asked = isinstance(error, (*ASKED, TooManySteps))
        raise SystemExit(2 if asked and not isinstance(error, DivergenceError) else 1) from error


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    from .. import __version__

    parser = Parser(
        "refflow", description="The reference runtime of global tensors: the same bits on any number of ranks.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"refflow {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_train(commands, digits=_train_digits, gpt=_train_gpt)
    _add_run(commands)
    check = commands.add_parser(
        "check", help="check this machine's arithmetic against the profile", allow_abbrev=False,
        description="Check that this machine and its NumPy compute what the arithmetic profile says, to the bit: fused"
        " multiply-add, subnormal numbers, the shape of sums, elementary functions, random numbers. A few seconds."
        " Exit code 0 if all pass, else 1.",
    )  # fmt: skip
    check.set_defaults(command=_check)
    add_bench(commands, eager=_bench_eager, runtime=_bench_runtime, accel=_bench_accel)
    return parser


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run", help="run a script in a world of N ranks", epilog=EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run a Python script in a virtual world of N ranks in this process; the script itself stays unchanged."
        "\nIt runs once, for all ranks: flow.placement(\"cpu\", range(N)) names them.  Code that asks for its own rank"
        "\n(flow.get_rank()) needs a process per rank (mpiexec) or flow.spmd(N, function).",
    )  # fmt: skip
    parser.add_argument("--ranks", type=count, metavar="N", help="number of ranks (default: 1, or the MPI processes)")
    parser.add_argument("script", help="the Python file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    parser.set_defaults(command=_run)


# --- commands: what is imported here is not needed to print a help text ---------------------------------------------


def _train_digits(args: argparse.Namespace) -> int:
    from .digits import DIGITS

    return _train(args, DIGITS, _asked(args, "model"))


def _train_gpt(args: argparse.Namespace) -> int:
    from ..data import load_text
    from ..data.text import text_sha256
    from .gpt import Sampling, gpt

    asked = _asked(args, "layers", "width", "heads", "context")
    with _errors_said():
        text = load_text(args.data)
        if args.data is not None and args.resume is None:  # a run checks the text of its checkpoint itself
            asked["text"] = text_sha256(text)
    return _train(args, gpt(text, Sampling(args.sample, args.prompt)), asked)


def _asked(args: argparse.Namespace, *of_the_job: str) -> dict[str, Any]:
    """What the user said of the recipe."""
    names = ("seed", "epochs", "batch", "lr", "amp", *of_the_job)
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _train(args: argparse.Namespace, job: Job, recipe: Mapping[str, Any]) -> int:
    from . import report
    from .arrangement import arrange
    from .steps import Execution
    from .training import train

    parallel = args.parallel or ("hybrid" if args.mesh and len(args.mesh) > 1 else "data")
    with ExitStack() as stack:
        stack.enter_context(_errors_said())
        if args.plot is not None and not args.plot.endswith(".svg"):
            raise AttributeValueError(f"plot: a curve is drawn as SVG, to a file such as curve.svg; found '{args.plot}'")
        _require_writable(save=args.save, plot=args.plot, trace=args.trace)
        if args.backend is not None:
            stack.enter_context(backend(args.backend))
        ranks = args.ranks
        if ranks is None and args.mesh is None and current_world().size > 1:
            ranks = current_world().size
        arrangement = arrange(parallel, ranks, args.mesh, args.stages)
        if args.zero is not None and args.zero > 3:
            raise AttributeValueError(f"--zero must be 1, 2 or 3, found {args.zero}")
        execution = Execution(args.graph, args.micro_batches or 1, args.zero or 0, args.recompute)
        stack.enter_context(virtual_world(arrangement.placement.size))
        first = 0 in current_world().owned
        with report.progress(shown=first and not args.quiet and not args.json) as progress:
            result = train(
                job, recipe, arrangement, execution, steps=args.steps, save_to=args.save, save_every=args.save_every,
                trace_to=args.trace, curve=args.plot is not None, resume=args.resume, begin=progress.begin,
                each=progress.each,
            )  # fmt: skip
        if first:
            files = report.written(result, args.save, args.plot)
            (report.print_json if args.json else report.print_result)(result, files)
            if result.loss is not None and not math.isfinite(result.loss):
                print(f"refflow: warning: the last loss is {result.loss}; a smaller --lr may help", file=sys.stderr)
    return 0


def _require_writable(**paths: str | None) -> None:
    """`AttributeValueError`, on every rank and before anything is computed, for a file that rank 0 could not write at the end."""
    found = None
    world = current_world()
    if 0 in world.owned:
        for name, path in paths.items():
            if path is None:
                continue
            folder = os.path.dirname(path) or "."
            if not os.path.isdir(folder):
                found = f"--{name}: there is no folder '{folder}' for '{path}'"
            elif os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
                found = f"--{name}: '{path}' cannot be written"
    told = [entry for entry in world.agree("train: files to write", dict.fromkeys(world.owned, found)).values() if entry]
    if told:
        raise AttributeValueError(told[0])


def _run(args: argparse.Namespace) -> int:
    from .script import require_script, run_script

    with _errors_said():
        require_script(args.script)
        here = current_world()
        if args.ranks is not None and len(here.owned) == here.size:
            world = Override(world=VirtualWorld(args.ranks, fixed=True))
        else:
            world = virtual_world(args.ranks or here.size)
    with world:  # the errors of the script are its author's to read in full
        return run_script(args.script, args.args)


def _check(args: argparse.Namespace) -> int:
    from ..numerics import self_check
    from . import report

    results = self_check()
    with _errors_said():
        first = 0 in current_world().owned
    if first:
        report.print_checks(results)
    return 0 if all(result.passed for result in results) else 1


def _bench_eager(args: argparse.Namespace) -> int:
    from . import bench, report

    with _errors_said():
        measures = bench.eager()  # in worlds of its own: an error under MPI
    report.print_measures(measures, as_json=args.json)
    return 0


def _bench_runtime(args: argparse.Namespace) -> int:
    from . import bench_runtime, report

    with _errors_said():
        measures = bench_runtime.runtime()
    report.print_measures(measures, as_json=args.json)
    return 0


def _bench_accel(args: argparse.Namespace) -> int:
    with _errors_said():
        from .bench_accel import accel

        return accel(args.section, args.threads, args.json, args.profile)
