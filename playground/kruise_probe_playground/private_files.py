"""Files with secrets: new files that only their owner may read."""

import os
from pathlib import Path


def create_private(path: Path, text: str = "") -> None:
    """Create a file with mode 0600.

    Raises:
        FileExistsError: the path exists, possibly as a dangling symlink.
        OSError: it cannot be written.
    """
    _write(path, os.O_CREAT | os.O_EXCL, text)


def fill_private(path: Path, text: str) -> None:
    """Write to a file that `create_private` made.

    Raises:
        OSError: it was removed or replaced by a symlink.
    """
    _write(path, os.O_TRUNC, text)


def _write(path: Path, flags: int, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
