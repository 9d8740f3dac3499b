"""What one number is: rounding, the exact fused multiply-add, canonical trees, elementary functions, random numbers.

Implements spec/text/numerics.md (NUM-*) and the generator of spec/text/random.md (RNG-*): pure functions on NumPy
arrays that know nothing of ranks.
"""

from __future__ import annotations

from .bits import canonical, digest, digest_many, first_difference, same_bits
from .checks import CheckResult, self_check
from .contraction import contract
from .dtypes import (
    DTYPES,
    bfloat16,
    bool_,
    cast,
    finfo,
    float16,
    float32,
    float64,
    identity,
    iinfo,
    int8,
    int32,
    int64,
    is_bool,
    is_float,
    is_half,
    is_integer,
    promote,
    promote_scalar,
    uint8,
)
from .elementary import FUNCTIONS, apply
from .order import argmax, argmin, argsort, maximum, minimum
from .philox import integers, normal, random_bits, uniform
from .profile import LEAF, PROFILE, check_subnormals
from .rounding import fma32
from .trees import aligned, fold_parts, scatter_tree, tree_fold, tree_sum

__all__ = [
    "DTYPES",
    "FUNCTIONS",
    "LEAF",
    "PROFILE",
    "CheckResult",
    "aligned",
    "apply",
    "argmax",
    "argmin",
    "argsort",
    "bfloat16",
    "bool_",
    "canonical",
    "cast",
    "check_subnormals",
    "contract",
    "digest",
    "digest_many",
    "finfo",
    "first_difference",
    "float16",
    "float32",
    "float64",
    "fma32",
    "fold_parts",
    "identity",
    "iinfo",
    "int8",
    "int32",
    "int64",
    "integers",
    "is_bool",
    "is_float",
    "is_half",
    "is_integer",
    "maximum",
    "minimum",
    "normal",
    "promote",
    "promote_scalar",
    "random_bits",
    "same_bits",
    "scatter_tree",
    "self_check",
    "tree_fold",
    "tree_sum",
    "uint8",
    "uniform",
]
