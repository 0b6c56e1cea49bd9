"""The client of the CRI against a scripted runtime behind a real socket: what goes wrong, and comes back."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support import programs
from support.background import background
from support.cases import cases
from support.fake_runtime import Script, ScriptedRuntime, exit_with, hang, refuse, served, succeed
from support.patience import PATIENCE_SECONDS
from support.scripted_node import loop_time

from kruise_probe.daemon.cri._pb import cri_pb2 as pb
from kruise_probe.daemon.cri.containers import ContainerWatcher
from kruise_probe.daemon.cri.endpoints import NodeRuntime
from kruise_probe.daemon.cri.grpc_runtime import GrpcRuntime
from kruise_probe.daemon.cri.runtime import (
    ALIVE_SECONDS,
    ContainerNotFound,
    ContainerNotRunning,
    ContainerState,
    ContainerStatus,
    ExecImpossible,
    ExecOutputTooLarge,
    ExecResult,
    ExecTimeout,
    RuntimeFailure,
    RuntimeUnavailable,
)

MAX_EXEC_RESPONSE_BYTES = 1 << 20

pytestmark = pytest.mark.sockets


@pytest.fixture
def socket() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cri-") as folder:
        yield Path(folder) / "cri.sock"


@asynccontextmanager
async def connected(runtime: ScriptedRuntime, socket: Path) -> AsyncIterator[GrpcRuntime]:
    """A client of a scripted runtime that listens at the socket."""
    async with served(runtime, socket) as endpoint, GrpcRuntime(endpoint) as client:
        yield client


async def until(condition: str, *, holds: Callable[[], object]) -> None:
    async def look() -> bool:
        return bool(holds())

    await programs.until(condition, look)


async def output_of(
    script: Script,
    socket: Path,
    *,
    timeout: float = 5,
    version: RuntimeFailure | None = None,
) -> ExecResult:
    """Run a command that acts as `script`, in a runtime whose version request fails with `version`."""
    scripted = ScriptedRuntime()
    container = scripted.start()
    scripted.on_exec("check", script=script)
    if version is not None:
        scripted.failures["Version"] = version
    async with connected(scripted, socket) as runtime:
        return await runtime.exec_sync(container.id, ["check"], timeout_seconds=timeout)


CALL_FAILURES = {
    "no-response-in-time": (ExecTimeout(5), RuntimeUnavailable),
    "no-connection": (RuntimeUnavailable("away"), RuntimeUnavailable),
    "starting": (RuntimeFailure("server is not initialized yet"), RuntimeUnavailable),
    "no-such-container": (ContainerNotFound("none"), ContainerNotFound),
    "another-error": (RuntimeFailure("disk is full"), RuntimeFailure),
}


@cases("failure kind", **CALL_FAILURES)
async def test_failures_of_calls_are_distinguished(
    socket: Path, failure: RuntimeFailure, kind: type[RuntimeFailure]
) -> None:
    scripted = ScriptedRuntime(failures={"ListContainers": failure})
    async with connected(scripted, socket) as runtime:
        with pytest.raises(RuntimeFailure) as caught:
            await runtime.list_containers()

    assert type(caught.value) is kind


EXEC_FAILURES = {
    "no-such-program": (
        ExecImpossible("OCI runtime exec failed: no such file"),
        ExecImpossible,
    ),
    "exited": (
        ContainerNotRunning("container is in CONTAINER_EXITED state"),
        ContainerNotRunning,
    ),
    "stopped": (
        ContainerNotRunning("cannot exec in a stopped container"),
        ContainerNotRunning,
    ),
    "no-such-container": (
        ContainerNotFound("an error occurred: not found"),
        ContainerNotFound,
    ),
    "timeout": (
        ExecTimeout(1),
        ExecTimeout,
    ),
    "unavailable": (
        RuntimeUnavailable("server is going away"),
        RuntimeUnavailable,
    ),
    "starting": (
        ExecImpossible("server is not initialized yet"),
        RuntimeUnavailable,
    ),
}


@cases("failure kind", **EXEC_FAILURES)
async def test_failures_of_commands_are_distinguished(
    socket: Path, failure: RuntimeFailure, kind: type[RuntimeFailure]
) -> None:
    with pytest.raises(RuntimeFailure) as caught:
        await output_of(refuse(failure), socket)

    assert type(caught.value) is kind


@cases(
    "stdout stderr",
    stdout=(MAX_EXEC_RESPONSE_BYTES, 0),
    both_together=(MAX_EXEC_RESPONSE_BYTES // 2, MAX_EXEC_RESPONSE_BYTES // 2),
    all_that_containerd_sends=(16 << 20, 16 << 20),
)
async def test_e7_an_output_above_the_limit_is_no_result(
    socket: Path, stdout: int, stderr: int
) -> None:
    with pytest.raises(ExecOutputTooLarge, match="printed more than 1048576 bytes; print less"):
        await output_of(
            succeed(b"x" * stdout, b"y" * stderr),
            socket,
        )


async def test_e7_an_output_at_the_limit_is_read(socket: Path) -> None:
    stdout = b"x" * (MAX_EXEC_RESPONSE_BYTES - 100)
    result = await output_of(exit_with(3, stdout), socket)

    assert result == ExecResult(3, stdout, b"")


async def test_a_list_of_a_large_node_fits(socket: Path) -> None:
    """500 pods of four containers, each with two kilobytes of names and ids: four megabytes."""
    scripted = ScriptedRuntime()
    for pod in range(500):
        for number in range(4):
            scripted.start(f"uid-{pod}", f"c{number}" + "x" * 1000)
    async with connected(scripted, socket) as runtime:
        assert len(await runtime.list_containers()) == 2000


async def test_a_list_above_16_mib_is_refused(socket: Path) -> None:
    """As in kubelet. It would be several times as large in memory."""
    scripted = ScriptedRuntime()
    for number in range(17):
        scripted.start(f"uid-{number}", "x" * (1 << 20))
    async with connected(scripted, socket) as runtime:
        with pytest.raises(RuntimeFailure, match="larger than max"):
            await runtime.list_containers()


async def test_exec_impossible_has_a_stable_message(socket: Path) -> None:
    """containerd names each run by chance; as part of the message that would be a change at every period."""
    message = (
        "failed to exec in container: failed to start exec{}: "
        'OCI runtime exec failed: exec: "x": no such file'
    )
    id = "0123456789abcdef" * 4
    failure = ExecImpossible(message.format(f' "{id}"'))
    with pytest.raises(ExecImpossible) as caught:
        await output_of(refuse(failure), socket)

    assert str(caught.value) == message.format("")


@cases(
    "hangs kind",
    the_command_only=(False, ExecTimeout),
    the_whole_runtime=(True, RuntimeUnavailable),
)
async def test_a_runtime_that_never_ends_an_exec_is_not_waited_for(
    socket: Path, hangs: bool, kind: type[RuntimeFailure]
) -> None:
    class Deaf(ScriptedRuntime):
        hangs = False

        async def version(self) -> str:
            if self.hangs:
                await asyncio.Event().wait()
            return await super().version()

        async def exec_sync(self, *_: object, **__: object) -> object:  # type: ignore[override]
            self.in_flight += 1
            try:
                return await asyncio.get_running_loop().create_future()
            finally:
                self.in_flight -= 1

    scripted = Deaf()
    async with connected(scripted, socket) as runtime:
        _ = await runtime.version()
        scripted.hangs = hangs
        started_at = loop_time()
        with pytest.raises(kind):
            await runtime.exec_sync("container-0", ["check"], timeout_seconds=1)
        assert 1.4 < loop_time() - started_at < PATIENCE_SECONDS
        await until("the stream is cancelled", holds=lambda: not scripted.in_flight)


@cases(
    "failure kind",
    the_runtime_responds=(None, ExecTimeout),
    an_error_is_a_response=(RuntimeFailure("disk is full"), ExecTimeout),
    unavailable=(RuntimeUnavailable("away"), RuntimeUnavailable),
    no_response=(ExecTimeout(1), RuntimeUnavailable),
)
async def test_timeout_is_that_of_the_command_only_if_the_runtime_responds(
    socket: Path, failure: RuntimeFailure | None, kind: type[RuntimeFailure]
) -> None:
    with pytest.raises(RuntimeFailure) as caught:
        await output_of(hang(), socket, timeout=1, version=failure)

    assert type(caught.value) is kind


async def test_a_container_that_has_not_started_has_no_start(socket: Path) -> None:
    scripted = ScriptedRuntime()
    container = scripted.start(state=ContainerState.CREATED)
    async with connected(scripted, socket) as runtime:
        assert (await runtime.container_status(container.id)).started_at is None


async def test_a_container_without_labels_of_kubelet_has_the_name_of_its_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def send(*_: object) -> object:
        metadata = pb.ContainerMetadata(name="registry")
        labels = {"io.kubernetes.container.name": "main", "io.kubernetes.pod.uid": "uid-1"}
        foreign = pb.Container(id="c1", metadata=metadata)
        kubelets = pb.Container(id="c2", metadata=metadata, labels=labels)
        return pb.ListContainersResponse(containers=[foreign, kubelets])

    monkeypatch.setattr(GrpcRuntime, "_send", send)
    foreign, kubelets = await GrpcRuntime("/run/x.sock").list_containers()
    assert (foreign.name, foreign.pod_uid) == ("registry", "")
    assert (kubelets.name, kubelets.pod_uid) == ("main", "uid-1")


async def test_calls_end_after_five_seconds_and_a_command_within_a_second_of_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the version request that follows a timeout."""
    timeouts: dict[str, float] = {}

    async def send(
        _: object,
        name: str,
        request: Any,
        __: object,
        timeout: float,
    ) -> object:
        assert name != "ExecSync" or request.timeout == 3
        timeouts[name] = timeout
        raise RuntimeFailure(name)

    monkeypatch.setattr(GrpcRuntime, "_send", send)
    runtime = GrpcRuntime("/run/x.sock")
    for call in (
        runtime.exec_sync("c", ["check"], timeout_seconds=2.5),
        runtime.version(),
        runtime.list_containers(),
        runtime.container_status("c"),
        runtime.sandbox_status("s"),
    ):
        with pytest.raises(RuntimeFailure):
            await call
    assert 2.5 < timeouts.pop("ExecSync") <= 3.5 - ALIVE_SECONDS
    assert list(timeouts.values()) == [5.0] * 4


