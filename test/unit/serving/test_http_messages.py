"""Requests out of bytes, however those are cut; responses as bytes."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.serving.http_messages import (
    MAX_HEAD_BYTES,
    MAX_WAITING,
    BadRequest,
    Received,
    Request,
    RequestParser,
    Response,
)

GET = b"GET /readyz?verbose&exclude=a%20b&exclude=c HTTP/1.1\r\nHost: x\r\nAccept: a\r\naccept: b\r\n\r\n"
POST = b"POST /v HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nHost: z\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def parsed(*portions: bytes, max_body_bytes: int = 100) -> list[Received]:
    """All requests of these bytes.

    Raises:
        BadRequest: one of them is none.
    """
    parser, received = RequestParser(max_body_bytes=max_body_bytes), []
    for portion in portions:
        received += parser.feed(portion)
        if parser.refuses:
            parser.feed(b"")
    return received


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, *(each % (len(data) + 1) for each in at), len(data)})
    return [data[start:stop] for start, stop in pairwise(places)]


@given(st.lists(st.integers(min_value=0), max_size=12))
def test_requests_are_the_same_however_they_are_cut(at: list[int]) -> None:
    first, second, third, last = parsed(*cut(GET + POST + CHUNKED + LAST + GET, at))

    assert first.request == Request(
        "GET", "/readyz", {"verbose": [""], "exclude": ["a b", "c"]}, {"host": "x", "accept": "a, b"}
    )  # fmt: skip
    assert (second.request.method, second.request.body) == ("POST", b"hello")
    assert (third.request.body, third.request.headers["host"]) == (b"abcde", "x")
    assert [each.close for each in (first, second, third, last)] == [False, False, False, True]


FRAGMENTS = st.sampled_from(
    [GET, POST, CHUNKED, LAST, b"GET ", b"CONNECT a:1", b"* ", b"//", b"?", b"%zz", b" HTTP/1.1", b" HTTP/1.0",
     b"\r\n", b"\r\n\r\n", b"Host: x", b"Content-Length: 9", b"Transfer-Encoding: chunked", b"Upgrade: h2c\r\n",
     b"Connection: upgrade", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0", b"\xff", b"-1", b"Expect: 100-continue"]
)  # fmt: skip


@given(
    st.one_of(st.binary(max_size=300), st.lists(FRAGMENTS, max_size=12).map(b"".join)),
    st.lists(st.integers(min_value=0), max_size=8),
)
def test_no_bytes_however_cut_do_more_than_be_refused(data: bytes, at: list[int]) -> None:
    try:
        received = parsed(*cut(data, at))
    except BadRequest:
        return
    assert all(each.request.path.startswith(("/", "*")) for each in received)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"hello\r\n\r\n", 400, id="not-http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", 400, id="tls"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no-host"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, id="two-hosts"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nno field\r\n\r\n", 400, id="no-field"),
        pytest.param(b"GET /?" + b"a&" * 101 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="parameters"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="connect"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="http2"),
        pytest.param(b"GET /" + b"a" * MAX_HEAD_BYTES + b" HTTP/1.1\r\n", 431, id="long-target"),
        pytest.param(b"GET / HTTP/1.1\r\nA: " + b"a" * MAX_HEAD_BYTES, 431, id="long-field"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * MAX_HEAD_BYTES, 431, id="many-fields"),
        pytest.param(POST.replace(b" 5", b" 101"), 413, id="announced-too-large"),
        pytest.param(POST.replace(b" 5", b" 5000000000000000000"), 413, id="far-too-large"),
        pytest.param(CHUNKED.replace(b"3\r\nabc", b"65\r\n" + b"a" * 101), 413, id="chunks-too-large"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [7, 1000, 10**6])
def test_what_cannot_be_answered_is_refused(data: bytes, status: int, size: int) -> None:
    with pytest.raises(BadRequest) as raised:
        parsed(*(data[i : i + size] for i in range(0, len(data), size)))

    assert raised.value.status == status


@pytest.mark.parametrize(
    ("begin", "endless"),
    [
        pytest.param(CHUNKED[:-22], b"x", id="chunk-extension"),
        pytest.param(CHUNKED[:-2], b"a: b\r\n", id="trailers"),
        pytest.param(GET, b"\r\n", id="empty-lines"),
    ],
)
def test_what_surrounds_requests_has_a_bound(begin: bytes, endless: bytes) -> None:
    with pytest.raises(BadRequest, match="431"):
        parsed(begin, *[endless * 100] * 2000)


def test_bodies_are_refused_where_none_is_expected() -> None:
    with pytest.raises(BadRequest, match="413"):
        parsed(POST, max_body_bytes=0)
    assert len(parsed(GET, POST.replace(b"5\r\n\r\nhello", b"0\r\n\r\n"), max_body_bytes=0)) == 2


def test_what_comes_before_a_bad_request_is_answered_first() -> None:
    parser = RequestParser(max_body_bytes=0)

    assert len(parser.feed(GET + b"hello\r\n\r\n")) == 1
    assert parser.refuses
    with pytest.raises(BadRequest, match="400"):
        parser.feed(b"")
    assert parser.feed(GET) == []


def test_requests_that_are_sent_ahead_have_a_bound() -> None:
    parser = RequestParser(max_body_bytes=0)

    assert len(parser.feed(GET * 10_000)) == MAX_WAITING
    assert parser.refuses


def test_an_upgrade_is_ignored_and_ends_the_connection() -> None:
    head = b"GET /a HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
    parser = RequestParser(max_body_bytes=0)

    (received,) = parser.feed(head + b"\0\0\0")
    assert (received.request.path, received.close) == ("/a", True)
    assert parser.feed(GET) == []


def test_http_1_0_needs_no_host_and_closes() -> None:
    (received,) = parsed(b"GET /a HTTP/1.0\r\n\r\n")

    assert (received.request.path, received.close) == ("/a", True)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        pytest.param(b"/a%2Fb", "/a/b", id="quoted"),
        pytest.param(b"//a//b", "//a//b", id="slashes"),
        pytest.param(b"http://host:1/a?b", "/a", id="whole-url"),
        pytest.param(b"http://host", "/", id="whole-url-without-path"),
        pytest.param(b"/a#b?c", "/a#b", id="no-fragment"),
        pytest.param(b"/a%ff", "/a\ufffd", id="no-utf-8"),
    ],
)
def test_the_path_is_what_a_handler_is_asked_for(target: bytes, path: str) -> None:
    (received,) = parsed(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % target)

    assert received.request.path == path


def test_a_client_may_ask_before_it_sends_its_body() -> None:
    parser = RequestParser(max_body_bytes=5)
    head, body = (
        POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n").split(b"hello")[0],
        b"hello",
    )
    parser.feed(head)
    assert parser.wants_to_go_on
    parser.feed(body)
    assert not parser.wants_to_go_on


AT = datetime(2026, 11, 5, 12, 0, tzinfo=UTC)


def test_a_response_on_the_wire() -> None:
    assert Response.of_text("ok").encoded(now=AT, close=False) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\n"
        b"Date: Thu, 05 Nov 2026 12:00:00 GMT\r\nConnection: keep-alive\r\n\r\nok"
    )


def test_a_response_without_its_body_says_how_long_that_is() -> None:
    data = Response.of_status(405, Allow="GET").encoded(now=AT, close=True, with_body=False)

    assert data.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"Content-Length: 23\r\n" in data
    assert b"Allow: GET\r\n" in data
    assert b"Connection: close\r\n" in data
    assert data.endswith(b"\r\n\r\n")
