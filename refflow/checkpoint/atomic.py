"""Writing a file all at once: at every moment the path holds the old file or the whole new one.

Implements CKPT-ATOMIC of spec/text/checkpoints.md.  Knows nothing of tensors.
"""

from __future__ import annotations

import contextlib
import os
import secrets


def write_atomically(path: str, data: bytes) -> None:
    """Puts `data` in the file `path`, replacing what was there; a crash at any step leaves the old file or the new one.

    A temporary file in the same folder is written and forced to the disk, takes the path's place in one step, and the
    folder is forced to the disk.  Where `path` is a symbolic link, the file it points to is replaced.
    Errors: `OSError`; no temporary file is left then.  Source: CKPT-ATOMIC.
    """
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    try:
        _sync_folder(folder)
    except OSError as error:
        raise OSError(error.errno, f"it is in place, but may not outlast a power cut ({error.strerror})") from error


def _sync_folder(folder: str) -> None:
    """Makes the new name last through a power cut; only POSIX systems can open a folder for that."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
