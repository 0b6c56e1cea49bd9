"""The server's side of connections, without sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.fake_transport import FakeTransport

from kruise_probe.client.answers import AnswerParser
from kruise_probe.serving.http_messages import Request, Response
from kruise_probe.serving.http_server import (
    CLOSE_SECONDS,
    HANDLE_SECONDS,
    LINGER_SECONDS,
    READ_SECONDS,
    STOP_SECONDS,
    WRITE_SECONDS,
    Connection,
    Handler,
    HttpListener,
    Limits,
)

IDLE_SECONDS = 15.0
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def echo(request: Request) -> Response:
    return Response.of_text(f"{request.method} {request.path} {request.body.decode('latin-1')}")


@asynccontextmanager
async def serving(handler: Handler, *, max_connections: int = 5) -> AsyncIterator[HttpListener]:
    """A server that is ended when the context is left."""
    limits = Limits(IDLE_SECONDS, max_body_bytes=100, max_connections=max_connections)
    with socket.socket() as unused:
        listener = HttpListener(unused, handler, limits=limits)
        async with asyncio.TaskGroup() as listener._group:
            yield listener
            await listener._end()
    assert not listener._connections


def connect(listener: HttpListener) -> FakeTransport:
    return FakeTransport(Connection(listener))


def answers(data: bytes) -> list[tuple[int, bytes]]:
    """All of these answers, each with its length told."""
    found = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        parser = AnswerParser()
        parser.feed(head + b"\r\n\r\n" + rest[:length])
        assert parser.complete
        found.append((parser.status, parser.take()))
        data = rest[length:]
    return found


async def test_requests_are_answered_in_order_on_one_connection() -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        client.receive(GET + POST[:30])
        await asyncio.sleep(0.1)
        assert answers(client.take()) == [(200, b"GET /a ")]
        client.receive(POST[30:] + GET)
        await asyncio.sleep(0.1)
        assert answers(client.take()) == [(200, b"POST /p hello"), (200, b"GET /a ")]
        client.receive(LAST + GET)
        await asyncio.sleep(0.1)
        assert answers(client.take()) == [(200, b"GET /last ")]
        assert client.lost


async def test_a_head_is_answered_without_its_body() -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        client.receive(GET.replace(b"GET", b"HEAD"))
        await asyncio.sleep(0.1)

        said = client.take()
        assert b"Content-Length: 8\r\n" in said
        assert said.endswith(b"\r\n\r\n")
        client.receive(GET)
        await asyncio.sleep(0.1)
        assert answers(client.take()) == [(200, b"GET /a ")]


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        pytest.param(b"", READ_SECONDS, id="nothing"),
        pytest.param(b"\r\n", READ_SECONDS, id="empty-line"),
        pytest.param(GET[:10], READ_SECONDS, id="half-a-head"),
        pytest.param(POST[:-1], READ_SECONDS, id="half-a-body"),
        pytest.param(GET, IDLE_SECONDS, id="idle"),
        pytest.param(GET + GET[:10], READ_SECONDS, id="half-of-the-next"),
    ],
)
async def test_a_client_that_says_nothing_more_is_dropped(sent: bytes, seconds: float) -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        client.receive(sent)
        await asyncio.sleep(seconds - 0.1)
        assert not client.lost
        await asyncio.sleep(0.2)
        assert client.lost


async def test_the_deadline_of_a_request_counts_from_its_first_byte() -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        for byte in GET[:-1]:
            client.receive(bytes([byte]))
            await asyncio.sleep(READ_SECONDS / 10)

        assert client.lost


async def test_a_client_that_does_not_take_its_answer_is_dropped() -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        client.stuck = True
        client.receive(GET)
        await asyncio.sleep(WRITE_SECONDS - 0.1)
        assert not client.lost
        await asyncio.sleep(0.2)
        assert client.lost


async def test_a_client_that_takes_its_answer_late_goes_on() -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        client.stuck = True
        client.receive(GET)
        await asyncio.sleep(WRITE_SECONDS / 2)
        client.drain()
        client.receive(GET)
        await asyncio.sleep(0.1)

        assert len(answers(client.take())) == 2


class Hanging:
    """A handler that never answers; knows how many were cancelled."""

    def __init__(self) -> None:
        self.cancelled = 0

    async def __call__(self, request: Request) -> Response:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError


async def test_a_handler_is_cancelled_when_its_client_goes_away() -> None:
    handler = Hanging()
    async with serving(handler) as listener:
        client = connect(listener)
        client.receive(GET)
        await asyncio.sleep(1)
        client.abort()
        await asyncio.sleep(0.1)

        assert (handler.cancelled, client.lost, client.take()) == (1, True, b"")


async def slow(request: Request) -> Response:
    await asyncio.sleep(1)
    return await echo(request)


@pytest.mark.parametrize("after", [0.0, 0.5], ids=["at-once", "under-way"])
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(GET, [b"GET /a "], id="one"),
        pytest.param(GET + POST, [b"GET /a ", b"POST /p hello"], id="two"),
        pytest.param(GET + POST[:-1], [b"GET /a "], id="one-and-a-half"),
    ],
)
async def test_a_client_that_says_no_more_is_answered(
    sent: bytes, expected: list[bytes], after: float
) -> None:
    async with serving(slow) as listener:
        client = connect(listener)
        client.receive(sent)
        await asyncio.sleep(after)
        client.receive_eof()
        await asyncio.sleep(len(expected) + 0.1)
        said = client.take()

        assert answers(said) == [(200, each) for each in expected]
        assert said.count(b"Connection: close") == 1
        assert client.lost


@pytest.mark.parametrize("sent", [b"", GET[:10], GET], ids=["nothing", "half", "answered"])
async def test_a_client_that_waits_for_nothing_is_gone_when_it_says_no_more(sent: bytes) -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        client.receive(sent)
        await asyncio.sleep(0.1)
        client.receive_eof()
        await asyncio.sleep(0)

        assert client.lost


async def test_tls_has_no_half_that_could_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = Hanging()
    async with serving(handler) as listener:
        client = connect(listener)
        monkeypatch.setattr(client, "can_write_eof", lambda: False)
        client.receive(GET)
        await asyncio.sleep(1)
        client.receive_eof()
        await asyncio.sleep(0.1)

        assert (handler.cancelled, client.lost) == (1, True)


async def test_a_handler_has_a_deadline(looptime: float) -> None:
    async with serving(Hanging()) as listener:
        client = connect(listener)
        client.receive(GET)
        await asyncio.sleep(HANDLE_SECONDS + 0.1)

        assert answers(client.take()) == [(503, b"503: Service Unavailable")]


async def test_a_handler_that_fails_is_logged_and_answered() -> None:
    async def failing(request: Request) -> Response:
        raise ValueError("broken")

    with capture_logs() as logs:
        async with serving(failing) as listener:
            client = connect(listener)
            client.receive(GET + GET)
            await asyncio.sleep(0.1)
            assert [status for status, _ in answers(client.take())] == [500, 500]

    assert [(each["event"], each["path"]) for each in logs] == [("request failed", "/a")] * 2


async def test_a_refusal_is_said_and_what_follows_is_read_for_a_moment() -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        client.receive(b"hello\r\n\r\n")
        assert answers(client.take()) == [(400, b"400: Bad Request")]
        assert client.eof_written
        client.receive(GET)
        await asyncio.sleep(LINGER_SECONDS - 0.1)
        assert not client.lost
        await asyncio.sleep(0.2)
        assert (client.lost, client.take()) == (True, b"")


async def test_a_refusal_comes_after_the_answers_before_it() -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        client.receive(GET + POST.replace(b" 5", b" 500"))
        await asyncio.sleep(0.1)

        assert [status for status, _ in answers(client.take())] == [200, 413]


async def test_what_cannot_be_read_while_an_answer_is_taken_ends_the_connection_after_it() -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        client.stuck = True
        client.receive(GET)
        await asyncio.sleep(1)
        client.receive(b"\0")
        client.drain()
        await asyncio.sleep(0.1)

        assert answers(client.take()) == [(200, b"GET /a ")]
        assert client.lost


async def test_a_client_that_asks_is_told_to_send_its_body() -> None:
    async with serving(echo) as listener:
        client = connect(listener)
        head, body = POST[:-5], POST[-5:]
        client.receive(head.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert client.take() == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.receive(body)
        await asyncio.sleep(0.1)
        assert answers(client.take()) == [(200, b"POST /p hello")]


async def test_nothing_more_is_read_while_requests_wait() -> None:
    async with serving(Hanging()) as listener:
        client = connect(listener)
        client.receive(GET)
        assert client.reading, "or its going away would not be noticed"
        client.receive(GET)
        assert not client.reading
        client.abort()


async def test_of_too_many_connections_the_idlest_gives_way() -> None:
    async with serving(echo, max_connections=3) as listener:
        busy, idlest, idle = (connect(listener) for _ in range(3))
        busy.receive(GET[:5])
        fourth = connect(listener)
        await asyncio.sleep(0)

        assert [each.lost for each in (busy, idlest, idle, fourth)] == [False, True, False, False]


async def test_of_too_many_busy_connections_the_newest_is_closed() -> None:
    async with serving(echo, max_connections=3) as listener:
        busy = [connect(listener) for _ in range(3)]
        for each in busy:
            each.receive(GET[:5])
        fourth = connect(listener)
        await asyncio.sleep(0)

        assert [each.lost for each in (*busy, fourth)] == [False, False, False, True]


async def test_at_the_end_answers_under_way_are_given_a_moment(looptime: float) -> None:
    async def slow(request: Request) -> Response:
        await asyncio.sleep(STOP_SECONDS / 2)
        return Response.of_text("done")

    async with serving(slow) as listener:
        busy, waiting, idle = (connect(listener) for _ in range(3))
        busy.receive(GET)
        waiting.receive(GET + GET)

    assert answers(busy.take()) == [(200, b"done")]
    assert answers(waiting.take()) == [(200, b"done")]
    assert idle.lost
    assert looptime == STOP_SECONDS / 2


async def test_at_the_end_nobody_waits_for_an_answer_that_does_not_come(looptime: float) -> None:
    handler = Hanging()
    async with serving(handler) as listener:
        clients = [connect(listener) for _ in range(3)]
        for each in clients:
            each.receive(GET)
        await asyncio.sleep(0)

    assert handler.cancelled == 3
    assert all(each.lost for each in clients)
    assert looptime <= STOP_SECONDS + CLOSE_SECONDS


PORTIONS = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from(
            [GET, POST, LAST, GET[:10], GET[10:], POST[:50], POST[50:], b"\r\n", b"GET / HTTP/1.0\r\n\r\n",
             b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n",
             b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\nConnection: upgrade\r\n\r\n"]
        ),
    ),
    max_size=10,
)  # fmt: skip


@given(PORTIONS, st.lists(st.sampled_from(["wait", "stuck", "drain", "eof"]), max_size=10))
async def test_whatever_a_client_sends_ends_in_answers_or_in_the_end(
    portions: list[bytes], happenings: list[str]
) -> None:
    """Nothing hangs, nothing is raised, and every byte that comes back is a part of an answer."""
    with capture_logs() as logs:
        async with serving(echo) as listener:
            client = connect(listener)
            for number, portion in enumerate(portions):
                client.receive(portion)
                match happenings[number] if number < len(happenings) else "":
                    case "wait":
                        await asyncio.sleep(0)
                    case "stuck":
                        client.stuck = True
                    case "drain":
                        client.drain()
                    case "eof":
                        client.receive_eof()
                    case _:
                        pass
            client.drain()
            await asyncio.sleep(READ_SECONDS + WRITE_SECONDS + LINGER_SECONDS)
            assert client.lost
    said = client.take().replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    assert {status for status, _ in answers(said)} <= {200, 400, 413, 431, 505}
    assert not logs
