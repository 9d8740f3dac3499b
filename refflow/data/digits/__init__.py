"""The digits: 1,797 handwritten digits of 8 by 8 pixels, shipped with refflow so that runs can train on real data.

Implements DATA-DIGITS (content, scale, split) of spec/text/data.md.  Authors, licence and changes: ATTRIBUTION.md
beside this file.  Plain NumPy arrays come out; making global tensors of them is left to `refflow.data.loader`.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError

__all__ = ["CONTENT_SHA256", "TRAIN_IMAGES", "Digits", "load_digits"]

COUNT = 1797
TRAIN_IMAGES = 1437
CONTENT_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


@dataclass(frozen=True, eq=False)
class Digits:
    """Handwritten digits: images float32 (n, 1, 8, 8) in [0, 1], labels int64 (n,) in 0..9 (DATA-DIGITS)."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Digits({len(self.train_labels)} images for training, {len(self.test_labels)} for testing)"


def load_digits() -> Digits:
    """The digits, cut by rule: the first 1,437 as the file lies are for training, the last 360 for testing.

    Pixels are counts 0..16 times 1/16, which is exact.  Every call returns fresh arrays.
    Raises DataError where the shipped file is missing, cannot be read or does not hold the digits (DATA-DIGITS).

    >>> digits = load_digits()
    >>> digits.train_images.shape, digits.test_images.shape
    ((1437, 1, 8, 8), (360, 1, 8, 8))
    >>> digits.train_labels[:5].tolist()
    [0, 1, 2, 3, 4]
    """
    try:
        shipped = files(__name__).joinpath("digits.npz").read_bytes()
    except OSError as error:
        raise DataError(f"digits: the shipped file cannot be read ({error}); reinstall refflow") from error
    counts, classes = _decode(shipped)
    images = counts[:, np.newaxis].astype(np.float32) * np.float32(1 / 16)
    labels = classes.astype(np.int64)
    return Digits(images[:TRAIN_IMAGES], labels[:TRAIN_IMAGES], images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:])


def _decode(shipped: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The counts uint8 (1797, 8, 8) and classes uint8 (1797,) of a .npz file with the SHA-256 stated above.

    The digest covers the content, not the compressed file: zlib may pack the same digits in other bytes.
    """
    try:
        with np.load(io.BytesIO(shipped), allow_pickle=False) as archive:
            counts, classes = archive["images"], archive["labels"]
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"digits: the shipped file is damaged ({error}); reinstall refflow") from error
    _expect("images", counts, (COUNT, 8, 8))
    _expect("labels", classes, (COUNT,))
    found = hashlib.sha256(counts.tobytes() + classes.tobytes()).hexdigest()
    if found != CONTENT_SHA256:
        raise DataError(f"digits: the content's SHA-256 is {found}, expected {CONTENT_SHA256}; reinstall refflow")
    return counts, classes


def _expect(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.dtype != np.uint8 or array.shape != shape:
        raise DataError(f"digits: {name} are {array.dtype} {array.shape}, expected uint8 {shape}; reinstall refflow")
