"""Windows of an image added where they overlap: fold2d, the transpose of unfold2d, which is a view (`movement`).

Implements ACC-SCATTER of spec/text/acceleration.md for windows, by the slots and stacks of `scatter`: what a pixel gets is
found by arithmetic, not by sorting.  Where windows do not overlap a pixel has one term at most, which is copied.
"""

# ruff: noqa: F821  (names of the scope)

from __future__ import annotations

from functools import cache
from typing import Any

from numpy.lib.stride_tricks import as_strided

from ..abi import Entry, i64, i64s
from ..registry import kernel
from .creation import filled
from .elements import READ, WORDS, entry_of, get, itemstrides, name_of, put
from .movement import Pair, copy
from .reduction import Array, identity_word
from .scatter import slots_of, terms


def fold_windows(words, lo, hi):
    """Task t: a row of an image.

    Words: out, g, slots of the windows, height and width of the image, counts, kernel, stride, padding, dilation
    (two each), then the steps of g's dimensions c, p, q, i, j after that of n, and the number of channels.
    """
    out, g, slots = write(words, 0), read(words, 1), i64s(words, 2)
    height, width, down, across = i64(words, 3), i64(words, 4), i64(words, 5), i64(words, 6)
    tall, broad, stride0, stride1 = i64(words, 7), i64(words, 8), i64(words, 9), i64(words, 10)
    pad0, pad1, dilation0, dilation1 = i64(words, 11), i64(words, 12), i64(words, 13), i64(words, 14)
    gn, gc, gp, gq, gi, gj = (
        i64(words, 15), i64(words, 16), i64(words, 17), i64(words, 18), i64(words, 19), i64(words, 20)
    )  # fmt: skip
    channels = i64(words, 21)
    stack, meets = pile(), levels()
    for t in range(lo, hi):
        y = t % height
        base = (t // height // channels) * gn + (t // height % channels) * gc
        for x in range(width):
            top, before = 0, 0
            for i in range(tall - 1, -1, -1):  # windows in ascending order: the lower the tap, the earlier the window
                r = y + pad0 - i * dilation0
                p = r // stride0
                if r < 0 or p >= down or p * stride0 != r:
                    continue
                for j in range(broad - 1, -1, -1):
                    s = x + pad1 - j * dilation1
                    q = s // stride1
                    if s < 0 or q >= across or q * stride1 != s:
                        continue
                    slot = get(slots, p * across + q)
                    value = load(g, base + p * gp + q * gq + i * gi + j * gj)
                    top = push(stack, meets, top, value, slot ^ before)
                    before = slot
            store(out, t * width + x, drain(stack, top))
    return 0


def fold_apart(words, lo, hi):
    """Task t: a row of an image of which each place is in one window at most: a copy, and the rest -0.0.

    Words: as `fold_windows`, with the word of what is absent in place of the slots.
    """
    out, g, absent = read(words, 0), read(words, 1), i64(words, 2)
    height, width, down, across = i64(words, 3), i64(words, 4), i64(words, 5), i64(words, 6)
    tall, broad, stride0, stride1 = i64(words, 7), i64(words, 8), i64(words, 9), i64(words, 10)
    pad0, pad1, channels = i64(words, 11), i64(words, 12), i64(words, 21)
    gn, gc, gp, gq, gi, gj = (
        i64(words, 15), i64(words, 16), i64(words, 17), i64(words, 18), i64(words, 19), i64(words, 20)
    )  # fmt: skip
    full = broad == stride1 and pad1 == 0 and across * stride1 == width
    for t in range(lo, hi):
        y, image, to = t % height, t // height, t * width
        p, i = (y + pad0) // stride0, (y + pad0) % stride0
        inside = p < down and i < tall
        if not (inside and full):
            for x in range(width):
                put(out, to + x, absent)
        if inside:
            base = image // channels * gn + image % channels * gc + p * gp + i * gi
            for j in range(broad):
                at = to + j - pad1
                first = (max(pad1 - j, 0) + stride1 - 1) // stride1
                end = min(across, (width - 1 + pad1 - j) // stride1 + 1)
                for q in range(first, end):
                    put(out, at + q * stride1, get(g, base + q * gq + j * gj))
    return 0


@cache
def folding_apart(itemsize: int) -> Entry:
    return entry_of(fold_apart, str(itemsize), {"read": WORDS[itemsize]})


@cache
def folding_windows(dtype: str) -> Entry:
    return entry_of(fold_windows, dtype, terms(dtype))


@kernel
def fold2d(call: Any, g: Array, *, size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Any:
    n, c, p, q, i, j = g.shape
    if name_of(g.dtype) not in READ:
        return NotImplemented
    out = call.empty((n, c, *size), g.dtype)
    words = (*size, p, q, i, j, *stride, *padding, *dilation, *itemstrides(g.strides, g.itemsize), c)
    tasks = n * c * size[0] if size[1] else 0
    if all(taps == 1 or (gap == 1 and taps <= step) for taps, gap, step in zip((i, j), dilation, stride)):  # none overlap
        absent = identity_word("sum", name_of(g.dtype))
        if not any(padding) and _all_inside(g.shape[2:4], (i, j), size, stride, dilation):
            if g.size < out.size:
                filled(call, out, absent)
            y, x = out.strides[2:]
            steps = (*out.strides[:2], y * stride[0], x * stride[1], y * dilation[0], x * dilation[1])
            copy(call, as_strided(out, g.shape, steps), g)
        else:
            cost = 5.0 + 5.0 * j + 0.5 * size[1]
            call.launch(folding_apart(g.itemsize), out, g, absent, *words, tasks=tasks, cost=cost)
        return out
    cost = size[1] * (5.0 + 3.0 * i * j)
    call.launch(folding_windows(name_of(g.dtype)), out, g, slots_of(call, p * q), *words, tasks=tasks, cost=cost)
    return out


def _all_inside(counts: Pair, kernel: Pair, size: Pair, stride: Pair, dilation: Pair) -> bool:
    """Whether every window of an image without padding lies in it."""
    along = zip(counts, kernel, size, stride, dilation)
    return all((count - 1) * step + (taps - 1) * gap < n for count, taps, n, step, gap in along)
