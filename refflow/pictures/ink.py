"""Shapes in SVG: rectangles, hatches, words, arrows, and one colour per rank.

Implements PIC-COLOUR of spec/text/pictures.md.  A drawing is a card with a ground of its own, so it reads the same on a
light page and a dark one; it uses no ids, styles or scripts, so several can stand in one document.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Rect = tuple[float, float, float, float]  # x, y, width, height in px

# After Okabe and Ito, "Color Universal Design" (2008), made for colour-blind eyes: their black is a grey here, since black
# is for words, and their yellow is darker, so that an outline of it shows.  Nothing is told by colour alone.
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#B8A900", "#7A7A7A")
GROUND, INK, FAINT, RULE = "#FCFCFA", "#1F2328", "#59626B", "#C9CDD2"
SANS = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
MONO = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def colour(rank: int) -> str:
    """The outline colour of a rank; colours repeat after eight ranks, labels never do."""
    return PALETTE[rank % len(PALETTE)]


def mixed(hex_colour: str, with_colour: str, share: float) -> str:
    """`hex_colour` with `share` of another mixed in."""
    pairs = [(int(hex_colour[i : i + 2], 16), int(with_colour[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)


def tint(rank: int) -> str:
    """The fill of a rank: its colour, so light that dark words on it keep a contrast above 7 to 1."""
    return mixed(colour(rank), "#FFFFFF", 0.62)


def width_of(words: str, size: float, mono: bool = False) -> float:
    """The estimated width of a line of text, on the generous side."""
    return len(words) * size * (0.61 if mono else 0.56)


class Drawing:
    """An SVG document in the making; coordinates in px, y downwards."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.width = self.height = 0.0

    def rect(self, rect: Rect, fill: str = "none", stroke: str = "none", width: float = 1, dashes: str = "") -> None:
        """A rectangle."""
        x, y, w, h = rect
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}" fill="{fill}" stroke="{stroke}"'
            f' stroke-width="{_n(width)}"{dashed}/>'
        )
        self._grow(x + w, y + h)

    def line(self, a: tuple[float, float], b: tuple[float, float], stroke: str, width: float = 1, dashes: str = "") -> None:
        """A straight line."""
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<path d="M{_n(a[0])} {_n(a[1])}L{_n(b[0])} {_n(b[1])}" stroke="{stroke}" stroke-width="{_n(width)}"'
            f' fill="none"{dashed}/>'
        )

    def curve(self, points: Sequence[tuple[float, float]], stroke: str, width: float = 1.6) -> None:
        """Straight lines from point to point."""
        path = "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
        self._parts.append(
            f'<path d="M{path}" stroke="{stroke}" stroke-width="{_n(width)}" stroke-linejoin="round" fill="none"/>'
        )

    def arrow(self, a: tuple[float, float], b: tuple[float, float], stroke: str, width: float = 1.6) -> None:
        """A line with a head at `b`."""
        length = math.hypot(b[0] - a[0], b[1] - a[1]) or 1.0
        ux, uy = (b[0] - a[0]) / length, (b[1] - a[1]) / length
        base = (b[0] - 8 * ux, b[1] - 8 * uy)
        self.line(a, base, stroke, width)
        left, right = (base[0] - 3.5 * uy, base[1] + 3.5 * ux), (base[0] + 3.5 * uy, base[1] - 3.5 * ux)
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in (b, left, right))
        self._parts.append(f'<polygon points="{points}" fill="{stroke}"/>')

    def hatch(self, rect: Rect, stroke: str, gap: float = 8) -> None:
        """Lines rising to the right, cut off at the rectangle's sides: the sign of a partial value."""
        x, y, w, h = rect
        path = []
        for i in range(1, math.ceil((w + h) / gap)):
            d = i * gap  # the line px + py = d, from the left or lower side to the upper or right one
            x0, y0 = (0.0, d) if d <= h else (d - h, h)
            x1, y1 = (d, 0.0) if d <= w else (w, d - w)
            path.append(f"M{_n(x + x0)} {_n(y + y0)}L{_n(x + x1)} {_n(y + y1)}")
        if path:
            self._parts.append(f'<path d="{"".join(path)}" stroke="{stroke}" stroke-width="1.2" fill="none"/>')

    def text(
        self, x: float, y: float, words: str, size: float = 12, *, fill: str = INK, at: str = "start",
        bold: bool = False, mono: bool = False, ground: str = "",
    ) -> None:  # fmt: skip
        """A line of text whose baseline starts (`at` "middle": is centred, "end": ends) at x, y, on a `ground` if one
        is given.
        """
        if not words:
            return
        w = width_of(words, size, mono)
        left = x - {"start": 0, "middle": w / 2, "end": w}[at]
        if ground:
            self.rect((left - 2, y - size * 0.86, w + 4, size * 1.16), ground)
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-family="{MONO if mono else SANS}" font-size="{_n(size)}" fill="{fill}"'
            f' text-anchor="{at}"{weight}>{_escaped(words)}</text>'
        )
        self._grow(left + w, y + size * 0.3)

    def document(self, title: str, description: str, comment: str = "") -> str:
        """The SVG document: `title` and `description` are what a screen reader reads."""
        w, h = math.ceil(self.width) + 16, math.ceil(self.height) + 14
        note = f"<!-- {comment} -->\n" if comment else ""
        body = "\n".join(self._parts)
        return (
            f'{note}<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img">\n'
            f"<title>{_escaped(title)}</title>\n<desc>{_escaped(description)}</desc>\n"
            f'<rect x="0.5" y="0.5" width="{w - 1}" height="{h - 1}" rx="8" fill="{GROUND}" stroke="{RULE}"/>\n{body}\n</svg>\n'
        )

    def _grow(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)


def _escaped(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _n(number: float) -> str:
    """A coordinate, as short as it can be."""
    return f"{number:.2f}".rstrip("0").rstrip(".")
