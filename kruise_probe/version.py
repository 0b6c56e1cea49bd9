"""Which version this is, as it stands in user agents and logs, and what it was built from."""

import os
import platform
from importlib.metadata import version
from typing import Final

TEXT: Final = version("kruise-probe")

COMMIT_VARIABLE: Final = "KRUISE_PROBE_COMMIT"
"""Set in images: the commit that they were built from."""


def build() -> str:
    """`0.1.0 (commit 4513dfa, CPython 3.13.1, linux/x86_64)`; without a commit where none is known."""
    commit = os.environ.get(COMMIT_VARIABLE, "")
    parts = [
        *([f"commit {commit[:12]}"] if commit else []),
        f"{platform.python_implementation()} {platform.python_version()}",
        f"{platform.system().lower()}/{platform.machine()}",
    ]
    return f"{TEXT} ({', '.join(parts)})"
