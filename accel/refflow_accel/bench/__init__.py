"""Measured speed: kernels against the libraries people use, each side in a process of its own, in turns.

`process` is a side, `rounds` the stopwatch, `sections` what is compared; the modules they name make each side's work.
"""
