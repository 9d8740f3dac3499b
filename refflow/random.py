"""The generator: a seed and two counters of draws, one for global tensors and one for local ones.

Implements RNG-STREAM of spec/text/random.md.  The stream of a draw is its ordinal in program order, so a program draws
the same numbers on any number of ranks, under any sbp.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import AttributeValueError


@dataclass
class Generator:
    """A seed and the ordinals of the next global and the next local draw; `state` is what a checkpoint stores."""

    seed: int = 0
    next_global: int = 0
    next_local: int = 0
    _times_set: int = field(default=0, init=False, compare=False, repr=False)  # a graph's build may draw, and must not set it

    def manual_seed(self, seed: int) -> Generator:
        """Starts again from `seed` (0 <= seed < 2**64)."""
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
            raise AttributeValueError(f"manual_seed: the seed must be an int in [0, 2**64), found {seed!r}")
        self.state = seed, 0, 0
        return self

    def draw(self, is_global: bool) -> dict[str, int]:
        """Seed and stream of one call: even streams are global draws, odd ones local."""
        if is_global:
            ordinal, self.next_global = self.next_global, self.next_global + 1
            return {"seed": self.seed, "stream": 2 * ordinal}
        ordinal, self.next_local = self.next_local, self.next_local + 1
        return {"seed": self.seed, "stream": 2 * ordinal + 1}

    @property
    def state(self) -> tuple[int, int, int]:
        """(seed, next_global, next_local)."""
        return self.seed, self.next_global, self.next_local

    @state.setter
    def state(self, value: tuple[int, int, int]) -> None:
        self.seed, self.next_global, self.next_local = value
        self._times_set += 1