async def test_cri_o_timeout_response_is_a_timeout(socket: Path) -> None:
    with pytest.raises(ExecTimeout, match="command timed out after 2s"):
        await output_of(
            exit_with(-1, b"", b"command timed out"),
            socket,
            timeout=2,
        )
    result = await output_of(exit_with(1, b"", b"command timed out"), socket, timeout=2)

    assert result.exit_code == 1


async def test_the_watcher_waits_for_a_runtime_and_survives_two_restarts(socket: Path) -> None:
    scripted = ScriptedRuntime()
    scripted.start()
    async with NodeRuntime([f"unix://{socket}"]) as runtime:
        watcher = ContainerWatcher(runtime)
        async with background(watcher.run()):
            watcher.subscribe("uid-1", "main", lambda: None)
            await until("it reports why", holds=lambda: "there is no socket" in watcher.problem)
            for _ in range(3):
                async with served(scripted, socket):
                    await until("it is there", holds=lambda: watcher.available)
                    await until("found", holds=lambda: watcher.find("uid-1", "main"))
                socket.unlink(missing_ok=True)  # noqa: ASYNC240 - a file in memory
                await until("it is away", holds=lambda: not watcher.available)


async def test_command_in_flight_when_the_connection_is_closed_is_unavailable(
    socket: Path,
) -> None:
    scripted = ScriptedRuntime()
    container = scripted.start()
    scripted.on_exec("check", script=hang())
    async with served(scripted, socket) as endpoint:
        runtime = GrpcRuntime(endpoint)
        async with runtime:
            command = runtime.exec_sync(container.id, ["check"], timeout_seconds=60)
            waiting = asyncio.create_task(command)
            await until("the call is in flight", holds=lambda: scripted.calls.total())
        with pytest.raises(RuntimeUnavailable, match="was closed"):
            await waiting


