"""`kubectl exec` and `kubectl port-forward` on a node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from contract.async_kubectl import AsyncKubectl
from support.kubectl import KubectlError
from support.patience import PATIENCE_SECONDS
from support.real_node import busybox_pod

SERVER = """
echo fine > healthz
command -v httpd && exec httpd -f -p 8080 -h $PWD
exec python3 -m http.server --bind $POD_IP 8080
"""


@pytest.fixture
async def game(node_kubectl: AsyncKubectl) -> AsyncKubectl:
    """kubectl on a cluster with a pod that serves HTTP."""
    pod = busybox_pod("game", "sh", "-c", SERVER, labels={"app": "game"})
    pod["spec"]["containers"][0] |= {
        "name": "server",
        "workingDir": "/tmp",
        "ports": [{"name": "http", "containerPort": 8080}],
    }
    await node_kubectl.apply(pod)
    await node_kubectl("wait", "pod/game", "--for=condition=Ready", "--timeout=60s")
    serves = "until wget -qO- http://${POD_IP:-127.0.0.1}:8080/healthz; do sleep 0.1; done"
    await run_in(node_kubectl, serves)
    return node_kubectl


async def run_in(game: AsyncKubectl, script: str) -> str:
    return await game("exec", "game", "--", "sh", "-c", script)


async def test_exec_runs_commands(game: AsyncKubectl) -> None:
    said = await run_in(game, "echo out; echo err >&2; pwd")
    assert said.startswith("out\n/")
    with pytest.raises(KubectlError, match=r"err\n.*command terminated with exit code 3"):
        await run_in(game, "echo err >&2; exit 3")
    with pytest.raises(KubectlError, match='exec: "no-such-program": executable file not found'):
        await game("exec", "game", "--", "no-such-program")
    with pytest.raises(KubectlError, match="container x is not valid for pod game"):
        await game("exec", "game", "-c", "x", "--", "true")
    large = await run_in(game, "head -c 3000000 /dev/zero | tr '\\0' x")
    assert large == "x" * 3_000_000


async def test_exec_passes_stdin_to_its_end(game: AsyncKubectl) -> None:
    text = "line\n" * 100_000
    counted = await game("exec", "-i", "game", "--", "sh", "-c", "cat | wc -c", stdin=text)
    assert int(counted) == len(text)


@asynccontextmanager
async def forwarded(kubectl: AsyncKubectl, port: int) -> AsyncIterator[str]:
    """The address at which kubectl forwards connections to this port of the pod."""
    async with kubectl.started("port-forward", "pod/game", f":{port}") as output:
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = (await output.readline()).decode()
        forwarding, _, _ = line.partition(" -> ")
        yield forwarding.rpartition(" ")[2]


async def test_port_forward_carries_connections(game: AsyncKubectl) -> None:
    async with forwarded(game, 8080) as address, aiohttp.ClientSession() as session:

        async def get() -> str:
            async with session.get(f"http://{address}/healthz") as response:
                return await response.text()

        async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
            tasks = [group.create_task(get()) for _ in range(20)]
        assert {task.result() for task in tasks} == {"fine\n"}


async def test_port_forward_to_a_refused_port_closes_the_connection(game: AsyncKubectl) -> None:
    async with forwarded(game, 8081) as address:
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port))
            assert await reader.read() == b""
            writer.close()
