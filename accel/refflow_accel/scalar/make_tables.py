"""Write the tables of the scalar sources: tables.npz and polynomials.py, with mpmath and nothing else.

`python -m refflow_accel.scalar.make_tables` writes both; they are part of the source, so nobody needs to.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

HERE = Path(__file__).parent


def pair(value: Any) -> tuple[float, float]:
    """Return the nearest float64 and that of what it leaves."""
    high = float(value)
    return high, float(value - mp.mpf(high))


def short(value: Any, bits: int) -> float:
    """Return `value` rounded to `bits` significant bits."""
    mantissa, exponent = mp.frexp(value)
    return float(mp.ldexp(mp.nint(mp.ldexp(mantissa, bits)), int(exponent) - bits))


def grid(value: Any, bits: int) -> float:
    """Return `value` rounded to a multiple of 2^-bits."""
    return float(mp.ldexp(mp.nint(mp.ldexp(value, bits)), -bits))


def exponential() -> dict[str, Any]:
    """2^(j/64) and ln(2)/64, its first part short enough for exact products with integers."""
    powers = [pair(mp.mpf(2) ** (mp.mpf(j) / 64)) for j in range(64)]
    step = mp.log(2) / 64
    high = short(step, 32)
    return {
        "EXPH": np.array([p[0] for p in powers]),
        "EXPL": np.array([p[1] for p in powers]),
        "LN64": np.array([high, float(step - mp.mpf(high))]),
    }


def logarithm() -> dict[str, Any]:
    """1/c in 20 bits and -log(1/c) for the centres c of 128 parts, 1 for those next to 1 and to 2."""
    parts = 128
    inverse, high, low = np.zeros(parts), np.zeros(parts), np.zeros(parts)
    for j in range(parts):
        centre = 1 + (mp.mpf(j) + mp.mpf(1) / 2) / parts
        if centre > mp.sqrt(2):
            centre = centre / 2
        inverse[j] = 1.0 if j in (0, parts - 1) else short(1 / centre, 20)
        value = -mp.log(mp.mpf(inverse[j]))
        high[j] = grid(value, 36)
        low[j] = float(value - mp.mpf(high[j]))
    split = next(j for j in range(parts) if (1 + (j + 0.5) / parts) > 2**0.5)
    ln2 = grid(mp.log(2), 36)
    return {
        "INVC": inverse,
        "LOGH": high,
        "LOGL": low,
        "LN2": np.array([ln2, float(mp.log(2) - mp.mpf(ln2))]),
        "SPLIT": np.array([split]),
    }


def error_function() -> dict[str, Any]:
    """Taylor coefficients of erf around j/16, the first two in pairs."""
    rows = [mp.taylor(mp.erf, mp.mpf(j) / 16, 13) for j in range(65)]
    return {
        "ERF0H": np.array([pair(r[0])[0] for r in rows]),
        "ERF0L": np.array([pair(r[0])[1] for r in rows]),
        "ERF1H": np.array([pair(r[1])[0] for r in rows]),
        "ERF1L": np.array([pair(r[1])[1] for r in rows]),
        "ERFC": np.array([[float(v) for v in r[2:13]] for r in rows]).T.copy(),
    }


def circle() -> dict[str, Any]:
    """2^(e-23)/(2 pi) modulo 1 to 160 bits for e = -8 .. 127, sin(2 pi k/256) exact at the quarters, and 2 pi."""
    words = []
    for e in range(-8, 128):
        value = mp.ldexp(1 / (2 * mp.pi), e - 23)
        whole = int(mp.floor(mp.ldexp(value - mp.floor(value), 160)))
        words.append([(whole >> (128 - 32 * i)) & 0xFFFFFFFF for i in range(5)])
    quarter = (0, 1, 0, -1)
    sines = [pair(mp.mpf(quarter[k // 64]) if k % 64 == 0 else mp.sin(2 * mp.pi * k / 256)) for k in range(256)]
    return {
        "TURN": np.array(words, np.int64).T.copy(),
        "SINH": np.array([s[0] for s in sines]),
        "SINL": np.array([s[1] for s in sines]),
        "TWOPI": np.array(pair(2 * mp.pi)),
    }


def gaussian_tail() -> dict[str, Any]:
    """Taylor coefficients of G(t) = Phi(-t) exp(t^2/2) around j/16; G' = t G - 1/sqrt(2 pi) gives each from two."""
    rows = []
    for j in range(241):
        t = mp.mpf(j) / 16
        g = [mp.erfc(t / mp.sqrt(2)) / 2 * mp.exp(t * t / 2)]
        g.append(t * g[0] - 1 / mp.sqrt(2 * mp.pi))
        for k in range(1, 14):
            g.append((t * g[k] + g[k - 1]) / (k + 1))
        rows.append(g)
    return {
        "TAILH": np.array([[*pair(g[0]), *pair(g[1])] for g in rows]).T.copy(),
        "TAILC": np.array([[float(v) for v in g[2:15]] for g in rows]).T.copy(),
    }


