"""Optimizers and learning-rate schedules: stated sequences of float32 operations (spec/text/optim.md)."""

from __future__ import annotations

from typing import Any as _Any

from ..absent import absence as _absence
from . import lr_scheduler
from .methods import SGD, Adagrad, Adam, AdamW, RMSprop
from .optimizer import Optimizer

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]


def __getattr__(name: str) -> _Any:
    raise AttributeError(f"module 'refflow.optim' has no attribute {name!r}{_absence('optim', name)}")
