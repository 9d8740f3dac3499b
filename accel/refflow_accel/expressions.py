"""What each elementwise primitive computes, as an expression over scalars, for each kind of dtype.

Implements ACC-EXPRESSION of spec/text/acceleration.md.  The CPU's and CUDA's generated kernels are both written with
these expressions; the functions they name are those of `scalar`, and `float32(..)`, `int8(..)` and their like convert.
A float16 or bfloat16 value is held as the float32 it equals: read with `load`, rounded after every step that rounds,
written with `store`.  Integers are computed in 64 bits and cut, which wraps; a bool is a truth value.
"""

from __future__ import annotations

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int32", "int64", "uint8")
HALVES = {"float16": "f16", "bfloat16": "bf16"}
STORED = {"float16": "uint16", "bfloat16": "uint16", "bool": "uint8"}  # what an array's elements are in memory

# {x} {y} {c}: operands; {T}: their type; {B}: its bits; {O}: its zero.
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
ELEMENTARY = ("exp", "log", "log1p", "expm1", "tanh", "sigmoid", "softplus", "gelu", "erf", "sin", "cos")
BLOCKS = (*ELEMENTARY, "pow")  # those that are heavy: the CPU carries them out on whole blocks

FLOAT: dict[str, str] = {
    "neg": "-{x}",
    "abs": "abs({x})",
    "sign": "sign{B}({x})",
    "floor": "floor{B}({x})",
    "ceil": "ceil{B}({x})",
    "trunc": "trunc{B}({x})",
    "round": "round{B}({x})",
    "sqrt": "sqrt{B}({x})",
    "relu": "relu{B}({x})",
    "isnan": "{x} != {x}",
    "isinf": "abs({x}) == {T}(INF64)",
    "isfinite": "abs({x}) < {T}(INF64)",
    "logical_not": "{x} == {O}",
    "add": "{x} + {y}",
    "sub": "{x} - {y}",
    "mul": "{x} * {y}",
    "div": "{x} / {y}",
    "maximum": "maximum{B}({x}, {y})",
    "minimum": "minimum{B}({x}, {y})",
    **{name: f"{{x}} {sign} {{y}}" for name, sign in COMPARISONS.items()},
    "logical_and": "({x} != {O}) & ({y} != {O})",
    "logical_or": "({x} != {O}) | ({y} != {O})",
    "logical_xor": "({x} != {O}) != ({y} != {O})",
    "where": "{x} if {c} else {y}",
}
FLOAT32: dict[str, str] = {  # float64's are the reference's (NUM-ELEMENTARY)
    **{name: f"{name}({{x}})" for name in ELEMENTARY},
    "rsqrt": "rsqrt({x})",
    "pow": "pow({x}, {y})",
    "floor_divide": "floor_divide32({x}, {y})",
    "remainder": "remainder32({x}, {y})",
}
INTEGER: dict[str, str] = {
    "neg": "{T}(-{x})",
    "abs": "{T}({x} if {x} >= 0 else -{x})",
    "sign": "{T}(1 if {x} > 0 else (0 if {x} == 0 else -1))",
    **dict.fromkeys(("floor", "ceil", "trunc", "round"), "{x}"),
    "relu": "{T}({x} if {x} > 0 else 0)",
    "isnan": "{x} != {x}",
    "isinf": "{x} != {x}",
    "isfinite": "{x} == {x}",
    "logical_not": "{x} == 0",
    "add": "{T}({x} + {y})",
    "sub": "{T}({x} - {y})",
    "mul": "{T}({x} * {y})",
    "floor_divide": "{T}(whole_quotient(int64({x}), int64({y})))",
    "remainder": "{T}(whole_remainder(int64({x}), int64({y})))",
    "pow": "{T}(whole_power(int64({x}), int64({y})))",
    "maximum": "{x} if {x} > {y} else {y}",
    "minimum": "{x} if {x} < {y} else {y}",
    **{name: f"{{x}} {sign} {{y}}" for name, sign in COMPARISONS.items()},
    "logical_and": "({x} != 0) & ({y} != 0)",
    "logical_or": "({x} != 0) | ({y} != 0)",
    "logical_xor": "({x} != 0) != ({y} != 0)",
    "where": "{x} if {c} else {y}",
}
BOOL: dict[str, str] = {
    **dict.fromkeys(("abs", "sign", "floor", "ceil", "trunc", "round"), "{x}"),
    "isnan": "{x} != {x}",
    "isinf": "{x} != {x}",
    "isfinite": "{x} == {x}",
    "logical_not": "not {x}",
    "add": "{x} | {y}",
    "mul": "{x} & {y}",
    "maximum": "{x} | {y}",
    "minimum": "{x} & {y}",
    "eq": "{x} == {y}",
    "ne": "{x} != {y}",
    "lt": "(not {x}) & {y}",
    "le": "(not {x}) | {y}",
    "gt": "{x} & (not {y})",
    "ge": "{x} | (not {y})",
    "logical_and": "{x} & {y}",
    "logical_or": "{x} | {y}",
    "logical_xor": "{x} != {y}",
    "where": "{x} if {c} else {y}",
}

