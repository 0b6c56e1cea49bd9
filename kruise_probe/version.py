"""The version, the one place that states it: `hack/release --prepare` changes it, and a release's tag must be equal to it."""

import os
from typing import Final

TEXT: Final = "0.1.0"

COMMIT_VARIABLE: Final = "KRUISE_PROBE_COMMIT"
"""Set in images: the commit that they were built from."""


def build() -> str:
    """`0.1.0 (commit 4513dfa, CPython 3.13.1, linux/x86_64)`; without a commit where none is known."""
    import platform  # lazy: only for --version

    commit = os.environ.get(COMMIT_VARIABLE, "")
    parts = [
        *([f"commit {commit[:12]}"] if commit else []),
        f"{platform.python_implementation()} {platform.python_version()}",
        f"{platform.system().lower()}/{platform.machine()}",
    ]
    return f"{TEXT} ({', '.join(parts)})"
