"""The README is true: its example runs and gives what its comments say, its commands and files exist.  CLI-ARGUMENTS."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import refflow as flow
from refflow.cli.commands import make_parser
from tests.tensor.layouts import S

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
SPANS = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))]
COMMANDS = sorted({*re.findall(r"refflow ((?:train|run|check|bench)\b[^`\n&]*)", TEXT)})


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    """What the comments of the example claim."""
    seen: dict[str, Any] = {}
    exec(compile(EXAMPLE, "README.md", "exec"), seen)
    x, w, y = seen["x"], seen["w"], seen["y"]
    assert y.sbp == (S(0),) and set(y.shapes.values()) == {(2, 4)} and y.shape[0] == 8
    assert w.grad.sbp == w.sbp and flow.allclose(w.grad, x.sum(0).unsqueeze(1).expand(16, 4), atol=1e-5)
    shown = capsys.readouterr().out
    assert " -> S(0), B -> S(0)" in shown and "rank 3  [6:8, 0:4]" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_command_exists(command: str) -> None:
    """Every command line of the README is one."""
    words = shlex.split(command)
    if "--help" in words:
        with pytest.raises(SystemExit) as ended:
            make_parser().parse_args(words)
        assert ended.value.code == 0
    else:
        make_parser().parse_args(words)


def test_options_exist() -> None:
    """The options and ways of parallelism it offers for the first command, and its extras."""
    for options in (["--ranks", "3"], ["--graph"], *(["--parallel", way] for way in ("tensor", "hybrid", "pipeline"))):
        assert f"`{options[-1]}`" in TEXT or f"`{' '.join(options)}`" in TEXT
        make_parser().parse_args(["train", "digits", *options])
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in re.findall(r"'\.\[(\w+)\]'", TEXT):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra


def test_files_exist() -> None:
    """Every path it names, from the root or as a package."""
    paths = {span for span in SPANS if re.fullmatch(r"[\w./]+(/|\.md|\.ipynb)", span)} | {"docs/global_tensor.svg"}
    assert len(paths) > 12
    roots = (ROOT, ROOT / "refflow", ROOT / "accel" / "refflow_accel")
    missing = {path for path in paths if not any((root / path).exists() for root in roots)}
    assert not missing
