"""The back end "numba": the reference's bits on NumPy arrays, by compiled kernels (ACC-BACKEND).

`abi` is how kernels are called, `kernels` has one file for each chapter, `chain*` make elementwise ones.  Importing this
package sets where Numba keeps what it compiles, so nothing may declare a function before it (ACC-CACHE).
"""

from __future__ import annotations

from .. import cache

cache.use()
