"""Reports that cannot be tested yet: what each test must show, and why it waits.  None at present."""

from __future__ import annotations

import ast
from pathlib import Path

LATER: dict[str, tuple[str, str]] = {
    # report: (what is missing, what the test must show)
}


def test_no_report_is_both_tested_and_later() -> None:
    """A report that has got its test leaves the list."""
    tests = [
        node.name.removeprefix("test_")
        for file in sorted(Path(__file__).parent.glob("test_*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    done = [report for report in LATER if any(name.startswith(report) for name in tests)]
    assert not done, f"tested by now: {done}"
