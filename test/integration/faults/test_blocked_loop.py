"""A step of the leader that blocks its event loop: after 8 s it still leads, after 14 s it has given up its role."""

import asyncio
import math
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import pytest
from support import programs
from support.embedded_cluster import EmbeddedCluster
from support.hollow import LEASES
from support.patience import PATIENCE_SECONDS
from support.programs import Program

from kruise_probe.api.names import LEADER_ELECTION_ID
from kruise_probe.api.times import utc_now

RENEWS_WITHIN_SECONDS = 4.0
GIVES_UP_WITHIN_SECONDS = 12.5
"""After 10 s without a turn, at the next renewal."""

HOOK = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: time.sleep({seconds}))"
"""Python runs a signal handler in the main thread, which is the thread of the event loop."""


@asynccontextmanager
async def blocked(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, *, seconds: int
) -> AsyncIterator[Program]:
    """A leader whose loop is blocked from the begin of the block on."""
    (cluster.folder / "sitecustomize.py").write_text(HOOK.format(seconds=seconds))
    monkeypatch.setenv("PYTHONPATH", str(cluster.folder))
    kubeconfig = cluster.proxy.write_kubeconfig(cluster.folder)
    async with programs.running("manager", kubeconfig, cluster.folder) as program:

        async def leads() -> bool:
            return program.has_logged("became leader")

        await program.ready()
        await program.until("leads", leads)
        program.send(signal.SIGUSR1)
        yield program


async def lease_age(cluster: EmbeddedCluster) -> float:
    """Seconds since the last renewal by a holder."""
    spec = (await cluster.api.get(f"{LEASES}/{LEADER_ELECTION_ID}"))["spec"]
    if not spec["holderIdentity"]:
        return math.inf
    return (utc_now() - datetime.fromisoformat(spec["renewTime"])).total_seconds()


async def test_a_leader_blocked_for_8_s_keeps_its_lease(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    async with blocked(cluster, monkeypatch, seconds=8) as program:
        oldest = 0.0
        healthy = asyncio.create_task(program.get("healthz"))
        while not healthy.done():
            oldest = max(oldest, await lease_age(cluster))
            await asyncio.sleep(0.2)
        status, _ = healthy.result()
        assert status == 503, "it reports the step"
        assert time.monotonic() - began > 7, "the loop was blocked"
        assert oldest < RENEWS_WITHIN_SECONDS
        await asyncio.sleep(RENEWS_WITHIN_SECONDS)
        assert await lease_age(cluster) < RENEWS_WITHIN_SECONDS
        assert program.running


async def test_a_leader_blocked_for_14_s_gives_up_its_role(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with blocked(cluster, monkeypatch, seconds=14) as program:
        began = time.monotonic()
        renewed_after = 0.0
        elapsed = 0.0
        while program.running and elapsed < PATIENCE_SECONDS:
            elapsed = time.monotonic() - began
            renewed_after = max(
                renewed_after,
                elapsed - await lease_age(cluster),
            )
            await asyncio.sleep(0.2)
        assert program.process.returncode == 1
        assert 7 < renewed_after < GIVES_UP_WITHIN_SECONDS
        assert program.has_logged("the event loop has not turned for 10 s")
