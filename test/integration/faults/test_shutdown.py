"""SIGTERM while everything hangs: exit code 0, in time."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from support.background import background
from support.fake_runtime import ScriptedRuntime, hang
from support.hollow import CONDITION, node_name, probe
from support.programs import ALONE, Program, fetch, until
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


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe without room for one more byte: the ends to read and to write."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("is_read_again", [True, False])
async def test_a_manager_works_and_ends_if_nobody_reads_its_output(
    cluster: Any, full_pipe: tuple[int, int], is_read_again: bool
) -> None:
    reading, writing = full_pipe
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "faulthandler", "-m", "kruise_probe", "manager", ALONE),
        f"--kubeconfig={cluster.proxy.write_kubeconfig(cluster.folder)}",
        *(f"--health-probe-addr=127.0.0.1:{port}", "--metrics-addr=0"),
        stdout=writing,
        stderr=writing,
    )

    async def is_healthy() -> bool:
        return (await fetch(f"http://127.0.0.1:{port}/healthz"))[0] == 200

    try:
        await until("it is healthy", is_healthy)
        if is_read_again:
            os.read(reading, 1 << 20)
        began = asyncio.get_running_loop().time()
        process.terminate()
        async with asyncio.timeout(IN_TIME_SECONDS):
            assert await process.wait() == 0
        assert asyncio.get_running_loop().time() - began < 5
    finally:
        if process.returncode is None:
            process.kill()
    rest = os.read(reading, 1 << 20).decode()
    assert ("lines of the log were dropped" in rest) == is_read_again
    assert ("stopped" in rest) == is_read_again


async def test_a_failure_that_nobody_reads_ends_the_process(full_pipe: tuple[int, int]) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kruise_probe", "manager", "--kubeconfig=/missing"),
        *("--health-probe-addr=0", "--metrics-addr=0"),
        stdout=full_pipe[1],
        stderr=full_pipe[1],
    )
    async with asyncio.timeout(IN_TIME_SECONDS):
        assert await process.wait() == 1
