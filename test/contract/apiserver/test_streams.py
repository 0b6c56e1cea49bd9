"""`kubectl exec` and `kubectl port-forward` on a node."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from support.kubectl import Kubectl, KubectlError
from support.patience import PATIENCE_SECONDS
from support.real_node import busybox_pod
from support.wire import Json

Run = Callable[..., Any]
SERVER = """
echo fine > healthz
command -v httpd && exec httpd -f -p 8080 -h $PWD
exec python3 -m http.server --bind $POD_IP 8080
"""


def pod() -> Json:
    made = busybox_pod("game", "sh", "-c", SERVER, labels={"app": "game"})
    ports = [{"name": "http", "containerPort": 8080}]
    made["spec"]["containers"][0] |= {"name": "server", "workingDir": "/tmp", "ports": ports}
    return made


@pytest.fixture
async def game(node_kubectl: Run) -> Run:
    """kubectl on a cluster with a pod that serves HTTP."""
    await node_kubectl(pod())
    await node_kubectl("wait", "pod/game", "--for=condition=Ready", "--timeout=60s")
    serves = "until wget -qO- http://${POD_IP:-127.0.0.1}:8080/healthz; do sleep 0.1; done"
    await node_kubectl("exec", "game", "--", "sh", "-c", serves)
    return node_kubectl


def kubectl_of(kubectl: Run) -> Kubectl:
    found: Kubectl = kubectl.runner  # type: ignore[attr-defined]
    return found


async def test_exec_runs_commands(game: Run) -> None:
    said = await game("exec", "game", "--", "sh", "-c", "echo out; echo err >&2; pwd")
    assert said.startswith("out\n/")
    with pytest.raises(KubectlError, match=r"err\n.*command terminated with exit code 3"):
        await game("exec", "game", "--", "sh", "-c", "echo err >&2; exit 3")
    with pytest.raises(KubectlError, match='exec: "no-such-program": executable file not found'):
        await game("exec", "game", "--", "no-such-program")
    with pytest.raises(KubectlError, match="container x is not valid for pod game"):
        await game("exec", "game", "-c", "x", "--", "true")
    large = await game("exec", "game", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")
    assert large == "x" * 3_000_000


async def test_exec_passes_stdin_to_its_end(game: Run) -> None:
    text = "line\n" * 100_000
    runner = kubectl_of(game)
    counted = await asyncio.to_thread(
        runner.run, "exec", "-i", "game", "--", "sh", "-c", "cat | wc -c", stdin=text
    )
    assert int(counted) == len(text)


@asynccontextmanager
async def forwarded(kubectl: Run, port: int) -> AsyncIterator[str]:
    command = kubectl_of(kubectl)._command("port-forward", "pod/game", f":{port}")
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = (await process.stdout.readline()).decode()
        yield line.split(" -> ")[0].rpartition(" ")[2]
    finally:
        process.terminate()
        await process.wait()


async def test_port_forward_carries_connections(game: Run) -> None:
    async with forwarded(game, 8080) as address, aiohttp.ClientSession() as session:

        async def get() -> str:
            async with session.get(f"http://{address}/healthz") as response:
                return await response.text()

        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            tasks = [group.create_task(get()) for _ in range(20)]
        assert {each.result() for each in tasks} == {"fine\n"}


async def test_port_forward_to_a_refused_port_closes_the_connection(game: Run) -> None:
    async with forwarded(game, 8081) as address:
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port))
            assert await reader.read() == b""
            writer.close()
