"""The CPU kernels, a file per chapter; importing this package fills the table."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

# TODO(lead): plain imports once all chapters exist
for _chapter in ("elementwise", "contraction", "convolution", "reduction", "indexing", "movement", "order", "creation", "arrays"):
    if find_spec(f"{__name__}.{_chapter}") is not None:
        import_module(f"{__name__}.{_chapter}")
