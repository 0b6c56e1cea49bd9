"""Sees to it that a playground leaves nothing behind, also when it is killed outright.

Runs as a process of its own, of the standard library alone: `python -I -S guardian.py MARK FOLDER FILE...`.
Its standard input is a pipe that nobody writes to; when the playground ends, however it ends, the pipe ends,
and then every process that carries the mark is killed and the folder and the files are removed.
"""

import os
import select
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK_VARIABLE = "KRUISE_PROBE_PLAYGROUND_MARK"
"""Every process that a playground starts carries it: `<playground>` or `<playground>/<container id>`."""

SWEEPS = 100
PAUSE_SECONDS = 0.03
"""A process that was just being started shows its mark a moment later, so one sweep is not enough."""


def survivors(mark: str) -> Iterator[int]:
    """The processes of this user that carry `mark`, or a mark below it (`mark/…`)."""
    exact = f"{MARK_VARIABLE}={mark}".encode()
    below = exact + b"/"
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            variables = Path("/proc", entry, "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended while we looked, or it is another user's
        if any(each == exact or each.startswith(below) for each in variables):
            yield int(entry)


def kill_survivors(mark: str) -> int:
    """Kills them; returns how many there were."""
    count = 0
    for pid in survivors(mark):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def _clean_up(mark: str, folder: Path, files: list[Path]) -> None:
    quiet = 0
    for _ in range(SWEEPS):
        quiet = 0 if kill_survivors(mark) else quiet + 1
        if quiet == 2:
            break
        select.select([], [], [], PAUSE_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)
    for file in files:
        file.unlink(missing_ok=True)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    mark, folder, *files = sys.argv[1:]
    _clean_up(mark, Path(folder), [Path(file) for file in files])


if __name__ == "__main__":
    main()
