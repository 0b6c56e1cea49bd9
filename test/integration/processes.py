"""Which processes run."""

import os
from pathlib import Path


def processes_with(text: str) -> list[int]:
    """Those that have this text in their environment or command line, but for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                said = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it ended while we looked
            if text.encode() in said:
                found.append(int(entry.name))
    return found
