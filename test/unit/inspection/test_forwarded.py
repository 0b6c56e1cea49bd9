"""Through port-forward and exec of an API server, an attempt has the daemon's state and message, letter for letter."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.builders import entry_of, pod_wire
from support.cases import cases
from support.connections import listening
from support.patience import PATIENCE_SECONDS
from support.scripted_pod import Exec, ScriptedPod, exited, hanging, serving_pod, status, streaming
from support.scripted_server import answering, flooding, self_signed, serving, silent
from support.sockets import closed_port
from support.wire import Json

from kruise_probe.api.messages import normalise_message
from kruise_probe.api.meta import HostPort, NamespacedName
from kruise_probe.api.probe import Probe
from kruise_probe.api.v1alpha1 import ProbeState
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe.daemon.cri.runtime import ExecResult
from kruise_probe.daemon.probers import prober_for
from kruise_probe.daemon.probers.exec import probe_result
from kruise_probe.daemon.probers.prober import Target
from kruise_probe.inspection.attempts import TrialResult, not_run
from kruise_probe.inspection.trials import forwarder_to, run_probe

pytestmark = pytest.mark.sockets

KEY = NamespacedName("default", "web-0")
POD = Target("127.0.0.1", "main")


@asynccontextmanager
async def client_of(scripted: ScriptedPod) -> AsyncIterator[RestClient]:
    """A client of an API server with this pod."""
    async with serving_pod(scripted) as pod:
        config = ClusterConfig(server=pod.url)
        client = RestClient(config=config, field_manager="test", user_agent="test")
        async with client:
            yield client


async def run(
    probe: Probe,
    *,
    port: int = 0,
    extract: Json | None = None,
    **more: Any,
) -> TrialResult:
    """The attempt through a scripted API server, whose pod listens on `port`."""
    ports = {port: port} if port else {}
    criteria = {"extract": extract} if extract else {}
    entry = entry_of(probe, **criteria)
    async with client_of(ScriptedPod(pod_wire(), ports=ports, **more)) as client:
        return await run_probe(client, KEY, entry, POD)


class Unused:
    async def exec_sync(self, *_: Any, **__: Any) -> ExecResult:
        raise AssertionError


async def compared(probe: Probe, *, port: int = 0) -> TrialResult:
    """The attempt of `run`, which equals the daemon's own."""
    prober = prober_for(entry_of(probe), commands=Unused(), user_agent="kruise-probe/1")
    expected = await prober.run(POD)
    found = await run(probe, port=port)
    assert found.state == ("Succeeded" if expected.succeeded else "Failed")
    assert found.message == expected.message
    return found


http: Json = {"httpGet": {"path": "/a b"}}
https: Json = {"httpGet": {"scheme": "HTTPS"}}
tcp: Json = {"tcpSocket": {}}
grpc: Json = {"grpc": {}}
grpc_tls: Json = {"grpc": {"mode": "TLS"}}


def at(port: int, action: Json, *, timeout_seconds: int = 5) -> Probe:
    """The probe of a port."""
    ((kind, more),) = action.items()
    wire = {kind: {"port": port, **more}, "timeoutSeconds": timeout_seconds}
    return msgspec.convert(wire, Probe)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: /there\r\n\r\n"


def redirected(request: str) -> bytes:
    return OK if "/there" in request else REDIRECT


@pytest.mark.parametrize("action", [http, tcp, grpc])
@cases(
    "script",
    response=answering(OK),
    failing_status=answering(b"HTTP/1.1 503 No\r\n\r\n"),
    redirect=answering(redirected),
    closes=answering(b""),
    truncated=answering(OK[:-2]),
    nonsense=answering(b"nonsense\r\n\r\n"),
    endless=flooding(b"", b"x" * 4096),
)
async def test_forwarded_attempt_equals_that_of_the_daemon(script: Any, action: Json) -> None:
    async with serving(script) as server:
        await compared(at(server.port, action), port=server.port)


