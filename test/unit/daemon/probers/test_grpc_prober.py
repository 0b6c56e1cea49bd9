"""grpc against a real gRPC server, with and without TLS, and against everything that is none."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from support.cases import cases
from support.scripted_node import loop_time
from support.scripted_server import reset, self_signed, serving, silent
from support.sockets import time_waits
from support.tables import load_table

from kruise_probe.api.probe import GRPCAction
from kruise_probe.daemon.probers.grpc import GrpcProber
from kruise_probe.daemon.probers.prober import ProbeResult, Target, failure, success

pytestmark = pytest.mark.sockets

Status = health_pb2.HealthCheckResponse
POD = Target("127.0.0.1", "")


class Scripted(HealthServicer):  # type: ignore[misc]  # no stubs
    """Answers from its table, or does what `act` does."""

    def __init__(self, act: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.seen: list[dict[str, str]] = []
        self._act = act

    async def Check(self, request: Any, context: Any) -> Any:
        self.seen.append(dict(context.invocation_metadata()))
        if self._act:
            await self._act(context)
        return await super().Check(request, context)


@asynccontextmanager
async def health_server(
    servicer: Scripted | None, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[int]:
    server = grpc.aio.server()
    if servicer:
        add_HealthServicer_to_server(servicer, server)
        await servicer.set("", Status.SERVING)
        await servicer.set("down", Status.NOT_SERVING)
        await servicer.set("unclear", Status.UNKNOWN)
    if credentials:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace=None)


async def probe(
    port: int,
    *,
    service: str | None = None,
    mode: str | None = None,
    timeout: float = 20.0,
) -> ProbeResult:
    action = GRPCAction(port=port, service=service, mode=mode)
    prober = GrpcProber(action, timeout_seconds=timeout, user_agent="kruise-probe/1")
    return await prober.run(POD)


@cases(
    "service result",
    absent=(None, success("service healthy")),
    empty=("", success("service healthy")),
    down=("down", failure('service unhealthy (responded with "NOT_SERVING")')),
    unclear=("unclear", failure('service unhealthy (responded with "UNKNOWN")')),
)
async def test_the_state_of_the_service_decides(service: str | None, result: ProbeResult) -> None:
    servicer = Scripted()
    async with health_server(servicer) as port:
        assert await probe(port, service=service) == result

    assert servicer.seen[0]["user-agent"] == "kruise-probe/1"


RPC_FAILED = "error: health rpc probe failed: rpc error: code = "


@cases(
    "code text message",
    not_found=(
        StatusCode.NOT_FOUND,
        "no" * 300,
        f"{RPC_FAILED}NotFound desc = no",
    ),
    denied=(
        StatusCode.PERMISSION_DENIED,
        "größer",
        f"{RPC_FAILED}PermissionDenied desc = größer",
    ),
    late=(
        StatusCode.DEADLINE_EXCEEDED,
        "",
        "timeout: health rpc did not complete within 20s",
    ),
)
async def test_a_server_that_refuses_fails_with_its_code(
    code: StatusCode, text: str, message: str
) -> None:
    async def act(context: Any) -> None:
        await context.abort(code, text)

    async with health_server(Scripted(act)) as port:
        result = await probe(port)

    assert not result.succeeded
    assert result.timed_out is (code is StatusCode.DEADLINE_EXCEEDED)
    assert result.message.startswith(message)


async def test_server_without_health_service() -> None:
    async with health_server(None) as port:
        result = await probe(port)

    assert not result.succeeded
    assert "code = Unimplemented" in result.message


async def test_slow_server_fails_in_time() -> None:
    async def act(_: Any) -> None:
        await asyncio.sleep(30)

    async with health_server(Scripted(act)) as port:
        started_at = loop_time()
        result = await probe(port, timeout=0.5)
        assert loop_time() - started_at < 25

    message = "timeout: health rpc did not complete within 0.5s"
    assert result == failure(message, timed_out=True)


async def test_refused_connection() -> None:
    message = (
        'error: failed to connect service at "127.0.0.1:1": '
        "dial tcp 127.0.0.1:1: connect: connection refused"
    )
    assert await probe(1) == failure(message)


def frame(
    kind: int,
    payload: bytes | bytearray = b"",
    *,
    flags: int = 0,
    stream: int = 0,
) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def headers(fields: dict[str, str], *, ended: bool = False) -> bytes:
    """Literals of HPACK that are not indexed, of stream 1."""
    block = bytearray()
    for field in fields.items():
        block += b"\0"
        for text in field:
            block += bytes([len(text)]) + text.encode()
    return frame(
        1,
        block,
        flags=5 if ended else 4,
        stream=1,
    )


# Tags of the table, in which bytes are texts in Latin-1.


def data_tag(message: str) -> str:
    return frame_tag({"kind": 0, "payload": message, "stream": 1})


def frame_tag(fields: dict[str, Any]) -> str:
    payload = fields.pop("payload", "").encode("latin-1")
    return frame(payload=payload, **fields).decode("latin-1")


def goaway_tag(fields: dict[str, int]) -> str:
    payload = fields["last_stream"].to_bytes(4) + fields["error"].to_bytes(4)
    return frame(7, payload).decode("latin-1")


def headers_tag(fields: dict[str, str]) -> str:
    return headers(fields).decode("latin-1")


def trailers_tag(fields: dict[str, str]) -> str:
    return headers(fields, ended=True).decode("latin-1")


FILE = Path(__file__).parents[3] / "data" / "grpc.yaml"
TAGS: dict[str, Callable[[Any], str]] = {
    "data": data_tag,
    "frame": frame_tag,
    "goaway": goaway_tag,
    "headers": headers_tag,
    "trailers": trailers_tag,
}
RESPONSES = load_table(FILE, TAGS)["responses"]
SETTINGS = frame(4)
PING = frame(6, b"12345678")


@pytest.mark.parametrize("name", RESPONSES)
@cases("split", whole=False, split=True)
async def test_bytes_of_a_server_succeed_or_fail(name: str, *, split: bool) -> None:
    sent, *problems = RESPONSES[name]
    problem = problems[0] if problems else ""
    answer = sent.encode("latin-1")

    async def script(reader: StreamReader, writer: StreamWriter) -> None:
        _ = await reader.read(65536)
        parts = [answer[:30], answer[30:]] if split else [answer]
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        writer.write_eof()
        _ = await reader.read()

    async with serving(lambda _: script) as server:
        result = await probe(server.port)

    assert result.succeeded == (not problem)
    assert not result.timed_out
    assert (problem or "service healthy") in result.message


async def until_sent(reader: StreamReader, wanted: bytes) -> None:
    """Wait until the client has sent these bytes."""
    received = b""
    while wanted not in received:
        received += await reader.readexactly(1)


async def test_server_that_pings_before_it_responds_gets_an_answer() -> None:
    async def script(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(SETTINGS + PING)
        await until_sent(reader, frame(6, b"12345678", flags=1))
        text, *_ = RESPONSES["serving"]
        writer.write(text.encode("latin-1").removeprefix(SETTINGS))

    async with serving(lambda _: script) as server:
        assert await probe(server.port, timeout=5.0) == success("service healthy")


async def test_connection_that_breaks_during_the_call_is_unavailable() -> None:
    async def script(reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(SETTINGS)
        await until_sent(reader, frame(4, flags=1))
        reset(writer)

    async with serving(lambda _: script) as server:
        result = await probe(server.port)

    assert not result.succeeded
    assert result.message.endswith("read: connection reset by peer")


@pytest.fixture
def credentials(tmp_path: Path) -> grpc.ServerCredentials:
    self_signed(tmp_path)
    key = (tmp_path / "key.pem").read_bytes()
    certificate = (tmp_path / "certificate.pem").read_bytes()
    return grpc.ssl_server_credentials([(key, certificate)])


async def test_any_certificate_is_good_enough(credentials: grpc.ServerCredentials) -> None:
    async with health_server(Scripted(), credentials) as port:
        up = await probe(port, mode="TLS")
        down = await probe(port, mode="TLS", service="down")

    assert up == success("service healthy")
    assert not down.succeeded


@pytest.mark.parametrize("mode", [None, "TLS"])
async def test_b11_no_connection_is_remembered_after_its_probe(
    credentials: grpc.ServerCredentials, mode: str | None
) -> None:
    async with health_server(Scripted(), credentials if mode else None) as port:
        for _ in range(100):
            assert (await probe(port, mode=mode)).succeeded

        assert time_waits(port) < 10


async def test_server_that_speaks_no_http_2(tmp_path: Path) -> None:
    async with serving(silent(), tls=self_signed(tmp_path)) as server:
        result = await probe(server.port, mode="TLS", timeout=2)

    assert not result.succeeded
    assert not result.timed_out
