"""The bytes of a checkpoint: a safetensors file whose every byte is accounted for.

Implements CKPT-FORMAT, CKPT-DIGEST, CKPT-REFUSE and CKPT-PROFILE of spec/text/checkpoints.md.  Each tensor has a digest,
the header (length, names, shapes, offsets, layouts, tree, those digests) has one over all its bytes, itself read as
zeros.  The digests find damage; they are no signature.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import CheckpointError
from ..layout import NdSbp, Partial, Placement, Split, broadcast, nested
from ..numerics import DTYPES, PROFILE, canonical, digest, same_bits

Array = np.ndarray[Any, Any]

FORMAT = 1
_KEY = "refflow"  # one metadata key: the container keeps several in no order, and equal checkpoints shall be equal bytes
_MARK = rb"\"header_sha256\":\""  # as it stands in the header: JSON inside a JSON string
_ZEROS = "0" * 64
_DTYPE_OF = dict(zip(("BOOL", "U8", "I8", "I32", "I64", "F16", "BF16", "F32", "F64"), DTYPES, strict=True))


@dataclass(frozen=True)
class Record:
    """One tensor of a checkpoint: its logical value on the host and the layout it had (None: local)."""

    name: str
    array: Array
    placement: Placement | None
    sbp: NdSbp | None


@dataclass(frozen=True)
class Contents:
    """A whole checkpoint; `mark` is the header's digest, which stands for every bit of it."""

    tree: Any
    records: tuple[Record, ...]
    mark: str


# --- writing --------------------------------------------------------------------------------------------------------


def pack(tree: Any, records: Sequence[Record], version: str) -> bytes:
    """The file of a checkpoint; equal arguments give equal bytes.  Source: CKPT-FORMAT."""
    from safetensors.numpy import save

    about = {
        "header_sha256": _ZEROS,  # first, so that _MARK cannot be met earlier in a name
        "format": FORMAT,
        "profile": PROFILE,
        "refflow": version,
        "tensors": {record.name: _describe(record) for record in records},
        "tree": tree,
    }
    arrays = {record.name: _plain(record.array) for record in records}
    raw = bytearray(save(arrays, {_KEY: json.dumps(about, separators=(",", ":"), allow_nan=False)}))
    at, mark = _header_digest(raw)
    raw[at : at + 64] = mark.encode()
    return bytes(raw)


def _describe(record: Record) -> dict[str, Any]:
    where = record.placement
    return {
        "shape": list(record.array.shape),
        "dtype": record.array.dtype.name,
        "placement": where and {"type": where.type, "mesh": list(where.mesh), "ranks": list(where.ranks)},
        "sbp": record.sbp and [str(one) for one in record.sbp],
        "sha256": digest(record.array),
    }


def _plain(array: Array) -> Array:
    """The array as it is stored: contiguous, every NaN the one NaN (CKPT-FORMAT)."""
    return np.ascontiguousarray(canonical(array)).reshape(array.shape)  # ascontiguousarray makes 0-d arrays 1-d


def _header_digest(raw: bytes | bytearray) -> tuple[int, str]:
    """Where the header's digest stands in the file, and what it should be."""
    end = 8 + int.from_bytes(raw[:8], "little")
    at = raw.find(_MARK, 8, end) + len(_MARK)
    if at < len(_MARK) or at + 64 > end:
        raise CheckpointError("it has no header_sha256: another program wrote it, or its header was altered")
    return at, hashlib.sha256(raw[:at] + _ZEROS.encode() + raw[at + 64 : end]).hexdigest()


# --- reading --------------------------------------------------------------------------------------------------------


def unpack(raw: bytes) -> Contents:
    """The checkpoint in `raw`, every byte verified.

    Errors: `CheckpointError` for a truncated or altered file, an unknown format or profile.  Source: CKPT-REFUSE.
    """
    import safetensors

    read: Any = safetensors.deserialize  # untyped in some versions
    entries, about = _read_header(raw)
    _check_length(raw, entries)
    try:
        stored = dict(read(raw))
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"it is not a safetensors file: {error}") from error
    records = tuple(_verified(name, stored[name], told) for name, told in about["tensors"].items())
    return Contents(about["tree"], records, about["header_sha256"])


