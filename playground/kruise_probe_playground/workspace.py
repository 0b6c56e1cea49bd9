"""The folder of a playground, its files with secrets, the mark of its processes, and the guardian that cleans up."""

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

from kruise_probe_playground import guardian

SOCKET_PATH_BYTES = 107
"""The kernel's maximum for the path of a Unix socket."""

LONGEST_BELOW = "/kruise-probe-12345678/node-1000.sock"
SHORT_NAME = "kp"
"""In $XDG_RUNTIME_DIR, so that commands with paths in it are short enough to be copied from a terminal."""

GUARDIAN_SECONDS = 10.0


class NoWorkspace(Exception):
    """No folder is usable for the playground's files; the text says what to do."""


class Workspace(NamedTuple):
    """`mark` identifies the processes of the playground."""

    folder: Path
    mark: str


@contextmanager
def workspace(also_remove: Sequence[Path] = ()) -> Iterator[Workspace]:
    """Create the folder with mode 0700. At the end, the guardian kills all processes with the mark and removes all files.

    Raises:
        NoWorkspace: no folder for temporary files is writable, protected from other users, and has a path short enough for sockets.
    """
    mark = secrets.token_hex(8)
    folder = _make_folder()
    watcher = subprocess.Popen(
        [
            sys.executable,
            "-I",
            "-S",
            guardian.__file__,
            mark,
            folder,
            *also_remove,
        ],
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
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if 0 < len((runtime + LONGEST_BELOW).encode()) <= SOCKET_PATH_BYTES:
        with suppress(OSError):  # a second playground, or no such folder
            if os.stat(runtime).st_uid == os.getuid():
                short = Path(runtime, SHORT_NAME)
                short.mkdir(0o700)
                return short
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")):
        if len((parent + LONGEST_BELOW).encode()) > SOCKET_PATH_BYTES:
            tried.append(f"{parent} is too long for the paths of sockets")
            continue
        try:
            if _others_may_rename_in(parent):
                tried.append(f"other users may replace files in {parent} (chmod +t)")
                continue
            return Path(tempfile.mkdtemp(prefix="kruise-probe-", dir=parent))
        except OSError as error:
            tried.append(f"{parent}: {error.strerror}")
    raise NoWorkspace(f"no usable folder for temporary files: {'; '.join(tried)}; set TMPDIR")


def _others_may_rename_in(folder: str) -> bool:
    """Whether it is writable for all users without the sticky bit that /tmp has."""
    mode = os.stat(folder).st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


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
    descriptor = os.open(
        path,
        os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags,
        0o600,
    )
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
