"""The public API does not change by accident: names and signatures are those of snapshot.txt.

Checks API-SNAPSHOT.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import refflow as flow
from tests.api.describe import COMMAND, MODULES, SNAPSHOT, describe, names_of


def test_snapshot() -> None:
    """(API-SNAPSHOT)"""
    stored = SNAPSHOT.read_text(encoding="utf-8") if SNAPSHOT.exists() else ""
    found = describe()
    changes = [line for line in difflib.unified_diff(
        stored.splitlines(), found.splitlines(), "snapshot.txt", "refflow", lineterm="", n=0) if not line.startswith("@@")]  # fmt: skip
    assert not changes, "\n".join(["the public API changed; if that is meant, run", f"    {COMMAND}", *changes])


def test_the_description_is_deterministic() -> None:
    """Another process with another hash seed describes the same API."""
    command = [sys.executable, "-c", "from tests.api.describe import describe; print(describe(), end='')"]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(root)}
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, env=environment)
    assert found.stdout == describe()


def test_nothing_foreign_leaks_into_the_top_level() -> None:
    """`flow.` offers refflow's own names, not what its modules import for themselves."""
    leaked = {"np", "math", "Any", "Sequence", "Callable", "NamedTuple", "ops", "operands", "cast_value", "settings"}
    names = set(names_of(flow))
    assert not leaked & names and "refflow" in MODULES
    assert {"tensor", "matmul", "no_grad", "placement", "Tensor", "save", "load", "spmd"} <= names


def test_every_public_function_says_what_it_does() -> None:
    """A docstring of at least a sentence on every function and class of the top level."""
    silent = [
        name for name in names_of(flow)
        if callable(getattr(flow, name)) and not (getattr(flow, name).__doc__ or "").strip()
    ]  # fmt: skip
    assert silent == []
