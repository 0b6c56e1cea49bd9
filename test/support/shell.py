"""Commands as a person types them, beside an event loop in which the server may live."""

import asyncio
import os
import sys
from pathlib import Path
from typing import NamedTuple

DEADLINE_SECONDS = 120


class Ran(NamedTuple):
    """What a script said, and how it ended."""

    code: int | None
    out: str
    err: str


def environment(kubeconfig: Path) -> dict[str, str]:
    """That of a shell in which the virtual environment is active and KUBECONFIG is set."""
    own = ("KRUISE_PROBE_", "NODE_NAME", "POD_NAMESPACE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(own)}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return {**kept, "KUBECONFIG": str(kubeconfig), "PATH": path}


async def run(script: str, *, kubeconfig: Path, folder: Path) -> Ran:
    """Runs a script of bash to its end."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-euo", "pipefail", "-c", script,
        cwd=folder,
        env=environment(kubeconfig),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(
            f"{script!r} has not ended within {DEADLINE_SECONDS} s: {err.decode()}"
        ) from None
    return Ran(process.returncode, out.decode(), err.decode())
