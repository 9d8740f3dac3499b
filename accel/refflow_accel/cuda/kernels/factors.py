"""Where the factors of a contraction lie: the geometry a tiled kernel is given, and the functions that read it.

Part of NUM-CONTRACT and NUM-CONV for CUDA.  A `Factors` tells `tiles.contraction` what it must know of matmul or of
convolution: for result (item, i, j) and term k, the place of x's element and of y's, counted in elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..target import device, i32, record, u32


@dataclass(frozen=True)
class Factors:
    """How a kernel finds factors; `geometry` is the type of the record that each function is given first."""

    geometry: Any
    start: Callable[..., Any]  # start(g, item) -> where the item's x and y begin
    x_at: Callable[..., Any]  # x_at(g, start, i, k) -> the place
    y_at: Callable[..., Any]  # y_at(g, start, k, j) -> whether there is one, and the place
    x_by_row: Callable[..., Any]  # whether neighbouring threads read neighbouring rows of x (or terms)
    y_by_term: Callable[..., Any]  # whether they read neighbouring terms of y (or columns)


# --- matmul -----------------------------------------------------------------------------------------------------------


class Matrices(NamedTuple):
    """A batch of matrix products: the sizes of the batch's last two dimensions (of three), and the factors' strides."""

    middle: int
    inner: int
    x_outer: int
    x_middle: int
    x_inner: int
    x_row: int
    x_term: int
    y_outer: int
    y_middle: int
    y_inner: int
    y_term: int
    y_column: int


@device
def _matrices(g, item):
    line = u32(item // g.inner)
    inner = u32(item - line * g.inner)
    outer = u32(line // g.middle)
    middle = u32(line - outer * g.middle)
    x = u32(outer * g.x_outer + middle * g.x_middle + inner * g.x_inner)
    y = u32(outer * g.y_outer + middle * g.y_middle + inner * g.y_inner)
    return x, y


@device
def _row_element(g, start, i, k):
    return u32(start + i * g.x_row + k * g.x_term)


@device
def _column_element(g, start, k, j):
    return True, u32(start + k * g.y_term + j * g.y_column)


@device
def _rows_lie_together(g):
    return g.x_term != u32(1)


@device
def _terms_lie_together(g):
    return g.y_column != u32(1)


MATMUL = Factors(
    record(Matrices, (u32,) * 12), _matrices, _row_element, _column_element, _rows_lie_together, _terms_lie_together
)


# --- correlation ------------------------------------------------------------------------------------------------------


class Axis(NamedTuple):
    """One dimension of the source: output o reads by tap t what stands at (o * step + t * apart + at) / by, if whole."""

    step: int
    apart: int
    at: int
    by: int
    size: int


class Windows(NamedTuple):
    """Weights w[g, o, c, i, j] and sources y[g, c, image, row, column]: strides, and the sizes that split k and j."""

    w_group: int
    w_output: int
    w_channel: int
    w_i: int
    w_j: int
    y_group: int
    y_channel: int
    y_image: int
    y_row: int
    y_column: int
    taps: int  # of a channel
    taps_j: int
    window: int  # outputs of an image
    window_q: int
    rows: Axis
    columns: Axis


@device
def _groups(g, item):
    return u32(item * g.w_group), u32(item * g.y_group)


@device
def _tap(g, k):
    """The channel, row and column of term k."""
    channel = u32(k // g.taps)
    rest = u32(k - channel * g.taps)
    i = u32(rest // g.taps_j)
    return channel, i, u32(rest - i * g.taps_j)


@device
def _weight(g, start, output, k):
    channel, i, j = _tap(g, k)
    return u32(start + output * g.w_output + channel * g.w_channel + i * g.w_i + j * g.w_j)


@device
def _along(axis, output, tap):
    """Whether output and tap meet a row (or column) of the source, and which."""
    place = i32(i32(output) * axis.step + i32(tap) * axis.apart + axis.at)
    whole = u32(u32(place) // axis.by)
    return place >= 0 and u32(whole * axis.by) == u32(place) and whole < axis.size, whole


@device
def _source(g, start, k, j):
    channel, tap_i, tap_j = _tap(g, k)
    image = u32(j // g.window)
    rest = u32(j - image * g.window)
    p = u32(rest // g.window_q)
    row_there, row = _along(g.rows, p, tap_i)
    column_there, column = _along(g.columns, u32(rest - p * g.window_q), tap_j)
    place = u32(start + channel * g.y_channel + image * g.y_image + row * g.y_row + column * g.y_column)
    return row_there and column_there, place


@device
def _never(g):
    return False


_AXIS = record(Axis, (i32, i32, i32, u32, u32))
CORRELATION = Factors(record(Windows, ((u32,) * 14 + (_AXIS,) * 2)), _groups, _weight, _source, _never, _never)
