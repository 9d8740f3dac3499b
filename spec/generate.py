"""Writes spec/text/primitives_table.md from the declarations in `refflow.ir.REGISTRY`: python spec/generate.py

Per primitive: what it is, and per sample its index space, what it folds, and the signatures of one mesh axis.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import refflow  # noqa: E402, F401  (declares the primitives)
from refflow.ir import REGISTRY, Meta, Primitive, Sample, bind_space, derive, parse  # noqa: E402

TARGET = ROOT / "spec" / "text" / "primitives_table.md"
HEAD = """# The primitives, generated

Made by `python spec/generate.py` from the declarations; do not edit.
The rules behind it: SIG-SPACE, SIG-DERIVE, SIG-EXACT, SIG-CARRY, OPS-DECLARATION.

Signatures are those of one mesh axis, each column in order of derivation. **exact**: keeps the logical bits.
**aligned**: does if the split letter is the first in `over` and its cut follows the tree (SIG-ALIGNED).
**algebraic**: right in real arithmetic only. A star: exact for integers.
"""


def metas_of(sample: Sample) -> tuple[Meta, ...]:
    """The operands of a sample; float32 where it names no dtype."""
    dtypes = [*sample.dtypes, *[""] * (len(sample.shapes) - len(sample.dtypes))]
    return tuple(Meta(shape, np.dtype(name or "float32")) for shape, name in zip(sample.shapes, dtypes, strict=True))


def mark(exact: bool | None) -> str:
    """How sure a signature is."""
    return {True: "exact", False: "algebraic", None: "aligned"}[exact]


def row(primitive: Primitive, sample: Sample) -> tuple[str, ...]:
    """Index space with its fold, and the exact, aligned and algebraic signatures of a sample."""
    metas = metas_of(sample)
    rule = primitive.rule(*metas, **sample.attrs)
    space = bind_space(primitive.name, parse(rule.space, len(metas)), [m.shape for m in metas], rule.sizes)
    floats = any(m.dtype.kind not in "iub" for m in metas)
    cells: dict[bool | None, list[str]] = {True: [], None: [], False: []}
    for found, integer in zip(derive(rule, space, not floats), derive(rule, space, True), strict=True):
        star = "*" if floats and integer.exact and not found.exact else ""
        cells[found.exact].append(f"`{str(found).strip()}`{star}")
    fold = f" over `{rule.over}`, {rule.fold}" + (f", leaf {rule.leaf}" if rule.leaf > 1 else "") if rule.fold else ""
    return f"`{rule.space.strip()}`{fold}", *("; ".join(cells[key]) for key in (True, None, False))


def spelled(sample: Sample) -> str:
    """A sample in words: shapes, then attributes."""
    shapes = " ".join(map(str, sample.shapes))
    attrs = ", ".join(f"{key}={plain(value)}" for key, value in sample.attrs.items())
    return " ".join(filter(None, [shapes, attrs]))


def plain(value: Any) -> str:
    """An attribute as text."""
    return value.name if isinstance(value, np.dtype) else str(value)


def section(primitive: Primitive) -> Iterator[str]:
    """The lines of one primitive; samples with equal rows are shown once."""
    yield f"\n## {primitive.name}\n"
    yield f"{primitive.doc}."
    notes = []
    if primitive.whole_because:
        notes.append(f"Whole where marked `[ ]`: {primitive.whole_because}.")
    if primitive.vjp is None:
        notes.append("No gradient.")
    if primitive.checked:
        notes.append("Checks its data (ERR-AGREED).")
    if notes:
        yield " ".join(notes)
    shown: dict[tuple[str, ...], list[str]] = {}
    for sample in primitive.samples:
        shown.setdefault(row(primitive, sample), []).append(spelled(sample) or "-")
    yield "\n| operands, attributes | index space | exact | aligned | algebraic |\n|---|---|---|---|---|"
    for cells, samples in shown.items():
        yield f"| {'; '.join(samples)} | {' | '.join(cells)} |"


def table() -> str:
    """The whole file."""
    return HEAD + "\n".join(text for name in sorted(REGISTRY) for text in section(REGISTRY[name])) + "\n"


if __name__ == "__main__":
    TARGET.write_text(table())
