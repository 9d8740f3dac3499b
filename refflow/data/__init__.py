"""Data: datasets of plain NumPy arrays, and the digits that ship with refflow.

`dataset` says what a dataset is, `digits` is one; `loader` makes global tensors out of either.
"""

from __future__ import annotations

from .dataset import Dataset, Subset, TensorDataset, permutation, random_split
from .digits import Digits, load_digits
from .loader import DataLoader

__all__ = ["DataLoader", "Dataset", "Digits", "Subset", "TensorDataset", "load_digits", "permutation", "random_split"]
