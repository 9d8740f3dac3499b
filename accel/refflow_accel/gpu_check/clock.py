"""The time budget of the check.

Part of ACC-GPU-CHECK of spec/text/acceleration.md.
"""

from __future__ import annotations

import time


class Clock:
    """How much of the time budget is gone."""

    def __init__(self, seconds: float) -> None:
        self.start, self.seconds = time.monotonic(), seconds

    @property
    def spent(self) -> float:
        """As a share of the budget."""
        return (time.monotonic() - self.start) / self.seconds

    @property
    def left(self) -> float:
        """In seconds."""
        return self.seconds - (time.monotonic() - self.start)
