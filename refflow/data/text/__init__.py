"""Text as data: characters as numbers, windows of them as samples, and the book that ships with refflow.

Implements DATA-TEXT (content, reading a file) and DATA-WINDOWS (vocabulary, samples, split) of spec/text/data.md.  Author,
origin and changes of the book: ATTRIBUTION.md beside this file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ...errors import AttributeValueError, DataError
from ..dataset import Dataset, Indices, Sample, sample_index, sample_indices

__all__ = ["BOOK_SHA256", "TextWindows", "Vocabulary", "load_text", "split_text", "text_sha256"]

BOOK_SHA256 = "b4e8e38dc31374466050d3c34178a884ff7ca3187dc8fd1bb0ab929bf89814d5"


def load_text(path: str | os.PathLike[str] | None = None) -> str:
    """The text of a UTF-8 file, its line ends "\\n"; without a path the book that ships: Moby-Dick, chapters 1 to 40.

    Errors: `AttributeValueError` for a file that is missing, empty or no UTF-8; `DataError` where the book is damaged.
    Source: DATA-TEXT.

    >>> load_text()[:45]
    'CHAPTER 1. Loomings.\\n\\nCall me Ishmael. Some y'
    """
    if path is None:
        return _book()
    name = os.fspath(path)
    try:
        text = Path(name).read_bytes().decode("utf-8")
    except OSError as error:
        raise AttributeValueError(f"text: '{name}' cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise AttributeValueError(f"text: '{name}' is not UTF-8: byte {error.start} is wrong ({error.reason})") from error
    if not text:
        raise AttributeValueError(f"text: '{name}' is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _book() -> str:
    try:
        content = files(__name__).joinpath("moby_dick.txt").read_bytes()
    except OSError as error:
        raise DataError(f"text: the shipped book cannot be read ({error}); reinstall refflow") from error
    return _checked(content)


def _checked(content: bytes) -> str:
    """The book's bytes as text, if they are the ones of the SHA-256 stated above."""
    found = hashlib.sha256(content).hexdigest()
    if found != BOOK_SHA256:
        raise DataError(f"text: the book's SHA-256 is {found}, expected {BOOK_SHA256}; reinstall refflow")
    return content.decode("utf-8")


def text_sha256(text: str) -> str:
    """The SHA-256 of a text in UTF-8: which text a run was trained on (DATA-TEXT)."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(frozen=True)
class Vocabulary:
    """The characters of a text, each once, ascending by code point; a character's number is its place (DATA-WINDOWS).

    >>> letters = Vocabulary.of("hello")
    >>> letters.characters, letters.encode("hole").tolist(), letters.decode([1, 2])
    ('ehlo', [1, 3, 2, 0], 'hl')
    """

    characters: str

    @classmethod
    def of(cls, text: str) -> Vocabulary:
        """The vocabulary of a text."""
        return cls("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> NDArray[np.int64]:
        """The numbers of the characters of `text`, int64 (len(text),).  Errors: `DataError` for one it does not have."""
        number = {character: i for i, character in enumerate(self.characters)}
        unknown = next((character for character in text if character not in number), None)
        if unknown is not None:
            raise DataError(f"vocabulary: {unknown!r} (position {text.index(unknown)}) is none of its {len(self)} characters")
        return np.array([number[character] for character in text], dtype=np.int64)

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of character numbers."""
        return "".join(self.characters[number] for number in numbers)


class TextWindows(Dataset):
    """Windows of `context` characters, one after the other, each with the characters that follow its own (DATA-WINDOWS).

    Sample i is (numbers[i c : i c + c], numbers[i c + 1 : i c + c + 1]), int64 (c,) each, for c = `context`; what is left
    at the end is left out.  Errors: `AttributeValueError` for a context below 1.

    >>> TextWindows(np.arange(8), 3)[1]
    (array([3, 4, 5]), array([4, 5, 6]))
    """

    def __init__(self, numbers: NDArray[np.int64], context: int) -> None:
        if context < 1:
            raise AttributeValueError(f"TextWindows: the context must be 1 or more, found {context}")
        self.numbers, self.context = numbers, context

    def __len__(self) -> int:
        return max(0, len(self.numbers) - 1) // self.context

    def __getitem__(self, index: SupportsIndex, /) -> Sample:
        begin = sample_index(index, len(self)) * self.context
        return self.numbers[begin : begin + self.context], self.numbers[begin + 1 : begin + self.context + 1]

    def batch(self, indices: Indices) -> Sample:
        """The windows `indices`, as two fresh int64 (k, c).  Raises IndexOutOfRange."""
        places = sample_indices(indices, len(self))[:, np.newaxis] * self.context + np.arange(self.context)
        return self.numbers[places], self.numbers[places + 1]


def split_text(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first nine tenths, rounded down, are for training; the rest is for validation (DATA-WINDOWS)."""
    cut = len(numbers) * 9 // 10
    return numbers[:cut], numbers[cut:]