OPERANDS = {**dict.fromkeys(FLOAT, 1), **dict.fromkeys(FLOAT32, 1), "cast": 1, "where": 3} | dict.fromkeys(
    ("add", "sub", "mul", "div", "floor_divide", "remainder", "maximum", "minimum", "pow")
    + (*COMPARISONS, "logical_and", "logical_or", "logical_xor"),
    2,
)
TO_BOOL = frozenset(
    ("isnan", "isinf", "isfinite", "logical_not", "logical_and", "logical_or", "logical_xor", *COMPARISONS)
)
ROUNDED = frozenset(("sqrt", "add", "sub", "mul", "div", *FLOAT32))  # what else there is gives a 16-bit float as it is
REFUSED = {"floor_divide": "{y} == 0", "remainder": "{y} == 0", "pow": "{y} < 0"}  # data integers cannot have


def computed(dtype: str) -> str:
    """The dtype in which values of `dtype` are held and computed."""
    return "float32" if dtype in HALVES else dtype


def load(dtype: str, element: str) -> str:
    """The value of an element in memory."""
    if dtype in HALVES:
        return f"{HALVES[dtype]}_decode(int64({element}))"
    return f"{element} != 0" if dtype == "bool" else element


def store(dtype: str, value: str) -> str:
    """The element in memory of a value."""
    return f"{HALVES[dtype]}_encode({value})" if dtype in HALVES else value


def nearest(dtype: str, value: str) -> str:
    """A float32 rounded to `dtype`, still as a float32."""
    return f"{HALVES[dtype]}_decode({HALVES[dtype]}_encode({value}))" if dtype in HALVES else value


def result(op: str, dtypes: tuple[str, ...]) -> str:
    """The dtype of a primitive's result (of "cast" the caller says it)."""
    return "bool" if op in TO_BOOL else dtypes[-1]


def template(op: str, dtypes: tuple[str, ...]) -> str | None:
    """The row of the table for operands of these dtypes, or None where there is none."""
    if OPERANDS.get(op) != len(dtypes):
        return None
    own = dtypes[1:] if op == "where" else dtypes
    if len(set(own)) != 1 or (op == "where" and dtypes[0] != "bool"):
        return None
    dtype = own[0]
    if dtype == "bool":
        return BOOL.get(op)
    if dtype in INTEGERS:
        return INTEGER.get(op)
    return FLOAT.get(op) or (FLOAT32.get(op) if computed(dtype) == "float32" else None)


def serves(op: str, dtypes: tuple[str, ...], to: str) -> bool:
    """Whether there is an expression for `op` on these dtypes with a result of dtype `to`."""
    if op == "cast":
        return len(dtypes) == 1
    return template(op, dtypes) is not None and result(op, dtypes) == to


def refusal(op: str, dtypes: tuple[str, ...], names: tuple[str, ...]) -> str | None:
    """The condition under which data are bad (the reference's kernel says how), or None if there is none."""
    if op not in REFUSED or dtypes[-1] not in INTEGERS:
        return None
    return REFUSED[op].format(x=names[0], y=names[1])


def has_loop(op: str, dtypes: tuple[str, ...]) -> bool:
    """Whether the function that computes `op` has a loop of its own: quotients of float32, digit by digit, and powers of integers."""
    return dtypes[-1] in INTEGERS if op == "pow" else op in ("floor_divide", "remainder") and computed(dtypes[-1]) == "float32"


def expression(op: str, dtypes: tuple[str, ...], to: str, names: tuple[str, ...]) -> str:
    """The value of `op`, of dtype `to`, on values called `names`; `serves` says whether there is one."""
    if op == "cast":
        return conversion(dtypes[0], to, names[0])
    row = template(op, dtypes)
    assert row is not None, f"{op} of {dtypes}"
    kind = computed(dtypes[-1])
    c, x, y = names if op == "where" else ("", names[0], names[-1])
    text = row.format(c=c, x=x, y=y, T=kind, B="64" if kind == "float64" else "32", O=f"{kind}(0)")
    return nearest(to, text) if op in ROUNDED else text


def conversion(source: str, to: str, x: str) -> str:
    """A value of dtype `source` as one of dtype `to` (NUM-CAST)."""
    if source == to:
        return x
    if to == "bool":
        return f"{x} != {computed(source)}(0)"
    if to in INTEGERS:
        return f"{to}(to_{to}(float64({x})))" if source in FLOATS else f"{to}({x})"
    if to not in HALVES:
        return x if computed(source) == to else f"{to}({x})"
    if source == "float64":
        return nearest(to, f"odd32({x})")  # to odd first: rounded once in effect
    if source in ("int32", "int64"):
        return nearest(to, f"odd32(odd64(int64({x})))")
    return nearest(to, f"float32({x})")
