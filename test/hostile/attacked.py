"""A manager or a daemon as a process whose port is flooded, and what must hold meanwhile."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from io import BytesIO
from pathlib import Path

import aiohttp
from hostile.health import CHECK_SECONDS, HealthChecks
from support import programs
from support.embedded_cluster import EmbeddedCluster
from support.fake_runtime import ScriptedRuntime
from support.hollow import LEASES, node_name
from support.patience import PATIENCE_SECONDS

from kruise_probe.api.names import LEADER_ELECTION_ID, MUTATE_PODS, SYSTEM_NAMESPACE
from kruise_probe.api.times import utc_now
from kruise_probe.serving.certificates import issue_certificate

FLOOD = Path(__file__).with_name("flood_clients.py")
FLOOD_SECONDS = 12.0
"""The least time; on a slow machine a flood lasts until it is known what it blocks."""
MIN_CHECKS = 5
MIN_RENEWALS = 2
MANAGER_RENEWS_WITHIN = 8.0
"""Seconds; the leader renews every 2, and gives up after 10."""


class AttackedProgram:
    """A program whose `port` is attacked."""

    def __init__(
        self, cluster: EmbeddedCluster, program: programs.Program, lease: str, port: int
    ) -> None:
        self.cluster = cluster
        self.program = program
        self.port = port
        self._lease = f"{LEASES}/{lease}"
        self._began_mb = program.rss_mb

    @property
    def grown_mb(self) -> float:
        """The growth of its memory from the start of the attack to its peak."""
        return self.program.peak_mb - self._began_mb

    async def renewed_at(self) -> datetime:
        """The time of the last renewal."""
        lease = await self.cluster.api.get(self._lease)
        return datetime.fromisoformat(lease["spec"]["renewTime"])

    async def lease_age(self) -> float:
        """Seconds since the last renewal."""
        return (utc_now() - await self.renewed_at()).total_seconds()

    async def post(
        self, path: str, body: bytes, certificate: Path | None = None
    ) -> tuple[int, bytes]:
        """Status and body of the response of a webhook. The client has this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if certificate:
            context.load_cert_chain(certificate)
        url = f"https://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
            session.post(url, data=BytesIO(body), ssl=context) as response,
        ):
            return response.status, await response.read()

    async def withstands(self, attack: str, *arguments: str) -> None:
        """Floods the port until the program has passed its health checks and renewed its Lease meanwhile."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(FLOOD),
            attack,
            str(self.port),
            *arguments,
            f"--seconds={PATIENCE_SECONDS}",
        )
        loop = asyncio.get_running_loop()
        least = loop.time() + FLOOD_SECONDS
        health = HealthChecks(self.program)
        renewals = {await self.renewed_at()}

        def has_withstood() -> bool:
            return (
                loop.time() >= least
                and health.passed >= MIN_CHECKS
                and len(renewals) > MIN_RENEWALS
            )

        try:
            while not has_withstood():
                assert process.returncode is None, (
                    f"a flood of {PATIENCE_SECONDS} s, {health.passed} checks passed, renewed at {renewals}"
                )
                await health.check()
                renewals.add(await self.renewed_at())
                await asyncio.sleep(CHECK_SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
        assert self.program.running, self.program.tail()


@asynccontextmanager
async def attacked_manager(
    cluster: EmbeddedCluster, *flags: str, attacked: str = "/metrics"
) -> AsyncIterator[AttackedProgram]:
    """A leader; the attacked port is the one that serves the path `attacked`."""
    kubeconfig = cluster.proxy.write_kubeconfig(cluster.folder)
    lease = ("leases.coordination.k8s.io", LEADER_ELECTION_ID, SYSTEM_NAMESPACE)

    async def leads() -> bool:
        return cluster.server.object(*lease) is not None

    async with programs.running("manager", kubeconfig, cluster.folder, *flags) as program:
        await program.ready()
        await program.until("leads", leads)
        yield AttackedProgram(
            cluster,
            program,
            LEADER_ELECTION_ID,
            port_of(program, attacked),
        )


def port_of(program: programs.Program, path: str) -> int:
    return int(program.address(path).rpartition(":")[2])


@asynccontextmanager
async def attacked_webhook(cluster: EmbeddedCluster, *flags: str) -> AsyncIterator[AttackedProgram]:
    """A leader whose webhook port is attacked; its certificate is a file."""
    pair = issue_certificate(
        ["localhost"],
        now=utc_now(),
        lifetime=timedelta(hours=1),
    )
    (cluster.folder / "tls.crt").write_bytes(pair.certificate)
    (cluster.folder / "tls.key").write_bytes(pair.key)
    webhook = ("--webhook-addr=127.0.0.1:0", f"--webhook-cert-dir={cluster.folder}")
    async with attacked_manager(cluster, *webhook, *flags, attacked=MUTATE_PODS) as attacked:
        yield attacked


@asynccontextmanager
async def attacked_daemon(cluster: EmbeddedCluster, *flags: str) -> AsyncIterator[AttackedProgram]:
    """A daemon that renews its Lease every 3 s, as it has an entry, of a pod that is not there. It has one port."""
    name = node_name(0)
    entry = {
        "name": "m#p",
        "containerName": "main",
        "probe": {"exec": {"command": ["true"]}},
    }
    await cluster.hollow.add_node_pod_probe(name, [entry])
    flags = ("--lease-renew-interval=3s", *flags)
    async with cluster.daemon(name, ScriptedRuntime(), *flags) as program:
        await program.ready()
        port = port_of(program, "/metrics")
        yield AttackedProgram(cluster, program, f"kruise-probe-{name}", port)
