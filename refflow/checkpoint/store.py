"""flow.save and flow.load: a tree of tensors to a file and back, under any layout on either side.

Implements CKPT-LOGICAL, CKPT-RESHARD and CKPT-AGREED of spec/text/checkpoints.md.  Both are collectives of the world:
whatever goes wrong on one rank is an error on all.  What a state means to a module or an optimizer is theirs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import CheckpointError, LocalGlobalError, PlacementError, RefflowError, SbpError
from ..functional.creation import tensor
from ..layout import NdSbp, Placement, broadcast, chosen_by, normalize
from ..numerics import digest
from ..state import settings
from ..tensor.logical import check_ranks, logical_array
from ..tensor.tensor import Tensor
from .atomic import write_atomically
from .container import Contents, Record, pack, unpack
from .tree import flatten, rebuild

Layout = tuple[Placement, NdSbp] | None  # None: local


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Writes `obj` to a safetensors file, atomically; a collective.

    Args: `obj` a tensor, or nested dicts, lists and tuples of tensors, numbers, strings, bools and None; `path` the
    file, in a folder that exists (of the machine of rank 0, which writes it).  Stored are logical values, so a local
    tensor must hold the same bits on every rank; gradients and the fact that one is required are not stored.
    Errors, the same on every rank: `CheckpointError` for what a checkpoint cannot hold, for ranks that save different
    things and for what the file system refuses; `LocalGlobalError` for local tensors that differ from rank to rank.
    Source: CKPT-LOGICAL, CKPT-ATOMIC.

    >>> import os, tempfile
    >>> import refflow as flow
    >>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
    >>> flow.save({"weight": flow.arange(3), "step": 7}, path)
    >>> flow.load(path)
    {'weight': tensor([0, 1, 2], dtype=int64), 'step': 7}
    """
    from .. import __version__

    tree, name = None, ""
    tensors: dict[str, Tensor] = {}
    failure: CheckpointError | None = None
    try:
        name = _name_of("save", path)
        tree, tensors = flatten(obj)
    except CheckpointError as error:
        failure = error
    metas = [(key, repr(held.value.meta)) for key, held in tensors.items()]
    _agree("save", failure, _mark(tree, metas))
    _check_local(tensors)
    records = [_record(key, held) for key, held in tensors.items()]
    try:
        data = pack(tree, records, __version__)
        _agree("save", None, _mark(len(data), hashlib.sha256(data).hexdigest()))
        if 0 in settings().world.owned:
            write_atomically(name, data)
    except OSError as error:
        failure = CheckpointError(f"save: '{name}' cannot be written: {error.strerror or error}")
        failure.__cause__ = error
    _agree("save", failure, "")


def load(path: str | os.PathLike[str], *, placement: Placement | None = None, sbp: Any = None) -> Any:
    """Reads what `save` wrote, re-sharded to any layout; a collective.

    Args: `path` the file, which every process reads; `placement` where to put the tensors (default: where each was, or
    local if the world lacks one of those ranks); `sbp` one for all, or a function ``(name, shape) -> sbp`` (None:
    as saved), with the names ``refflow.checkpoint`` gave: the path in the tree, joined by dots.  With a placement
    alone, tensors keep their sbp, and local ones become B.
    Returns the tree, dict subclasses as dicts; tensors require no gradient.  Nothing is returned unless every byte of
    the file is right.
    Errors, the same on every rank: `CheckpointError` for a file that is absent, truncated, altered (naming the tensor)
    or of an unknown format or profile; `SbpError`, `PlacementError` for layouts that do not fit.
    Source: CKPT-RESHARD, CKPT-REFUSE.
    """
    contents, failure = None, None
    try:
        contents = _read(_name_of("load", path))
    except CheckpointError as error:
        failure = error
    _agree("load", failure, contents.mark if contents else "")
    assert contents is not None
    if placement is not None and not isinstance(placement, Placement):
        raise PlacementError(f"load: placement must be a flow.placement, found {placement!r}")
    targets = {record.name: _target(record, placement, sbp) for record in contents.records}
    arrays = {record.name: record.array for record in contents.records}

    def tensor_of(name: str) -> Tensor:
        placement, sbp = targets[name] or (None, None)
        return tensor(arrays[name], placement=placement, sbp=sbp)

    return rebuild(contents.tree, tensor_of)


