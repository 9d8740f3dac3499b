"""Measured speed: kernels against the libraries people use, both sides in one process, in turns.

`rounds` is the stopwatch; each module beside it prints a table.
"""
