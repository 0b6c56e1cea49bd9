"""Valid and malformed responses. Results and texts were compared with those of kubelet 1.36's own prober."""

import contextlib
import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kruise_probe.daemon.probers.http_response import (
    Head,
    MalformedResponse,
    ResponseReader,
    parse_head,
)

MAX_BODY_BYTES = 10 * 1024
MAX_HEAD_BYTES = 64 * 1024

OK = b"HTTP/1.1 200 OK\r\n"
BROKEN = "net/http: HTTP/1.x transport connection broken: "


def read(parts: Iterable[bytes]) -> ResponseReader:
    """Feeds `parts`, and then the end of the connection."""
    reader = ResponseReader()
    for part in (*parts, b""):
        if not reader.complete:
            reader.feed(part)
            reader.read_body()
    return reader


@pytest.mark.parametrize(
    ("response", "head", "body"),
    [
        pytest.param(OK + b"Content-Length: 2\r\n\r\nok", Head(200, length=2), b"ok", id="length"),
        pytest.param(OK + b"\r\nhi", Head(200), b"hi", id="until-the-end"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nhi", Head(200), b"hi", id="http-1.0"),
        pytest.param(b"HTTP/1.1 200\r\n\r\nhi", Head(200), b"hi", id="no-reason"),
        pytest.param(
            b"HTTP/1.1 200\r\nA: b\r\n\r\nhi", Head(200), b"hi", id="no-reason-but-a-header"
        ),
        pytest.param(
            b"HTTP/1.1 099 X\r\n\r\n", Head(99, length=0), b"", id="below-all-that-is-known"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", Head(200, length=2), b"ok", id="lf"
        ),
        pytest.param(b"HTTP/2.0 200 OK\r\n\r\n", Head(200), b"", id="any-one-digit-version"),
        pytest.param(OK + b"A: b\r\n c\r\n\r\nhi", Head(200), b"hi", id="folded"),
        pytest.param(
            OK + b"A: b\r\n c\r\nLocation: /x\r\n\r\nhi",
            Head(200, location="/x"),
            b"hi",
            id="folded-before-another",
        ),
        pytest.param(
            OK + b"Content-Length:\r\n 2\r\n \r\n\r\nok",
            Head(200, length=2),
            b"ok",
            id="folded-before-the-length",
        ),
        pytest.param(
            OK + b"Transfer-Encoding:\r\n\tchunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            Head(200, chunked=True),
            b"hi",
            id="folded-before-the-encoding",
        ),
        pytest.param(
            OK + b"Location:\r\n  /x\r\n\r\nhi",
            Head(200, location="/x"),
            b"hi",
            id="folded-before-the-location",
        ),
        pytest.param(OK + b"foo : x\r\n\r\nhi", Head(200), b"hi", id="blank-before-colon"),
        pytest.param(
            OK + b"Transfer-Encoding: Chunked\r\nContent-Length: 9\r\n\r\n2;a=b\r\nhi\r\n0\r\n\r\n",
            Head(200, chunked=True),
            b"hi",
            id="chunks-win-over-length",
        ),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi",
            Head(200),
            b"2\r\nhi",
            id="no-chunks-in-http-1.0",
        ),
        pytest.param(
            OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
            Head(200, length=2),
            b"ok",
            id="same-length-twice",
        ),
        pytest.param(
            OK + b"Content-Length: " + b"0" * 5000 + b"2\r\n\r\nok",
            Head(200, length=2),
            b"ok",
            id="length-with-leading-zeros",
        ),
        pytest.param(
            OK + b"Content-Length: 9223372036854775807\r\n\r\n" + b"x" * 12000,
            Head(200, length=2**63 - 1),
            b"x" * MAX_BODY_BYTES,
            id="largest-length",
        ),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n2801\r\n" + b"x" * 10241 + b"\r\nzz\r\n",
            Head(200, chunked=True),
            b"x" * MAX_BODY_BYTES,
            id="broken-chunk-after-10-kib",
        ),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n0000000000000002\r\nhi\r\n0\r\n\r\n",
            Head(200, chunked=True),
            b"hi",
            id="chunk-length-of-16-digits",
        ),
        pytest.param(
            b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello", Head(204, length=0), b"", id="204"
        ),
        pytest.param(
            b"HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\nhello", Head(304, length=0), b"", id="304"
        ),
        pytest.param(
            OK + b"Content-Length: 2\r\n\r\nokay",
            Head(200, length=2),
            b"ok",
            id="more-than-the-length",
        ),
        pytest.param(b"HTTP/1.1 101 S\r\n\r\nxyz", Head(101, length=0), b"", id="101-is-final"),
        pytest.param(
            b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 103 E\r\nLink: x\r\n\r\n" + OK + b"\r\nhi",
            Head(200),
            b"hi",
            id="informational-responses-are-skipped",
        ),
        pytest.param(
            b"HTTP/1.1 302 F\r\nLocation: /x\r\nLocation: /y\r\n\r\n",
            Head(302, location="/x"),
            b"",
            id="first-location-counts",
        ),
    ],
)
def test_response_is_read_the_same_in_any_pieces(response: bytes, head: Head, body: bytes) -> None:
    whole = read([response])
    dripping = read(bytes([byte]) for byte in response)
    in_packets = read(response[at : at + 9000] for at in range(0, len(response), 9000))

    for reader in (whole, dripping, in_packets):
        assert (reader.head, reader.body) == (head, body)


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (b"", "EOF"),
        (b"HTTP/1.1 200", BROKEN + "unexpected EOF"),
        (OK + b"A: b", BROKEN + "unexpected EOF"),
        (b"HTTP/1.1 100 C\r\n\r\n", BROKEN + "unexpected EOF"),
        (b"HTTP/1.1 100 C\r\n\r\nSSH-2.0\r\n", BROKEN + 'malformed HTTP response "SSH-2.0"'),
        (b"HTTP/1.1 100 C\r\n\r\n\nhello", BROKEN + 'malformed HTTP response ""'),
        (b"\nhello", BROKEN + 'malformed HTTP response ""'),
        (b"hello\r\n\r\n", BROKEN + 'malformed HTTP response "hello"'),
        (b"<html>hi</html>", BROKEN + 'malformed HTTP response "<html>hi</html>"'),
        (b"HTTX/1.1 200 OK\r\n\r\n", BROKEN + 'malformed HTTP version "HTTX/1.1"'),
        (b"HTTP/1 200 OK\r\n\r\n", BROKEN + 'malformed HTTP version "HTTP/1"'),
        (b"HTTP/1.1 abc OK\r\n\r\n", BROKEN + 'malformed HTTP status code "abc"'),
        (b"HTTP/1.1 20 OK\r\n\r\n", BROKEN + 'malformed HTTP status code "20"'),
        (OK + b"foo\r\n\r\n", BROKEN + 'malformed MIME header: missing colon: "foo"'),
        (OK + b": b\r\n\r\n", BROKEN + 'malformed MIME header line: ": b"'),
        (OK + b"A: \x00\r\n\r\n", BROKEN + r'malformed MIME header line: "A: \x00"'),
        (OK + b" a: b\r\n\r\n", BROKEN + 'malformed MIME header initial line: " a: b"'),
        (OK + b"Content-Length: \r\n\r\n", BROKEN + 'invalid empty Content-Length ""'),
        (OK + b"Content-Length: x\r\n\r\n", BROKEN + 'bad Content-Length "x"'),
        (
            OK + b"Content-Length: 9223372036854775808\r\n\r\n",
            BROKEN + 'bad Content-Length "9223372036854775808"',
        ),
        (
            OK + b"Content-Length: " + b"1" * 5000 + b"\r\n\r\n",
            BROKEN + f'bad Content-Length "{"1" * 1024}"',
        ),
        (
            OK + b"Content-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            BROKEN + 'bad Content-Length "x"',
        ),
        (b"HTTP/1.1 204 X\r\nContent-Length: x\r\n\r\n", BROKEN + 'bad Content-Length "x"'),
        (OK + b"Content-Length: -1\r\n\r\n", BROKEN + 'bad Content-Length "-1"'),
        (
            OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n",
            BROKEN + 'http: message cannot contain multiple Content-Length headers; got ["2" "3"]',
        ),
        (
            OK + b"Transfer-Encoding: gzip\r\n\r\n",
            BROKEN + 'unsupported transfer encoding: "gzip"',
        ),
        (
            OK + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n",
            BROKEN + 'too many transfer encodings: ["chunked" "chunked"]',
        ),
        (OK + b"Content-Length: 9\r\n\r\nhi", "unexpected EOF"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n\n", "chunked line ends with bare LF"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "invalid byte in chunk length"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n\r\n", "empty hex number for chunk length"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhiXX", "malformed chunked encoding"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhi", "unexpected EOF"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\nhi", "chunked line ends with bare LF"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n",
            "http chunk length too large",
        ),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1" + b";" * 5000, "header line too long"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n" + (b"1" + b";" * 4000 + b"\r\nx\r\n") * 5,
            "chunked encoding contains too much non-data",
        ),
    ],
)
def test_malformed_response_has_the_text_of_go(response: bytes, problem: str) -> None:
    for parts in ([response], [bytes([byte]) for byte in response]):
        with pytest.raises(MalformedResponse) as caught:
            read(parts)

        assert str(caught.value) == problem


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk_with_line_of(size: int) -> bytes:
    """A chunk of one byte whose first line has `size` bytes."""
    return b"1;" + b"x" * (size - 4) + b"\r\n" + b"x\r\n"