def chebyshev(function: Callable[[Any], Any], low: Any, high: Any, degree: int) -> list[Any]:
    """Monomial coefficients, ascending, of the polynomial that meets `function` at the Chebyshev points of [low, high].

    Its error is within a small factor of the best possible one.
    """
    count = degree + 1
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    points = [(low + high) / 2 + (high - low) / 2 * node for node in nodes]
    matrix = mp.matrix(count, count)
    for i, point in enumerate(points):
        for k in range(count):
            matrix[i, k] = point**k
    solution = mp.lu_solve(matrix, mp.matrix([function(point) for point in points]))
    return [solution[k] for k in range(count)]


def _tanh_kernel(z: Any) -> Any:
    x = mp.sqrt(z)
    return mp.tanh(x) / x if x else mp.mpf(1)


def _log_kernel(z: Any) -> Any:
    s = mp.sqrt(z)
    return (mp.atanh(s) / s * 2 - 2) / z if s else mp.mpf(2) / 3


def _near_kernel(z: Any) -> Any:
    x = mp.sqrt(z)
    return mp.erf(x) / x if x else 2 / mp.sqrt(mp.pi)


def _erf_kernel(w: Any) -> Any:
    return _near_kernel((w + 1) * 8)


def _tail_kernel(u: Any) -> Any:
    t = TAIL_SCALE * (1 + u) / (1 - u)
    return mp.erfc(t / mp.sqrt(2)) / 2 * mp.exp(t * t / 2) * (t + TAIL_SCALE)


def _sin_kernel(z: Any) -> Any:
    x = mp.sqrt(z)
    return (mp.sin(x) / x - 1) / z if x else -mp.mpf(1) / 6


def _cos_kernel(z: Any) -> Any:
    x = mp.sqrt(z)
    return (mp.cos(x) - 1) / z if x else -mp.mpf(1) / 2


def _expm1_kernel(r: Any) -> Any:
    return mp.expm1(r) / r if r else mp.mpf(1)


TAIL_SCALE = 4.0
TAIL_REACH = 15.0
HALF_LN2 = 0.34658
POLYNOMIALS: dict[str, tuple[Callable[[Any], Any], Any, Any, int]] = {
    "EXP": (mp.exp, -HALF_LN2, HALF_LN2, 9),
    "EXPM1": (_expm1_kernel, -HALF_LN2, HALF_LN2, 8),
    "TANH": (_tanh_kernel, 0.0, 0.1226, 6),
    "LOG": (_log_kernel, 0.0, 0.02945, 4),
    "LOG_THIRD": (_log_kernel, 0.0, 0.1112, 6),
    "ERF": (_erf_kernel, -1.0, 1.0, 21),
    "ERF_NEAR": (_near_kernel, 0.0, 0.25, 6),
    "TAIL": (_tail_kernel, -1.0, (TAIL_REACH - TAIL_SCALE) / (TAIL_REACH + TAIL_SCALE), 14),
    "SIN": (_sin_kernel, 0.0, 0.6170, 4),
    "COS": (_cos_kernel, 0.0, 0.6170, 4),
}


def polynomials() -> str:
    """Return the text of polynomials.py."""
    lines = [
        '"""Polynomials of the fast passes of blocks.py, ascending coefficients: written by make_tables.py."""',
        "",
        "from __future__ import annotations",
        "",
        f"TAIL_SCALE = {TAIL_SCALE!r}",
    ]
    for name, (function, low, high, degree) in POLYNOMIALS.items():
        coefficients = [float(c) for c in chebyshev(function, mp.mpf(low), mp.mpf(high), degree)]
        lines += [f"{name} = (", *(f"    {c!r}," for c in coefficients), ")"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write tables.npz and polynomials.py next to this file."""
    mp.mp.prec = 400
    arrays = {**exponential(), **logarithm(), **error_function(), **circle(), **gaussian_tail()}
    np.savez(HERE / "tables.npz", **arrays)
    (HERE / "polynomials.py").write_text(polynomials())


if __name__ == "__main__":
    main()
