"""Why a graph does not fall into so many micro-batches, in words, and how many would do.

Implements TIME-REFUSED and TIME-ADVICE of spec/text/passes.md.  The compiler finds that something would wait for the
whole batch; here it is said which operation of which layer does, and by which numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ..boxing import format_sbp
from ..ir import SPECIAL, Meta, Node, Value, bind_space, options, parse
from .logical import LogicalGraph, Variable, key
from .time import TooManySteps, input_sbp, varies

TRIED = 4  # of the divisors of a batch that are no powers of two, from the largest down
QUICK = 64  # so many micro-batches are traced soon
MOST = 1024  # and so many at all: the time that tracing takes grows faster than their number


def needed_at_once(graph: LogicalGraph, value: Value, move: Node | None = None) -> TooManySteps:
    """The refusal of a graph in which `value`, made by `move` if it is put together for it, is needed over all micro-steps."""
    reader = next(_readers(graph, value), None)
    made_by = {key(v): node for node in graph.nodes for v in node.outputs}
    meant, maker = value, move or made_by.get(key(value))
    if maker is not None and maker.primitive.name == "to_global":  # it is told what is moved
        (meant,) = maker.inputs
        maker = made_by.get(key(meant))
    what = graph.names().get(key(meant), "a value") + (f" ({maker.primitive.name})" if maker is not None else "")
    if reader is not None:
        what = f"{what}, which {reader.primitive.name}{_where(graph, reader)} reads,"
    because = _because(graph, reader) if move is not None and reader is not None else ""
    if move is None:
        because = "; it is known only when all of them are over"
    return TooManySteps(
        f"{graph.name}: {what} is needed over all {graph.steps} micro-batches at once ({_size(meant.meta)}){because}"
    )


def _size(meta: Meta) -> str:
    """A tensor in short, with its layout over ranks and micro-steps."""
    shape = "x".join(map(str, meta.shape)) or "scalar"
    return shape if meta.sbp is None else f"{shape}, {format_sbp(meta.sbp[:-1])} on ranks, {meta.sbp[-1]} on micro-batches"


def _readers(graph: LogicalGraph, value: Value) -> Iterator[Node]:
    """Those who read a value for work on single micro-batches come first."""
    found = [node for node in graph.nodes if key(value) in map(key, node.inputs)]
    yield from (node for node in found if any(varies(v.meta) for v in (*node.inputs, *node.outputs)))
    yield from found


# --- where in the model -------------------------------------------------------------------------------------------


def _where(graph: LogicalGraph, node: Node) -> str:
    """The layer a node belongs to: by the nearest variable that goes into it, or, in backward, the nearest it steps."""
    after = _reached([node], _uses(graph))
    if not {key(v) for v in graph.outputs}.isdisjoint(after):
        made_by = {key(v): n for n in graph.nodes for v in n.outputs}
        held = {key(v.value): v for v in graph.variables if v.value is not None}
        sources = _reached([node], lambda n: [made_by[key(v)] for v in n.inputs if key(v) in made_by], inputs=True)
        name = _first(sources, held)
        return f" (at {name})" if name else ""
    stepped = {key(v.update): v for v in graph.variables if v.update is not None and v.cell.requires_grad}
    name = _first(after, stepped)
    return f" (for the gradient of {name})" if name else ""


def _first(marks: Iterable[int], variables: Mapping[int, Variable]) -> str | None:
    return next((variables[mark].name for mark in marks if mark in variables), None)


def _uses(graph: LogicalGraph) -> Callable[[Node], list[Node]]:
    uses: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            uses.setdefault(key(value), []).append(node)
    return lambda node: [other for value in node.outputs for other in uses.get(key(value), ())]


def _reached(start: Sequence[Node], step: Callable[[Node], list[Node]], inputs: bool = False) -> dict[int, None]:
    """The keys of what the nodes reached one step after another make (or, with `inputs`, read), nearest first."""
    found: dict[int, None] = {}
    seen = {id(node) for node in start}
    front = list(start)
    while front:
        found.update({key(value): None for node in front for value in (node.inputs if inputs else node.outputs)})
        following = {id(other): other for node in front for other in step(node)}
        front = [other for mark, other in following.items() if mark not in seen]
        seen.update(following)
    return found


# --- by which numbers ---------------------------------------------------------------------------------------------


def _because(graph: LogicalGraph, reader: Node) -> str:
    """What keeps a primitive from working on micro-batches: the reason why the signature that would is refused."""
    if reader.primitive.name in SPECIAL or not reader.inputs:
        return ""
    made_by = {key(v): n for n in graph.nodes if n.primitive.name == "to_global" for v in n.outputs}
    metas = [(made_by[key(v)].inputs[0] if key(v) in made_by else v).meta for v in reader.inputs]
    placement = reader.metas[0].placement
    if placement is None or any(meta.placement != placement for meta in metas):
        return ""
    rule = reader.primitive.rule(*metas, **reader.attrs)
    space = bind_space(reader.primitive.name, parse(rule.space, len(metas)), [m.shape for m in metas], rule.sizes)
    single = [o.signature for o in options(rule, space, metas, placement, "cheap") if not o.late]
    refused = next((s for s in single if not s.exact and s.axes[-1].letter is not None), None)
    if refused is None:
        return f"; {reader.primitive.name} works on whole batches"
    letter = refused.axes[-1].letter
    assert letter is not None
    parts = math.prod(n for axis, n in zip(refused.axes, placement.mesh, strict=True) if axis.letter == letter)
    rows = space.sizes[letter] // max(parts, 1)
    short = f": {rows} rows a micro-batch, where the leaf takes {rule.leaf}" if rows < rule.leaf else ""
    return f"; {refused.why}{short}"


# --- how many would do --------------------------------------------------------------------------------------------


def asked_first(metas: Sequence[Meta], steps: int) -> list[int]:
    """The numbers of micro-batches to trace for `steps` of them: before many, a few, which are refused sooner.

    Halves of a tree are trees: where a power of two that divides `steps` is refused, so is `steps`.  Errors: `TooManySteps`
    for more than any batch is cut into.
    """
    for meta in metas:
        input_sbp(meta, steps)
    if steps > MOST:
        raise TooManySteps(f"a graph is cut into at most {MOST} micro-batches, not {steps}")
    few = min(steps & -steps, QUICK)
    return [few, steps] if steps > QUICK and few > 1 else [steps]


def advised(metas: Sequence[Meta], steps: int, refused: int, works: Callable[[int], bool]) -> str:
    """Of the numbers of micro-batches below `steps` one that works, in words (TIME-ADVICE); `refused` was, if a power of two.

    Tried are common divisors of the batches: powers of two, and larger ones that have no refused power of two in them.
    """
    rows = math.gcd(*[meta.shape[0] for meta in metas if meta.shape])
    divisors = [n for n in range(min(steps - 1, rows, QUICK), 1, -1) if rows % n == 0]
    best = next((n for n in divisors if _is_power(n) and (n < refused or not _is_power(refused)) and works(n)), 1)
    others = [n for n in divisors if n > best and not _is_power(n) and n & -n <= best]
    found = next((n for n in others[:TRIED] if works(n)), best)
    more = any(rows % n == 0 for n in range(QUICK + 1, min(steps, rows + 1, MOST + 1)))
    if more or (found == best and len(others) > TRIED):
        return f"a number that works is {found}"
    return f"the largest number of micro-batches below that works is {found}"


def _is_power(n: int) -> bool:
    return n & (n - 1) == 0
