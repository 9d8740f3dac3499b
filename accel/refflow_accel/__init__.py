"""refflow_accel: back ends for refflow in Numba, for the CPU ("numba") and for CUDA ("cuda"), with the reference's bits.

Implements the chapter spec/text/acceleration.md.  Importing this package imports neither Numba nor a kernel; refflow
finds the back ends through the entry-point group `refflow.backends`.
"""
