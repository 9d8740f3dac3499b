"""The arguments of the command `refflow`, and what each command does with them.

Implements CLI-ARGUMENTS and CLI-RANK0 of spec/text/jobs.md.  A command is a function of its parsed arguments to an exit
code: 0 done, 1 a check failed or a run broke, 2 the arguments make no sense.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import AttributeValueError, CheckpointError, DivergenceError, PlacementError, RefflowError, WorldError
from ..world import current_world, virtual_world

EPILOG = """\
Under MPI each process is a rank:  mpiexec -n 4 python -m mpi4py -m refflow train digits
Without it --ranks N are virtual, in this process.  The bits are the same."""


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
        asked = isinstance(error, (AttributeValueError, PlacementError, WorldError, CheckpointError, TooManySteps))
        raise SystemExit(2 if asked and not isinstance(error, DivergenceError) else 1) from error


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    from .. import __version__

    parser = argparse.ArgumentParser(
        "refflow", description="The reference runtime of global tensors: the same bits on any number of ranks.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"refflow {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_train(commands)
    _add_run(commands)
    check = commands.add_parser(
        "check", help="check this machine's arithmetic against the profile", allow_abbrev=False,
        description="Check that this machine and its NumPy compute what the arithmetic profile says, to the bit: fused"
        " multiply-add, subnormal numbers, the shape of sums, elementary functions, random numbers. A few seconds."
        " Exit code 0 if all pass, else 1.",
    )  # fmt: skip
    check.set_defaults(command=_check)
    bench = commands.add_parser("bench", help="measure how fast refflow is here")
    bench.add_argument("what", choices=["eager", "runtime"],
                       help="eager: a training step, one operation, the import; runtime: compiling plans, running actors")
    bench.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    bench.set_defaults(command=_bench)
    return parser


def _add_train(commands: Any) -> None:
    parser = commands.add_parser(
        "train", help="train a small network on real data", epilog=EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train on the 1,797 handwritten digits (UCI) that ship with refflow. Prints the test accuracy, the"
        "\nSHA-256 of the final weights and the bytes each collective moved. The SHA-256 does not depend on how ranks"
        "\nshare the work, on how a step is carried out, or on the world; --amp has one of its own.",
    )  # fmt: skip
    parser.add_argument("data", choices=["digits"], help="what to train on")
    ranks = parser.add_argument_group("how ranks share the work (never changes a bit)")
    ranks.add_argument("--ranks", type=_count, metavar="N", help="number of ranks (default: 1, or the MPI processes)")
    ranks.add_argument("--parallel", choices=["data", "tensor", "hybrid", "pipeline"],
                       help="data: batches are split (default); tensor: weights are; hybrid: both, on a mesh;"
                       " pipeline: layers are, in stages, and batches inside each stage")  # fmt: skip
    ranks.add_argument("--mesh", type=_mesh, metavar="AxB", help="for hybrid: data x tensor (default: the squarest)")
    ranks.add_argument("--stages", type=_count, metavar="N", help="for pipeline: 2 (default) or 4; ranks are shared out equally")
    how = parser.add_argument_group("how a step is carried out (never changes a bit)")
    how.add_argument("--graph", action="store_true", help="trace the step once, then run its plan by actors")
    how.add_argument("--micro-batches", type=_count, metavar="M", help="cut each batch into M, one after the other (implies --graph)")
    how.add_argument("--zero", type=_count, metavar="STAGE",
                     help="hold optimizer state (1), gradients (2), weights (3) in parts (implies --graph)")  # fmt: skip
    how.add_argument("--recompute", action="store_true", help="make activations again in backward (implies --graph)")
    what = parser.add_argument_group("what is trained (the bits depend on these)")
    what.add_argument("--model", choices=["mlp", "cnn"], help="mlp (default) or cnn")
    what.add_argument("--seed", type=_seed, metavar="N", help="of weights and shuffling (default: 0)")
    what.add_argument("--epochs", type=_count, metavar="N", help="length of the whole run (default: 30)")
    what.add_argument("--batch", type=_count, metavar="N", help="images per step; an incomplete batch is left out (default: 128)")
    what.add_argument("--lr", type=_rate, metavar="X", help="first learning rate (default: 0.003 for mlp, 0.01 for cnn)")
    what.add_argument("--amp", choices=["bf16", "f16"], help="contractions in half precision; f16 scales the loss (implies --graph)")
    what.add_argument("--steps", type=_natural, metavar="N", help="stop after this step of the run (default: its last)")
    files = parser.add_argument_group("checkpoints")
    files.add_argument("--save", metavar="PATH", help="write the run's state at the end, in safetensors")
    files.add_argument("--save-every", type=_count, metavar="N", help="and after every N steps")
    files.add_argument("--resume", metavar="PATH", help="go on from there, on any ranks, to the uninterrupted run's bits")
    shown = parser.add_argument_group("output")
    shown.add_argument("--trace", metavar="PATH", help="write the last step of a graph as a trace that Perfetto opens")
    shown.add_argument("--quiet", action="store_true", help="no progress bar")
    shown.add_argument("--json", action="store_true", help="print one JSON object instead of tables; no progress bar")
    parser.set_defaults(command=_train)


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run", help="run a script in a world of N ranks", epilog=EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run a Python script in a virtual world of N ranks in this process; the script itself stays unchanged."
        "\nIt runs once, for all ranks: flow.placement(\"cpu\", range(N)) names them.  Code that asks for its own rank"
        "\n(flow.get_rank()) needs a process per rank (mpiexec) or flow.spmd(N, function).",
    )  # fmt: skip
    parser.add_argument("--ranks", type=_count, metavar="N", help="number of ranks (default: 1, or the MPI processes)")
    parser.add_argument("script", help="the Python file")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    parser.set_defaults(command=_run)


# --- commands: what is imported here is not needed to print a help text ---------------------------------------------


def _train(args: argparse.Namespace) -> int:
    from . import report
    from .digits import arrange, train
    from .steps import Execution

    parallel = args.parallel or ("hybrid" if args.mesh and len(args.mesh) > 1 else "data")
    names = ("model", "seed", "epochs", "batch", "lr", "amp")
    recipe = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    with _errors_said():
        ranks = args.ranks
        if ranks is None and args.mesh is None and current_world().size > 1:
            ranks = current_world().size
        arrangement = arrange(parallel, ranks, args.mesh, args.stages)
        if args.zero is not None and args.zero > 3:
            raise AttributeValueError(f"--zero must be 1, 2 or 3, found {args.zero}")
        execution = Execution(args.graph, args.micro_batches or 1, args.zero or 0, args.recompute)
        with virtual_world(arrangement.placement.size):
            first = 0 in current_world().owned
            with report.progress(shown=first and not args.quiet and not args.json) as progress:
                result = train(
                    recipe, arrangement, execution, steps=args.steps, save_to=args.save, save_every=args.save_every,
                    trace_to=args.trace, resume=args.resume, begin=progress.begin, each=progress.each,
                )  # fmt: skip
            if first:
                (report.print_json if args.json else report.print_result)(result, args.save)
    return 0


def _run(args: argparse.Namespace) -> int:
    from .script import require_script, run_script

    with _errors_said():
        require_script(args.script)
        world = virtual_world(args.ranks or current_world().size)
    with world:  # the errors of the script are its author's to read in full
        return run_script(args.script, args.args)


def _check(args: argparse.Namespace) -> int:
    from ..numerics import self_check
    from . import report

    results = self_check()
    if 0 in current_world().owned:
        report.print_checks(results)
    return 0 if all(result.passed for result in results) else 1


def _bench(args: argparse.Namespace) -> int:
    from . import bench, report

    with _errors_said():
        if args.what == "runtime":
            from .bench_runtime import runtime

            measures = runtime()
        else:
            measures = bench.eager()  # in worlds of its own: an error under MPI
    report.print_measures(measures, as_json=args.json)
    return 0


# --- types of arguments ---------------------------------------------------------------------------------------------


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, found {text!r}")
    return int(text)


def _count(text: str) -> int:
    if _natural(text) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more, found 0")
    return int(text)


def _seed(text: str) -> int:
    if _natural(text) >= 2**64:
        raise argparse.ArgumentTypeError(f"must be below 2**64, found {text}")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of 0 or more, found {text!r}")
    return rate


def _mesh(text: str) -> tuple[int, ...]:
    sizes = text.lower().split("x")
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise argparse.ArgumentTypeError(f"must be sizes joined by x, such as 2x2, found {text!r}")
    return tuple(map(int, sizes))
