"""A failure at any step leaves the old file whole and nothing beside it: CKPT-ATOMIC."""

from __future__ import annotations

import builtins
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import refflow as flow
from refflow.checkpoint import atomic
from refflow.errors import CheckpointError


class Crash(BaseException):
    """The program ends here: not an Exception anyone would handle."""


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), Crash()])
@pytest.mark.parametrize("step", ["open", "write", "flush", "fsync", "replace"])
def test_a_failing_step_leaves_the_old_file(step: str, failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CKPT-ATOMIC"""
    path = tmp_path / "f"
    flow.save({"x": flow.arange(3)}, path)
    before = path.read_bytes()

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise failure

    if step in ("fsync", "replace"):
        monkeypatch.setattr(atomic.os, step, fail)
    elif step == "open":
        monkeypatch.setattr(builtins, "open", fail)
    else:
        monkeypatch.setattr(builtins, "open", lambda *a: _Failing(a, step, failure))
    expected = CheckpointError if isinstance(failure, OSError) else Crash
    with pytest.raises(expected) as caught:
        flow.save({"x": flow.arange(300)}, path)
    monkeypatch.undo()
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["f"]
    if expected is CheckpointError:
        assert "cannot be written: No space left on device" in str(caught.value) and str(path) in str(caught.value)


class _Failing:
    """A file whose method `step` does half its work and fails."""

    def __init__(self, args: Any, step: str, failure: BaseException, real: Any = open) -> None:
        self._file, self._step, self._failure = real(*args), step, failure

    def __enter__(self) -> _Failing:
        return self

    def __exit__(self, *trace: Any) -> None:
        self._file.close()

    def write(self, data: bytes) -> int:
        if self._step == "write":
            self._file.write(data[: len(data) // 2])
            raise self._failure
        return int(self._file.write(data))

    def flush(self) -> None:
        raise self._failure


def test_the_order_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CKPT-ATOMIC: the bytes are on the disk before the name is, the name before save returns."""
    log: list[str] = []
    fsync, replace = os.fsync, os.replace

    def traced_fsync(handle: int) -> None:
        log.append("fsync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "fsync file")
        fsync(handle)

    monkeypatch.setattr(atomic.os, "fsync", traced_fsync)
    monkeypatch.setattr(atomic.os, "replace", lambda a, b: (log.append("replace"), replace(a, b)))
    flow.save(1, tmp_path / "f")
    assert log == ["fsync file", "replace", "fsync folder"]


def test_a_folder_that_cannot_be_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CKPT-ATOMIC: after the replacement it is the new file that is whole, and the error says so."""
    flow.save("old", tmp_path / "f")
    fsync = os.fsync

    def fail_on_folder(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(5, "Input/output error")
        fsync(handle)

    monkeypatch.setattr(atomic.os, "fsync", fail_on_folder)
    with pytest.raises(CheckpointError, match="it is in place, but may not outlast a power cut"):
        flow.save("new", tmp_path / "f")
    assert flow.load(tmp_path / "f") == "new" and [p.name for p in tmp_path.iterdir()] == ["f"]
