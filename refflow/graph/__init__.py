"""Lazy graphs and plans: `plan` says what runs where, with which registers; `proofs` decides whether it can.

Traces and passes turn a graph into a plan; `refflow.runtime` runs it.
"""
