"""The folder of one playground, the mark of its processes, and the guardian over both."""

import os
import secrets
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kruise_probe.playground import guardian

SOCKET_PATH_BYTES = 107
"""What the kernel takes as the path of a Unix socket."""

LONGEST_BELOW = "/kruise-probe-12345678/node-1000.sock"
GUARDIAN_SECONDS = 10.0


class NoWorkspace(Exception):
    """There is no place for the playground's files; the text says what to do."""


class Workspace(NamedTuple):
    """`mark` is what every process below the playground carries."""

    folder: Path
    mark: str


@contextmanager
def workspace(also_remove: Sequence[Path] = ()) -> Iterator[Workspace]:
    """Makes the folder, of mode 0700 and with a random name; at the end, however it comes, no process with the mark and no file is left.

    Raises:
        NoWorkspace: no folder for temporary files is writable, safe from other users, and has a path short enough for sockets.
    """
    mark = secrets.token_hex(8)
    folder = _make_folder()
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", guardian.__file__, mark, folder, *also_remove],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    try:
        yield Workspace(folder, mark)
    finally:
        if watcher.stdin:
            watcher.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            watcher.wait(GUARDIAN_SECONDS)


def _make_folder() -> Path:
    tried = []
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")):
        if len((parent + LONGEST_BELOW).encode()) > SOCKET_PATH_BYTES:
            tried.append(f"{parent} is too long a path for sockets")
            continue
        try:
            if _others_may_rename_in(parent):
                tried.append(f"{parent} lets other users replace what is in it (chmod +t)")
                continue
            return Path(tempfile.mkdtemp(prefix="kruise-probe-", dir=parent))
        except OSError as error:
            tried.append(f"{parent}: {error.strerror}")
    raise NoWorkspace(f"no folder for temporary files: {'; '.join(tried)}; set TMPDIR")


def _others_may_rename_in(folder: str) -> bool:
    """Whether it is writable for everybody without the sticky bit that /tmp has."""
    mode = os.stat(folder).st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
