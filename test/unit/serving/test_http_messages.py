"""Parsing of requests and serialization of responses."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.serving.http_messages import (
    HttpRequest,
    HttpResponse,
    RefusedRequest,
    parse_head,
)

GET = b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\nAccept: a\r\naccept: b\r\n\r\n"
POST = b"POST /v HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
MAX_BODY = 100


def parsed(head: bytes) -> tuple[HttpRequest, int]:
    return parse_head(head, max_body_bytes=MAX_BODY)


def test_a_head_has_method_path_query_and_headers() -> None:
    headers = {"host": "x", "accept": "a, b"}
    assert parsed(GET) == (HttpRequest("GET", "/readyz", "verbose", headers), 0)


def test_the_length_of_a_body_is_its_content_length() -> None:
    assert parsed(POST)[1] == 5


FRAGMENTS = st.sampled_from(
    [GET, POST, b"GET ", b"CONNECT a:1", b"* ", b"//", b"?", b"%zz", b" HTTP/1.1", b" HTTP/1.0",
     b"\r\n", b"\r\n\r\n", b"Host: x", b"Content-Length: 9", b"Transfer-Encoding: chunked", b"Upgrade: h2c\r\n",
     b"Connection: upgrade", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0", b"\xff", b"-1", b"Expect: 100-continue"]
)  # fmt: skip


@given(st.one_of(st.binary(max_size=300), st.lists(FRAGMENTS, max_size=12).map(b"".join)))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        request, body_bytes = parsed(data)
    except RefusedRequest:
        return
    assert request.path.startswith(("/", "*"))
    assert 0 <= body_bytes <= MAX_BODY


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"hello\r\n\r\n", 400, id="not-http"),
        pytest.param(b"\r\n\r\n", 400, id="nothing"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, id="tls"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nno field\r\n\r\n", 400, id="no-field"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="connect"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, id="http2"),
        pytest.param(POST.replace(b" 5", b" 101"), 413, id="too-large"),
        pytest.param(POST.replace(b" 5", b" 5000000000000000000"), 413, id="far-too-large"),
        pytest.param(POST.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked"), 411, id="chunked"),
        pytest.param(POST.replace(b" 5", b" -5"), 400, id="negative"),
    ],
)  # fmt: skip
def test_a_malformed_head_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(RefusedRequest) as raised:
        parsed(data)

    assert raised.value.status == status


@pytest.mark.parametrize(
    ("data", "keep_alive"),
    [
        pytest.param(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", True, id="http-1.1"),
        pytest.param(b"GET /a HTTP/1.0\r\n\r\n", False, id="http-1.0"),
        pytest.param(
            b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: x, Close\r\n\r\n", False, id="close"
        ),
        pytest.param(
            b"GET /a HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
            False,
            id="upgrade",
        ),
    ],
)
def test_some_requests_close_the_connection(data: bytes, keep_alive: bool) -> None:
    request, _ = parsed(data)

    assert (request.path, request.keep_alive) == ("/a", keep_alive)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        pytest.param(b"/a%2Fb", "/a/b", id="quoted"),
        pytest.param(b"//a//b", "//a//b", id="slashes"),
        pytest.param(b"http://host:1/a?b", "/a", id="whole-url"),
        pytest.param(b"http://host", "/", id="whole-url-without-path"),
        pytest.param(b"/a%ff", "/a\ufffd", id="no-utf-8"),
    ],
)
def test_the_path_is_unquoted(target: bytes, path: str) -> None:
    assert parsed(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % target)[0].path == path


AT = datetime(2026, 11, 5, 12, 0, tzinfo=UTC)


def test_the_head_of_a_response() -> None:
    assert HttpResponse.of_text("ok").head(now=AT, keep_alive=True) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 2\r\n"
        b"Date: Thu, 05 Nov 2026 12:00:00 GMT\r\nConnection: keep-alive\r\n\r\n"
    )


def test_a_response_has_its_additional_headers() -> None:
    data = HttpResponse.of_status(405, Allow="GET").head(now=AT, keep_alive=False)

    assert data.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"Content-Length: 23\r\n" in data
    assert b"Allow: GET\r\n" in data
    assert b"Connection: close\r\n" in data
