"""What generated kernels are made of: `each`, a loop LLVM may vectorise whatever lies where, `in_turn`, `spread` and `heavy`.

Implements ACC-LOOP of spec/text/acceleration.md.  Element i of every result depends on elements i only, and is written
after they are read.  So no iteration of `each` depends on another even where a result takes the place of an operand,
which LLVM is told (`llvm.mem.parallel_loop_access`): it needs no checks of overlap, which it makes for few arrays only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from .abi import i64

_I64 = ir.IntType(64)
SHORT = 24  # elements of a row below which it is not worth a loop of its own
_PARALLEL = "llvm.mem.parallel_loop_access"


class _Loop(ir.values.MDValue):
    """A loop's identity: a metadata node that names itself first; `wide`: it is to be vectorised whatever that seems to cost."""

    def __init__(self, module: Any, wide: bool) -> None:
        wanted = [ir.MetaDataString(module, "llvm.loop.vectorize.enable"), ir.Constant(ir.IntType(1), 1)]
        hints = [module.add_metadata(wanted)] if wide else []
        super().__init__(module, [], name=str(len(module.metadata)))
        self.operands = (self, *hints)


def _loop(wide: bool) -> Any:
    """The intrinsic `each`; where not `wide`, one that leaves it to LLVM whether vectors are taken."""

    @intrinsic
    def each(typing: Any, body: Any, n: Any, sources: Any, sinks: Any) -> Any:
        """sinks[..][at + i] = body(sources[..][at + i]) for i in [0, n).

        A source is a pair (flat array, at) or a number, which is the same for all i; a sink is such a pair.  `body` is a
        compiled scalar function of as many arguments; it returns a scalar for one sink, a tuple for more.
        """
        given = tuple(s.types[0].dtype if isinstance(s, types.BaseTuple) else s for s in sources.types)
        called = body.get_call_type(typing, given, {})

        def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
            loop = _Loop(b.module, wide)
            reads = [_pointer(context, b, t, b.extract_value(args[2], k)) for k, t in enumerate(sources.types)]
            writes = [_pointer(context, b, t, b.extract_value(args[3], k)) for k, t in enumerate(sinks.types)]
            function = context.get_function(body, called)
            context.add_linking_libs(getattr(function, "libs", ()))
            before, head, after = b.block, b.append_basic_block("each"), b.append_basic_block("each.end")
            b.cbranch(b.icmp_signed(">", args[1], _I64(0)), head, after)
            b.position_at_end(head)
            i = b.phi(_I64)
            i.add_incoming(_I64(0), before)
            values = []
            for kind, at in zip(sources.types, reads):
                if isinstance(kind, types.BaseTuple):
                    at = b.load(b.gep(at, [i]))
                    at.set_metadata(_PARALLEL, loop)
                values.append(at)
            made, kind = function(b, values), called.return_type
            several = isinstance(kind, types.BaseTuple)
            for k, (sink, at) in enumerate(zip(sinks.types, writes)):
                value = b.extract_value(made, k) if several else made
                value = context.cast(b, value, kind.types[k] if several else kind, sink.types[0].dtype)
                b.store(value, b.gep(at, [i])).set_metadata(_PARALLEL, loop)
            following = b.add(i, _I64(1), flags=["nsw"])
            i.add_incoming(following, b.block)
            b.cbranch(b.icmp_signed("<", following, args[1]), head, after).set_metadata("llvm.loop", loop)
            b.position_at_end(after)
            return context.get_dummy_value()

        return types.void(body, types.int64, sources, sinks), build

    return each


each = _loop(True)
in_turn = _loop(False)  # of bodies with a loop inside, for which LLVM would warn that it could not


def _pointer(context: Any, b: Any, kind: Any, value: Any) -> Any:
    """Where a pair (array, at) begins; a number as it is."""
    if not isinstance(kind, types.BaseTuple):
        return value
    array = context.make_array(kind.types[0])(context, b, value=b.extract_value(value, 0))
    return b.gep(array.data, [context.cast(b, b.extract_value(value, 1), kind.types[1], types.int64)])


@intrinsic
def heavy(typing: Any, kernel: Any, m: Any, places: Any) -> Any:
    """Calls the kernel at an address on the words that are the addresses of `places` (pairs as in `each`), for [0, m)."""

    def build(context: Any, b: Any, signature: Any, args: Any) -> Any:
        words = cgutils.alloca_once(b, ir.ArrayType(_I64, len(places)))
        for k, kind in enumerate(places.types):
            address = b.ptrtoint(_pointer(context, b, kind, b.extract_value(args[2], k)), _I64)
            b.store(address, cgutils.gep(b, words, 0, k))
        function = b.inttoptr(args[0], ir.FunctionType(_I64, [_I64] * 3).as_pointer())
        return b.call(function, [b.ptrtoint(words, _I64), _I64(0), args[1]])

    return types.int64(types.int64, types.int64, places), build


@njit(forceinline=True)
def same(x: Any) -> Any:
    """The body of a copy."""
    return x


@njit(error_model="numpy", nogil=True, cache=True)
def spread(x: Any, words: int, at: int, begin: int, m: int, out: Any) -> None:
    """out[:m] = elements [begin, begin + m), in row-major order, of an array that is strided or repeats elements.

    Words at, at + 1, … are: the number d of dims, d extents, d strides in elements.  Unsigned indices, because
    negative ones would count from the end; addresses wrap.
    """
    d = i64(words, at)
    inner, step = i64(words, at + d), i64(words, at + 2 * d)
    row, column = begin // inner, begin % inner
    if d == 2 and inner < m and i64(words, at + 3) == 0:
        for i in range(inner):
            out[np.uint64(i)] = x[np.uint64((column + i - (inner if column + i >= inner else 0)) * step)]
        _repeat(out, inner, m)
    elif inner < SHORT:
        start = _start(words, at, d, row)
        leap = i64(words, at + d + 1) if d == 2 else 0
        for i in range(m):
            out[np.uint64(i)] = x[np.uint64(start + column * step)]
            column += 1
            if column == inner:
                row, column = row + 1, 0
                start = start + leap if d == 2 else _start(words, at, d, row)
    else:
        done = 0
        while done < m:
            start, run = _start(words, at, d, row) + column * step, min(inner - column, m - done)
            if step == 0:
                each(same, run, (x[np.uint64(start)],), ((out, done),))
            elif step == 1:
                each(same, run, ((x, start),), ((out, done),))
            else:
                for i in range(run):
                    out[np.uint64(done + i)] = x[np.uint64(start + i * step)]
            done, row, column = done + run, row + 1, 0


@njit(forceinline=True)
def _start(words: int, at: int, d: int, row: int) -> int:
    """Where a row begins: its number taken apart from the innermost of the outer dims."""
    start = 0
    for k in range(d - 1, 1, -1):
        extent = i64(words, at + k)
        start += (row % extent) * i64(words, at + d + k)
        row //= extent
    return start + row * i64(words, at + d + 1) if d > 1 else start


@njit(error_model="numpy", nogil=True, cache=True)
def _repeat(out: Any, period: int, m: int) -> None:
    """out[:m] = its first `period` elements over and over, each copy twice as long as the one before."""
    while period < m:
        run = min(period, m - period)
        each(same, run, ((out, 0),), ((out, period),))
        period += run


@njit(error_model="numpy", nogil=True, cache=True)
def any_set(flags: Any, m: int) -> bool:
    """Whether one of the first m flags is set."""
    found = 0
    for i in range(m):
        found |= flags[i]
    return found != 0
