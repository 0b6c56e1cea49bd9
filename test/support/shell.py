"""Runs shell commands without blocking the event loop, and Python to its end."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

DEADLINE_SECONDS = 120


class Ran(NamedTuple):
    """Exit code and output of a script."""

    code: int | None
    out: str
    err: str


def environment(kubeconfig: Path) -> dict[str, str]:
    """The environment of a shell with the virtual environment and KUBECONFIG."""
    own = ("KRUISE_PROBE_", "NODE_NAME", "POD_NAMESPACE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(own)}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return {**kept, "KUBECONFIG": str(kubeconfig), "PATH": path}


async def run(script: str, *, kubeconfig: Path, folder: Path) -> Ran:
    """Runs a script of bash to its end."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=folder,
        env=environment(kubeconfig),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        problem = f"{script!r} has not ended within {DEADLINE_SECONDS} s: {err.decode()}"
        raise AssertionError(problem) from None
    return Ran(process.returncode, out.decode(), err.decode())


def python(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Runs Python to its end, whatever its exit code; `more` are options of `subprocess.run`."""
    options: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "timeout": DEADLINE_SECONDS,
        "check": False,
        **more,
    }
    return subprocess.run([sys.executable, *arguments], **options)


def kruise_probe(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """As `python`, for the command of the product."""
    return python("-m", "kruise_probe", *arguments, **more)
