"""The API server that a benchmark writes to: one of its own, or the caller's."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.reporting import say

HACK = Path(__file__).resolve().parent.parent
PORT = "29443"


@asynccontextmanager
async def kubeconfig(given: str | None, folder: Path) -> AsyncIterator[str]:
    """The path of a kubeconfig: `given`, or that of a control plane without nodes which ends with the block."""
    if given:
        yield given
        return
    state = folder / "cluster"
    environ = os.environ | {
        "KRUISE_PROBE_CLUSTER_DIR": str(state),
        "KRUISE_PROBE_CLUSTER_PORT": os.environ.get("KRUISE_PROBE_BENCH_PORT", PORT),
    }
    say("starting a control plane of its own")
    await _cluster(environ, "up", "--no-node")
    try:
        yield str(state / "kubeconfigs" / "admin")
    finally:
        await _cluster(environ, "down")


async def _cluster(environ: dict[str, str], *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        HACK / "cluster", *arguments, env=environ, stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait():
        raise RuntimeError(f"hack/cluster {' '.join(arguments)} failed")
