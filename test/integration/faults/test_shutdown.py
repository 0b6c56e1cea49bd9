"""SIGTERM while everything hangs: exit code 0, in time."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from integration.fault_steps import all_pods, exec_probes, is_marked
from support.background import background
from support.embedded_cluster import EmbeddedCluster
from support.fake_runtime import ScriptedRuntime, hang
from support.hollow import node_name, probe
from support.programs import ALONE, Program, fetch, until

from kruise_probe.daemon.cri.runtime import RuntimeContainer

IN_TIME_SECONDS = 20.0
"""A loaded machine is slower than the five seconds that users are promised; what hangs takes for ever."""
EXECS = 16


async def terminate(program: Program) -> None:
    code, seconds = await program.terminate()
    assert code == 0
    assert seconds < IN_TIME_SECONDS


@pytest.mark.parametrize("trouble", ["healthy", "black-hole", "paused", "no-server-at-the-start"])
async def test_c13_a_manager_ends_in_time(cluster: EmbeddedCluster, trouble: str) -> None:
    proxy = cluster.proxy
    await cluster.hollow.add_nodes(4)
    await cluster.hollow.add_pods(40, nodes=4)
    if trouble == "no-server-at-the-start":
        proxy.black_hole()
    async with cluster.manager() as manager, background(cluster.daemons.follow()):
        if trouble == "no-server-at-the-start":
            await proxy.until(
                "it sends requests",
                lambda: bool(proxy.log),
            )
        else:
            await cluster.hollow.add_marker(probe())
            await all_pods(cluster, "pods are marked", is_marked)
        if trouble == "black-hole":
            proxy.black_hole()
        elif trouble == "paused":
            proxy.pause()
        if cluster.api.node_pod_probes.all():
            cluster.daemons.result_of = lambda pod, name: ("Failed", "so that there is work")
            await cluster.daemons.write_all()
        await terminate(manager)


class MutableRuntime(ScriptedRuntime):
    """One whose lists never end once it is mute."""

    mute = False

    async def list_containers(self) -> Sequence[RuntimeContainer]:
        listed = await super().list_containers()
        if self.mute:
            await asyncio.Event().wait()
        return listed


@pytest.fixture
async def daemon(cluster: EmbeddedCluster) -> AsyncIterator[tuple[Program, MutableRuntime]]:
    """A daemon whose runtime answers everything but execs; 16 of these hang."""
    node = node_name(0)
    scripted = MutableRuntime()
    scripted.start("uid-1", "main")
    for number in range(EXECS):
        scripted.on_exec("sleep", str(number), script=hang())
    await cluster.hollow.add_node_pod_probe(
        node,
        exec_probes(EXECS, "sleep", timeoutSeconds=10),
    )
    async with cluster.daemon(node, scripted) as program:
        yield program, scripted


@pytest.mark.parametrize("trouble", ["execs-hang", "api-server-and-execs-hang", "all-hangs"])
async def test_c13_a_daemon_ends_in_time(
    cluster: EmbeddedCluster, daemon: tuple[Program, MutableRuntime], trouble: str
) -> None:
    program, scripted = daemon

    async def all_in_flight() -> bool:
        return len(scripted.execs) >= EXECS

    await program.until("16 execs hang", all_in_flight)
    if trouble != "execs-hang":
        cluster.proxy.black_hole()
    if trouble == "all-hangs":
        scripted.mute = True
        before = scripted.calls["ListContainers"]

        async def has_listed() -> bool:
            return scripted.calls["ListContainers"] > before

        await program.until("a list hangs", has_listed)
    await terminate(program)


async def test_c13_an_interrupt_after_a_signal_ends_at_once(cluster: EmbeddedCluster) -> None:
    cluster.proxy.black_hole()
    async with cluster.manager() as manager:
        await cluster.proxy.until(
            "it sends requests",
            lambda: bool(cluster.proxy.log),
        )
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
    cluster: EmbeddedCluster, full_pipe: tuple[int, int], is_read_again: bool
) -> None:
    reading, writing = full_pipe
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = await start_manager(
        writing,
        ALONE,
        f"--kubeconfig={cluster.proxy.write_kubeconfig(cluster.folder)}",
        f"--health-probe-addr=127.0.0.1:{port}",
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


async def start_manager(output: int, *flags: str) -> asyncio.subprocess.Process:
    """A manager that writes its log to a file descriptor."""
    command = (sys.executable, "-m", "kruise_probe", "manager", "--metrics-addr=0", *flags)
    return await asyncio.create_subprocess_exec(*command, stdout=output, stderr=output)


async def test_a_failure_that_nobody_reads_ends_the_process(full_pipe: tuple[int, int]) -> None:
    _, writing = full_pipe
    process = await start_manager(writing, "--kubeconfig=/missing", "--health-probe-addr=0")
    async with asyncio.timeout(IN_TIME_SECONDS):
        assert await process.wait() == 1
