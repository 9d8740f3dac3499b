"""The arguments of `refflow train` and `refflow bench`: what jobs share, what each adds, and the types of arguments.

Implements CLI-ARGUMENTS of spec/text/jobs.md; `commands` has the other commands.
"""

from __future__ import annotations

import argparse
from typing import Any

EPILOG = """\
Under MPI each process is a rank:  mpiexec -n 4 python -m mpi4py -m refflow train digits
Without it --ranks N are virtual, in this process.  The bits are the same."""

SAME = (
    "\nSHA-256 of the final weights and the bytes each collective moved. The SHA-256 does not depend on how ranks"
    "\nshare the work, on how a step is carried out, or on the world; --amp has one of its own."
)


def add_train(commands: Any, digits: Any, gpt: Any) -> None:
    """Adds `train` with its jobs, and the command of each."""
    parser = commands.add_parser(
        "train", help="train a network on real data", epilog=EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train on data that ships with refflow. Each job has options of its own: refflow train digits --help",
    )  # fmt: skip
    jobs = parser.add_subparsers(title="jobs", metavar="JOB", required=True)
    _add_digits(jobs, digits)
    _add_gpt(jobs, gpt)


def add_bench(commands: Any, eager: Any, runtime: Any, accel: Any) -> None:
    """Adds `bench` with what it measures, and the command of each."""
    parser = commands.add_parser("bench", help="measure how fast refflow is here", allow_abbrev=False)
    kinds = parser.add_subparsers(title="what to measure", metavar="WHAT", required=True)
    for name, command, says in (
        ("eager", eager, "a training step, one operation, the import"),
        ("runtime", runtime, "compiling plans, running actors"),
    ):
        kind = kinds.add_parser(name, help=says, allow_abbrev=False)
        kind.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
        kind.set_defaults(command=command)
    kind = kinds.add_parser(
        "accel", help="the back end numba beside NumPy and PyTorch", allow_abbrev=False,
        description="Compare the back end numba with NumPy's BLAS, PyTorch and the reference: kernels, whole training steps,"
        " first use. Minutes; machines differ, so read the ratios. Needs the extra accel; PyTorch where it is the rival.",
    )  # fmt: skip
    kind.add_argument("--section", action="append", metavar="NAME", default=[], choices=ACCEL_SECTIONS,
                      help=f"only this one (may be given again): {', '.join(ACCEL_SECTIONS)}")  # fmt: skip
    kind.add_argument("--threads", type=count, nargs="+", metavar="N", default=[1, 2],
                      help="threads of both sides, one run for each (default: 1 2)")  # fmt: skip
    kind.add_argument("--json", metavar="FILE", nargs="?", const="-", help="write the numbers to FILE too; alone: print JSON only")
    kind.add_argument("--profile", metavar="MODEL", nargs="?", const="",
                      help="instead, where the training steps of MODEL (cnn, gpt, 784 …; default: all) spend their time")  # fmt: skip
    kind.set_defaults(command=accel)


ACCEL_SECTIONS = ("matmul", "reference", "rows", "elementwise", "conv", "training", "compiling")


def _add_digits(jobs: Any, command: Any) -> None:
    parser = jobs.add_parser(
        "digits", help="a small network on 1,797 handwritten digits", epilog=EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train on the 1,797 handwritten digits (UCI) that ship with refflow. Prints the test accuracy, the" + SAME,
    )  # fmt: skip
    what = _add_shared(parser, epochs=30, batch="images per step; an incomplete batch is left out (default: 128)",
                       lr="0.003 for mlp, 0.01 for cnn")  # fmt: skip
    what.add_argument("--model", choices=["mlp", "cnn"], help="mlp (default) or cnn")
    parser.set_defaults(command=command)


def _add_gpt(jobs: Any, command: Any) -> None:
    parser = jobs.add_parser(
        "gpt", help="a language model on the characters of a book", epilog=EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Train a GPT on the characters of a text: Moby-Dick, chapters 1 to 40, or a file of yours. Prints the\n"
        "validation loss, a sample if asked for, the" + SAME + "\nOn the reference back end a step of the full size takes"
        " seconds: try --steps 20, or smaller sizes.",
    )  # fmt: skip
    what = _add_shared(parser, epochs=1, batch="texts per step; an incomplete batch is left out (default: 16)", lr="0.001")
    what.add_argument("--data", metavar="PATH", help="the text: a file in UTF-8 (default: the book that ships)")
    what.add_argument("--layers", type=count, metavar="N", help="default: 4")
    what.add_argument("--width", type=count, metavar="N", help="length of the vectors between layers (default: 128)")
    what.add_argument("--heads", type=count, metavar="N", help="heads of attention; they divide the width (default: 4)")
    what.add_argument("--context", type=count, metavar="N", help="characters the model sees at once (default: 64)")
    drawn = parser.add_argument_group("text drawn at the end")
    drawn.add_argument("--sample", type=natural, metavar="N", default=0, help="draw N characters; the same for the same weights")
    drawn.add_argument("--prompt", metavar="TEXT", default="\n", help="what comes before them (default: an end of line)")
    parser.set_defaults(command=command)


