import errno
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from support.fake_runtime import ScriptedRuntime

from kruise_probe.daemon.cri.endpoints import KNOWN_ENDPOINTS, NodeRuntime
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime, socket_path
from kruise_probe.daemon.cri.runtime import NotSupported, RuntimeUnavailable


class Sockets:
    """Socket files, and the runtimes behind them; `connected` are the endpoints of open connections."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: list[socket.socket] = []
        self.runtimes: dict[str, ScriptedRuntime] = {}
        self.connected: list[str] = []

    def endpoint(self, name: str) -> str:
        return f"unix://{self._folder}/{name}"

    def add(self, name: str, *, pods: int = 1) -> ScriptedRuntime:
        file = socket.socket(socket.AF_UNIX)
        file.bind(str(self._folder / name))
        self._open.append(file)
        runtime = self.runtimes[self.endpoint(name)] = ScriptedRuntime()
        for number in range(pods):
            runtime.start(f"uid-{number}")
        return runtime

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()

    def connect(self, endpoint: str) -> Any:
        return _Connected(endpoint, self.runtimes, self.connected)

    def close(self) -> None:
        for file in self._open:
            file.close()


class _Connected:
    def __init__(
        self, endpoint: str, runtimes: Mapping[str, ScriptedRuntime], connected: list[str]
    ) -> None:
        self.endpoint = endpoint
        self._runtime = runtimes[endpoint]
        self._connected = connected

    async def __aenter__(self) -> Self:
        self._connected.append(self.endpoint)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connected.remove(self.endpoint)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[Sockets]:
    made = Sockets(tmp_path)
    yield made
    made.close()


def runtime_of(sockets: Sockets, *names: str) -> NodeRuntime:
    return NodeRuntime(list(map(sockets.endpoint, names)), connect=sockets.connect)


async def test_first_endpoint_that_responds_is_used(sockets: Sockets) -> None:
    sockets.add("b")
    async with runtime_of(sockets, "a", "b") as runtime:
        containers = await runtime.list_containers()

        assert runtime.endpoint == sockets.endpoint("b")
        assert len(containers) == 1


async def test_endpoint_with_pods_is_preferred(sockets: Sockets) -> None:
    sockets.add("a", pods=0)
    sockets.add("b", pods=1)
    async with runtime_of(sockets, "a", "b") as runtime:
        _ = await runtime.list_containers()

        assert runtime.endpoint == sockets.endpoint("b")


async def test_only_the_runtime_that_is_used_stays_connected(sockets: Sockets) -> None:
    sockets.add("a")
    sockets.add("b")
    async with runtime_of(sockets, "a", "b") as runtime:
        _ = await runtime.list_containers()
        assert sockets.connected == [sockets.endpoint("a")]
        sockets.remove("a")
        _ = await runtime.list_containers()
        assert sockets.connected == [sockets.endpoint("b")]
    assert sockets.connected == []


async def test_endpoint_without_a_runtime_is_skipped(sockets: Sockets) -> None:
    docker = sockets.add("a")
    docker.failures["Version"] = NotSupported("unknown service runtime.v1.RuntimeService")
    sockets.add("b", pods=0)
    async with runtime_of(sockets, "a", "b") as runtime:
        _ = await runtime.list_containers()

        assert runtime.endpoint == sockets.endpoint("b")


async def test_a_runtime_that_comes_later_is_found_then(sockets: Sockets) -> None:
    async with runtime_of(sockets, "a") as runtime:
        with pytest.raises(RuntimeUnavailable, match="name the right one with --cri-endpoint"):
            await runtime.list_containers()
        with pytest.raises(RuntimeUnavailable, match="no container runtime has been found yet"):
            await runtime.version()
        sockets.add("a")

        assert len(await runtime.list_containers()) == 1
        assert (await runtime.version()).name == "scripted"


async def test_endpoint_that_does_not_respond_is_named_with_the_reason(sockets: Sockets) -> None:
    sockets.add("a").failures["Version"] = RuntimeUnavailable("connection refused")
    async with runtime_of(sockets, "a") as runtime:
        with pytest.raises(RuntimeUnavailable, match=r"/a: connection refused$"):
            await runtime.list_containers()


async def test_a_problem_that_names_the_endpoint_names_it_once(sockets: Sockets) -> None:
    problem = f"the container runtime at {sockets.endpoint('a')} is unavailable"
    sockets.add("a").failures["Version"] = RuntimeUnavailable(problem)
    async with runtime_of(sockets, "a") as runtime:
        with pytest.raises(RuntimeUnavailable) as raised:
            await runtime.list_containers()
    assert str(raised.value) == f"no container runtime responds: {problem}"


async def test_after_the_context_there_is_no_runtime(sockets: Sockets) -> None:
    sockets.add("a")
    async with runtime_of(sockets, "a") as runtime:
        _ = await runtime.list_containers()
    assert runtime.endpoint == ""
    with pytest.raises(RuntimeUnavailable, match="no container runtime has been found yet"):
        await runtime.version()


@pytest.mark.parametrize(
    ("names", "where"),
    [
        pytest.param("a", "at {0}; name", id="one"),
        pytest.param("abc", "at {0} or {1} or {2}; name", id="up-to-three-by-name"),
        pytest.param("abcd", "at any of 4 known paths such as {1}; name", id="more-by-example"),
    ],
)
async def test_the_paths_without_a_socket_are_reported(
    sockets: Sockets, names: str, where: str
) -> None:
    async with runtime_of(sockets, *names) as runtime:
        with pytest.raises(RuntimeUnavailable) as raised:
            await runtime.list_containers()
    assert where.format(*map(sockets.endpoint, names)) in str(raised.value)


async def test_a_runtime_whose_socket_is_gone_is_searched_for(sockets: Sockets) -> None:
    sockets.add("a")
    async with runtime_of(sockets, "a", "b") as runtime:
        _ = await runtime.list_containers()
        sockets.remove("a")
        with pytest.raises(RuntimeUnavailable):
            await runtime.list_containers()
        sockets.add("b", pods=2)

        assert len(await runtime.list_containers()) == 2
        assert runtime.endpoint == sockets.endpoint("b")


@pytest.mark.parametrize(
    "path",
    [
        "/run/containerd/containerd.sock",
        "/run/crio/crio.sock",
        "/run/cri-dockerd.sock",
        "/run/k3s/containerd/containerd.sock",
        "/run/dockershim.sock",
        "/hostvarrun/containerd/containerd.sock",
        "/host/run/containerd/containerd.sock",
        "/var/snap/microk8s/common/run/containerd.sock",
    ],
)
def test_known_paths_are_searched(path: str) -> None:
    assert f"unix://{path}" in KNOWN_ENDPOINTS


def test_containerd_paths_come_last() -> None:
    order = [KNOWN_ENDPOINTS.index(f"unix:///run/{name}") for name in (
        "k3s/containerd/containerd.sock", "cri-dockerd.sock", "crio/crio.sock",
        "containerd/containerd.sock",
    )]  # fmt: skip

    assert order == sorted(order)


@pytest.mark.parametrize("endpoint", ["unix:///run/x.sock", "unix:/run/x.sock", "/run/x.sock"])
def test_an_endpoint_is_a_unix_socket(endpoint: str) -> None:
    assert socket_path(endpoint) == "/run/x.sock"


@pytest.mark.parametrize("endpoint", ["", "run/x.sock", "tcp://10.0.0.1:80", "npipe:////x"])
def test_another_endpoint_is_refused_at_once(endpoint: str) -> None:
    with pytest.raises(ValueError, match="is not the path of a unix socket"):
        NodeRuntime([endpoint])


async def test_calls_before_the_context_fail() -> None:
    with pytest.raises(RuntimeUnavailable, match="not connected"):
        await GrpcRuntime("/run/x.sock").version()


async def test_path_without_access_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "containerd.sock"

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path == place:
            raise PermissionError(errno.EACCES, "Permission denied")
        return os.stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", stat)
    async with NodeRuntime([str(place)]) as runtime:
        with pytest.raises(
            RuntimeUnavailable, match=r"Permission denied; run the daemon as a user"
        ):
            await runtime.list_containers()


async def test_a_path_without_access_hides_no_other_runtime(
    sockets: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path.name == "a":
            raise PermissionError(errno.EACCES, "Permission denied")
        return os.stat(path, follow_symlinks=follow_symlinks)

    sockets.add("b")
    monkeypatch.setattr(Path, "stat", stat)
    async with runtime_of(sockets, "a", "b") as runtime:
        assert len(await runtime.list_containers()) == 1


async def test_invalid_path_is_no_socket() -> None:
    async with NodeRuntime([f"/{'x' * 5000}"]) as runtime:
        with pytest.raises(RuntimeUnavailable, match="there is no socket"):
            await runtime.list_containers()
