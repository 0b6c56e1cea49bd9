"""The server over loopback sockets. The test owns both ends, so nothing waits and time stays virtual."""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.cases import cases
from support.certificates import issued
from support.leaks import freed_at_once
from support.tables import load_table

from kruise_probe.serving.http_server import (
    GRACE_SECONDS,
    HANDLE_SECONDS,
    LINGER_SECONDS,
    READ_SECONDS,
    STOP_SECONDS,
    WRITE_SECONDS,
    HttpHandler,
    HttpServer,
    ServerLimits,
    _Connection,
)
from kruise_probe.serving.server_tls import ServerTls
from kruise_probe.serving.sockets import BindAddress
from kruise_probe.wire.requests import HttpRequest, HttpResponse
from kruise_probe.wire.responses import ResponseParser

TABLE = load_table(
    Path(__file__).parents[2] / "data" / "http-requests.yaml",
    {},
)
IDLE_SECONDS = 15.0
MAX_BODY = 1000
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
ANSWER = [(200, b"GET /a ")]
"""The responses of `echo` to GET."""
POST = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
PATHS = ("/a", "/p", "/last", "/")
MOMENT = 0.1
"""Enough for everything that does not wait."""


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse.of_text(f"{request.method} {request.path} {request.body.decode('latin-1')}")


async def hang(request: HttpRequest) -> HttpResponse:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


