"""Convolutions as products that read their taps where they lie.

Implements ACC-CONV of spec/text/acceleration.md (NUM-CONV's bits).  A convolution is w (rows) times the taps of x
(columns: output pixels), contracted over k = (channel, tap).  The columns of some images at a time are an *image* here;
which pixel of x a column reads by a tap, and whether it exists, is a table that all channels and images share.  A task
packs a chunk of k of its columns, runs all tiles of rows over it, and goes on: unfinished tiles wait on their stacks.

An absent tap leaves the accumulator as it is.  No packed value could do so, since w may be inf or NaN, and even +0 * w
turns -0 into +0; so a tile gets 16 bits with each step that say which columns take it.  A tile none of whose taps is
absent does without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from refflow.kernels.reference.contraction import Taps, held
from refflow.kernels.reference.movement import windows

from .. import abi
from ..abi import Call, Entry
from ..registry import kernel
from .elements import entry_of
from .packing import READERS, Array, Panels, table_of
from .tiles import COLUMNS, LANES, ROWS, SIZE, aligned, inner, make_stack, make_tile, program

Pair = tuple[int, int]
Shape = tuple[int, ...]
CHUNK = 512  # terms of k packed at a time
