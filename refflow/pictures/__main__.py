"""``python -m refflow.pictures readme FILE``: writes the picture of the front page (PIC-README)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .readme import COMMAND, readme_picture


def main(arguments: Sequence[str]) -> int:
    """Writes the picture named by the first argument to the file named by the second; 0 if that went well."""
    if len(arguments) != 2 or arguments[0] != "readme":
        print(f"usage: {COMMAND}", file=sys.stderr)
        return 2
    try:
        readme_picture().save(arguments[1])
    except OSError as error:
        print(f"'{arguments[1]}' cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