class Client:
    """The other end of a connection; never blocks."""

    def __init__(self, address: tuple[str, int], *, receives: int = 0) -> None:
        self.socket = socket.socket()
        if receives:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        # Without it the kernel holds small sends back, in real time, until the one before is acknowledged.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect(address)
        self.socket.setblocking(False)
        self.lost = False

    def send(self, data: bytes) -> None:
        with suppress(ConnectionError):
            self.socket.sendall(data)

    async def exchange(self, data: bytes) -> list[tuple[int, bytes]]:
        """Send `data`; return the responses to it."""
        self.send(data)
        await asyncio.sleep(MOMENT)
        return responses_in(self.take())

    def take(self) -> bytes:
        """All bytes received since; sets `lost` when the server has closed."""
        found = b""
        with suppress(BlockingIOError, ssl.SSLWantReadError):
            while not self.lost:
                try:
                    data = self.socket.recv(65536)
                except ConnectionError:
                    data = b""
                self.lost = not data
                found += data
        return found

    def start_tls(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self.socket = context.wrap_socket(self.socket, do_handshake_on_connect=False)

    async def shake_hands(self) -> None:
        """As far as the server lets it."""
        assert isinstance(self.socket, ssl.SSLSocket)
        for _ in range(5):
            with suppress(ssl.SSLWantReadError):
                self.socket.do_handshake()
            await asyncio.sleep(MOMENT)

    @property
    def closed(self) -> bool:
        self.take()
        return self.lost


class Served:
    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.clients: list[Client] = []

    def connect(self, data: bytes = b"", *, receives: int = 0) -> Client:
        """A new client, which sends `data`."""
        client = Client(self.address, receives=receives)
        self.clients.append(client)
        client.send(data)
        return client

    async def sent(self, data: bytes) -> Client:
        """A client that has sent `data`, and what the server sends back has come."""
        client = self.connect(data)
        await asyncio.sleep(MOMENT)
        return client


@asynccontextmanager
async def serving(
    handler: HttpHandler,
    *,
    max_connections: int = 5,
    all_bodies_bytes: int = 10 * MAX_BODY,
    method: str = "",
    tls: ServerTls | None = None,
) -> AsyncIterator[Served]:
    """A server that runs until the context ends."""
    server = HttpServer(
        BindAddress("127.0.0.1", 0),
        flag="--addr",
        handlers=dict.fromkeys(PATHS, handler),
        method=method or "GET",
        limits=ServerLimits(IDLE_SECONDS, MAX_BODY, all_bodies_bytes, max_connections),
        tls=tls,
    )
    if not method:
        server._methods += ("POST",)  # type: ignore[assignment]  # one server for both kinds
    server.bind()
    served = Served(("127.0.0.1", server.port))
    task = asyncio.create_task(server.run())
    try:
        await asyncio.sleep(0)
        yield served
    finally:
        task.cancel()
        await asyncio.wait({task})
        for client in served.clients:
            client.socket.close()
    assert not server._connections


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A server that echoes."""
    async with serving(echo) as served:
        yield served


def responses_in(data: bytes) -> list[tuple[int, bytes]]:
    """Status and body of each response in `data`."""
    found = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        _, _, length_and_more = head.lower().partition(b"content-length: ")
        length = int(length_and_more.split(b"\r\n")[0])
        parser = ResponseParser(max_framing_bytes=1 << 20)
        parser.feed(head + b"\r\n\r\n" + rest[:length])
        assert parser.complete
        found.append((parser.status, bytes(parser.body)))
        data = rest[length:]
    return found


def statuses_in(data: bytes) -> list[int]:
    return [status for status, _ in responses_in(data)]


async def test_one_connection_serves_requests_one_after_the_other(served: Served) -> None:
    client = served.connect()
    assert await client.exchange(GET) == ANSWER
    for part in (POST[:30], POST[30:-2]):
        assert await client.exchange(part) == []
    assert await client.exchange(POST[-2:]) == [(200, b"POST /p hello")]
    assert await client.exchange(LAST) == [(200, b"GET /last ")]
    assert client.closed


async def test_the_response_to_head_has_no_body(served: Served) -> None:
    client = await served.sent(GET.replace(b"GET", b"HEAD"))

    assert re.fullmatch(
        rb"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 8\r\n"
        rb"Date: \w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT\r\nConnection: keep-alive\r\n\r\n",
        client.take(),
    )


@cases("sent tls seconds", **TABLE["unfinished"])
async def test_client_that_stops_sending_is_closed(sent: bytes, tls: bool, seconds: float) -> None:
    async with serving(echo, tls=server_tls() if tls else None) as served:
        client = served.connect(sent)
        await asyncio.sleep(seconds - MOMENT)
        assert not client.closed
        await asyncio.sleep(3 * MOMENT)
        assert client.closed


async def test_the_deadline_of_a_request_starts_at_its_first_byte(served: Served) -> None:
    client = served.connect(GET)
    await asyncio.sleep(IDLE_SECONDS - 1)
    for byte in GET[:5]:
        client.send(bytes([byte]))
        await asyncio.sleep(1)
    assert not client.closed
    await asyncio.sleep(READ_SECONDS - 4)
    assert client.closed


async def test_a_client_that_does_not_read_its_response_is_closed() -> None:
    async def large(request: HttpRequest) -> HttpResponse:
        return HttpResponse(body=b"x" * 16 * 2**20)

    async with serving(large) as served:
        client = served.connect(GET, receives=4096)
        await asyncio.sleep(WRITE_SECONDS - 1)
        assert not client.lost
        await asyncio.sleep(1 + MOMENT)
        assert len(client.take()) < 16 * 2**20
        assert client.lost


async def test_a_handler_has_a_deadline() -> None:
    async with serving(hang) as served:
        client = served.connect(GET)
        await asyncio.sleep(HANDLE_SECONDS + MOMENT)

        assert responses_in(client.take()) == [(503, b"503: Service Unavailable")]


async def test_an_exception_of_a_handler_is_logged_and_returns_500() -> None:
    async def failing(request: HttpRequest) -> HttpResponse:
        raise ValueError("broken")

    with capture_logs() as logs:
        async with serving(failing) as served:
            client = served.connect()
            for _ in range(2):
                ((status, _),) = await client.exchange(GET)
                assert status == 500

    for log in logs[1:]:
        assert log["event"] == "request failed"
        assert log["path"] == "/a"
    assert len(logs) == 3


async def test_a_client_that_half_closes_gets_its_response(served: Served) -> None:
    client = served.connect(GET)
    client.socket.shutdown(socket.SHUT_WR)
    await asyncio.sleep(MOMENT)

    assert responses_in(client.take()) == ANSWER
    assert client.lost


@cases("sent status", **TABLE["refused"])
async def test_after_a_refusal_the_rest_is_discarded_for_a_second(
    served: Served, sent: bytes, status: int
) -> None:
    client = await served.sent(sent)
    answer = client.take()
    assert statuses_in(answer) == [status]
    assert b"Connection: close\r\n" in answer
    client.send(GET)
    await asyncio.sleep(LINGER_SECONDS)
    assert client.take() == b""
    assert client.lost


def assert_closing(client: Client, data: bytes) -> None:
    """Assert that the server announced the end of the connection in `data`, and closed it."""
    assert b"Connection: close\r\n" in data
    assert client.lost


@cases("sent", **TABLE["closing"])
async def test_some_requests_close_the_connection(served: Served, sent: bytes) -> None:
    client = await served.sent(sent)
    data = client.take()

    assert_closing(client, data)
    assert responses_in(data) == ANSWER


@pytest.mark.parametrize("sent", [GET * 1000, GET + GET[:5], POST + b"\r\n"])
async def test_a_client_that_pipelines_gets_one_response_and_is_closed(
    served: Served, sent: bytes
) -> None:
    client = await served.sent(sent)
    data = client.take()

    assert_closing(client, data)
    assert statuses_in(data) == [200]


@cases("method sent status", **TABLE["selected"])
async def test_a_handler_is_selected_by_path_and_method(
    method: str, sent: bytes, status: int
) -> None:
    queries: list[str] = []

    async def note(request: HttpRequest) -> HttpResponse:
        queries.append(request.query)
        return await echo(request)

    async with serving(note, method=method) as served:
        client = await served.sent(sent)
        answer = client.take()

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    query = "b" if b"?b" in sent else ""
    assert queries == ([query] if status < 400 else [])
    allow = b"Allow: GET, HEAD\r\n" if method == "GET" else b"Allow: POST\r\n"
    assert (allow in answer) == (status == 405)


# Too many connections.


async def hangs_for_last(request: HttpRequest) -> HttpResponse:
    if request.path == "/last":
        return await hang(request)
    return await echo(request)


def closed_of(*clients: Client) -> list[bool]:
    return [client.closed for client in clients]


EVICTED = {
    "the-oldest-without-a-request": (
        [(0, GET), (1, GET[:5])],
        [False, True, False],
    ),
    "else-the-longest-idle": (
        [(0, LAST), (2, GET), (1, GET)],
        [False, False, True],
    ),
    "else-the-oldest": (
        [(0, LAST), (1, LAST), (2, LAST)],
        [True, False, False],
    ),
}


@cases("sent closed", **EVICTED)
async def test_a_new_connection_replaces(sent: list[tuple[int, bytes]], closed: list[bool]) -> None:
    async with serving(hangs_for_last, max_connections=3) as served:
        clients = [served.connect() for _ in range(3)]
        for number, data in sent:
            clients[number].send(data)
            await asyncio.sleep(MOMENT)
        await asyncio.sleep(GRACE_SECONDS)
        fourth = served.connect()
        await asyncio.sleep(MOMENT)

        assert closed_of(*clients, fourth) == [*closed, False]


UNFINISHED = st.sampled_from([b"", b"G", GET[:-1], POST[:-1]])


@given(st.lists(UNFINISHED, max_size=30))
@settings(max_examples=25)
async def test_a_client_that_sends_its_request_at_once_is_answered(others: list[bytes]) -> None:
    async with serving(echo, max_connections=4) as served:
        for data in others:
            served.connect(data)
        await asyncio.sleep(MOMENT)

        assert await served.connect().exchange(GET) == ANSWER


async def test_a_replaced_connection_is_freed_at_once() -> None:
    async with serving(echo, max_connections=1) as served:
        with freed_at_once(_Connection, but=1):
            for _ in range(3):
                await served.sent(GET[:5])
                await asyncio.sleep(GRACE_SECONDS)


async def test_connections_replaced_before_their_first_step_are_closed() -> None:
    async with serving(echo, max_connections=1) as served:
        clients = [served.connect() for _ in range(10)]
        await asyncio.sleep(MOMENT)

        assert closed_of(*clients) == [True] * 9 + [False]


async def test_a_request_is_answered_while_many_others_connect() -> None:
    """Few are accepted per step once the table is full, so the request ends before its connection is the oldest."""
    async with serving(echo, max_connections=64) as served:
        for _ in range(64):
            served.connect()
        await asyncio.sleep(MOMENT)
        client = served.connect(GET)
        for _ in range(100):
            served.connect()
        await asyncio.sleep(MOMENT)

        assert responses_in(client.take()) == ANSWER


POST_900 = POST.replace(b" 5", b" 900")
"""The head of a request and 5 of its 900 bytes."""


async def test_bodies_above_the_limit_close_the_oldest_incomplete() -> None:
    async with serving(echo, all_bodies_bytes=MAX_BODY) as served:
        first = await served.sent(POST_900 + b"x" * 595)
        second = await served.sent(POST_900 + b"x" * 595)
        assert closed_of(first, second) == [True, False]
        third = served.connect(POST)
        second.send(b"x" * 300)
        await asyncio.sleep(MOMENT)

        assert statuses_in(third.take()) == [200]
        assert statuses_in(second.take()) == [200]


async def test_no_more_bodies_are_closed_than_it_takes_and_no_fewer() -> None:
    async with serving(echo, all_bodies_bytes=MAX_BODY) as served:
        clients = []
        for size in (50, 500, 300, 800):
            client = await served.sent(POST_900 + b"x" * size)
            clients.append(client)
        assert closed_of(*clients) == [True, True, True, False]


# The end.


async def test_at_the_end_requests_in_flight_may_complete(looptime: float) -> None:
    async def slow(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(STOP_SECONDS / 2)
        return HttpResponse.of_text("done")

    async with serving(slow) as served:
        busy = served.connect(GET)
        idle = served.connect()
        await asyncio.sleep(0.01)
        served.clients.clear()
    assert responses_in(busy.take()) == [(200, b"done")]
    assert idle.take() == b""
    assert idle.lost
    busy.socket.close()
    idle.socket.close()


async def test_the_end_does_not_wait_for_a_handler_that_hangs(looptime: float) -> None:
    cancelled = 0

    async def count(request: HttpRequest) -> HttpResponse:
        nonlocal cancelled
        try:
            return await hang(request)
        except asyncio.CancelledError:
            cancelled += 1
            raise

    async with serving(count) as served:
        for _ in range(3):
            served.connect(GET)
        await asyncio.sleep(MOMENT)

    assert cancelled == 3
    assert looptime <= STOP_SECONDS + 2 * MOMENT


# TLS.


ISSUED = issued()


def server_tls() -> ServerTls:
    tls = ServerTls()
    tls.load(ISSUED.certificate + ISSUED.key)
    return tls


async def test_connections_wait_for_the_first_certificate_and_plain_ones_are_closed() -> None:
    tls = ServerTls()
    async with serving(echo, tls=tls) as served:
        secure = served.connect()
        secure.start_tls()
        await secure.shake_hands()
        tls.load(ISSUED.certificate + ISSUED.key)
        await secure.shake_hands()
        plain = served.connect(GET)
        assert await secure.exchange(GET) == ANSWER
        assert await secure.exchange(LAST) == [(200, b"GET /last ")]
        assert plain.take() == b""
        assert plain.lost


PARTS = [
    GET,
    POST,
    LAST,
    GET[:10],
    GET[10:],
    POST[:50],
    POST[50:],
    b"\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"3\r\nabc\r\n",
    b"0\r\n\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: h2c\r\nConnection: upgrade\r\n\r\n",
]
PORTIONS = st.lists(
    st.binary(max_size=20) | st.sampled_from(PARTS),
    max_size=10,
)


@given(PORTIONS, st.booleans(), st.booleans())
@settings(max_examples=60)
async def test_any_bytes_end_in_responses_or_a_closed_connection(
    portions: list[bytes], in_one: bool, half_closes: bool
) -> None:
    """Nothing hangs, nothing is logged, and every byte sent back is part of a response."""
    sent_back = b""
    with capture_logs() as logs:
        async with serving(echo) as served:
            client = served.connect()
            if in_one:
                portions = [b"".join(portions)]
            for portion in portions:
                client.send(portion)
                await asyncio.sleep(0)
            if half_closes:
                with suppress(OSError):
                    client.socket.shutdown(socket.SHUT_WR)
            await asyncio.sleep(MOMENT)
            sent_back += client.take()
            await asyncio.sleep(2 * READ_SECONDS + IDLE_SECONDS + LINGER_SECONDS)
            sent_back += client.take()
            assert client.lost
    assert set(statuses_in(sent_back)) <= {200, 400, 404, 405, 411, 413, 431}
    assert [log["event"] for log in logs] == ["listening"]
