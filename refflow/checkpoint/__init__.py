"""Checkpoints: trees of tensors in one safetensors file, independent of layout (spec/text/checkpoints.md).

`tree` turns nested Python into JSON and named tensors, `container` those into bytes and back with every byte checked,
`atomic` puts bytes on a disk, `store` is `flow.save` and `flow.load`.
"""

from __future__ import annotations

from .store import load, save

__all__ = ["load", "save"]
