"""What the processor has that code is compiled for here, or that NUMBA_CPU_FEATURES says it has."""

from __future__ import annotations

import platform
from functools import cache

from llvmlite import binding
from numba import config


@cache
def features() -> frozenset[str]:
    """LLVM's names of its features, such as "avx2"."""
    if config.CPU_FEATURES is not None:  # NUMBA_CPU_FEATURES
        return frozenset(name[1:] for name in config.CPU_FEATURES.split(",") if name.startswith("+"))
    return frozenset(name for name, there in binding.get_host_cpu_features().items() if there)


def converts_float16() -> bool:
    """Whether it converts between float16 and float32; where not, LLVM would call a library there may not be."""
    return platform.machine() in ("aarch64", "arm64") or "f16c" in features()
