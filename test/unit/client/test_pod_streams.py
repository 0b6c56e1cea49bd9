"""Commands and forwarded ports of a pod, over real WebSockets to a scripted API server; messages in any portions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import pod_wire
from support.cases import cases
from support.connections import listening
from support.fake_transport import OneRead
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
from support.tables import load_table
from support.wire import Json
from websocket import ABNF

from kruise_probe.api.errors import ConnectionFailed, Forbidden
from kruise_probe.api.meta import NamespacedName
from kruise_probe.client import pod_streams
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.pod_streams import (
    CommandNotStarted,
    ForwardedPort,
    ForwardRefused,
    Message,
    MessageParser,
    OutputTooLarge,
    WebSocket,
    forwarded_port,
    run_command,
)
from kruise_probe.client.rest import RestClient
from kruise_probe.client.transport import ResponseStream

pytestmark = pytest.mark.sockets

KEY = NamespacedName("default", "web-0")
LIMIT = 1000
TABLE = load_table(Path(__file__).parents[2] / "data" / "streams.yaml", {})


def client_of(pod: ScriptedPod, **user: Any) -> RestClient:
    config = ClusterConfig(server=pod.url, **user)
    return RestClient(config=config, field_manager="test", user_agent="test")


async def run(
    execute: Exec | None, *, timeout: float = PATIENCE_SECONDS, **more: Any
) -> tuple[int, bytes, bytes]:
    async with (
        serving_pod(ScriptedPod(pod_wire(), execute=execute, **more)) as pod,
        client_of(pod) as client,
    ):
        return await run_command(
            client,
            KEY,
            "main",
            ["echo", "a b"],
            timeout_seconds=timeout,
            max_output_bytes=LIMIT,
        )


def execute_of(row: Json) -> Exec:
    """What the API server sends in a row."""
    if "hangs" in row:
        return hanging
    sends = [message.encode("latin-1") for message in row.get("sends", ())]
    forever = row.get("forever", "").encode("latin-1")
    return streaming(*sends, forever=forever)


@pytest.mark.parametrize("row", TABLE["outputs"].values(), ids=TABLE["outputs"])
async def test_output_and_exit_code_of_a_command(row: Json) -> None:
    assert await run(execute_of(row)) == tuple(row["output"])


ERRORS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (CommandNotStarted, ConnectionFailed, OutputTooLarge, TimeoutError)
}


@pytest.mark.parametrize("row", TABLE["failures"].values(), ids=TABLE["failures"])
async def test_command_without_a_result_has_a_reason(row: Json) -> None:
    timeout = 0.5 if "hangs" in row else PATIENCE_SECONDS
    with pytest.raises(ERRORS[row["error"]], match=row.get("text")):
        await run(execute_of(row), timeout=timeout)


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


async def test_server_without_the_protocol_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_streams, "PROTOCOL", "v9.channel.k8s.io")
    with pytest.raises(ConnectionFailed, match=r"does not support the protocol v9\.channel"):
        await run(exited(0))


async def test_streams_have_the_credentials_and_the_impersonation_of_the_client() -> None:
    async with (
        serving_pod(ScriptedPod(pod_wire(), execute=exited(0))) as pod,
        client_of(pod, as_user="mary", as_groups=("dev",)) as client,
    ):
        await run_command(
            client,
            KEY,
            "main",
            ["a b&c"],
            timeout_seconds=5,
            max_output_bytes=LIMIT,
        )
    (request,) = pod.requests
    assert request.headers["Impersonate-User"] == "mary"
    assert request.headers["Impersonate-Group"] == "dev"
    assert request.query == {
        "container": "main",
        "stdout": "true",
        "stderr": "true",
        "command": "a b&c",
    }


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def shouting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write((await reader.readline()).upper())
    writer.close()


async def mute(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


@asynccontextmanager
async def forwarded(serve: Serve, pod_port: int = 8080) -> AsyncIterator[ForwardedPort]:
    """A forward of `pod_port` of a pod that serves 8080."""
    async with (
        listening(serve) as port,
        serving_pod(ScriptedPod(pod_wire(), ports={8080: port})) as pod,
        client_of(pod) as client,
        forwarded_port(client, KEY, pod_port) as forwarded,
    ):
        yield forwarded


async def test_forwarded_port_carries_bytes_both_ways_until_the_pod_ends() -> None:
    async with forwarded(shouting) as port:
        port.send(b"hello")
        port.send(b"o" * 20_000 + b"\n")
        received = b""
        while data := await port.receive(deadline_seconds=PATIENCE_SECONDS):
            received += data
    assert received == b"HELLO" + b"O" * 20_000 + b"\n"


async def test_refused_port_is_reported_when_it_is_read() -> None:
    refused = r"^error forwarding port 8081 .* connection refused$"
    async with forwarded(shouting, 8081) as port:
        with pytest.raises(ForwardRefused, match=refused):
            await port.receive(deadline_seconds=PATIENCE_SECONDS)


async def test_pod_that_sends_nothing_is_an_error_at_the_deadline() -> None:
    async with forwarded(mute) as port, asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(ConnectionFailed, match=r"no data for 0\.2 s"):
            await port.receive(deadline_seconds=0.2)


def frame(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """A frame as a server sends it: without a mask."""
    size = len(payload)
    if size < 126:
        length = bytes((size,))
    elif size < 1 << 16:
        length = b"\x7e" + size.to_bytes(2, "big")
    else:
        length = b"\x7f" + size.to_bytes(8, "big")
    first = opcode | 0x80 if final else opcode
    return bytes((first,)) + length + payload


def parsed(data: bytes, at: list[int], **limits: int) -> list[Message]:
    """`data` in portions that begin at each of `at`."""
    parser = MessageParser(**limits)
    found = []
    cuts = [place % (len(data) + 1) for place in at]
    for start, stop in pairwise(sorted({0, *cuts, len(data)})):
        parser.feed(data[start:stop])
        while message := parser.next():
            found.append(message)
    return found


CUTS = st.lists(st.integers(min_value=0), max_size=8)
MESSAGES = st.lists(
    st.one_of(
        st.builds(
            Message,
            st.sampled_from([ABNF.OPCODE_TEXT, ABNF.OPCODE_BINARY]),
            st.binary(max_size=300),
        ),
        st.builds(
            Message,
            st.just(ABNF.OPCODE_BINARY),
            st.just(b"x" * 70_000),
        ),
        st.builds(Message, st.just(ABNF.OPCODE_PING), st.binary(max_size=125)),
        st.builds(
            Message,
            st.just(ABNF.OPCODE_CLOSE),
            st.just(b"\x03\xe8bye"),
        ),
    ),
    max_size=5,
)


@given(messages=MESSAGES, at=CUTS)
def test_messages_are_parsed_in_any_portions(messages: list[Message], at: list[int]) -> None:
    data = b"".join(frame(*message) for message in messages)
    assert parsed(data, at) == messages


FRAGMENTS = [
    frame(ABNF.OPCODE_BINARY, b"x" * 60, final=False),
    frame(ABNF.OPCODE_CONT, b"x" * 60),
]


@cases(
    "data reason",
    extension=(b"\xc2\x00", "rsv|opcode"),
    reserved_opcode=(b"\x83\x00", "rsv|opcode"),
    continues_nothing=(b"\x80\x00", "out of order"),
    another_message_inside=(b"\x02\x00\x82\x00", "out of order"),
    fragmented_ping=(b"\x09\x00", "ping frame"),
    endless=(b"\x82\x7f" + b"\xff" * 8, "exceeds 100 bytes"),
    too_long_in_fragments=(b"".join(FRAGMENTS), "exceeds 100 bytes"),
)
def test_malformed_frame_is_refused_before_its_payload_arrives(data: bytes, reason: str) -> None:
    with pytest.raises(ConnectionFailed, match=reason):
        parsed(data, [], max_message_bytes=100)


async def test_receive_answers_pings_ignores_pongs_and_ends_at_a_close() -> None:
    stream = OneRead(
        frame(ABNF.OPCODE_PING, b"now")
        + frame(ABNF.OPCODE_PONG, b"")
        + frame(ABNF.OPCODE_TEXT, b"a")
        + frame(ABNF.OPCODE_CLOSE, b"")
        + b"\xff"
    )
    socket = WebSocket(cast(ResponseStream, stream))
    assert await socket.receive(deadline_seconds=1) == b"a"
    assert await socket.receive(deadline_seconds=1) is None
    (pong,) = stream.written
    mask = pong[2:6]
    payload = bytes(byte ^ key for byte, key in zip(pong[6:], mask, strict=False))
    assert pong[:2] == b"\x8a\x83"
    assert payload == b"now"
