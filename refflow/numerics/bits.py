"""Values as bits: equality, the first difference, and digests.

Implements NUM-NAN (all NaNs are one value, the sign of zero is significant) and NUM-DIGEST of spec/text/numerics.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DtypeError, ShapeError
from .dtypes import is_float
from .profile import PROFILE

Array = npt.NDArray[Any]

# The one NaN of each format: quiet, positive, no payload.  bfloat16 is told from float16 by name.
_NAN_BITS = {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000, "float64": 0x7FF8000000000000}


def _words(x: Array) -> Array:
    """The bit patterns of `x` as unsigned integers, NaNs canonical, contiguous, same shape."""
    flat = np.ascontiguousarray(x)
    words = flat.view(np.dtype(f"u{flat.dtype.itemsize}")).reshape(np.shape(x))
    if is_float(flat.dtype):
        nan = (flat != flat).reshape(words.shape)
        if nan.any():
            words = np.where(nan, words.dtype.type(_NAN_BITS[flat.dtype.name]), words)
    return words


def canonical(x: Array) -> Array:
    """`x` with every NaN replaced by the one NaN of its dtype (`x` itself if it has none).  Source: NUM-NAN."""
    x = np.asarray(x)
    if not is_float(x.dtype) or not (x != x).any():
        return x
    return _words(x).view(x.dtype)


def same_bits(a: Array, b: Array) -> bool:
    """True if `a` and `b` have the same dtype, shape and bits; all NaNs are one value, -0 is not +0."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and bool((_words(a) == _words(b)).all())


def first_difference(a: Array, b: Array) -> tuple[int, ...] | None:
    """The first index, in row-major order, at which `a` and `b` differ in their bits, or None.

    Raises DtypeError or ShapeError if dtypes or shapes differ.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype:
        raise DtypeError(f"first_difference: {a.dtype.name} with {b.dtype.name}; compare arrays of one dtype")
    if a.shape != b.shape:
        raise ShapeError(f"first_difference: shape {a.shape} with {b.shape}; compare arrays of one shape")
    unequal = (_words(a) != _words(b)).reshape(-1)
    if not unequal.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(unequal)), a.shape))


def digest(x: Array) -> str:
    """The SHA-256, in hex, of an array's meaning.

    Hashed are: profile name, NUL, dtype name, NUL, ndim and dims as little-endian int64, then the elements in row-major
    order, little-endian, NaNs canonical.  Source: NUM-DIGEST.
    """
    x = np.asarray(x)
    words = _words(x)
    head = f"{PROFILE}\0{x.dtype.name}\0".encode() + np.array([x.ndim, *x.shape], "<i8").tobytes()
    return hashlib.sha256(head + words.astype(words.dtype.newbyteorder("<")).tobytes()).hexdigest()


def digest_many(arrays: Mapping[str, Array]) -> str:
    """The SHA-256, in hex, of named arrays: profile name, NUL, then per name in sorted order name, NUL, 32-byte digest.

    Source: NUM-DIGEST.
    """
    total = hashlib.sha256(f"{PROFILE}\0".encode())
    for name in sorted(arrays):
        total.update(name.encode() + b"\0" + bytes.fromhex(digest(arrays[name])))
    return total.hexdigest()
