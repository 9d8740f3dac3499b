"""The back end "numba": the reference's bits on NumPy arrays, by compiled kernels."""

from __future__ import annotations

from .. import cache

cache.use()
