"""The response parser, with bytes in any portions."""

import gc
import gzip
import weakref
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.client.response import (
    BodyTooLarge,
    ResponseError,
    ResponseParser,
)

MAX_BODY_BYTES = 64 << 20
MAX_DECOMPRESSED_BYTES = 16 << 20

OK = b"HTTP/1.1 200 OK\r\n"
BODY = b'{"kind":"Pod"}' * 20


def cut(data: bytes, at: list[int]) -> Iterator[bytes]:
    """`data` in portions that begin at each of `at`."""
    places = sorted({0, *(each % (len(data) + 1) for each in at), len(data)})
    for start, stop in pairwise(places):
        yield data[start:stop]


def sized(body: bytes, *fields: bytes) -> bytes:
    lines = b"".join(each + b"\r\n" for each in fields)
    return OK + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(body: bytes, *fields: bytes, trailer: bytes = b"") -> bytes:
    lines = b"".join(each + b"\r\n" for each in fields)
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7)
    )
    return (
        OK + lines + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n" + trailer + b"\r\n"
    )


INTERIM = b"HTTP/1.1 100 Continue\r\nRetry-After: 7\r\n\r\n"
PACKED = gzip.compress(BODY)
BY_END = b"HTTP/1.0 200 OK\r\n\r\n"

RESPONSES = [
    pytest.param(sized(BODY), BODY, True, id="content-length"),
    pytest.param(sized(b""), b"", True, id="empty"),
    pytest.param(chunked(BODY), BODY, True, id="chunked"),
    pytest.param(chunked(BODY, trailer=b"Content-Encoding: br\r\n"), BODY, True, id="trailer"),
    pytest.param(INTERIM + INTERIM + sized(BODY), BODY, True, id="interim"),
    pytest.param(sized(BODY, b"Connection: close"), BODY, False, id="closes"),
    pytest.param(sized(BODY).replace(b"1.1", b"1.0"), BODY, False, id="http-1.0"),
    pytest.param(sized(PACKED, b"content-encoding: GZIP"), BODY, True, id="gzip"),
    pytest.param(chunked(PACKED, b"Content-Encoding: gzip"), BODY, True, id="gzip-chunked"),
    pytest.param(sized(b"", b"Content-Encoding: gzip"), b"", True, id="gzip-of-nothing"),
    pytest.param(sized(BODY, b"Content-Encoding: identity"), BODY, True, id="identity"),
    pytest.param(BY_END + BODY, BODY, False, id="until-the-end"),
    pytest.param(
        BY_END[:-2] + b"Content-Encoding: gzip\r\n\r\n" + PACKED, BODY, False, id="gzip-until-end"
    ),
]


@pytest.mark.parametrize(("data", "body", "reusable"), RESPONSES)
@given(at=st.lists(st.integers(min_value=0), max_size=12))
def test_response_is_parsed_in_any_portions(
    data: bytes, body: bytes, reusable: bool, at: list[int]
) -> None:
    parser, received = ResponseParser(), b""
    for portion in cut(data, at):
        parser.feed(portion)
        received += parser.take()

    assert parser.complete or parser.end()
    assert (parser.status, received + parser.take(), parser.reusable) == (200, body, reusable)
    assert parser.pending_bytes == 0


@pytest.mark.parametrize(("data", "body", "reusable"), RESPONSES)
def test_truncated_response_is_never_complete(data: bytes, body: bytes, reusable: bool) -> None:
    for end in range(len(data)):
        parser = ResponseParser()
        try:
            parser.feed(data[:end])
            whole = parser.end()
        except ResponseError:
            continue
        if whole:
            assert data.startswith((BY_END, BY_END[:-2])), "only the end itself can end it"


FRAGMENTS = st.sampled_from(
    [OK, b"HTTP/1.1 ", b"101 x", b"204\r\n", b"\r\n", b"\r\n\r\n", b"Content-Length: 3", b": ", b"0",
     b"Transfer-Encoding: chunked", b"Content-Encoding: gzip", PACKED, b"Connection: close", b"\0",
     b"Upgrade: h2c\r\nConnection: upgrade\r\n", b"ffffffffffffffff\r\n", b"-1", INTERIM, b"a"]
)  # fmt: skip


