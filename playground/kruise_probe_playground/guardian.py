"""Cleans up after a playground, also if the playground is killed.

Runs as a process with only the standard library: `python -I -S guardian.py MARK FOLDER FILE...`. Its standard input is
a pipe from the playground. When the pipe closes, it kills all processes with the mark and removes the folder and files.
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
"""Set for all processes of a playground: `<playground>`, `<playground>/<container id>`."""

SWEEPS = 100
PAUSE_SECONDS = 0.03
"""A new process shows its mark with a delay, so one sweep is not enough."""


def survivors(mark: str) -> Iterator[tuple[int, str]]:
    """The processes of this user with `mark`, or a mark below it (`mark/…`), and their whole marks."""
    exact = f"{MARK_VARIABLE}={mark}".encode()
    below = exact + b"/"
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            variables = Path("/proc", entry, "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or belongs to another user
        for variable in variables:
            if variable == exact or variable.startswith(below):
                yield int(entry), variable.decode(errors="replace").partition("=")[2]
                break


def kill_survivors(mark: str) -> int:
    """Kill them; return their number."""
    count = 0
    for pid, _ in survivors(mark):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def _clean_up(
    mark: str,
    folder: Path,
    files: list[Path],
) -> None:
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
    _clean_up(
        mark,
        Path(folder),
        [Path(file) for file in files],
    )


if __name__ == "__main__":
    main()
