"""Which socket the daemon uses, with gRPC servers behind real socket files."""

import errno
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support.cases import cases
from support.fake_runtime import ScriptedRuntime, served

from kruise_probe.daemon.cri.endpoints import KNOWN_ENDPOINTS, NodeRuntime
from kruise_probe.daemon.cri.grpc_runtime import socket_path
from kruise_probe.daemon.cri.runtime import RuntimeFailure, RuntimeUnavailable

pytestmark = pytest.mark.sockets

NOT_FOUND = "no container runtime has been found yet"


class Sockets:
    """Socket files and the runtimes behind them."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack

    def path(self, name: str) -> Path:
        return self._folder / name

    def endpoint(self, name: str) -> str:
        return f"unix://{self.path(name)}"

    async def add(self, name: str, *, pods: int = 1) -> ScriptedRuntime:
        runtime = ScriptedRuntime()
        for number in range(pods):
            runtime.start(f"uid-{number}")
        await self._stack.enter_async_context(served(runtime, self.path(name)))
        return runtime


@pytest.fixture
async def sockets() -> AsyncIterator[Sockets]:
    with tempfile.TemporaryDirectory(prefix="cri-") as folder:
        async with AsyncExitStack() as stack:
            yield Sockets(Path(folder), stack)


def runtime_of(sockets: Sockets, *names: str) -> NodeRuntime:
    return NodeRuntime([sockets.endpoint(name) for name in names])


@cases(
    "pods used",
    the_first_that_responds=({"b": 1}, "b"),
    the_first_of_two=({"a": 1, "b": 1}, "a"),
    the_one_with_pods=({"a": 0, "b": 1}, "b"),
    without_pods=({"a": 0, "b": 0}, "a"),
)
async def test_the_runtime_with_pods_is_used(
    sockets: Sockets, pods: dict[str, int], used: str
) -> None:
    for name, count in pods.items():
        await sockets.add(name, pods=count)
    async with runtime_of(sockets, "a", "b") as runtime:
        containers = await runtime.list_containers()
        assert len(containers) == pods[used]
        assert runtime.endpoint == sockets.endpoint(used)


async def test_endpoint_without_a_runtime_is_skipped(sockets: Sockets) -> None:
    docker = await sockets.add("a")
    docker.failures["Version"] = RuntimeFailure("unknown service runtime.v1.RuntimeService")
    await sockets.add("b", pods=0)
    async with runtime_of(sockets, "a", "b") as runtime:
        await runtime.list_containers()
        assert runtime.endpoint == sockets.endpoint("b")


async def test_a_runtime_that_comes_later_or_moves_is_found_then(sockets: Sockets) -> None:
    async with runtime_of(sockets, "a", "b") as runtime:
        with pytest.raises(RuntimeUnavailable, match="name the right one with --cri-endpoint"):
            await runtime.list_containers()
        with pytest.raises(RuntimeUnavailable, match=NOT_FOUND):
            await runtime.version()
        await sockets.add("a")
        assert len(await runtime.list_containers()) == 1
        assert await runtime.version() == "scripted 1.0"

        sockets.path("a").unlink()
        with pytest.raises(RuntimeUnavailable):
            await runtime.list_containers()
        sockets.path("a").touch()  # a file that is no socket
        await sockets.add("b", pods=2)
        assert len(await runtime.list_containers()) == 2
        assert runtime.endpoint == sockets.endpoint("b")
    assert runtime.endpoint == ""
    with pytest.raises(RuntimeUnavailable, match=NOT_FOUND):
        await runtime.version()


async def test_a_runtime_without_pods_is_left_when_another_one_has_pods(sockets: Sockets) -> None:
    await sockets.add("docker", pods=0)
    async with runtime_of(sockets, "real", "docker") as runtime:
        assert await runtime.list_containers() == []
        await sockets.add("real")
        assert len(await runtime.list_containers()) == 1
        assert runtime.endpoint == sockets.endpoint("real")


async def test_endpoint_that_does_not_respond_is_named_once_with_the_reason(
    sockets: Sockets,
) -> None:
    scripted = await sockets.add("a")
    scripted.failures["Version"] = RuntimeUnavailable("connection refused")
    async with runtime_of(sockets, "a") as runtime:
        with pytest.raises(RuntimeUnavailable) as raised:
            await runtime.list_containers()
    assert str(raised.value) == (
        f"no container runtime responds: the container runtime at {sockets.endpoint('a')} is unavailable: "
        "connection refused; check its service on the node"
    )


@cases(
    "names where",
    one=("a", "at {0}; name"),
    up_to_three_by_name=("abc", "at {0} or {1} or {2}; name"),
    more_by_example=("abcd", "at any of 4 known paths such as {1}; name"),
)
async def test_the_paths_without_a_socket_are_reported(
    sockets: Sockets, names: str, where: str
) -> None:
    async with runtime_of(sockets, *names) as runtime:
        with pytest.raises(RuntimeUnavailable) as raised:
            await runtime.list_containers()
    endpoints = [sockets.endpoint(name) for name in names]
    assert where.format(*endpoints) in str(raised.value)


KNOWN_SOCKETS = [
    "k3s/containerd/containerd.sock",
    "cri-dockerd.sock",
    "crio/crio.sock",
    "dockershim.sock",
    "containerd/containerd.sock",
]


@pytest.mark.parametrize("folder", ["/run", "/hostvarrun", "/host/run"])
def test_known_paths_are_searched_and_containerds_last(folder: str) -> None:
    order = [KNOWN_ENDPOINTS.index(f"unix://{folder}/{name}") for name in KNOWN_SOCKETS]

    assert order == sorted(order)


@pytest.mark.parametrize("endpoint", ["unix:///run/x.sock", "unix:/run/x.sock", "/run/x.sock"])
def test_an_endpoint_is_a_unix_socket(endpoint: str) -> None:
    assert socket_path(endpoint) == "/run/x.sock"


@pytest.mark.parametrize("endpoint", ["", "run/x.sock", "tcp://10.0.0.1:80", "npipe:////x"])
def test_another_endpoint_is_refused_at_once(endpoint: str) -> None:
    with pytest.raises(ValueError, match="is not the path of a unix socket"):
        NodeRuntime([endpoint])


async def test_path_without_access_is_reported_and_hides_no_other_runtime(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(path: str) -> os.stat_result:
        if Path(path).name in refused:
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(path)

    stat = os.stat
    refused = {"a"}
    monkeypatch.setattr(os, "stat", refusing)
    async with runtime_of(sockets, "a", "b") as runtime:
        with pytest.raises(
            RuntimeUnavailable, match=r"Permission denied; run the daemon as a user"
        ):
            await runtime.list_containers()
        await sockets.add("b")
        assert len(await runtime.list_containers()) == 1
        refused.add("b")
        with pytest.raises(RuntimeUnavailable, match="Permission denied"):
            await runtime.list_containers()
