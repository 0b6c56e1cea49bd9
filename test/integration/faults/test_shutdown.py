"""SIGTERM while everything hangs: exit code 0, in time."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import programs
from support.background import background
from support.fake_runtime import ScriptedRuntime, hang, served
from support.hollow import CONDITION, node_name, probe
from support.programs import Program
from support.world import condition

from kruise_probe.daemon.cri.runtime import ContainerInfo

IN_TIME_SECONDS = 20.0
"""A loaded machine is slower than the five seconds that users are promised; what hangs takes for ever."""
EXECS = 16


@pytest.mark.parametrize("trouble", ["healthy", "black-hole", "paused", "no-server-at-the-start"])
async def test_c13_a_manager_ends_in_time(arena: Any, trouble: str) -> None:
    await arena.hollow.add_nodes(4)
    await arena.hollow.add_pods(40, nodes=4)
    if trouble == "no-server-at-the-start":
        arena.proxy.black_hole()
    async with arena.manager() as manager, background(arena.daemons.follow()):
        if trouble != "no-server-at-the-start":
            await arena.hollow.add_marker(probe())
            await arena.world.pods.wait(
                "pods are marked",
                lambda: all(condition(each, CONDITION) for each in arena.world.pods.all()),
            )
        else:
            await arena.proxy.until("it asks", lambda: bool(arena.proxy.log))
        if trouble == "black-hole":
            arena.proxy.black_hole()
        elif trouble == "paused":
            arena.proxy.pause()
        if arena.world.reports.all():
            arena.daemons.verdict = lambda pod, name: ("Failed", "so that there is work")
            await arena.daemons.talk_once()
        code, seconds = await manager.terminate()
    assert (code, seconds < IN_TIME_SECONDS) == (0, True), (code, seconds)


class MutableRuntime(ScriptedRuntime):
    """One whose lists never end once it is mute."""

    mute = False

    async def list_containers(self) -> Sequence[ContainerInfo]:
        listed = await super().list_containers()
        if self.mute:
            await asyncio.Event().wait()
        return listed


@pytest.fixture
async def daemon(arena: Any) -> AsyncIterator[tuple[Program, ScriptedRuntime]]:
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
    await arena.hollow.ask_node(node_name(0), entries)
    with tempfile.TemporaryDirectory(prefix="cri-") as folder:
        async with served(scripted, Path(folder) / "cri.sock") as endpoint:
            kubeconfig = arena.proxy.write_kubeconfig(arena.folder)
            flags = (f"--node-name={node_name(0)}", f"--cri-endpoint={endpoint}")
            async with programs.running("daemon", kubeconfig, arena.folder, *flags) as program:
                yield program, scripted


@pytest.mark.parametrize("trouble", ["execs-hang", "api-server-and-execs-hang", "all-hangs"])
async def test_c13_a_daemon_ends_in_time(arena: Any, daemon: Any, trouble: str) -> None:
    program, scripted = daemon

    async def all_in_flight() -> bool:
        return len(scripted.execs) >= EXECS

    await program.until("16 execs hang", all_in_flight)
    if trouble != "execs-hang":
        arena.proxy.black_hole()
    if trouble == "all-hangs":
        scripted.mute = True
        before = scripted.calls["ListContainers"]

        async def asked() -> bool:
            return scripted.calls["ListContainers"] > before

        await program.until("a list hangs", asked)
    code, seconds = await program.terminate()
    assert (code, seconds < IN_TIME_SECONDS) == (0, True), (code, seconds)


async def test_c13_a_second_signal_ends_at_once(arena: Any) -> None:
    arena.proxy.black_hole()
    async with arena.manager() as manager:
        await arena.proxy.until("it asks", lambda: bool(arena.proxy.log))
        manager.process.terminate()
        manager.process.terminate()
        async with asyncio.timeout(IN_TIME_SECONDS):
            assert await manager.process.wait() in (0, 143, -15)
