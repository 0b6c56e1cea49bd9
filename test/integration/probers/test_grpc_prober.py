"""grpc against a real gRPC server, with and without TLS, and against everything that is none."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from support.scripted_server import answering, self_signed, serving, silent
from support.sockets import time_waits

from kruise_probe.api.core import GRPCAction
from kruise_probe.daemon.probers.grpc import GrpcProber
from kruise_probe.daemon.probers.prober import Outcome, Target, Verdict

Status = health_pb2.HealthCheckResponse
POD = Target("127.0.0.1", "")


class Scripted(HealthServicer):
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
    port: int, *, service: str | None = None, mode: str | None = None, timeout: float = 20.0
) -> Outcome:
    action = GRPCAction(port=port, service=service, mode=mode)
    prober = GrpcProber(action, timeout_seconds=timeout, user_agent="kruise-probe/1")
    return await prober.run(POD)


@pytest.mark.parametrize(
    ("service", "outcome"),
    [
        (None, Outcome(Verdict.SUCCESS, "service healthy")),
        ("", Outcome(Verdict.SUCCESS, "service healthy")),
        (
            "down",
            Outcome(Verdict.FAILURE, 'service unhealthy (responded with "NOT_SERVING")'),
        ),
        (
            "unclear",
            Outcome(Verdict.FAILURE, 'service unhealthy (responded with "UNKNOWN")'),
        ),
    ],
)
async def test_the_state_of_the_service_decides(service: str | None, outcome: Outcome) -> None:
    async with health_server(Scripted()) as port:
        assert await probe(port, service=service) == outcome


async def test_b11_no_connection_is_remembered_after_its_probe() -> None:
    async with health_server(Scripted()) as port:
        for _ in range(200):
            assert (await probe(port)).verdict is Verdict.SUCCESS

        assert time_waits(port) < 10


async def test_unknown_service() -> None:
    async with health_server(Scripted()) as port:
        outcome = await probe(port, service="nobody/knows" * 20)

    assert outcome.verdict is Verdict.FAILURE
    assert outcome.message.startswith(
        "error: health rpc probe failed: rpc error: code = NotFound desc ="
    )


async def test_server_without_health_service() -> None:
    async with health_server(None) as port:
        outcome = await probe(port)

    assert outcome.verdict is Verdict.FAILURE
    assert outcome.message.startswith(
        "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "
    )


async def test_server_that_refuses() -> None:
    async def act(context: Any) -> None:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "größer als erlaubt")

    async with health_server(Scripted(act)) as port:
        outcome = await probe(port)

    assert outcome == Outcome(
        Verdict.FAILURE,
        "error: health rpc probe failed: "
        "rpc error: code = PermissionDenied desc = größer als erlaubt",
    )


async def test_slow_server_fails_in_time() -> None:
    async def act(_: Any) -> None:
        await asyncio.sleep(30)

    loop = asyncio.get_running_loop()
    async with health_server(Scripted(act)) as port:
        started_at = loop.time()
        outcome = await probe(port, timeout=0.5)
        assert loop.time() - started_at < 25

    message = "timeout: health rpc did not complete within 500ms"
    assert outcome == Outcome(Verdict.FAILURE, message, timed_out=True)


async def test_server_knows_who_asks_and_for_how_long() -> None:
    servicer = Scripted()
    async with health_server(servicer) as port:
        _ = await probe(port)

    assert servicer.seen[0]["user-agent"] == "kruise-probe/1"


async def test_refused_connection() -> None:
    outcome = await probe(1)

    assert outcome == Outcome(
        Verdict.FAILURE,
        'error: failed to connect service at "127.0.0.1:1": '
        "dial tcp 127.0.0.1:1: connect: connection refused",
    )


async def test_server_that_says_nothing() -> None:
    async with serving(silent()) as server:
        outcome = await probe(server.port, timeout=0.3)

    assert outcome == Outcome(
        Verdict.FAILURE,
        f'timeout: failed to connect service "127.0.0.1:{server.port}" within 300ms: '
        "context deadline exceeded",
        timed_out=True,
    )


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 100])
async def test_server_that_is_no_grpc_server(answer: bytes) -> None:
    async with serving(answering(answer)) as server:
        outcome = await probe(server.port, timeout=2)

    assert outcome.verdict is Verdict.FAILURE
    assert outcome.message.startswith("error: failed to connect service at ")


class TestTls:
    @pytest.fixture
    def credentials(self, tmp_path: Path) -> grpc.ServerCredentials:
        _ = self_signed(tmp_path)
        pair = (tmp_path / "key.pem").read_bytes(), (tmp_path / "certificate.pem").read_bytes()
        return grpc.ssl_server_credentials([pair])

    async def test_any_certificate_is_good_enough(
        self, credentials: grpc.ServerCredentials
    ) -> None:
        async with health_server(Scripted(), credentials) as port:
            assert await probe(port, mode="TLS") == Outcome(Verdict.SUCCESS, "service healthy")
            assert (await probe(port, mode="TLS", service="down")).verdict is Verdict.FAILURE

    async def test_server_without_tls(self) -> None:
        async with health_server(Scripted()) as port:
            outcome = await probe(port, mode="TLS", timeout=2)

        assert outcome.verdict is Verdict.FAILURE
        assert outcome.message.startswith("error: failed to connect service at ")

    async def test_b11_no_connection_is_remembered_after_its_probe(
        self, credentials: grpc.ServerCredentials
    ) -> None:
        async with health_server(Scripted(), credentials) as port:
            for _ in range(50):
                assert (await probe(port, mode="TLS")).verdict is Verdict.SUCCESS

            assert time_waits(port) < 10

    async def test_probe_without_tls(self, credentials: grpc.ServerCredentials) -> None:
        async with health_server(Scripted(), credentials) as port:
            outcome = await probe(port, timeout=2)

        assert outcome.verdict is Verdict.FAILURE

    async def test_server_that_speaks_no_http_2(self, tmp_path: Path) -> None:
        async with serving(silent(), tls=self_signed(tmp_path)) as server:
            outcome = await probe(server.port, mode="TLS", timeout=2)

        assert outcome.verdict is Verdict.FAILURE
        assert not outcome.timed_out