@given(
    st.one_of(st.binary(max_size=300), st.lists(FRAGMENTS, max_size=12).map(b"".join)),
    st.lists(st.integers(min_value=0), max_size=8),
    st.booleans(),
)
def test_arbitrary_bytes_raise_only_response_errors(
    data: bytes, at: list[int], tunnel: bool
) -> None:
    parser = ResponseParser(tunnel=tunnel)
    with suppress(ResponseError):
        for portion in cut(data, at):
            parser.feed(portion)
            parser.take()
        if parser.end():
            assert 100 <= parser.status <= 999


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n", "not valid HTTP", id="not-http"),
        pytest.param(
            b"HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "protocol", id="101"
        ),
        pytest.param(b"HTTP/1.1 099 x\r\n\r\n", "99 is not an HTTP status", id="no-status"),
        pytest.param(sized(BODY, b"Content-Encoding: br"), "'br'", id="brotli"),
        pytest.param(sized(BODY, b"Content-Encoding: gzip"), "gzip body is invalid", id="no-gzip"),
        pytest.param(sized(PACKED[:-3], b"Content-Encoding: gzip"), "truncated", id="half-gzip"),
        pytest.param(sized(b"", b"Content-Length: 5"), "not valid HTTP", id="two-lengths"),
        pytest.param(chunked(b"a", b"Content-Length: 5"), "not valid HTTP", id="length-and-chunks"),
    ],
)
def test_unusable_response_names_its_problem(data: bytes, words: str) -> None:
    parser = ResponseParser()
    with pytest.raises(ResponseError, match=words) as raised:
        parser.feed(data)
    assert not isinstance(raised.value, BodyTooLarge), "a smaller page would not help"


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param([OK, b"a: ", *[b"b" * 1000] * 1000], id="one-field"),
        pytest.param([OK, *[b"a: b\r\n" * 100] * 1000], id="many-fields"),
        pytest.param([INTERIM * 10] * 2000, id="interim-responses"),
        pytest.param(
            [OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", *[b"a: b\r\n" * 100] * 1000],
            id="trailers",
        ),
        pytest.param(
            [OK + b"Transfer-Encoding: chunked\r\n\r\n1;", *[b"a" * 1000] * 1000],
            id="chunk-extension",
        ),
        pytest.param([b"\r\n" * 100] * 5000, id="empty-lines"),
    ],
)
def test_bytes_outside_the_body_are_limited(endless: list[bytes]) -> None:
    parser, left = ResponseParser(), iter(endless)
    with pytest.raises(ResponseError):
        deque(map(parser.feed, left), maxlen=0)

    not_fed = sum(map(len, left))
    assert sum(map(len, endless)) - not_fed <= 256 * 1024 + 2000


def test_header_of_256_kib_is_read() -> None:
    parser = ResponseParser()
    start, end = OK + b"a: ", b"\r\nContent-Length: 2\r\n\r\n"
    parser.feed(start + b"b" * (256 * 1024 - len(start) - len(end)) + end)
    parser.feed(b"{}")

    assert (parser.complete, parser.take()) == (True, b"{}")


def test_truncated_gzip_body_is_an_error_at_the_end_of_the_connection() -> None:
    parser = ResponseParser()
    parser.feed(BY_END[:-2] + b"Content-Encoding: gzip\r\n\r\n" + PACKED[:-3])
    with pytest.raises(ResponseError, match="truncated"):
        parser.end()


@pytest.mark.parametrize("status", [b"100", b"103", b"199"])
def test_every_1xx_response_is_skipped(status: bytes) -> None:
    parser = ResponseParser()
    parser.feed(INTERIM.replace(b"100", status) + sized(BODY))
    assert (parser.status, parser.take()) == (200, BODY)


def test_chunked_body_is_not_limited_by_the_header_limit() -> None:
    parser = ResponseParser()
    parser.feed(OK + b"Content-Length: 10000000\r\n\r\n")
    for _ in range(100):
        parser.feed(b"x" * 100_000)

    assert (parser.complete, parser.pending_bytes) == (True, 10_000_000)


def test_small_gzip_body_may_decompress_to_a_large_one() -> None:
    parser = ResponseParser()
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(bytes(10_000_000)) + packer.flush()
    parser.feed(sized(packed, b"Content-Encoding: gzip"))

    assert (parser.complete, len(parser.take())) == (True, 10_000_000)


