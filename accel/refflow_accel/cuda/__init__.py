"""The back end "cuda": the reference's bits from Numba-CUDA kernels.  Importing this package does not import Numba."""
