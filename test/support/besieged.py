"""A manager with an election or a daemon, as processes, and what must hold while somebody floods their ports."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

from support import programs
from support.arena import Arena
from support.fake_runtime import ScriptedRuntime, served
from support.hollow import node_name

from kruise_probe.api.names import LEADER_ELECTION_ID, SYSTEM_NAMESPACE
from kruise_probe.api.times import utc_now
from kruise_probe.manifests.webhook import MUTATE_PODS
from kruise_probe.serving.certificates import issue_certificate

FLOOD = Path(__file__).with_name("flood.py")
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"
LOOK_SECONDS = 0.2


class Besieged:
    """A program under attack; `port` is the one that is attacked."""

    def __init__(self, arena: Arena, program: programs.Program, lease: str, port: int) -> None:
        self.arena = arena
        self.program = program
        self.port = port
        self._lease = f"{LEASES}/{lease}"
        self._began_mb = program.rss_mb

    @property
    def grown_mb(self) -> float:
        """From the start of the siege to the most that it ever had."""
        return self.program.peak_mb - self._began_mb

    async def lease_age(self) -> float:
        """Seconds since the last renewal."""
        spec = (await self.arena.api.get(self._lease))["spec"]
        return (utc_now() - datetime.fromisoformat(spec["renewTime"])).total_seconds()

    async def withstands(self, attack: str, *arguments: str, seconds: float) -> float:
        """Attacks for so long, and asserts that health answers at every look.

        Returns:
            The greatest age of the Lease that was seen.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(FLOOD), attack, str(self.port), *arguments, f"--seconds={seconds}"
        )
        oldest, looks = 0.0, 0
        try:
            while process.returncode is None:
                status, text = await self.program.get("healthz")
                assert status == 200, f"look {looks}: {status} {text}; {self.program.tail()}"
                oldest = max(oldest, await self.lease_age())
                looks += 1
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
        assert process.returncode == 0
        assert looks >= 5
        assert self.program.running, self.program.tail()
        return oldest


@asynccontextmanager
async def besieged_manager(
    arena: Arena, *flags: str, attacked: str = "/metrics"
) -> AsyncIterator[Besieged]:
    """A leader; the port that serves the path `attacked` is the one to attack."""
    kubeconfig = arena.proxy.write_kubeconfig(arena.folder)
    async with programs.running("manager", kubeconfig, arena.folder, *flags) as program:
        await program.ready()
        await program.until("leads", lambda: _leads(arena))
        yield Besieged(arena, program, LEADER_ELECTION_ID, port_of(program, attacked))


def port_of(program: programs.Program, path: str) -> int:
    return int(program.address(path).rpartition(":")[2])


async def _leads(arena: Arena) -> bool:
    return (
        arena.server.object("leases.coordination.k8s.io", LEADER_ELECTION_ID, SYSTEM_NAMESPACE)
        is not None
    )


@asynccontextmanager
async def besieged_webhook(arena: Arena, *flags: str) -> AsyncIterator[Besieged]:
    """A leader whose webhook's port is the one to attack; its certificate is a file."""
    pair = issue_certificate(["localhost"], now=utc_now(), lifetime=timedelta(hours=1))
    (arena.folder / "tls.crt").write_bytes(pair.certificate)
    (arena.folder / "tls.key").write_bytes(pair.key)
    webhook = ("--webhook-addr=127.0.0.1:0", f"--webhook-cert-dir={arena.folder}")
    async with besieged_manager(arena, *webhook, *flags, attacked=MUTATE_PODS) as besieged:
        yield besieged


@asynccontextmanager
async def daemon_flags(node: str) -> AsyncIterator[tuple[str, str]]:
    """A runtime without containers, and the flags of a daemon that uses it."""
    with tempfile.TemporaryDirectory(prefix="cri-") as sockets:
        socket = Path(sockets) / "cri.sock"
        async with served(ScriptedRuntime(), socket):
            yield (f"--node-name={node}", f"--cri-endpoint=unix://{socket}")


@asynccontextmanager
async def besieged_daemon(arena: Arena, *flags: str) -> AsyncIterator[Besieged]:
    """A daemon of a node without pods; its one port serves all."""
    name = node_name(0)
    await arena.hollow.ask_node(name, [])
    kubeconfig = arena.proxy.write_kubeconfig(arena.folder)
    async with (
        daemon_flags(name) as own,
        programs.running("daemon", kubeconfig, arena.folder, *own, *flags) as program,
    ):
        await program.ready()
        yield Besieged(arena, program, f"kruise-probe-{name}", port_of(program, "/metrics"))
