"""Files with secrets: readable by their owner alone from the first byte on, and never a file that was there before."""

import os
from pathlib import Path


def create_private(path: Path, text: str = "") -> None:
    """Makes a file of mode 0600.

    Raises:
        FileExistsError: something has this name already, be it a symlink to nowhere.
        OSError: it cannot be written.
    """
    _write(path, os.O_CREAT | os.O_EXCL, text)


def fill_private(path: Path, text: str) -> None:
    """Writes into a file that `create_private` made.

    Raises:
        OSError: it is gone, or a symlink by now.
    """
    _write(path, os.O_TRUNC, text)


def _write(path: Path, flags: int, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
