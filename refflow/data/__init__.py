"""Data: datasets of plain NumPy arrays, and the digits and the book that ship with refflow.

`dataset` says what a dataset is, `digits` is one, `text` makes one of any text; `loader` makes global tensors of them.
"""

from __future__ import annotations

from .dataset import Dataset, Subset, TensorDataset, permutation, random_split
from .digits import Digits, load_digits
from .loader import DataLoader
from .text import TextWindows, Vocabulary, load_text, split_text

__all__ = ["DataLoader", "Dataset", "Digits", "Subset", "TensorDataset", "TextWindows", "Vocabulary", "load_digits", "load_text",
           "permutation", "random_split", "split_text"]  # fmt: skip