def _name_of(call: str, path: Any) -> str:
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise CheckpointError(f"{call}: the path must be a string or a path, found {path!r}") from None
    if not name or "\0" in name:
        raise CheckpointError(f"{call}: the path must name a file, found {path!r}")
    return name


def _read(name: str) -> Contents:
    try:
        with open(name, "rb") as file:
            return unpack(file.read())
    except OSError as error:
        raise CheckpointError(f"load: '{name}' cannot be read: {error.strerror or error}") from error
    except CheckpointError as error:
        raise CheckpointError(f"load: '{name}' is refused: {error}") from error


def _mark(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _agree(call: str, failure: CheckpointError | None, mark: str) -> None:
    """Every process tells its failure, or a mark that must be the same everywhere (CKPT-AGREED)."""
    world = settings().world
    own = (None if failure is None else str(failure), mark)
    told = world.agree(f"{call}: agreement", dict.fromkeys(world.owned, own))
    if failure is not None:
        raise failure
    for rank, (message, _) in told.items():
        if message is not None:
            raise CheckpointError(f"{message} (on rank {rank})")
    first = told[min(told)][1]
    others = [rank for rank, (_, other) in told.items() if other != first]
    if others:
        raise CheckpointError(f"{call}: ranks {others} have another tree, other values or another file than rank 0")


# --- saving ---------------------------------------------------------------------------------------------------------


def _check_local(tensors: Mapping[str, Tensor]) -> None:
    """A local tensor has a logical value only where every rank holds the same bits."""
    local = {name: held for name, held in tensors.items() if held.is_local}
    if not local:
        return
    arrays = {name: held.local_arrays() for name, held in local.items()}
    distinct = {id(array): array for held in arrays.values() for array in held.values()}  # replicas are hashed once
    digests = {key: digest(array) for key, array in distinct.items()}
    world = settings().world
    mine = {rank: {name: digests[id(held[rank])] for name, held in arrays.items()} for rank in world.owned}
    told = world.agree("save: local tensors", mine)
    for name in local:
        found = {rank: marks[name] for rank, marks in told.items()}
        if len(set(found.values())) > 1:
            first = min(found)
            other = next(rank for rank in found if found[rank] != found[first])
            raise LocalGlobalError(
                f"save: '{name}' is local and differs between ranks {first} and {other}; to_global(placement, sbp) says"
                " what it means as a whole"
            )


def _record(name: str, held: Tensor) -> Record:
    meta = held.value.meta
    return Record(name, logical_array(held.value), meta.placement, meta.sbp)


# --- loading --------------------------------------------------------------------------------------------------------


def _target(record: Record, placement: Placement | None, sbp: Any) -> Layout:
    """Where a loaded tensor goes (CKPT-RESHARD)."""
    what, size = f"load: '{record.name}'", settings().world.size
    wanted = _call(sbp, record, what) if chosen_by(sbp) else sbp
    if placement is None and wanted is None:
        here = record.placement is not None and all(rank < size for rank in record.placement)
        return (record.placement, record.sbp) if here else None  # type: ignore[return-value]
    where = placement or record.placement
    if where is None:
        raise SbpError(f"{what} was saved as a local tensor; an sbp needs a placement too")
    check_ranks(what, where)
    if wanted is None:
        wanted = record.sbp or (broadcast,) * where.ndim
        if len(wanted) != where.ndim:
            raise SbpError(f"{what} was saved with sbp {wanted}; give an sbp for the mesh of {where}")
    return where, normalize(wanted, where.mesh, record.array.shape, what)


def _call(function: Callable[[str, tuple[int, ...]], Any], record: Record, what: str) -> Any:
    try:
        return function(record.name, record.array.shape)
    except RefflowError:
        raise
    except Exception as error:
        raise SbpError(f"{what}: the sbp function raised {type(error).__name__}: {error}") from error
