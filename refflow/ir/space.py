"""The index space of a primitive: the loops it runs over, and which dimension of which operand each loop indexes.

Implements SIG-SPACE of spec/text/signatures.md.  Written as text, e.g. matmul is ``"... m k, ... k n -> ... m n"``:
``a`` a loop index, ``[a]`` one that must stay whole, ``(a b)`` a dimension made of two (only the leading one can be
split), ``v@`` one whose origin the kernel is told, ``...`` broadcast dimensions, ``1`` a dimension of size one that no
loop indexes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..errors import ShapeError

_TOKEN = re.compile(r"\.\.\.|[\[\]()]|[A-Za-z_]\w*@?|1")


@dataclass(frozen=True)
class Dim:
    """One dimension: the letters it is made of, outermost first (none: size 1), and whether it must stay whole."""

    letters: tuple[str, ...]
    whole: bool = False


Operand = tuple[Dim | None, ...]  # None stands for "..."


@dataclass(frozen=True)
class Template:
    """A parsed space, before shapes are known."""

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    origins: frozenset[str]


@dataclass(frozen=True)
class Space:
    """A space with sizes: every dimension of every operand, and the extent of every letter."""

    inputs: tuple[tuple[Dim, ...], ...]
    outputs: tuple[tuple[Dim, ...], ...]
    sizes: Mapping[str, int]
    origins: tuple[str, ...]

    def shape(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        """The logical shape of an operand."""
        return tuple([math.prod(self.sizes[a] for a in dim.letters) for dim in dims])

    def splittable(self) -> tuple[str, ...]:
        """The letters that may be split, in order of declaration: those of the outputs first, then folded ones."""
        banned: set[str] = set()
        order: dict[str, None] = {}
        for operand in (*self.outputs, *self.inputs):
            seen: set[str] = set()
            for dim in operand:
                banned.update(dim.letters if dim.whole else dim.letters[1:])
                banned.update(seen.intersection(dim.letters))
                seen.update(dim.letters)
                order.update(dict.fromkeys(dim.letters))
        return tuple(a for a in order if a not in banned)


def axis_of(operand: Sequence[Dim], letter: str) -> int | None:
    """The dimension of `operand` that `letter` leads, or None."""
    for axis, dim in enumerate(operand):
        if dim.letters[:1] == (letter,):
            return axis
    return None


@lru_cache(maxsize=4096)
def parse(text: str, operands: int) -> Template:
    """The template a space string stands for, for so many operands (an empty part is a 0-d operand)."""
    left, right = text.split("->")
    origins = frozenset(name[:-1] for name in re.findall(r"\w+@", text))
    inputs = tuple(_operand(part) for part in left.split(",")) if operands else ()
    outputs = tuple(_operand(part) for part in right.split(","))
    return Template(inputs, outputs, origins)


def _operand(text: str) -> Operand:
    dims: list[Dim | None] = []
    group: list[str] | None = None
    whole = False
    for token in _TOKEN.findall(text):
        if token in "[]":
            whole = token == "["
        elif token == "(":
            group = []
        elif token == ")":
            dims.append(Dim(tuple(group or ()), whole))
            group = None
        elif token == "...":
            dims.append(None)
        elif token == "1":
            dims.append(Dim(()))
        elif group is not None:
            group.append(token.rstrip("@"))
        else:
            dims.append(Dim((token.rstrip("@"),), whole))
    return tuple(dims)


def bind_space(name: str, template: Template, shapes: Sequence[tuple[int, ...]], given: Mapping[str, int]) -> Space:
    """`template` on operands of these shapes; `given` are sizes of letters that no single dimension tells.

    Errors: `ShapeError` naming the letter and the sizes that disagree.  Source: SIG-SPACE, ERR-SHAPE.
    """
    if len(shapes) != len(template.inputs):
        raise ShapeError(f"{name}: takes {len(template.inputs)} tensors, found {len(shapes)}")
    batch = _broadcast(name, template, shapes)
    sizes = {**given, **{f"_{i}": n for i, n in enumerate(batch)}}
    inputs = []
    for operand, shape in zip(template.inputs, shapes, strict=True):
        dims = _expand(name, operand, shape, batch)
        for dim, size in zip(dims, shape, strict=True):
            _learn(name, dim, size, sizes, shapes)
        inputs.append(dims)
    full = tuple(Dim((f"_{i}",)) for i in reversed(range(len(batch))))
    outputs = tuple(
        tuple(d for dim in operand for d in (full if dim is None else (dim,))) for operand in template.outputs
    )
    return Space(tuple(inputs), outputs, sizes, tuple(sorted(template.origins)))


def _broadcast(name: str, template: Template, shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """The broadcast extents under "...", innermost first."""
    batch: list[int] = []
    for operand, shape in zip(template.inputs, shapes, strict=True):
        for i, size in enumerate(reversed(_ellipsis(name, operand, shape))):
            if i == len(batch):
                batch.append(size)
            elif batch[i] == 1:
                batch[i] = size
            elif size not in (1, batch[i]):
                raise ShapeError(f"{name}: shapes {_listing(shapes)} do not broadcast: {size} against {batch[i]}")
    return batch


def _ellipsis(name: str, operand: Operand, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of the dimensions an operand's "..." stands for."""
    named = len(operand) - (None in operand)
    if len(shape) < named or (None not in operand and len(shape) != named):
        at_least = "at least " if None in operand else ""
        raise ShapeError(f"{name}: needs a tensor of {at_least}{named} dimensions, found shape {shape}")
    if None not in operand:
        return ()
    first = operand.index(None)
    return shape[first : first + len(shape) - named]


def _expand(name: str, operand: Operand, shape: tuple[int, ...], batch: Sequence[int]) -> tuple[Dim, ...]:
    sizes = _ellipsis(name, operand, shape)
    letters = [f"_{i}" for i in reversed(range(len(sizes)))]
    spread = [Dim((a,)) if size == batch[int(a[1:])] else Dim(()) for a, size in zip(letters, sizes, strict=True)]
    return tuple(d for dim in operand for d in (spread if dim is None else (dim,)))


def _learn(name: str, dim: Dim, size: int, sizes: dict[str, int], shapes: Sequence[tuple[int, ...]]) -> None:
    """Takes the extent of a letter from a dimension, or checks it against what is known."""
    unknown = [a for a in dim.letters if a not in sizes]
    known = math.prod(sizes[a] for a in dim.letters if a in sizes)
    if len(unknown) == 1 and known and size % known == 0:
        sizes[unknown[0]] = size // known
    elif unknown or known != size:
        letters = " x ".join(f"{a}={sizes[a]}" if a in sizes else a for a in dim.letters) or "1"
        raise ShapeError(
            f"{name}: shapes {_listing(shapes)} do not fit: a dimension of size {size} where {letters} is needed"
        )


def _listing(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes))


def names(prefix: str, count: int) -> list[str]:
    """`count` letters: for the prefix "d", d0 d1 …"""
    return [f"{prefix}{i}" for i in range(count)]
