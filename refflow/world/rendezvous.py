"""The rendezvous: what every process says before a collective goes on, and what is wrong when they say other things.

Implements WORLD-RENDEZVOUS, WORLD-HISTORY, ERR-DIVERGENCE and ERR-LEFT of spec/text/worlds.md and errors.md.  Shared by
the MPI and the lockstep world, which only carry the letters.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

from ..errors import DivergenceError

Kind = Literal["call", "left", "failed"]
_KINDS: tuple[Kind, ...] = ("call", "left", "failed")
_HEAD = struct.Struct("<4sIQIII")  # magic, kind, number, history, bytes of text, bytes of recent
_MAGIC = b"rfw1"
_RECENT = 6  # the operations named when histories differ


@dataclass(frozen=True)
class Letter:
    """What a process says at its collective `number`: the call it makes, or that it left or failed and why.

    `history` is a checksum over every operation on global tensors so far, `recent` names the last ones.
    """

    kind: Kind
    number: int
    text: str
    history: int = 0
    recent: str = ""

    def pack(self) -> bytes:
        """The letter as bytes; a process that says the same packs the same."""
        text, recent = self.text.encode(), self.recent.encode()
        head = _HEAD.pack(_MAGIC, _KINDS.index(self.kind), self.number, self.history, len(text), len(recent))
        return b"".join((head, text, recent))

    @staticmethod
    def unpack(data: bytes) -> Letter:
        """The letter at the front of `data`; `DivergenceError` for bytes that are none."""
        if data[:4] != _MAGIC:
            raise DivergenceError(f"a message that is no rendezvous letter arrived: {data[:16]!r}")
        _, kind, number, history, text, recent = _HEAD.unpack_from(data)
        middle, end = _HEAD.size + text, _HEAD.size + text + recent
        words, names = data[_HEAD.size : middle].decode(), data[middle:end].decode()
        return Letter(_KINDS[kind], number, words, history, names)

    def __str__(self) -> str:
        return self.text if self.kind == "call" else f"{self.kind}: {self.text}"


class History:
    """The operations on global tensors a process has carried out: a checksum of all, the names of the last.

    Some need no communication, so a difference in them would go unseen if collectives compared only themselves.
    """

    def __init__(self) -> None:
        self.checksum = 0
        self._names: deque[str] = deque(maxlen=_RECENT)

    def saw(self, name: str, mark: int) -> None:
        """One more operation; `mark` is a checksum of its name, operands and attributes."""
        self.checksum = crc32(mark.to_bytes(4, "little"), self.checksum)
        self._names.append(name)

    def letter(self, kind: Kind, number: int, text: str) -> Letter:
        """What to say at collective `number`, or instead of it."""
        return Letter(kind, number, text, self.checksum, " ".join(self._names))

    def compare(self, letters: Mapping[int, Letter]) -> None:
        """Raises `DivergenceError` unless every rank (rank -> letter) makes the same call after the same operations.

        The error is the same on every rank, so a program that catches it may go on: histories begin anew.
        """
        try:
            _compare(letters)
        except DivergenceError:
            self.checksum = 0
            self._names.clear()
            raise


def _compare(letters: Mapping[int, Letter]) -> None:
    """WORLD-RENDEZVOUS; the message names the ranks and each one's call (ERR-DIVERGENCE, ERR-LEFT)."""
    first = letters[min(letters)]
    if first.kind == "call" and all(letter == first for letter in letters.values()):
        return
    calls = {letter.text for letter in letters.values() if letter.kind == "call"}
    if any(letter.kind != "call" for letter in letters.values()):
        raise DivergenceError(_explain("a rank is gone and cannot take part", letters, False))
    if len(calls) > 1:
        raise DivergenceError(_explain("the ranks reached different calls", letters, False))
    raise DivergenceError(_explain("the ranks reached the same call by different operations", letters, True))


def compare_ends(letters: Mapping[int, Letter]) -> None:
    """`DivergenceError` if ranks have all left, but after different operations (WORLD-HISTORY)."""
    if len({letter.history for letter in letters.values()}) > 1:
        raise DivergenceError(_explain("the ranks ended after different operations", letters, True))


def _explain(what: str, letters: Mapping[int, Letter], recent: bool) -> str:
    groups: dict[tuple[str, int], list[int]] = {}
    for rank in sorted(letters):
        letter = letters[rank]
        after = f" after … {letter.recent or 'nothing'}" if recent else ""
        groups.setdefault((f"{letter}{after}", letter.history if recent else 0), []).append(rank)
    number = max(letter.number for letter in letters.values())
    lines = [f"  {_ranks(ranks)}: {words}" for (words, _), ranks in groups.items()]
    if len({words for words, _ in groups}) < len(groups):
        lines.append("  the names agree, so an earlier operation, or a shape, sbp, attribute or seed differs")
    rule = "every rank must carry out the same operations on global tensors in the same order, and none may leave early"
    reading = "; printing a global tensor, item() and numpy() are such operations"
    left = not recent and any(letter.kind == "left" for letter in letters.values())
    return "\n".join([f"{what} (collective {number}):", *lines, rule + reading * left])


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def reason(error: BaseException) -> str:
    """An exception in one line, for those who wait for the rank that raised it."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