def test_extensions_of_chunks_are_limited_to_16_kib_as_in_go() -> None:
    """Of each chunk 16 bytes and twice its data are free; what is not used does not count for others."""
    lines = [3, *[4096] * 4, 16 * 1024 - 4 * (4096 - 18) + 18]
    chunks = b"1\r\nx\r\n" + b"".join(map(chunk_with_line_of, lines[1:]))
    read([CHUNKED, chunks, b"0\r\n\r\n"])

    with pytest.raises(MalformedResponse, match="too much non-data"):
        read([CHUNKED, chunks[: -len(b"\r\nx\r\n")] + b"x\r\nx\r\n"])


def test_a_line_of_4_kib_without_an_end_is_refused_at_once() -> None:
    reader = ResponseReader()
    reader.feed(CHUNKED)
    reader.read_body()
    reader.feed(b"1" + b";" * 4094)
    with pytest.raises(MalformedResponse, match="header line too long"):
        reader.feed(b";")


def test_a_head_of_the_largest_size_is_read() -> None:
    head = OK + b"A: b\r\n\r\n"
    reader = ResponseReader(max_head_bytes=len(head))
    reader.feed(head + b"a body that arrives with it")
    assert (reader.head, reader.head_bytes_left) == (Head(200), 0)

    with pytest.raises(MalformedResponse, match="response headers exceeded"):
        ResponseReader(max_head_bytes=len(head) - 1).feed(head)