def _add_shared(parser: argparse.ArgumentParser, epochs: int, batch: str, lr: str) -> Any:
    """The options that all jobs have; returns the group of what is trained."""
    ranks = parser.add_argument_group("how ranks share the work (never changes a bit)")
    ranks.add_argument("--ranks", type=count, metavar="N", help="number of ranks (default: 1, or the MPI processes)")
    ranks.add_argument("--parallel", choices=["data", "tensor", "hybrid", "pipeline"],
                       help="data: batches are split (default); tensor: weights are; hybrid: both, on a mesh;"
                       " pipeline: layers are, in stages, and batches inside each stage")  # fmt: skip
    ranks.add_argument("--mesh", type=mesh, metavar="AxB", help="for hybrid: data x tensor (default: the squarest)")
    ranks.add_argument("--stages", type=count, metavar="N", help="for pipeline: 2 (default) or 4; ranks are shared out equally")
    how = parser.add_argument_group("how a step is carried out (never changes a bit)")
    how.add_argument("--backend", metavar="NAME", help="what computes, by its name, such as reference or numba (default:"
                     " the environment variable REFFLOW_BACKEND, else reference)")  # fmt: skip
    how.add_argument("--graph", action="store_true", help="trace the step once, then run it as a graph: fast with"
                     " a back end that compiles (numba); on the reference small models are slower than without")  # fmt: skip
    how.add_argument("--micro-batches", type=count, metavar="M", help="cut each batch into M, one after the other (implies --graph)")
    how.add_argument("--zero", type=count, metavar="STAGE",
                     help="hold optimizer state (1), gradients (2), weights (3) in parts (implies --graph)")  # fmt: skip
    how.add_argument("--recompute", action="store_true", help="make activations again in backward (implies --graph)")
    what = parser.add_argument_group("what is trained (the bits depend on these)")
    what.add_argument("--seed", type=seed, metavar="N", help="of weights and shuffling (default: 0)")
    what.add_argument("--epochs", type=count, metavar="N", help=f"length of the whole run (default: {epochs})")
    what.add_argument("--batch", type=count, metavar="N", help=batch)
    what.add_argument("--lr", type=rate, metavar="X", help=f"first learning rate (default: {lr})")
    what.add_argument("--amp", choices=["bf16", "f16"], help="contractions in half precision; f16 scales the loss (implies --graph)")
    what.add_argument("--steps", type=natural, metavar="N", help="stop after this step of the run (default: its last)")
    files = parser.add_argument_group("checkpoints")
    files.add_argument("--save", metavar="PATH", help="write the run's state at the end, in safetensors")
    files.add_argument("--save-every", type=count, metavar="N", help="and after every N steps")
    files.add_argument("--resume", metavar="PATH", help="go on from there, on any ranks, to the uninterrupted run's bits")
    shown = parser.add_argument_group("output")
    shown.add_argument("--plot", metavar="PATH", help="draw the loss of every step, as an SVG")
    shown.add_argument("--trace", metavar="PATH", help="write the last step of a graph as a trace that Perfetto opens")
    shown.add_argument("--quiet", action="store_true", help="no progress bar")
    shown.add_argument("--json", action="store_true", help="print one JSON object instead of tables; no progress bar")
    return what


# --- types of arguments ---------------------------------------------------------------------------------------------


def natural(text: str) -> int:
    """A whole number."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, found {text!r}")
    return int(text)


def count(text: str) -> int:
    """A whole number of 1 or more."""
    if natural(text) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more, found 0")
    return int(text)


def seed(text: str) -> int:
    """A whole number of 64 bits."""
    if natural(text) >= 2**64:
        raise argparse.ArgumentTypeError(f"must be below 2**64, found {text}")
    return int(text)


def rate(text: str) -> float:
    """A number of 0 or more."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of 0 or more, found {text!r}")
    return found


def mesh(text: str) -> tuple[int, ...]:
    """Sizes joined by x."""
    sizes = text.lower().split("x")
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise argparse.ArgumentTypeError(f"must be sizes joined by x, such as 2x2, found {text!r}")
    return tuple(map(int, sizes))
