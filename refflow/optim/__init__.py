"""Optimizers and learning-rate schedules: stated sequences of float32 operations (spec/text/optim.md)."""

from __future__ import annotations

from . import lr_scheduler
from .methods import SGD, Adagrad, Adam, AdamW, RMSprop
from .optimizer import Optimizer

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "RMSprop", "lr_scheduler"]
