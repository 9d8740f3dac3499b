"""A chain as the Python source of a kernel: plain steps in loops over blocks, heavy functions on whole blocks between.

Implements ACC-GENERATED and ACC-JOINT of spec/text/acceleration.md.  A kernel's task is a block of consecutive elements of the
results, which are contiguous.  An operand is *flat* (as the results lie), *one* (a single element for all) or *spread*
(strided or repeating elements: copied to a buffer first).  Parts are cut where a heavy function is between; what
crosses a cut waits in a buffer.  Heavy functions are kernels of their own, compiled once, not once in every chain.
Results are stored by the last part only, after everything that is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..chains import Chain
from ..expressions import BLOCKS, STORED, computed, expression, load, refusal, store

FLAT, ONE, SPREAD = "flat", "one", "spread"
SMALL, LARGE = 512, 4096  # elements of a task: with buffers, and without


@dataclass(frozen=True)
class Part:
    """Plain steps of one loop, the values it reads and keeps in buffers, and the heavy steps carried out after it."""

    steps: tuple[int, ...]
    reads: tuple[int, ...]
    keeps: tuple[int, ...]
    heavy: tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """The text of a kernel, the elements of one of its tasks, and the heavy functions whose addresses it is given."""

    text: str
    block: int
    heavy: tuple[str, ...]


def is_heavy(chain: Chain, value: int) -> bool:
    """Whether a value is made by a heavy function."""
    step = value - len(chain.inputs)
    return step >= 0 and chain.steps[step].op in BLOCKS and computed(chain.steps[step].dtype) == "float32"


@dataclass(frozen=True)
class Heavy:
    """A call of a kernel on whole blocks: its name, the values it reads, and those it makes."""

    kernel: str
    reads: tuple[int, ...]
    makes: tuple[int, ...]


def calls(chain: Chain, values: tuple[int, ...]) -> list[Heavy]:
    """The calls that make heavy values none of which needs another: one each, but for the terms of gelu (ACC-JOINT)."""
    terms = next(filter(None, (gelu_terms(chain, value, values) for value in values)), ())
    made = [Heavy("gelu_terms", tuple(operands(chain, v)[0] for v in terms), terms)] if terms else []
    return made + [Heavy(operator(chain, v), operands(chain, v), (v,)) for v in values if v not in terms]


def gelu_terms(chain: Chain, gelu: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """gelu(x) with the erf of a product of x and the exp of a product of x x among `values`; none unless it has both."""
    if operator(chain, gelu) != "gelu" or chain.dtype(gelu) != "float32":
        return ()
    (x,) = operands(chain, gelu)
    found = {"gelu": gelu}
    for value in values:
        (inner, *_) = operands(chain, value)
        factors = operands(chain, inner) if operator(chain, inner) == "mul" else ()
        square = any(operator(chain, v) == "mul" and operands(chain, v) == (x, x) for v in factors)
        if operator(chain, value) == ("exp" if square else "erf" if x in factors else ""):
            found.setdefault(operator(chain, value), value)
    return (gelu, found["erf"], found["exp"]) if len(found) == 3 else ()


def operator(chain: Chain, value: int) -> str:
    """The primitive that makes a value; of an input, nothing."""
    step = value - len(chain.inputs)
    return chain.steps[step].op if step >= 0 else ""


def operands(chain: Chain, value: int) -> tuple[int, ...]:
    """The values a value is made from."""
    step = value - len(chain.inputs)
    return chain.steps[step].operands if step >= 0 else ()


def needed(chain: Chain) -> list[int]:
    """The values that results depend on, in order, and those that may refuse their data."""
    steps = enumerate(chain.steps, len(chain.inputs))
    found = {
        *chain.outputs,
        *(i for i, step in steps if refusal(step.op, tuple(map(chain.dtype, step.operands)), ("", ""))),
    }
    for value in range(len(chain.inputs) + len(chain.steps) - 1, -1, -1):
        if value in found:
            found.update(operands(chain, value))
    return sorted(found)


def parts(chain: Chain, layouts: tuple[str, ...]) -> list[Part]:
    """The chain cut at its heavy functions: each step in the first part that can have it."""
    values, first = needed(chain), len(chain.inputs)
    stage: dict[int, int] = {}
    for value in values:
        before = max((stage[o] for o in operands(chain, value)), default=0)
        stage[value] = before + is_heavy(chain, value)
    last = max(stage.values(), default=0)
    heavy = [value for value in values if is_heavy(chain, value)]
    plain = [value for value in values if value >= first and value not in heavy]
    rounded = [value for value in heavy if chain.dtype(value) != "float32"]  # by the next part, first of all
    made = []
    for s in range(last + 1):
        own = [v for v in plain if stage[v] == s]
        calls = tuple(v for v in heavy if stage[v] == s + 1)
        round_now = [v for v in rounded if stage[v] == s]
        asked = [o for v in own for o in operands(chain, v)] + round_now
        later = {o for v in plain if stage[v] > s for o in operands(chain, v)}
        later |= {o for v in heavy if stage[v] > s + 1 for o in operands(chain, v)}
        later |= set(chain.outputs) if s < last else set()
        fed = {o for v in calls for o in operands(chain, v)}
        keeps = [v for v in own if v in later or v in fed]
        keeps += [v for v in values if v < first and v in fed and not as_it_is(chain, layouts, v) and v not in keeps]
        keeps += [v for v in round_now if v in later or v in fed]
        if s == last:
            asked += chain.outputs
        asked += [v for v in keeps if v < first]
        reads = [v for v in dict.fromkeys(asked) if v not in own]
        made.append(Part(tuple(own), tuple(reads), tuple(dict.fromkeys(keeps)), calls))
    return made


def as_it_is(chain: Chain, layouts: tuple[str, ...], value: int) -> bool:
    """Whether a heavy function can read an input where it lies."""
    return chain.inputs[value] == "float32" and layouts[value] != ONE


class _Writer:
    """Writes one kernel."""

    def __init__(self, chain: Chain, layouts: tuple[str, ...]) -> None:
        self.chain, self.layouts, self.parts = chain, layouts, parts(chain, layouts)
        self.first = len(chain.inputs)
        self.used = set(needed(chain))
        self.functions: list[str] = []
        self.body: list[str] = []
        self.buffers: dict[str, str] = {}
        self.rounded: set[int] = set()
        self.calls = [calls(chain, part.heavy) for part in self.parts]
        self.heavy = tuple(dict.fromkeys(call.kernel for made in self.calls for call in made))

    def stored(self, value: int) -> str:
        dtype = self.chain.dtype(value)
        return STORED.get(dtype, dtype)

    def name(self, value: int) -> str:
        return f"x{value}" if value < self.first else f"v{value}"

    def buffer(self, value: int) -> str:
        """The buffer a value waits in (of its computed dtype)."""
        dtype = computed(self.chain.dtype(value))
        return self.buffers.setdefault(f"t{value}", STORED.get(dtype, dtype)) and f"t{value}"

    def place(self, value: int) -> str:
        """Where a part's loop reads a value: a source of `each`."""
        if value >= self.first:
            return f"({self.buffer(value)}, 0)"
        return {FLAT: f"(x{value}, at)", SPREAD: f"(s{value}, 0)", ONE: f"o{value}"}[self.layouts[value]]

    def loaded(self, value: int) -> str:
        """The line that makes a value of the element a loop has read, or nothing if it is one already."""
        dtype, name = self.chain.dtype(value), self.name(value)
        if value >= self.first and dtype != "bool":
            return ""
        text = load(dtype, name)
        return "" if text == name else f"    {name} = {text}"

    def line(self, value: int) -> str:
        step = self.chain.steps[value - self.first]
        dtypes = tuple(map(self.chain.dtype, step.operands))
        return (
            f"    {self.name(value)} = {expression(step.op, dtypes, step.dtype, tuple(map(self.name, step.operands)))}"
        )

    def refusals(self, values: tuple[int, ...]) -> list[str]:
        found = []
        for value in values:
            step = self.chain.steps[value - self.first]
            bad = refusal(step.op, tuple(map(self.chain.dtype, step.operands)), tuple(map(self.name, step.operands)))
            found += [f"({bad})"] if bad else []
        return found

    def part(self, k: int, part: Part) -> None:
        """The scalar function of a part, its loop, and the heavy functions after it."""
        last = k == len(self.parts) - 1
        lines = [self.loaded(value) for value in part.reads]
        for value in part.reads:
            if is_heavy(self.chain, value) and self.chain.dtype(value) != "float32" and value not in self.rounded:
                half = self.chain.dtype(value)
                lines.append(f"    {self.name(value)} = {load(half, store(half, self.name(value)))}")
                self.rounded.add(value)
        lines += [self.line(value) for value in part.steps]
        results = [(self.name(value), f"({self.buffer(value)}, 0)") for value in part.keeps]
        if last:
            for i, value in enumerate(self.chain.outputs):
                results.append((store(self.chain.dtype(value), self.name(value)), f"(y{i}, at)"))
        bad = self.refusals(part.steps)
        if bad:
            self.buffers["bad"] = "uint8"
            results.append((" | ".join(bad), "(bad, 0)"))
        if results:
            arguments = ", ".join(map(self.name, part.reads))
            returned = ", ".join(text for text, _ in results)
            self.functions += [
                "@scalar",
                f"def part{k}({arguments}):",
                *filter(None, lines),
                f"    return {returned}",
                "",
                "",
            ]
            sources, sinks = (
                ", ".join(items) for items in (map(self.place, part.reads), (sink for _, sink in results))
            )
            self.body.append(f"each(part{k}, m, ({sources},), ({sinks},))")
        if bad:
            self.body += ["if any_set(bad, m):", "    return 1"]
        for call in self.calls[k]:
            places = [self._whole(o) for o in call.reads] + [f"({self.buffer(value)}, 0)" for value in call.makes]
            self.body.append(f"heavy({call.kernel}, m, ({', '.join(places)}))")

    def _whole(self, value: int) -> str:
        """Where a heavy function finds an operand, as float32."""
        if value >= self.first or not as_it_is(self.chain, self.layouts, value):
            return f"({self.buffer(value)}, 0)"
        return self.place(value)

    def write(self) -> Source:
        for k, part in enumerate(self.parts):
            self.part(k, part)
        chain, count = self.chain, len(self.chain.inputs) + len(self.chain.outputs)
        head, spreads = [], []
        for i in range(self.first):
            if i not in self.used:
                continue
            head.append(f"x{i} = {self.stored(i)}_array(words, {i})")
            if self.layouts[i] == ONE:
                head.append(f"o{i} = x{i}[0]")
            if self.layouts[i] == SPREAD:
                self.buffers[f"s{i}"] = self.stored(i)
                position = count + 1 + len(self.heavy) + sum(layout == SPREAD for layout in self.layouts[:i])
                spreads.append(f"spread(x{i}, words, word(words, {position}), at, m, s{i})")
        head += [f"y{i} = {self.stored(v)}_array(words, {self.first + i})" for i, v in enumerate(chain.outputs)]
        head.append(f"n = word(words, {count})")
        head += [f"{op} = word(words, {count + 1 + i})" for i, op in enumerate(self.heavy)]
        head += [f"{name} = {dtype}_buffer()" for name, dtype in sorted(self.buffers.items())]
        block = SMALL if self.buffers else LARGE
        loop = [f"at = block * {block}", f"m = min({block}, n - at)", *spreads, *self.body]
        entry = [
            "@entry",
            "def chain(words, lo, hi):",
            *(f"    {line}" for line in head),
            "    for block in range(lo, hi):",
        ]
        entry += [*(f"        {line}" for line in loop), "    return 0", ""]
        return Source(
            "\n".join([*self._opening([*self.functions, *entry]), *self.functions, *entry]), block, self.heavy
        )

    def _opening(self, lines: list[str]) -> list[str]:
        chain = self.chain
        says = ["An elementwise chain.", ""]
        says += [f"x{i}: {dtype}, {layout}" for i, (dtype, layout) in enumerate(zip(chain.inputs, self.layouts))]
        for i, step in enumerate(chain.steps, self.first):
            says.append(f"v{i} = {step.op}({', '.join(map(self.name, step.operands))}): {step.dtype}")
        says.append(f"results: {', '.join(map(self.name, chain.outputs))}")
        named = sorted(
            set(re.findall(r"\b[a-z]\w*(?=\()|INF64|(?<=@)\w+", "\n".join(lines))) - {"abs", "min", "range", "chain"}
        )
        named = [name for name in named if not re.fullmatch(r"part\d+", name)]
        imports = ["from refflow_accel.cpu.chain_scope import (", *(f"    {name}," for name in named), ")"]
        return ['"""' + says[0], *says[1:], '"""', "", *imports, "", ""]


def source(chain: Chain, layouts: tuple[str, ...]) -> Source:
    """The kernel of `chain` for operands of these layouts (one each of FLAT, ONE, SPREAD)."""
    return _Writer(chain, layouts).write()