def _read_header(raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The container's entry of each tensor, and refflow's own metadata, once they are known to be whole and known."""
    size = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or 8 + size > len(raw):
        raise CheckpointError(
            f"it ends inside its header, after {len(raw)} bytes: no tensor can be read; it was truncated or altered"
        )
    at, expected = _header_digest(raw)
    entries: dict[str, Any] = {}
    about: dict[str, Any] = {}
    try:
        entries = json.loads(raw[8 : 8 + size])
        about = json.loads(entries.pop("__metadata__")[_KEY])
        form, profile = about["format"], about["profile"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        form = profile = None
    if form not in (None, FORMAT):
        raise CheckpointError(f"it has format {form!r}; this version of refflow reads format {FORMAT}")
    if raw[at : at + 64] != expected.encode():
        raise CheckpointError(f"its header was altered (the recorded SHA-256 is another): {_blame(entries, about)}")
    if profile != PROFILE:
        raise CheckpointError(
            f"its values belong to the arithmetic profile {profile!r}; this version of refflow computes by {PROFILE!r}"
        )
    return entries, about


def _blame(entries: Any, about: Any) -> str:
    """Which tensor an altered header contradicts itself about; failing that, which tensors it describes."""
    try:
        told = about["tensors"]
        for name in [*told, *entries]:
            entry, record = entries.get(name, {}), told.get(name, {})
            dtype = _DTYPE_OF.get(entry.get("dtype"))
            if dtype is None or (dtype.name, entry["shape"]) != (record.get("dtype"), record.get("shape")):
                return f"it contradicts itself about tensor {name!r}"
        return f"its tensors ({_listed(told)}) cannot be trusted"
    except (KeyError, TypeError, AttributeError):
        return "none of its tensors can be read"


def _listed(names: Mapping[str, Any]) -> str:
    first = ", ".join(map(repr, list(names)[:3]))
    return f"{first}, …" if len(names) > 3 else first or "it has none"


def _check_length(raw: bytes, entries: Mapping[str, Any]) -> None:
    """The tensors' bytes are all there, and nothing follows them."""
    here = len(raw) - 8 - int.from_bytes(raw[:8], "little")
    ends = {name: entry["data_offsets"][1] for name, entry in entries.items()}
    for name, end in sorted(ends.items(), key=lambda item: item[1]):
        if end > here:
            raise CheckpointError(
                f"it is truncated: {max(ends.values()) - here} of its bytes are missing, from tensor {name!r} on"
            )
    if here > max(ends.values(), default=0):
        raise CheckpointError(f"it was altered: {here - max(ends.values(), default=0)} bytes follow the last tensor")


def _verified(name: str, stored: Mapping[str, Any], told: Mapping[str, Any]) -> Record:
    """One tensor, its bytes compared with its digest."""
    dtype = _DTYPE_OF[stored["dtype"]]
    array = np.frombuffer(stored["data"], dtype).reshape(stored["shape"])
    if digest(array) != told["sha256"] or _has_odd_nan(array):
        raise CheckpointError(f"tensor {name!r} was altered: its bytes do not have the recorded SHA-256")
    where = told["placement"]
    placement = where and Placement(where["type"], nested(where["ranks"], where["mesh"]))
    return Record(name, array, placement, told["sbp"] and tuple(map(_parse_sbp, told["sbp"])))


def _has_odd_nan(array: Array) -> bool:
    """A NaN that is not the one NaN: the digest is over values and cannot see it, but nobody wrote it."""
    bits = np.dtype(f"u{array.dtype.itemsize}")
    return not same_bits(array.view(bits), canonical(array).view(bits))


def _parse_sbp(text: str) -> Any:
    if text == "B":
        return broadcast
    kind, inside = text[:-1].split("(")
    return Split(int(inside)) if kind == "S" else Partial(inside)  # type: ignore[arg-type]
