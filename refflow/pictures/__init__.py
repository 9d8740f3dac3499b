"""Pictures: which rank holds what, and what travels; as SVG for a notebook and as plain text for a terminal.

Implements PIC-* of spec/text/pictures.md.  `ink` draws shapes, `parts` says in words and boxes what each rank holds,
`layout` and `boxing` draw it, `curve` draws a run, `readme` composes the picture on the front page.
"""

from __future__ import annotations

from .boxing import draw_boxing, plan_svg, plan_text
from .layout import draw_layout, layout_svg, layout_text
from .picture import Picture

__all__ = ["Picture", "draw_boxing", "draw_layout", "layout_svg", "layout_text", "plan_svg", "plan_text"]