def test_chunks_after_ten_kibibytes_are_not_read() -> None:
    reader = ResponseReader()
    reader.feed(CHUNKED)
    reader.read_body()
    reader.feed(b"2800\r\n" + b"x" * MAX_BODY_BYTES + b"no chunk")
    assert (reader.complete, len(reader.body)) == (True, MAX_BODY_BYTES)


def test_a_body_of_ten_kibibytes_is_complete() -> None:
    reader = ResponseReader()
    reader.feed(OK + b"\r\n")
    reader.read_body()
    reader.feed(b"x" * (MAX_BODY_BYTES - 1))
    assert not reader.complete
    reader.feed(b"x")
    assert reader.complete


@pytest.mark.parametrize(
    ("body", "line"),
    [
        pytest.param(CHUNKED + b"4\r\nhot\n\r\nzz\r\n", b"hot", id="line-before-a-broken-chunk"),
        pytest.param(OK + b"\r\n" + b" " * MAX_BODY_BYTES + b"x", b"", id="line-after-10-kib"),
    ],
)
def test_first_line_is_the_same_in_any_pieces(body: bytes, line: bytes) -> None:
    for size in (len(body), 1):
        reader = ResponseReader()
        with contextlib.suppress(MalformedResponse):
            for at in range(0, len(body), size):
                reader.feed(body[at : at + size])
                reader.read_body()
        assert reader.first_line() == (line, True)


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(b"x" * 4096, id="one-line"),
        pytest.param(b"A: " + b"x" * 60 + b"\r\n", id="many-headers"),
        pytest.param(b"HTTP/1.1 103 Early\r\n\r\n", id="many-informational-responses"),
    ],
)
def test_a_head_without_end_is_refused(flood: bytes) -> None:
    reader = ResponseReader()
    if flood.startswith(b"A"):
        reader.feed(OK)

    def feed_on() -> None:
        for _ in range(2 * MAX_HEAD_BYTES // len(flood)):
            reader.feed(flood)

    with pytest.raises(MalformedResponse, match="server response headers exceeded 65536 bytes"):
        feed_on()


def test_e2_the_time_to_join_folded_lines_is_linear() -> None:
    def seconds(lines: int) -> float:
        head = OK + b"Location: /x" + b"\r\n y" * lines
        began = time.process_time()
        assert parse_head(head).location == "/x" + " y" * lines
        return time.process_time() - began

    # Some machines count processor time in steps of a few milliseconds.
    few = max(min(seconds(10_000) for _ in range(3)), 0.005)
    assert seconds(160_000) < 64 * few


def test_e2_heads_of_informational_responses_count() -> None:
    reader = ResponseReader(max_head_bytes=100)
    informational = b"HTTP/1.1 103 Early\r\n\r\n"
    reader.feed(informational)

    assert reader.head_bytes_left == 100 - len(informational)
    with pytest.raises(MalformedResponse, match="response headers exceeded"):
        reader.feed(OK + b"A: " + b"x" * 70)


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(OK + b"\r\n", id="until-the-end"),
        pytest.param(OK + b"Content-Length: 1000000000\r\n\r\n", id="a-gigabyte"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n", id="one-huge-chunk"),
    ],
)
def test_of_an_endless_body_ten_kibibytes_are_read(start: bytes) -> None:
    reader = ResponseReader()
    reader.feed(start)
    fed = 0
    while not reader.complete:
        reader.feed(b"x" * 1000)
        fed += 1000

    assert reader.body == b"x" * MAX_BODY_BYTES
    assert fed < MAX_BODY_BYTES + 1000


PIECES = st.lists(
    st.sampled_from(
        [
            *(b"HTTP/1.1 ", b"200 OK", b"\r\n", b"\n", b"\r\n\r\n", b"0", b";", b" ", b"\x00"),
            *(b"Content-Length: 3", b"Transfer-Encoding: chunked", b"Location: ", b"A: b"),
            b"3\r\nabc\r\n",
        ]
    )
    | st.binary(max_size=20),
    max_size=20,
)


@given(PIECES)
def test_any_bytes_give_a_response_or_malformed_response(pieces: list[bytes]) -> None:
    with contextlib.suppress(MalformedResponse):
        reader = read(piece for piece in pieces if piece)
        assert reader.complete
        assert len(reader.body) <= MAX_BODY_BYTES