class HangingStatus(ScriptedRuntime):
    async def container_status(self, container_id: str) -> ContainerStatus:
        self.calls["ContainerStatus"] += 1
        await asyncio.Event().wait()
        raise AssertionError


async def test_statuses_continue_after_a_switch_of_the_endpoint() -> None:
    """The connection to the first runtime is closed below a status call."""
    first = HangingStatus()
    second = ScriptedRuntime()
    first.start()
    second.start()
    with tempfile.TemporaryDirectory(prefix="cri-") as folder:
        old = Path(folder) / "old.sock"
        new = Path(folder) / "new.sock"
        endpoints = [f"unix://{old}", f"unix://{new}"]
        async with served(second, new), NodeRuntime(endpoints) as runtime:
            watcher = ContainerWatcher(runtime)
            watcher.subscribe("uid-1", "main", lambda: None)
            async with served(first, old), background(watcher.run()):
                await until("its status is requested", holds=lambda: first.calls["ContainerStatus"])
                old.unlink()
                await until("found", holds=lambda: watcher.find("uid-1", "main"))


async def test_scripted_runtime_is_read_back(socket: Path) -> None:
    scripted = ScriptedRuntime()
    container = scripted.start("uid-1", "main", attempt=3, ip="10.0.0.7")
    scripted.start("uid-2", "main", host_network=True)
    async with connected(scripted, socket) as runtime:
        assert await runtime.version() == await scripted.version()
        assert await runtime.list_containers() == await scripted.list_containers()
        status = await scripted.container_status(container.id)
        assert await runtime.container_status(container.id) == status
        for id, sandbox in scripted.sandboxes.items():
            assert await runtime.sandbox_status(id) == sandbox
