"""A damaged or foreign file is refused in words: CKPT-REFUSE, CKPT-DIGEST, CKPT-PROFILE."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refflow as flow
from refflow.checkpoint import container
from refflow.errors import CheckpointError


@pytest.fixture(scope="module")
def small() -> bytes:
    """A checkpoint of three small tensors, one with a NaN."""
    tensors = {"w": flow.tensor([1.0, -0.0, float("nan")]), "h": flow.tensor([2.0]).to(flow.bfloat16), "m": flow.tensor([True])}
    arrays = {name: t.numpy() for name, t in tensors.items()}
    return container.pack({"float": "0x1p+0"}, [container.Record(n, a, None, None) for n, a in arrays.items()], "0")


def refusal(raw: bytes, path: Path) -> str:
    """The message with which `flow.load` refuses these bytes."""
    path.write_bytes(raw)
    with pytest.raises(CheckpointError) as caught:
        flow.load(path)
    return str(caught.value)


def offsets(raw: bytes) -> dict[str, tuple[int, int]]:
    """name -> where its bytes are in the file."""
    end = 8 + int.from_bytes(raw[:8], "little")
    entries = json.loads(raw[8:end])
    return {n: (end + e["data_offsets"][0], end + e["data_offsets"][1]) for n, e in entries.items() if n != "__metadata__"}


def test_every_changed_byte_is_refused(small: bytes, tmp_path: Path) -> None:
    """CKPT-REFUSE: every position, eight single bits and three other values; the header's padding is covered too."""
    assert container.unpack(small)
    where = offsets(small)
    for at, byte in enumerate(small):
        for new in {*(byte ^ (1 << bit) for bit in range(8)), 0, 9, 255} - {byte}:
            raw = small[:at] + bytes([new]) + small[at + 1 :]
            with pytest.raises(CheckpointError) as caught:
                container.unpack(raw)
            for name, (lo, hi) in where.items():
                if lo <= at < hi:
                    assert f"tensor '{name}' was altered" in str(caught.value)


def test_every_truncation_is_refused(small: bytes, tmp_path: Path) -> None:
    """CKPT-REFUSE: a file cut in a tensor names the first one that is not whole."""
    where = sorted(offsets(small).items(), key=lambda item: item[1])
    for length in range(len(small)):
        message = refusal(small[:length], tmp_path / "f")
        cut = next((name for name, (_, hi) in where if hi > length), None)
        if length >= where[0][1][0]:
            assert f"bytes are missing, from tensor '{cut}' on" in message
        else:
            assert "it ends inside its header" in message
        assert "load: " in message and str(tmp_path / "f") in message


def test_more_bytes_are_refused(small: bytes, tmp_path: Path) -> None:
    """CKPT-REFUSE"""
    assert "3 bytes follow the last tensor" in refusal(small + b"abc", tmp_path / "f")
    assert "bytes follow" in refusal(container.pack({}, [], "0") + b"\0", tmp_path / "f")


def test_an_altered_header_names_the_tensor(small: bytes, tmp_path: Path) -> None:
    """CKPT-REFUSE"""
    other_shape = small.replace(b'"w":{"dtype":"F32","shape":[3]', b'"w":{"dtype":"F32","shape":[2]')
    assert "header was altered" in refusal(other_shape, tmp_path / "f")
    assert "contradicts itself about tensor 'w'" in refusal(other_shape, tmp_path / "f")
    other_digest = re.sub(rb'(sha256\\":\\")[0-9a-f]{8}', rb"\g<1>00000000", small[:500]) + small[500:]
    assert "its tensors ('w', 'h', 'm') cannot be trusted" in refusal(other_digest, tmp_path / "f")


def test_a_nan_with_another_payload_is_seen(small: bytes, tmp_path: Path) -> None:
    """CKPT-DIGEST: the digest is over values, and all NaNs are one; the bytes are not."""
    lo, _ = offsets(small)["w"]
    raw = bytearray(small)
    raw[lo + 8 : lo + 12] = np.uint32(0x7FC00001).tobytes()
    assert "tensor 'w' was altered" in refusal(bytes(raw), tmp_path / "f")


def test_nothing_is_handed_out_before_all_is_verified(small: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CKPT-REFUSE: not one tensor is made of a file whose last byte is wrong."""
    made: list[Any] = []
    monkeypatch.setattr("refflow.checkpoint.store.tensor", lambda *a, **k: made.append(a))
    refusal(small[:-1] + bytes([small[-1] ^ 1]), tmp_path / "f")
    assert made == []


def test_unknown_formats_and_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CKPT-PROFILE"""
    with monkeypatch.context() as patch:
        patch.setattr(container, "PROFILE", "refflow-arith-9")
        later = container.pack({"dict": []}, [], "9")
    assert "arithmetic profile 'refflow-arith-9'; this version of refflow computes by 'refflow-arith-1'" in refusal(later, tmp_path / "f")
    with monkeypatch.context() as patch:
        patch.setattr(container, "FORMAT", 2)
        later = container.pack({"dict": []}, [], "9")
    assert "it has format 2; this version of refflow reads format 1" in refusal(later, tmp_path / "f")
    assert "the tree holds a 'set'" in refusal(container.pack({"set": []}, [], "9"), tmp_path / "f")


def test_files_of_other_programs(tmp_path: Path) -> None:
    """CKPT-REFUSE"""
    from safetensors.numpy import save

    foreign = save({"w": np.zeros(3, np.float32)}, {"format": "pt"})
    assert "another program wrote it" in refusal(foreign, tmp_path / "f")
    for raw in (b"", b"\x80\x04 pickle", b"\x93NUMPY" + bytes(100), b"{}" * 40):
        refusal(raw, tmp_path / "f")
