"""A picture: SVG where it can be shown, the same in words where it cannot.

Implements PIC-TEXT of spec/text/pictures.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Picture:
    """An SVG document and the text that says the same; a notebook shows the one, a terminal prints the other."""

    svg: str
    text: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the SVG document to a file.  Errors: `OSError`."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__
