"""Connections over real sockets: proxies, several addresses, unresponsive peers."""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from support.cases import cases
from support.certificates import issued
from support.connections import listening
from support.patience import PATIENCE_SECONDS
from support.scripted_http import Act, ScriptedHttpServer, answer, silence, stream
from support.sockets import full_backlog

from kruise_probe.api.errors import ConnectionFailed
from kruise_probe.api.resources import PODS
from kruise_probe.client import dialer
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.rest import RestClient
from kruise_probe.serving.certificates import IssuedCertificate
from kruise_probe.serving.server_tls import ServerTls

pytestmark = pytest.mark.sockets


@pytest.fixture(scope="module")
def pair() -> IssuedCertificate:
    return issued()


@pytest.fixture
def server_tls(pair: IssuedCertificate) -> ssl.SSLContext:
    tls = ServerTls()
    tls.load(pair.certificate + pair.key)
    return tls.context


def client_of(
    url: str, pair: IssuedCertificate | None = None, proxy: str | None = None
) -> RestClient:
    tls = trusting(pair) if pair else None
    config = ClusterConfig(server=url, tls=tls, proxy=proxy)
    return RestClient(config=config, field_manager="m", user_agent="u")


def trusting(pair: IssuedCertificate) -> ssl.SSLContext:
    """As `tls_context`, whose authority is a file: without the strict checks of Python 3.13."""
    context = ssl.create_default_context(cadata=pair.certificate.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


VERSION = answer(200, {"major": "1"})


@asynccontextmanager
async def serving(act: Act) -> AsyncIterator[tuple[ScriptedHttpServer, RestClient]]:
    """A server that responds to each request in this way, and its client."""
    async with (
        ScriptedHttpServer([act]).running() as server,
        client_of(server.url) as client,
    ):
        yield server, client


async def version(client: RestClient) -> bytes:
    return await client.request_raw("GET", "/version")


async def fails(client: RestClient, words: str) -> None:
    with pytest.raises(ConnectionFailed, match=words):
        await version(client)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Every socket that connects to somewhere."""
    made: list[socket.socket] = []

    class Remembered(socket.socket):
        def connect(self, address: Any) -> None:
            made.append(self)
            super().connect(address)

    monkeypatch.setattr(socket, "socket", Remembered)
    return made


class Proxy:
    """Accepts CONNECT and forwards; keeps the received headers. With `reply` it sends that instead."""

    def __init__(self, reply: bytes = b"") -> None:
        self.heads: list[str] = []
        self.reply = reply
        self.url = ""

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["Proxy"]:
        async with listening(self._connected, tls=tls) as port:
            self.url = f"127.0.0.1:{port}"
            yield self

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            if self.reply:
                writer.write(self.reply)
                await reader.read()
            elif head.startswith("CONNECT"):
                host, _, port = head.split(" ")[1].rpartition(":")
                below, above = await asyncio.open_connection(host, int(port))
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(_pump(reader, above))
                        group.create_task(_pump(below, writer))
                finally:
                    above.transport.abort()
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def by_name(server: ScriptedHttpServer | Proxy) -> str:
    return server.url.replace("127.0.0.1", "localhost")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_proxy_tunnels_tls(
    pair: IssuedCertificate, server_tls: ssl.SSLContext, scheme: str
) -> None:
    async with (
        ScriptedHttpServer([VERSION]).running(server_tls) as server,
        Proxy().running(server_tls if scheme == "https" else None) as proxy,
    ):
        url = f"{scheme}://me:pass%20word@{by_name(proxy)}"
        async with client_of(by_name(server), pair, url) as client:
            for _ in range(3):
                assert b"major" in await version(client)

    (head,) = proxy.heads
    address = by_name(server).removeprefix("https://")
    credentials = base64.b64encode(b"me:pass word").decode()
    assert head.startswith(f"CONNECT {address} HTTP/1.1\r\n")
    assert f"Basic {credentials}" in head
    assert all("proxy-authorization" not in received.headers for received in server.received)


async def test_proxy_that_is_not_trusted_gets_no_credentials(
    pair: IssuedCertificate, server_tls: ssl.SSLContext
) -> None:
    async with Proxy().running(server_tls) as proxy:
        url = f"https://me:word@{proxy.url}"  # the certificate is for another name
        async with client_of("https://localhost:6443", pair, url) as client:
            await fails(client, f"cannot connect to {proxy.url}: ")

    assert proxy.heads == []


@cases(
    "reply words",
    status_407=(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", "status 407"),
    status_300=(b"HTTP/1.1 300 No\r\nContent-Length: 0\r\n\r\n", "status 300"),
    not_http=(b"SSH-2.0\r\n", "not valid HTTP"),
    speaks_first=(b"HTTP/1.1 200 OK\r\n\r\nhello", "sent data before"),
)
async def test_proxy_without_tunnel_is_named(
    pair: IssuedCertificate, reply: bytes, words: str
) -> None:
    async with (
        Proxy(reply).running() as proxy,
        client_of("https://localhost:6443", pair, f"http://{proxy.url}") as client,
    ):
        where = f"cannot connect to localhost:6443 through the proxy {proxy.url}"
        await fails(client, f"{where}: .*{words}")


async def test_plain_http_request_to_a_proxy_has_an_absolute_url() -> None:
    async with ScriptedHttpServer([VERSION]).running() as proxy:
        url = proxy.url.replace("//", "//me:pw@")
        async with client_of("http://k8s.example/c", proxy=url) as client:
            await version(client)

    (received,) = proxy.received
    assert received.target == "http://k8s.example/c/version"
    assert received.headers["host"] == "k8s.example"
    assert received.headers["proxy-authorization"].startswith("Basic ")


@pytest.mark.parametrize("refuses", [True, False], ids=["refused", "no-response"])
async def test_next_address_is_tried_if_the_first_one_refuses_or_does_not_respond(
    monkeypatch: pytest.MonkeyPatch, full_port: int, refuses: bool
) -> None:
    """After 250 ms, as RFC 8305 recommends. An IPv6 address often leads nowhere."""
    assert dialer.NEXT_ADDRESS_SECONDS == 0.25
    first = ("127.0.0.2", 1) if refuses else ("127.0.0.1", full_port)
    async with (
        ScriptedHttpServer([VERSION]).running() as server,
        client_of("http://k8s.test:1") as client,
    ):
        port = int(server.url.rpartition(":")[2])
        resolve_to(monkeypatch, first, ("127.0.0.1", port))
        assert b"major" in await version(client)


async def test_a_connection_that_is_cancelled_leaves_no_socket_open() -> None:
    async with serving(silence) as (_, client):
        for microseconds in range(0, 1_000, 5):
            with suppress(TimeoutError):
                async with asyncio.timeout(microseconds / 1e6):
                    await version(client)


async def test_refusals_of_several_addresses_are_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve_to(monkeypatch, ("127.0.0.2", 1), ("127.0.0.3", 1))
    async with client_of("http://k8s.test:1") as client:
        await fails(client, r"cannot connect to k8s.test:1: Connection refused$")


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    protocol = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")

    async def getaddrinfo(*_: Any, **__: Any) -> Any:
        return [(*protocol, address) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_unknown_host_name_is_reported_in_words() -> None:
    async with client_of("http://k8s.invalid:1") as client:
        await fails(client, r"cannot connect to k8s.invalid:1: [A-Z]")


@pytest.fixture
def full_port() -> Iterator[int]:
    with full_backlog() as port:
        yield port


async def test_c15_unresponsive_address_ends_at_the_connect_timeout(
    monkeypatch: pytest.MonkeyPatch, full_port: int
) -> None:
    assert dialer.CONNECT_SECONDS == 5
    monkeypatch.setattr(dialer, "CONNECT_SECONDS", 0.2)
    words = r"cannot connect to .*: no TCP connection within 0.2 s"
    async with (
        client_of(f"http://127.0.0.1:{full_port}") as client,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        await fails(client, words)
        with pytest.raises(ConnectionFailed, match=words):
            async with client.watch(PODS, timeout_seconds=60):
                pass


async def test_missing_tls_handshake_ends_at_the_handshake_timeout(
    monkeypatch: pytest.MonkeyPatch, pair: IssuedCertificate
) -> None:
    assert dialer.HANDSHAKE_SECONDS == 10
    monkeypatch.setattr(dialer, "HANDSHAKE_SECONDS", 0.2)
    async with listening(silence) as port, client_of(f"https://localhost:{port}", pair) as client:
        await fails(client, r"no TLS handshake within 0.2 s")


async def test_connection_closed_during_the_tls_handshake_is_reported(
    pair: IssuedCertificate,
) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, client_of(f"https://localhost:{port}", pair) as client:
        await fails(client, r"cannot connect to localhost:.*closed|reset")


async def test_unresponsive_proxy_ends_at_the_handshake_timeout(
    monkeypatch: pytest.MonkeyPatch, pair: IssuedCertificate
) -> None:
    monkeypatch.setattr(dialer, "HANDSHAKE_SECONDS", 0.2)
    async with (
        listening(silence) as port,
        client_of("https://k8s.test:6443", pair, f"http://127.0.0.1:{port}") as client,
    ):
        await fails(client, r"through the proxy .*did not respond within 0.2 s")


async def test_no_descriptor_leaks_with_unresponsive_peers(
    pair: IssuedCertificate, server_tls: ssl.SSLContext, made: list[socket.socket]
) -> None:
    """A watch, a request in flight, idle connections and one whose handshake hangs, all over TLS."""
    arrived = asyncio.Event()

    async def hang(*_: object) -> None:
        arrived.set()
        await silence()

    script = [VERSION, stream(), hang]
    async with ScriptedHttpServer(script).running(server_tls) as server, listening(silence) as port:
        client = client_of(by_name(server), pair)
        hanging = client_of(f"https://localhost:{port}", pair)
        async with hanging, client:
            await version(client)
            watch = client.watch(PODS, timeout_seconds=60)
            await watch.__aenter__()
            in_flight = asyncio.create_task(version(client))
            in_handshake = asyncio.create_task(version(hanging))
            await arrived.wait()
            await asyncio.sleep(0.05)
            in_handshake.cancel()
            await asyncio.wait([in_handshake])
        left = [connection for connection in made if connection.fileno() != -1]
        with pytest.raises(ConnectionFailed):
            await in_flight
        await watch.__aexit__(None, None, None)

    assert made
    assert not left


async def test_connection_of_an_ended_watch_is_reused() -> None:
    async with serving(answer(200, b"")) as (server, client):
        for _ in range(2):
            async with client.watch(PODS, timeout_seconds=60) as events:
                assert [event async for event in events] == []

    assert server.connections == 1


async def test_large_tls_stream_is_complete_for_a_slow_reader(
    pair: IssuedCertificate, server_tls: ssl.SSLContext
) -> None:
    metadata = b'{"name":"%s","resourceVersion":"1"}' % (b"x" * 5000)
    line = b'{"type":"ADDED","object":{"metadata":%s}}\n' % metadata
    script = [stream(*[line * 20] * 50, finished=True)]
    async with (
        ScriptedHttpServer(script).running(server_tls) as server,
        client_of(by_name(server), pair) as client,
        client.watch(PODS, timeout_seconds=60) as events,
    ):
        count = 0
        async for _ in events:
            count += 1
            if count % 100 == 0:
                await asyncio.sleep(0.01)

    assert count == 1000


@pytest.mark.parametrize("target", ["/a b", "/a\r\nHost: x", "", "/\u00e9"])
async def test_invalid_target_is_not_sent(target: str) -> None:
    async with serving(VERSION) as (server, client):
        with pytest.raises(ConnectionFailed, match="quote it"):
            await client.request_raw("GET", target)

    assert not server.received


async def test_tcp_keepalive_is_on(made: list[socket.socket]) -> None:
    async with (
        serving(stream()) as (_, client),
        client.watch(PODS, timeout_seconds=60),
    ):
        (used,) = made
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 30
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3
