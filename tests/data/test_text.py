"""DATA-TEXT, DATA-WINDOWS: the book that ships is the one stated; any text becomes numbered windows."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refflow.data import TextWindows, Vocabulary, load_text, split_text
from refflow.data import text as shipped
from refflow.errors import AttributeValueError, DataError, IndexOutOfRange

RAW = files(shipped.__name__).joinpath("moby_dick.txt").read_bytes()
ATTRIBUTION = files(shipped.__name__).joinpath("ATTRIBUTION.md").read_text(encoding="utf-8")


def test_the_book_is_the_one_stated() -> None:
    """DATA-TEXT: size and SHA-256, here and in its attribution."""
    assert len(RAW) == 362_894 and hashlib.sha256(RAW).hexdigest() == shipped.BOOK_SHA256
    assert shipped.BOOK_SHA256 == "b4e8e38dc31374466050d3c34178a884ff7ca3187dc8fd1bb0ab929bf89814d5"
    assert shipped.BOOK_SHA256 in ATTRIBUTION and "362,894 bytes" in ATTRIBUTION and "CC0" in ATTRIBUTION
    text = load_text()
    assert len(text) == 361_808 and len(set(text)) == 80 and shipped.text_sha256(text) == shipped.BOOK_SHA256


def test_the_book_is_normalised() -> None:
    """DATA-TEXT: forty chapters in order; paragraphs on a line each, an empty line between; nothing of an edition."""
    text = load_text()
    paragraphs = text.removesuffix("\n").split("\n\n")
    assert all(" ".join(paragraph.split()) == paragraph != "" for paragraph in paragraphs)
    heads = [paragraph for paragraph in paragraphs if paragraph.startswith("CHAPTER ")]
    assert [head.split()[1] for head in heads] == [f"{n}." for n in range(1, 41)] and heads[0] == paragraphs[0]
    assert not any(word in text.lower() for word in ("gutenberg", "copyright", "http", "ebook"))


def test_a_changed_letter_is_refused() -> None:
    """DATA-TEXT"""
    with pytest.raises(DataError, match="SHA-256"):
        shipped._checked(RAW.replace(b"Ishmael", b"Ismael", 1))


def test_a_file_is_read_as_utf8(tmp_path: Path) -> None:
    """DATA-TEXT: line ends are "\\n"; what cannot be read says why."""
    path = tmp_path / "text.txt"
    path.write_bytes("Schöner Tag,\r\nκόσμε\rende".encode())
    assert load_text(path) == load_text(str(path)) == "Schöner Tag,\nκόσμε\nende"
    path.write_bytes(b"abc\xff")
    for name, words in ((path, "not UTF-8: byte 3"), (tmp_path / "none.txt", "cannot be read"), (tmp_path, "cannot be read")):
        with pytest.raises(AttributeValueError, match=words):
            load_text(name)
    path.write_bytes(b"")
    with pytest.raises(AttributeValueError, match="empty"):
        load_text(path)


@given(st.text(min_size=1))
def test_characters_have_their_place_as_number(text: str) -> None:
    """DATA-WINDOWS: ascending by code point, and back again."""
    vocabulary = Vocabulary.of(text)
    assert list(vocabulary.characters) == sorted(set(text)) and len(vocabulary) == len(set(text))
    numbers = vocabulary.encode(text)
    assert numbers.dtype == np.int64 and vocabulary.decode(numbers.tolist()) == text


def test_an_unknown_character_is_refused() -> None:
    """DATA-WINDOWS"""
    with pytest.raises(DataError, match=r"'z' \(position 2\) is none of its 3 characters"):
        Vocabulary.of("abc").encode("abz")


@given(st.integers(0, 40), st.integers(1, 9))
def test_windows_follow_each_other(n: int, context: int) -> None:
    """DATA-WINDOWS: sample i begins at i c; its targets are one further; batches are the samples."""
    windows = TextWindows(np.arange(n), context)
    assert len(windows) == max(0, n - 1) // context
    for i, (inputs, targets) in enumerate(windows):
        assert inputs.tolist() == list(range(i * context, (i + 1) * context)) and (targets == inputs + 1).all()
    if len(windows):
        order = [-1, 0, 0]
        for made, one in zip(windows.batch(order), zip(*(windows[i] for i in order))):
            assert made.shape == (3, context) and (made == np.stack(one)).all()
    with pytest.raises(IndexOutOfRange):
        windows[len(windows)]


def test_a_window_has_a_character() -> None:
    """DATA-WINDOWS"""
    with pytest.raises(AttributeValueError, match="1 or more"):
        TextWindows(np.arange(5), 0)


@given(st.integers(0, 50))
def test_nine_tenths_are_for_training(n: int) -> None:
    """DATA-WINDOWS"""
    train, validation = split_text(np.arange(n))
    assert len(train) == 9 * n // 10 and np.concatenate([train, validation]).tolist() == list(range(n))
