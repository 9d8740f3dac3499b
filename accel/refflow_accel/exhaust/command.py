"""The command line of the exhaustive check: which functions, a bar while it runs, a table and JSON at the end.

Serves ACC-EXHAUST of spec/text/acceleration.md.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from .compare import ALL, Outcome, Subject, check
from .wide import NAMES


def main(argv: list[str] | None = None) -> int:
    """Command line; the exit status is 0 if nothing differs."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    options = _parsed(argv)
    outcomes: list[Outcome] = []
    console = Console(stderr=True)
    percent = TextColumn("{task.percentage:.1f} %")
    columns = (TextColumn("{task.description}"), BarColumn(), percent, TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        for subject in _subjects(options):
            task = progress.add_task(str(subject), total=-(-ALL // options.stride))
            outcomes.append(
                check(subject, options.stride, options.threads, not options.block_only,
                      advance=lambda n, task=task: progress.advance(task, n))  # type: ignore[misc]
            )  # fmt: skip
            print(json.dumps(asdict(outcomes[-1])), flush=True)  # at once: the next may take an hour
    table = Table("function", "forms", "every", "inputs", "undecided", "differ", "seconds")
    for o in outcomes:
        row = (o.function, o.forms, o.stride, f"{o.inputs:,}", o.undecided, o.differences, o.seconds)
        table.add_row(*(str(v) for v in row))
    console.print(table)
    return 0 if all(o.differences == 0 for o in outcomes) else 1


def _parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="refflow_accel.exhaust",
        description="Check a scalar function and its block form against the reference on all 2^32 float32 inputs.",
    )
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--exponent", type=float, nargs="+", default=[], metavar="Y", help="pow: every x to this power")
    parser.add_argument(
        "--base", type=float, nargs="+", default=[], metavar="X", help="pow: this number to every power"
    )
    parser.add_argument("--stride", type=int, default=1, help="every Nth input only")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--block-only", action="store_true", help="leave out the scalar form")
    options = parser.parse_args(argv)
    if (options.exponent or options.base) and "pow" not in options.names:
        parser.error("--exponent and --base are of pow")
    return options


def _subjects(options: argparse.Namespace) -> list[Subject]:
    """What was asked for; pow with neither argument fixed takes its exponents from a mixture."""
    powers = [Subject("pow", exponent=value) for value in options.exponent]
    powers += [Subject("pow", base=value) for value in options.base]
    return [subject for name in options.names for subject in (powers if name == "pow" and powers else [Subject(name)])]
