"""Commands and forwarded ports of a pod, over real WebSockets to a scripted API server."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.builders import pod_wire
from support.connections import listening
from support.patience import PATIENCE_SECONDS
from support.scripted_pod import (
    Exec,
    ScriptedPod,
    exited,
    hanging,
    serving_pod,
    status,
    streaming,
)

from kruise_probe.api.errors import ConnectionFailed, Forbidden
from kruise_probe.api.keys import NamespacedName
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.pod_streams import (
    CommandNotStarted,
    CommandOutput,
    ForwardRefused,
    OutputTooLarge,
    forwarded_port,
    run_command,
)
from kruise_probe.client.rest import RestClient

MAX_ERROR_BYTES = 64 * 1024

pytestmark = pytest.mark.sockets

KEY = NamespacedName("default", "web-0")
LIMIT = 1000
NO_PROGRAM = b'\x03{"status":"Failure","reason":"InternalError","message":"no such file"}'


def failure(reason: str, cause: str) -> bytes:
    """The status of a command that was killed."""
    details = {"causes": [{"reason": reason, "message": cause}]}
    status = {"status": "Failure", "message": "killed", "details": details}
    return b"\x03" + json.dumps(status).encode()


def client_of(pod: ScriptedPod) -> RestClient:
    config = ClusterConfig.plain(pod.url)
    return RestClient(config=config, field_manager="test", user_agent="test")


async def run(
    execute: Exec | None, *, timeout: float = PATIENCE_SECONDS, **more: Any
) -> CommandOutput:
    async with (
        serving_pod(ScriptedPod(pod_wire(), execute=execute, **more)) as pod,
        client_of(pod) as client,
    ):
        return await run_command(
            client, KEY, "main", ["echo", "a b"], timeout_seconds=timeout, max_output_bytes=LIMIT
        )


@pytest.mark.parametrize(
    ("execute", "output"),
    [
        pytest.param(exited(0, b"fine"), CommandOutput(0, b"fine", b""), id="success"),
        pytest.param(exited(3, b"out", b"bad"), CommandOutput(3, b"out", b"bad"), id="failure"),
        pytest.param(
            streaming(b"\x01a", b"\x02b", b"\x01c", b'\x03{"status":', b'\x03"Success"}'),
            CommandOutput(0, b"ac", b"b"),
            id="in-pieces",
        ),
        pytest.param(
            streaming(failure("ExitCode", "1" * 5000)),
            CommandOutput(111111111, b"", b""),
            id="exit-code-of-a-hostile-node",
        ),
        pytest.param(
            streaming(b"\x03" + b'{"status":"Success"}'.ljust(MAX_ERROR_BYTES)),
            CommandOutput(0, b"", b""),
            id="status-at-its-limit",
        ),
        pytest.param(
            streaming(b"\x01" + b"x" * LIMIT, b'\x03{"status":"Success"}'),
            CommandOutput(0, b"x" * LIMIT, b""),
            id="output-at-its-limit",
        ),
        pytest.param(
            streaming(b"\x07what", b"", b'\x03{"status":"Success"}'),
            CommandOutput(0, b"", b""),
            id="unknown-channel-and-empty-message",
        ),
    ],
)
async def test_output_and_exit_code_of_a_command(execute: Exec, output: CommandOutput) -> None:
    assert await run(execute) == output


@pytest.mark.parametrize(
    ("execute", "error", "text"),
    [
        pytest.param(streaming(NO_PROGRAM), CommandNotStarted, "no such file", id="no-program"),
        pytest.param(streaming(b"\x01a"), ConnectionFailed, "before the command's exit code", id="cut"),
        pytest.param(streaming(b"\x03oops"), ConnectionFailed, "cannot be read", id="no-json"),
        pytest.param(streaming(b"\x03[]"), ConnectionFailed, "cannot be read", id="no-status"),
        pytest.param(streaming(b"\x03{}"), CommandNotStarted, "", id="empty-status"),
        pytest.param(streaming(failure("Signal", "9")), CommandNotStarted, "killed", id="signal"),
        pytest.param(streaming(failure("ExitCode", "IX")), CommandNotStarted, "killed", id="no-number"),
        pytest.param(
            streaming(b"\x01" + b"x" * (LIMIT // 2), b"\x02" + b"x" * (LIMIT // 2 + 1), b"\x03{}"),
            OutputTooLarge, "", id="both-outputs-together",
        ),
        pytest.param(streaming(forever=b"\x01" + b"y\n" * 100), OutputTooLarge, "", id="endless"),
        pytest.param(
            streaming(forever=b"\x03" + b"x" * 5000), ConnectionFailed, "too long", id="endless-status"
        ),
        pytest.param(hanging, TimeoutError, "", id="hangs"),
    ],
)  # fmt: skip
async def test_command_without_a_result_has_a_reason(
    execute: Exec, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text or None):
        await run(execute, timeout=0.5 if error is TimeoutError else PATIENCE_SECONDS)


async def test_endless_pings_end_at_the_timeout() -> None:
    async def ping(socket: Any, _: object) -> None:
        while True:
            await socket.ping()
            await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        await run(ping, timeout=0.5)


async def test_refused_stream_is_the_error_of_the_api_server() -> None:
    refusal = (403, status(403, "Forbidden", "no pods/exec for you"))
    with pytest.raises(Forbidden, match="no pods/exec for you"):
        await run(None, refusals={"exec": refusal})


async def test_streams_have_the_credentials_and_the_impersonation_of_the_client() -> None:
    async with serving_pod(ScriptedPod(pod_wire(), execute=exited(0))) as pod:
        config = ClusterConfig(
            server=pod.url,
            tls=None,
            credentials=ClusterConfig.plain(pod.url).credentials,
            as_user="mary",
            as_groups=("dev",),
        )
        client = RestClient(config=config, field_manager="test", user_agent="test")
        async with client:
            await run_command(
                client, KEY, "main", ["a b&c"], timeout_seconds=5, max_output_bytes=LIMIT
            )
    (request,) = pod.requests
    assert request.headers["Impersonate-User"] == "mary"
    assert request.headers["Impersonate-Group"] == "dev"
    assert request.query.getall("command") == ["a b&c"]
    assert dict(request.query) | {"command": ""} == {
        "container": "main", "stdout": "true", "stderr": "true", "command": "",
    }  # fmt: skip


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def shouting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.readline()).upper())
    writer.close()


async def test_forwarded_port_carries_bytes_both_ways_until_the_pod_ends() -> None:
    async with listening(shouting) as port:
        scripted = ScriptedPod(pod_wire(), ports={8080: port})
        async with (
            serving_pod(scripted) as pod,
            client_of(pod) as client,
            forwarded_port(client, KEY, 8080) as forwarded,
        ):
            forwarded.send(b"hello\n")
            received = b""
            while data := await forwarded.receive(deadline_seconds=PATIENCE_SECONDS):
                received += data
    assert received == b"HELLO\n"


async def test_refused_port_is_reported_when_it_is_read() -> None:
    async with (
        serving_pod(ScriptedPod(pod_wire())) as pod,
        client_of(pod) as client,
        forwarded_port(client, KEY, 8081) as forwarded,
    ):
        with pytest.raises(ForwardRefused, match="connection refused"):
            await forwarded.receive(deadline_seconds=PATIENCE_SECONDS)


async def test_port_forward_that_is_refused_cannot_be_opened() -> None:
    refusals = {"portforward": (403, status(403, "Forbidden", "no"))}
    async with (
        serving_pod(ScriptedPod(pod_wire(), refusals=refusals)) as pod,
        client_of(pod) as client,
    ):
        stream = forwarded_port(client, KEY, 8080)
        with pytest.raises(Forbidden):
            await stream.__aenter__()
