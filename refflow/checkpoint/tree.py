"""The tree of a checkpoint: nested dicts, lists and tuples as JSON, with a name in the place of each tensor.

Implements CKPT-TREE of spec/text/checkpoints.md.  JSON has neither tuples, NaN nor keys other than strings, so what it
lacks is tagged: an object of one member, whose key says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import CheckpointError
from ..tensor.tensor import Tensor

DEPTH = 200  # nesting beyond this is a mistake, and Python's own JSON reader gives up not far above
_KINDS = "tensors, dicts, lists, tuples, numbers, strings, bools and None"


def flatten(obj: Any) -> tuple[Any, dict[str, Tensor]]:
    """`obj` as a JSON tree and its tensors by name, in the order they are met.

    A tensor is named by its path, parts joined by dots ("model.fc1.weight").  Errors: `CheckpointError` naming the path
    of what a checkpoint cannot hold.  Source: CKPT-TREE.
    """
    tensors: dict[str, Tensor] = {}
    return _encode(obj, (), tensors), tensors


def rebuild(tree: Any, tensor_of: Callable[[str], Tensor]) -> Any:
    """The object whose tree is `tree`; `tensor_of` gives the tensor of a name.  Source: CKPT-TREE."""
    if not isinstance(tree, dict):
        return tree
    [(tag, content)] = tree.items()
    try:
        decode = _DECODERS[tag]
    except KeyError:
        raise CheckpointError(f"load: the tree holds a {tag!r}, which this version of refflow does not know") from None
    return decode(content, tensor_of)


_DECODERS: Mapping[str, Callable[[Any, Callable[[str], Tensor]], Any]] = {
    "tensor": lambda name, tensor_of: tensor_of(name),
    "float": lambda text, _: float.fromhex(text),
    "int": lambda text, _: int(text, 16),
    "list": lambda items, tensor_of: [rebuild(item, tensor_of) for item in items],
    "tuple": lambda items, tensor_of: tuple(rebuild(item, tensor_of) for item in items),
    "dict": lambda items, tensor_of: {rebuild(k, tensor_of): rebuild(v, tensor_of) for k, v in items},
}


def _encode(obj: Any, path: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    if len(path) > DEPTH:
        raise CheckpointError(f"save: nested deeper than {DEPTH} at {_shown(path)}; does something contain itself?")
    if isinstance(obj, Tensor):
        name = _free_name(path, tensors)
        tensors[name] = obj
        return {"tensor": name}
    if obj is None or isinstance(obj, (bool, int, float, str)):
        return _encode_scalar(obj)
    if isinstance(obj, dict):
        return {"dict": [[_encode_key(k, path), _encode(v, (*path, str(k)), tensors)] for k, v in obj.items()]}
    if type(obj) in (list, tuple):  # a named tuple would come back without its names: refused
        return {type(obj).__name__: [_encode(item, (*path, str(i)), tensors) for i, item in enumerate(obj)]}
    raise CheckpointError(f"save: {_shown(path)} is a {type(obj).__name__}; a checkpoint holds {_KINDS}{_hint(obj)}")


def _encode_scalar(obj: float | str | None) -> Any:
    if isinstance(obj, float):
        return {"float": float(obj).hex()}  # exact, and JSON has no NaN
    if isinstance(obj, int) and not isinstance(obj, bool):
        return int(obj) if -(2**53) <= obj <= 2**53 else {"int": hex(obj)}  # other readers of JSON stop at 2**53
    return str(obj) if isinstance(obj, str) else obj


def _encode_key(key: Any, path: tuple[str, ...]) -> Any:
    if key is None or isinstance(key, (bool, int, float, str)):
        return _encode_scalar(key)
    raise CheckpointError(f"save: {_shown(path)} has the key {key!r}; keys may be strings, numbers, bools and None")


def _free_name(path: tuple[str, ...], taken: Mapping[str, Tensor]) -> str:
    """The path joined by dots; where another tensor has that name already, followed by ~1, ~2, …"""
    name = ".".join(path).encode("utf-8", "backslashreplace").decode() or "tensor"
    names = (name if i == 0 else f"{name}~{i}" for i in range(len(taken) + 2))
    return next(n for n in names if n not in taken and n != "__metadata__")  # the container's own word


def _shown(path: tuple[str, ...]) -> str:
    return repr(".".join(path)) if path else "the object"


def _hint(obj: Any) -> str:
    if hasattr(obj, "state_dict"):
        return "; save its state_dict()"
    if hasattr(obj, "__array__"):
        return "; flow.tensor(...) makes a tensor of an array, .item() a number"
    return "; make a plain tuple of it" if isinstance(obj, tuple) else ""
