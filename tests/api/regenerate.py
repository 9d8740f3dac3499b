"""Writes the snapshot of the public API anew: ``python -m tests.api.regenerate``."""

from __future__ import annotations

from tests.api.describe import SNAPSHOT, describe

if __name__ == "__main__":
    SNAPSHOT.write_text(describe(), encoding="utf-8")
    print(f"wrote {SNAPSHOT}")
