"""Memory of a compiled program: every array that lives only within a call gets a place in one arena.

Implements ACC-ARENA of spec/text/acceleration.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGN = 64  # a cache line, and the widest vector


@dataclass
class Span:
    """An array's size in bytes, and the first and the last row of the program that touch it."""

    size: int
    first: int
    last: int


def place(spans: Sequence[Span]) -> tuple[list[int], int]:
    """An offset for each span and the size of the arena, in bytes; spans whose rows overlap never share a byte.

    Largest first, each into the lowest gap that is free while it lives.
    """
    offsets = [0] * len(spans)
    placed: list[tuple[int, int, Span]] = []  # by offset
    for i in sorted(range(len(spans)), key=lambda i: (-spans[i].size, i)):
        span, offset = spans[i], 0
        size = -(-span.size // ALIGN) * ALIGN
        for begin, end, other in placed:
            if other.last < span.first or span.last < other.first:
                continue
            if offset + size <= begin:
                break
            offset = max(offset, end)
        offsets[i] = offset
        placed.append((offset, offset + size, span))
        placed.sort(key=lambda entry: entry[0])
    return offsets, max((end for _, end, _ in placed), default=0)