async def without_tls(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    _ = await reader.read(65536)
    writer.close()


@pytest.mark.parametrize("serve", [without_tls, closing])
@pytest.mark.parametrize("action", [https, grpc_tls])
async def test_failed_handshake_equals_that_of_the_daemon(action: Json, serve: Any) -> None:
    async with listening(serve) as port:
        await compared(at(port, action), port=port)


@pytest.mark.parametrize("action", [http, https, tcp, grpc, grpc_tls])
async def test_refused_connection_equals_that_of_the_daemon(action: Json) -> None:
    with closed_port() as port:
        found = await compared(at(port, action))
    assert found.state == ProbeState.FAILED


async def test_forwarded_tls_equals_that_of_the_daemon(tmp_path: Path) -> None:
    async with serving(answering(OK), tls=self_signed(tmp_path)) as server:
        found = await compared(at(server.port, https), port=server.port)
    assert found.message == "fine"


@pytest.mark.parametrize("action", [http, grpc])
async def test_silent_server_is_failure_at_the_timeout(action: Json) -> None:
    async with serving(silent()) as server:
        probe = at(server.port, action, timeout_seconds=1)
        found = await compared(probe, port=server.port)
    assert found.duration_seconds is not None
    assert 1 <= found.duration_seconds < PATIENCE_SECONDS


def exec_of(**numbers: int) -> Probe:
    return msgspec.convert({"exec": {"command": ["check"]}, **numbers}, Probe)


@cases(
    "code stdout stderr",
    success_is_stdout=(0, b"  full\n", b"sh: 1: pgrep: not found\n"),
    failure_is_stderr=(1, b"out", b"bad \x1b[2J"),
    failure_without_stderr_is_stdout=(127, b"out", b""),
    too_long_and_no_utf_8=(0, b"\xff" + b"x" * 20_000, b""),
)
async def test_exit_of_a_command_equals_that_of_the_daemon(
    code: int, stdout: bytes, stderr: bytes
) -> None:
    found = await run(exec_of(), execute=exited(code, stdout, stderr))
    expected = probe_result(ExecResult(code, stdout[:10240], stderr[:10240]))
    assert (found.state == ProbeState.SUCCEEDED) == expected.succeeded
    assert found.message == expected.message
    assert found.stderr == (normalise_message(stderr) if code == 0 else "")


NO_PROGRAM = (
    b"\x03"
    b'{"status":"Failure","message":"Internal error occurred: error executing command in container: '
    b'failed to start exec \\"%s\\": no such file"}'
) % (b"0a" * 32)


@cases(
    "execute state message",
    timeout=(hanging, "Failed", "command timed out after 1s"),
    endless_output=(
        streaming(forever=b"\x01" + b"y\n" * 4096),
        "Unknown",
        "ExecOutputTooLarge: ",
    ),
    no_program=(
        streaming(NO_PROGRAM),
        "Unknown",
        "ExecImpossible: failed to start exec: no such file",
    ),
    cut=(streaming(), "Unknown", "StreamFailed: the stream ended before"),
)
async def test_command_without_an_exit_code_has_the_reason_of_the_daemon(
    execute: Exec, state: str, message: str
) -> None:
    found = await run(exec_of(timeoutSeconds=1), execute=execute)
    assert found.state == state
    assert found.message.startswith(message)


@cases(
    "probe resource",
    command=(exec_of(), "exec"),
    tcp=(at(80, tcp), "portforward"),
    http=(at(80, http), "portforward"),
)
async def test_missing_permission_is_unknown_and_says_which(probe: Probe, resource: str) -> None:
    denied = f"mary cannot get pods/{resource}"
    refusals = {resource: (403, status(403, "Forbidden", denied))}
    found = await run(probe, refusals=refusals)
    assert found == not_run(f"Forbidden: {denied}; it needs get and create on pods/{resource}")


async def test_api_server_without_streams_is_named() -> None:
    not_found = status(404, "NotFound", "the server could not find the requested resource")
    found = await run(exec_of(), refusals={"exec": (404, not_found)})
    assert found == not_run(
        "StreamNotServed: this API server has no pods/exec; use one with real nodes, not the playground"
    )


async def test_forwarder_that_ends_at_once_closes_its_sockets() -> None:
    async with client_of(ScriptedPod(pod_wire())) as client:
        async with forwarder_to(client, KEY) as forwarder:
            theirs = forwarder.open_socket(HostPort("127.0.0.1", 80))
        with theirs:
            assert theirs.recv(1) == b""


async def test_cancelled_attempt_leaves_no_task_and_no_connection() -> None:
    connected = asyncio.Event()
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        connected.set()
        while await reader.read(4096):
            pass
        ended.set()

    async with listening(serve) as port, asyncio.timeout(PATIENCE_SECONDS):
        probe = at(port, http, timeout_seconds=60)
        attempt = asyncio.create_task(run(probe, port=port))
        await connected.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await ended.wait()


METRICS = b'queue_size{shard="0"} 33\nqueue_total 9\nidle 1\nother 2\n'


@cases(
    "extract state message found",
    value=(
        {"metric": {"name": "queue_size", "labels": {"shard": "0"}}},
        "Succeeded",
        "33",
        'metric queue_size{shard="0"} = 33',
    ),
    rounded=(
        {"metric": {"name": "queue_size"}, "step": 5},
        "Succeeded",
        "30",
        "metric queue_size = 33 (step 5 → 30)",
    ),
    nothing=(
        {"metric": {"name": "queue"}},
        "Unknown",
        "NoValue: no sample of queue",
        "the nearest names are queue_size, queue_total, idle",
    ),
    no_line=(
        {"regex": "players=([0-9]+)"},
        "Unknown",
        "NoValue: no line matches 'players=([0-9]+)'",
        'the output begins with: queue_size{shard="0"} 33, queue_total 9, idle 1',
    ),
    no_json=({"jsonPath": ".a"}, "Unknown", "NoValue: no JSON", ""),
)
async def test_a_value_is_shown_with_its_source_or_the_nearest_names(
    extract: Json, state: str, message: str, found: str
) -> None:
    result = await run(exec_of(), extract=extract, execute=exited(0, METRICS))

    assert result.state == state
    assert result.message.startswith(message)
    assert result.found == found


async def test_the_nearest_members_of_an_object_are_shown() -> None:
    too_long = b"s" * 257
    execute = exited(0, b'{"queue": {"size": 1, "seen": 2, "%s": 3}}' % too_long)

    result = await run(exec_of(), extract={"jsonPath": ".queue.sise"}, execute=execute)

    assert result.found == "the nearest names are size, seen"
