"""einsum: transposes, products and sums told by letters.

Implements OPS-EINSUM of spec/text/primitives.md: operands are taken together from left to right, each time by one
matmul or one product, so the order of every fold is stated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import AttributeValueError, ShapeError
from ..tensor.tensor import Tensor
from .arithmetic import mul, require_tensor, takes_tensors
from .movement import index_at, permute, reshape
from .reduction import matmul
from .reduction import sum as sum_over

Labels = tuple[str, ...]


def einsum(equation: str, *operands: Any) -> Tensor:
    """The sum over all letters that are not in the result of the product of the operands: ``einsum("ij,jk->ik", x, y)``.

    Without ``->`` the result has the letters that occur once, in alphabetical order; ``...`` stands for any dimensions,
    which come first then.  A letter twice in one operand is its diagonal.  Errors: `AttributeValueError` for an equation
    that says nothing, `ShapeError` where it does not fit the operands.  Source: OPS-EINSUM.
    """
    if not isinstance(equation, str):
        raise AttributeValueError(f"einsum: the equation must be text such as 'ij,jk->ik', found {type(equation).__name__}")
    given = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else list(operands)
    tensors = [require_tensor("einsum", x) for x in given]
    inputs, output = _read(equation, tensors)
    terms = [_diagonal(x, labels) for x, labels in zip(tensors, inputs, strict=True)]
    sizes = _sizes(equation, terms)
    terms = [_without_ones(x, labels, sizes) for x, labels in terms]
    x, labels = terms[0]
    for i, (y, others) in enumerate(terms[1:], 1):
        wanted = {*output, *(letter for _, later in terms[i + 1 :] for letter in later)}
        x, labels = _together(_summed(x, labels, wanted | set(others)), _summed(y, others, wanted | set(labels)), wanted)
    x, labels = _summed(x, labels, set(output))
    missing = tuple(a for a in output if a not in labels)  # letters whose only size is 1
    x = permute(x, *(labels.index(a) for a in output if a in labels))
    return reshape(x, tuple(1 if a in missing else sizes[a] for a in output)) if missing else x


def _read(equation: str, tensors: Sequence[Tensor]) -> tuple[list[Labels], Labels]:
    """The letters of each operand's dimensions and of the result's; those of ``...`` are named by numbers, from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise AttributeValueError(f"einsum: '{equation}' is about {len(terms)} operands, found {len(tensors)}")
    inputs = []
    for i, (term, x) in enumerate(zip(terms, tensors, strict=True)):
        letters = _letters(equation, term)
        more = x.ndim - len(letters)
        if more < 0 or (more and "..." not in term):
            raise ShapeError(f"einsum: operand {i} of '{equation}' is '{term}', but has shape {x.shape}")
        rest = tuple(str(n) for n in range(more, 0, -1)) if "..." in term else ()
        inputs.append((*term.partition("...")[0], *rest, *term.partition("...")[2]))
    most = max((labels for labels in map(_numbered, inputs)), key=len)
    once = sorted(a for a in set("".join(terms)) - {"."} if sum(labels.count(a) for labels in inputs) == 1)
    if not arrow:
        return inputs, (*most, *once)
    letters = _letters(equation, right)
    unknown = [a for a in letters if not any(a in labels for labels in inputs)]
    if unknown or len(set(letters)) != len(letters):
        raise AttributeValueError(f"einsum: '{equation}': each letter of the result occurs once there, and in an operand")
    return inputs, (*right.partition("...")[0], *(most if "..." in right else ()), *right.partition("...")[2])


def _letters(equation: str, term: str) -> str:
    letters = term.replace("...", "", 1)
    if letters and not (letters.isascii() and letters.isalpha()):
        raise AttributeValueError(f"einsum: '{equation}': dimensions are letters, or ... once for several; found '{term}'")
    return letters


def _numbered(labels: Labels) -> Labels:
    return tuple(a for a in labels if a.isdigit())


def _diagonal(x: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """Of a letter that occurs twice, the diagonal; once is left."""
    for a in labels:
        while labels.count(a) > 1:
            i = labels.index(a)
            j = labels.index(a, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ShapeError(f"einsum: '{a}' is {x.shape[i]} and {x.shape[j]} in one operand of shape {x.shape}")
            n, rest = x.shape[i], [d for d in range(x.ndim) if d not in (i, j)]
            shape = tuple(x.shape[d] for d in rest)
            flat = reshape(permute(x, i, j, *rest), (n * n, *shape))
            x = index_at(flat, (slice(None, None, n + 1),)) if n else flat
            labels = (a, *(labels[d] for d in rest))
    return x, labels


def _sizes(equation: str, terms: Sequence[tuple[Tensor, Labels]]) -> dict[str, int]:
    """How long each letter is; a 1 goes with everything."""
    sizes: dict[str, int] = {}
    for x, labels in terms:
        for a, n in zip(labels, x.shape, strict=True):
            if sizes.setdefault(a, n) == 1:
                sizes[a] = n
            elif n not in (1, sizes[a]):
                name = "a dimension of ..." if a.isdigit() else f"'{a}'"
                raise ShapeError(f"einsum: '{equation}': {name} is {sizes[a]} in one operand and {n} in another")
    return sizes


def _without_ones(x: Tensor, labels: Labels, sizes: dict[str, int]) -> tuple[Tensor, Labels]:
    """The operand without the dimensions of size 1."""
    kept = [i for i, n in enumerate(x.shape) if n != 1]
    return (x, labels) if len(kept) == x.ndim else (reshape(x, tuple(x.shape[i] for i in kept)), tuple(labels[i] for i in kept))


def _summed(x: Tensor, labels: Labels, wanted: set[str]) -> tuple[Tensor, Labels]:
    """Summed over what nobody else has, as one flat range in the order of the dimensions."""
    gone = tuple(d for d, a in enumerate(labels) if a not in wanted)
    return (sum_over(x, gone), tuple(a for a in labels if a in wanted)) if gone else (x, labels)


def _together(
    left: tuple[Tensor, Labels], right: tuple[Tensor, Labels], wanted: set[str]
) -> tuple[Tensor, Labels]:
    """Two operands as one: a matmul over the letters both have and nobody wants, in the order of the left one; else a product."""
    (x, a), (y, b) = left, right
    both = [s for s in a if s in b and s in wanted]
    over = [s for s in a if s in b and s not in wanted]
    rows, columns = [s for s in a if s not in b], [s for s in b if s not in a]
    sizes = {**dict(zip(b, y.shape, strict=True)), **dict(zip(a, x.shape, strict=True))}
    shape = tuple(sizes[s] for s in (*both, *rows, *columns))
    batch = tuple(sizes[s] for s in both)
    m = tuple(sizes[s] for s in rows)
    k, n = math.prod(sizes[s] for s in over), math.prod(sizes[s] for s in columns)
    x = permute(x, *(a.index(s) for s in (*both, *rows, *over)))
    y = permute(y, *(b.index(s) for s in (*both, *over, *columns)))
    if over:  # all rows but the last are a batch the right operand lacks: so they stay split as they are
        product = matmul(reshape(x, (*batch, *(m or (1,)), k)), reshape(y, (*batch, *[1] * (len(m) - 1), k, n)))
    else:
        product = mul(reshape(x, (*batch, *m, 1)), reshape(y, (*batch, *[1] * len(m), n)))
    return reshape(product, shape), (*both, *rows, *columns)


__all__ = ["einsum"]
takes_tensors(globals(), __all__)
