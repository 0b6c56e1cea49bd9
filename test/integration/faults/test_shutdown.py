"""SIGTERM while everything hangs: exit code 0, in time."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from support.background import background
from support.fake_runtime import ScriptedRuntime, hang
from support.hollow import CONDITION, node_name, probe
from support.programs import Program
from support.target import condition

from kruise_probe.daemon.cri.runtime import RuntimeContainer

IN_TIME_SECONDS = 20.0
"""A loaded machine is slower than the five seconds that users are promised; what hangs takes for ever."""
EXECS = 16


@pytest.mark.parametrize("trouble", ["healthy", "black-hole", "paused", "no-server-at-the-start"])
async def test_c13_a_manager_ends_in_time(cluster: Any, trouble: str) -> None:
    await cluster.hollow.add_nodes(4)
    await cluster.hollow.add_pods(40, nodes=4)
    if trouble == "no-server-at-the-start":
        cluster.proxy.black_hole()
    async with cluster.manager() as manager, background(cluster.daemons.follow()):
        if trouble != "no-server-at-the-start":
            await cluster.hollow.add_marker(probe())
            await cluster.api.pods.wait(
                "pods are marked",
                lambda: all(condition(each, CONDITION) for each in cluster.api.pods.all()),
            )
        else:
            await cluster.proxy.until("it asks", lambda: bool(cluster.proxy.log))
        if trouble == "black-hole":
            cluster.proxy.black_hole()
        elif trouble == "paused":
            cluster.proxy.pause()
        if cluster.api.node_pod_probes.all():
            cluster.daemons.result_of = lambda pod, name: ("Failed", "so that there is work")
            await cluster.daemons.write_all()
        code, seconds = await manager.terminate()
    assert (code, seconds < IN_TIME_SECONDS) == (0, True), (code, seconds)


class MutableRuntime(ScriptedRuntime):
    """One whose lists never end once it is mute."""

    mute = False

    async def list_containers(self) -> Sequence[RuntimeContainer]:
        listed = await super().list_containers()
        if self.mute:
            await asyncio.Event().wait()
        return listed


@pytest.fixture
async def daemon(cluster: Any) -> AsyncIterator[tuple[Program, ScriptedRuntime]]:
    """A daemon whose runtime answers everything but execs; 16 of these hang."""
    scripted = MutableRuntime()
    scripted.start("uid-1", "main")
    for number in range(EXECS):
        scripted.on_exec("sleep", str(number), script=hang())
    entries = [
        {
            "name": f"marker#p{number}",
            "containerName": "main",
            "probe": {"exec": {"command": ["sleep", str(number)]}, "timeoutSeconds": 10},
        }
        for number in range(EXECS)
    ]
    await cluster.hollow.add_node_pod_probe(node_name(0), entries)
    async with cluster.daemon(node_name(0), scripted) as program:
        yield program, scripted


@pytest.mark.parametrize("trouble", ["execs-hang", "api-server-and-execs-hang", "all-hangs"])
async def test_c13_a_daemon_ends_in_time(cluster: Any, daemon: Any, trouble: str) -> None:
    program, scripted = daemon

    async def all_in_flight() -> bool:
        return len(scripted.execs) >= EXECS

    await program.until("16 execs hang", all_in_flight)
    if trouble != "execs-hang":
        cluster.proxy.black_hole()
    if trouble == "all-hangs":
        scripted.mute = True
        before = scripted.calls["ListContainers"]

        async def asked() -> bool:
            return bool(scripted.calls["ListContainers"] > before)

        await program.until("a list hangs", asked)
    code, seconds = await program.terminate()
    assert (code, seconds < IN_TIME_SECONDS) == (0, True), (code, seconds)


async def test_c13_an_interrupt_after_a_signal_ends_at_once(cluster: Any) -> None:
    cluster.proxy.black_hole()
    async with cluster.manager() as manager:
        await cluster.proxy.until("it asks", lambda: bool(cluster.proxy.log))
        manager.process.terminate()
        manager.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(IN_TIME_SECONDS):
            assert await manager.process.wait() in (0, 130, -15, -2)
