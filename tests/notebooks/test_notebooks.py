"""Every notebook runs from a fresh kernel, each cell in little time, and its pictures are there."""

from __future__ import annotations

import os
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import refflow

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@cache
def run(path: Path) -> Any:
    """The notebook, executed in a fresh kernel that finds this refflow, installed or not."""
    found = [str(Path(refflow.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=folder)
    return client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, found))})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_clean(path: Path) -> None:
    """Valid, no outputs, no counts: what is stored is what was written."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.cell_type != "code" or (cell.outputs == [] and cell.execution_count is None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path) -> None:
    """No cell fails; the time of a cell is measured, and only told, because machines differ."""
    notebook = run(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            times = cell.metadata["execution"]
            took = datetime.fromisoformat(times["shell.execute_reply"]) - datetime.fromisoformat(times["iopub.execute_input"])
            if took.total_seconds() > 1:
                print(f"{path.name}: {took.total_seconds():.1f} s for {cell.source.splitlines()[0]!r}")


def test_the_first_notebook_shows_what_it_says() -> None:
    """Pictures as SVG and as text, one digest for twelve runs, four results of the ring."""
    notebook = run(ROOT / "notebooks" / "01_global_tensors.ipynb")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    printed = ["".join(o.get("text", "") for o in cell.outputs) for cell in code]
    shown = [o["data"] for cell in code for o in cell.outputs if "data" in o]
    pictures = [data for data in shown if "image/svg+xml" in data]
    assert len(pictures) == 7 and all("rank 0" in data["text/plain"] for data in pictures)
    (digests,) = (text for text in printed if "tensor parallel" in text)
    assert len(digests.splitlines()) == 12 and len({line.split()[-1] for line in digests.splitlines()}) == 1
    ring, ours = (text for text in printed if " bits " in text and "bytes" not in text)
    assert [len({line.split()[-1] for line in text.splitlines()}) for text in (ring, ours)] == [4, 1]
    assert any("reduce_scatter" in text and "gradient: (B,)" in text for text in printed)


def test_the_second_notebook_shows_what_it_says() -> None:
    """ACT-FIFO and PIPE-1F1B to look at: five timelines, two deadlocks in words, bubbles as the formula says, one digest."""
    notebook = run(ROOT / "notebooks" / "02_actors.ipynb")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    printed = ["".join(o.get("text", "") for o in cell.outputs) for cell in code]
    pictures = [o["data"] for cell in code for o in cell.outputs if "image/svg+xml" in o.get("data", {})]
    assert len(pictures) == 5 and all("in flight" in data["text/plain"] for data in pictures)
    assert sum("and so nobody ever acts" in text for text in printed) == 3
    assert sum(text.count("sound: True") for text in printed) == 5
    assert any("expected  3/11" in text for text in printed) and any("plan 'Step' is sound" in text for text in printed)
    (digests,) = (text for text in printed if "random, seed 3" in text)
    assert len(digests.splitlines()) == 7 and len({line.split()[-1] for line in digests.splitlines()}) == 1
