"""The constants of the scalar sources: written by make_tables.py with mpmath, read-only arrays and plain floats here.

Names ending in H and L are the two halves of a value: H + L is it to 2^-106 or so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def _load() -> dict[str, npt.NDArray[Any]]:
    with np.load(Path(__file__).with_name("tables.npz")) as stored:
        loaded = {name: np.ascontiguousarray(stored[name]) for name in stored.files}
    for array in loaded.values():
        array.flags.writeable = False
    return loaded


STORED = _load()

# exp: 2^(j/64), and ln(2)/64 in two parts of which the first times a small integer is exact
EXPH, EXPL = STORED["EXPH"], STORED["EXPL"]
LN64H, LN64L = (float(v) for v in STORED["LN64"])
# log: centres of 128 parts of [1, 2); those from SPLIT on are halved
INVC, LOGH, LOGL = STORED["INVC"], STORED["LOGH"], STORED["LOGL"]
LN2H, LN2L = (float(v) for v in STORED["LN2"])
SPLIT = int(STORED["SPLIT"][0])
# erf: Taylor coefficients around j/16
ERF0H, ERF0L, ERF1H, ERF1L = STORED["ERF0H"], STORED["ERF0L"], STORED["ERF1H"], STORED["ERF1L"]
ERF2, ERF3, ERF4, ERF5, ERF6, ERF7, ERF8, ERF9, ERF10, ERF11, ERF12 = (
    np.ascontiguousarray(row) for row in STORED["ERFC"]
)
# sin and cos: 2^(e-23) / 2 pi modulo 1 in words of 32 bits, e from -8; sin(2 pi k / 256); 2 pi
TURN0, TURN1, TURN2, TURN3, TURN4 = (np.ascontiguousarray(row) for row in STORED["TURN"])
SINH, SINL = STORED["SINH"], STORED["SINL"]
TWOPIH, TWOPIL = (float(v) for v in STORED["TWOPI"])
# gelu: Taylor coefficients of Phi(-t) exp(t^2/2) around j/16
TAIL0H, TAIL0L, TAIL1H, TAIL1L = (np.ascontiguousarray(row) for row in STORED["TAILH"])
TAIL2, TAIL3, TAIL4, TAIL5, TAIL6, TAIL7, TAIL8, TAIL9, TAIL10, TAIL11, TAIL12, TAIL13, TAIL14 = (
    np.ascontiguousarray(row) for row in STORED["TAILC"]
)
for _array in list(globals().values()):
    if isinstance(_array, np.ndarray):
        _array.flags.writeable = False

PER_LN2 = 92.332482616893656877  # 64 / ln 2
MAGIC = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer, which then stands in the low bits
