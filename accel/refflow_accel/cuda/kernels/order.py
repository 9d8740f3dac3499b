"""Sorting: the reference's, on host copies (NUM-ORDER; ACC-CUDA-BACKEND asks that it is listed)."""

from __future__ import annotations

from ..registry import HOST

HOST["argsort"] = "a stable sort of whole dimensions is rare in training, and moves little"