@pytest.mark.parametrize("surplus", [b"x", b"\r\n", sized(b""), b"HTTP/1.1 408 Timeout\r\n\r\n"])
@pytest.mark.parametrize("together", [True, False])
def test_bytes_after_a_response_only_prevent_reuse_of_the_connection(
    surplus: bytes, together: bool
) -> None:
    parser = ResponseParser()
    for portion in [sized(BODY) + surplus] if together else [sized(BODY), surplus]:
        parser.feed(portion)

    assert (parser.complete, parser.take(), parser.status) == (True, BODY, 200)
    assert parser.reusable == (together and surplus == b"\r\n"), "an empty line is ignored"


@pytest.mark.parametrize(
    ("data", "status", "complete", "reusable"),
    [
        pytest.param(OK + b"\r\n", 200, True, True, id="success-ends-with-its-head"),
        pytest.param(OK + b"Content-Length: 5\r\n\r\n", 200, True, True, id="length-means-nothing"),
        pytest.param(OK + b"\r\nx", 200, True, False, id="speaks-first"),
        pytest.param(
            b"HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\nno", 407, True, True, id="error"
        ),
    ],
)
def test_connect_response_ends_with_its_header(
    data: bytes, status: int, complete: bool, reusable: bool
) -> None:
    parser = ResponseParser(tunnel=True)
    parser.feed(data)

    assert (parser.status, parser.complete, parser.reusable) == (status, complete, reusable)


def test_retry_after_header_is_case_insensitive() -> None:
    parser = ResponseParser()
    parser.feed(INTERIM + sized(b"", b"RETRY-after: 3"))

    assert parser.retry_after == "3"


def test_body_above_the_limit_is_rejected() -> None:
    portion = b"x" * (1 << 20)
    parser = ResponseParser()
    parser.feed(BY_END)
    for _ in range(MAX_BODY_BYTES >> 20):
        parser.feed(portion)

    with pytest.raises(BodyTooLarge, match="exceeds 67108864 bytes"):
        parser.feed(b"x")


def test_streamed_body_has_no_limit() -> None:
    portion = b"x" * (1 << 20)
    parser = ResponseParser()
    parser.feed(BY_END)
    for _ in range((MAX_BODY_BYTES >> 20) + 1):
        parser.feed(portion)
        assert parser.take() == portion


def test_decompressed_bytes_of_one_read_are_limited() -> None:
    packed = gzip.compress(bytes(MAX_DECOMPRESSED_BYTES + (1 << 20)))
    assert len(packed) < 64 * 1024
    parser = ResponseParser()

    with pytest.raises(BodyTooLarge, match="one read decompresses to more than 16777216 bytes"):
        parser.feed(sized(packed, b"Content-Encoding: gzip"))


SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: abc=\r\n\r\n"
)


@given(at=st.lists(st.integers(min_value=0), max_size=12))
def test_bytes_after_an_accepted_upgrade_are_the_body_until_the_end(at: list[int]) -> None:
    parser, received = ResponseParser(upgrade=True), b""
    for portion in cut(INTERIM + SWITCHED + BODY, at):
        parser.feed(portion)
        received += parser.take()
    assert (parser.status, received, parser.complete, parser.reusable) == (101, BODY, False, False)
    assert parser.upgrade_fields == {"sec-websocket-accept": "abc="}
    assert parser.end()


def test_refused_upgrade_is_an_ordinary_response() -> None:
    parser = ResponseParser(upgrade=True)
    parser.feed(sized(BODY).replace(b"200 OK", b"403 Forbidden"))
    assert (parser.status, parser.complete, parser.take()) == (403, True, BODY)


def test_upgrade_without_a_request_for_it_is_an_error() -> None:
    with pytest.raises(ResponseError, match="switched to another protocol"):
        ResponseParser().feed(SWITCHED)


def test_unread_bytes_after_an_upgrade_have_the_limit_of_a_body() -> None:
    parser = ResponseParser(upgrade=True)
    parser.feed(SWITCHED)
    for _ in range(MAX_BODY_BYTES // (1 << 20)):
        parser.feed(bytes(1 << 20))
    with pytest.raises(BodyTooLarge):
        parser.feed(b"x")


@pytest.mark.parametrize("data", [OK + b"Content-Length: 0\r\n\r\n", b"no HTTP\r\n\r\n", OK])
def test_parser_is_freed_without_the_garbage_collector(data: bytes) -> None:
    """After a response, an error, and the end of the connection. A busy process collects seldom."""

    class Parser(ResponseParser):
        pass

    parser = Parser()
    with suppress(ResponseError):
        parser.feed(data)
        parser.end()
    freed = weakref.ref(parser)
    gc.disable()
    try:
        del parser
        assert freed() is None
    finally:
        gc.enable()
