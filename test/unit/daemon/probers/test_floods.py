"""Pods that send without end: the probe fails at once, and nothing that it reads holds up the loop.

On code without a budget the loop reads for as long as bytes are waiting, and these tests do not end.
"""

import asyncio
import itertools
import ssl
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cases import cases
from support.flood_servers import SETTINGS, flooding, frame, tls_certificates
from support.leaks import freed_at_once
from support.scripted_node import loop_time
from support.scripted_server import answering, self_signed, serving

from kruise_probe.api.probe import GRPCAction, HTTPGetAction
from kruise_probe.daemon.places import SOCKETS, Places, Tenant
from kruise_probe.daemon.probers.dialing import Connection
from kruise_probe.daemon.probers.grpc import GrpcProber
from kruise_probe.daemon.probers.http import HttpProber
from kruise_probe.daemon.probers.prober import Prober, Target
from kruise_probe.daemon.probers.tls import TlsConnection
from kruise_probe.daemon.threads import Threads
from kruise_probe.wire.responses import ResponseParser

TIMEOUT_SECONDS = 5.0
TEST_DATA = Path(__file__).parents[3] / "data"
LOCAL = Target("127.0.0.1", "")
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
pytestmark = [pytest.mark.sockets, pytest.mark.timeout(120)]


def grpc_prober(port: int, mode: str | None = None, seconds: float = TIMEOUT_SECONDS) -> Prober:
    action = GRPCAction(port=port, mode=mode)
    return GrpcProber(action, timeout_seconds=seconds, user_agent="x")


def http_prober(port: int, scheme: str = "HTTP", seconds: float = TIMEOUT_SECONDS) -> Prober:
    action = HTTPGetAction(port=port, scheme=scheme)
    return HttpProber(action, timeout_seconds=seconds, user_agent="x")


async def message_over(context: ssl.SSLContext) -> str:
    """The message of a probe over TLS, whose server sends an empty response."""
    with flooding(EMPTY, b"", tls=context) as port:
        result = await http_prober(port, "HTTPS").run(LOCAL)
    return result.message


async def test_e1_session_tickets_without_end_fail_before_the_timeout(tmp_path: Path) -> None:
    """OpenSSL on a socket of its own reads all of them within one call."""
    context = self_signed(tmp_path)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 100_000
    message = await message_over(context)

    assert message.endswith("probe an endpoint with a smaller response")


async def test_e1_finite_field_diffie_hellman_is_not_offered(tmp_path: Path) -> None:
    """A server chooses the group, and one of 8,192 bits costs the client a second."""
    context = self_signed(tmp_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("kDHE:@SECLEVEL=0")
    parameters = str(tmp_path / "dh.pem")
    command = "openssl genpkey -genparam -algorithm DH -pkeyopt group:ffdhe2048 -out"
    made = await asyncio.create_subprocess_exec(*command.split(), parameters)
    assert await made.wait() == 0
    context.load_dh_params(parameters)
    message = await message_over(context)

    assert message.endswith("handshake failure")


SLOW_KEY = (TEST_DATA / "slow-public-key.der").read_bytes()
"""Its point is compressed, over a prime for which square roots are slow: OpenSSL needs 0.2 s to decode this certificate."""


async def test_certificates_that_openssl_decodes_slowly_do_not_hold_up_the_loop() -> None:
    places = Places(8, SOCKETS, Threads())
    place = places.request(Tenant("ns", "uid"), long=False)
    with flooding(tls_certificates(SLOW_KEY, SLOW_KEY), b"") as port:
        prober = http_prober(port, "HTTPS", 20.0)
        thread_began = time.thread_time()
        process_began = time.process_time()
        result = await prober.run(LOCAL, place)
        in_thread = time.thread_time() - thread_began
        in_process = time.process_time() - process_began

    assert result.message.endswith("closed the connection during the handshake")
    assert in_process > 0.1
    assert in_thread < 0.05


async def test_tls_handshake_has_at_most_32_kib() -> None:
    with flooding(tls_certificates(bytes(33_000)), b"") as port:
        result = await http_prober(port, "HTTPS").run(LOCAL)

    assert "the server's handshake has more than 32768 bytes" in result.message


async def test_http2_frame_is_refused_by_its_declared_length() -> None:
    with flooding(SETTINGS + frame(0, 0, 1, bytes(16_385))[:9], b"") as port:
        result = await grpc_prober(port).run(LOCAL)

    assert result.message.endswith("http2: frame too large")


DRIPS = {
    "https": (http_prober, "HTTPS", b"\x16\x03\x03\x40\x00"),
    "grpc": (grpc_prober, None, b"\x00\x40\x00\x04\x00"),
    "grpc-over-tls": (grpc_prober, "TLS", b"\x16\x03\x03\x40\x00"),
    "http": (http_prober, "HTTP", b"HTTP/1.1 200 OK\r\nA: "),
}


@cases("create how start", **DRIPS)
async def test_e2_slow_responses_end_with_the_timeout_and_leave_nothing(
    create: Callable[..., Prober], how: str | None, start: bytes
) -> None:
    async def drip(_: StreamReader, writer: StreamWriter) -> None:
        for byte in itertools.chain(start, itertools.repeat(0x20)):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(lambda _: drip) as server:
        with freed_at_once(Connection, TlsConnection, ResponseParser):
            began = loop_time()
            result = await create(server.port, how, 0.3).run(LOCAL)
            took = loop_time() - began
            # A step of asyncio keeps the CancelledError that it began with.
            await asyncio.sleep(0)

    assert result.timed_out
    assert took < TIMEOUT_SECONDS


async def test_e2_responses_of_redirects_count_together() -> None:
    field = b"A: " + b"x" * 60_000 + b"\r\n"
    redirect = b"HTTP/1.1 302 Found\r\nLocation: /\r\n" + field + b"\r\n"
    async with serving(answering(redirect)) as server:
        result = await http_prober(server.port).run(LOCAL)

    assert result.message.endswith("probe an endpoint with a smaller response")
    assert len(server.requests) == 5
