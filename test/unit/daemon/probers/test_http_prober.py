"""httpGet against real sockets. Results and messages were compared with those of kubelet 1.36's own prober."""

import asyncio
import contextlib
import errno
import socket
import ssl
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.patience import PATIENCE_SECONDS
from support.probing import result_of
from support.scripted_server import (
    ScriptedServer,
    answering,
    flooding,
    self_signed,
    serving,
    silent,
)

from kruise_probe.api.core import HTTPGetAction, HTTPHeader
from kruise_probe.api.host_port import HostPort
from kruise_probe.daemon.probers.dialing import (
    BrokenConnection,
    Connection,
    ProbeDialFailed,
    new_socket,
)
from kruise_probe.daemon.probers.http import HttpProber
from kruise_probe.daemon.probers.prober import (
    PendingResponse,
    ProbeResult,
    Target,
    failure,
    success,
)
from kruise_probe.daemon.probers.read_budget import ReadBudget
from kruise_probe.daemon.probers.tls_dialing import dial_tls, unverified_tls

pytestmark = pytest.mark.sockets

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def response(status: int, *headers: str, body: str = "body") -> bytes:
    lines = (f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers, "", body)
    return "\r\n".join(lines).encode()


async def probe(
    server: ScriptedServer,
    path: str = "/",
    *,
    timeout: float = 20.0,
    scheme: str | None = None,
    headers: tuple[HTTPHeader, ...] = (),
) -> ProbeResult:
    action = HTTPGetAction(port=server.port, path=path, scheme=scheme, http_headers=headers)
    prober = HttpProber(action, timeout_seconds=timeout, user_agent="kruise-probe/1")
    return await result_of(prober, Target(server.host, ""))


@pytest.mark.parametrize(
    ("status", "result"),
    [
        *((status, success("body")) for status in (200, 206, 299)),
        (204, success("")),
        (101, failure("HTTP probe failed with statuscode: 101")),
        *(
            (
                status,
                success(
                    "Probe terminated redirects, Response body: body",
                    warning=True,
                ),
            )
            for status in (300, 301, 302, 303, 305, 307, 308, 399)
        ),
        *(
            (status, failure(f"HTTP probe failed with statuscode: {status}: body"))
            for status in (400, 404, 500, 503, 999)
        ),
    ],
)
async def test_status_decides(status: int, result: ProbeResult) -> None:
    async with serving(answering(response(status))) as server:
        assert await probe(server) == result


async def test_a_response_that_arrives_within_the_round_needs_no_task() -> None:
    """Most attempts of a node end like this. A task costs a tenth of the daemon's CPU time."""
    opened: list[socket.socket] = []

    def open_socket(address: HostPort) -> socket.socket:
        opened.append(new_socket(address))
        return opened[-1]

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        action = HTTPGetAction(port=listening.getsockname()[1])
        prober = HttpProber(
            action, timeout_seconds=20.0, user_agent="kruise-probe/1", open_socket=open_socket
        )
        started = prober.probe(Target("127.0.0.1", ""))
        assert isinstance(started, PendingResponse)
        peer, _ = listening.accept()
        with closing(peer):
            peer.sendall(response(200))
            assert started.poll() == success("body")
            assert [each.fileno() for each in opened] == [-1]


async def test_path_that_is_no_path_fails_without_a_request() -> None:
    async with serving(answering(OK)) as server:
        result = await probe(server, "a:b")

    assert result == failure('Get "http:b": http: no Host in request URL')
    assert server.connections == 0


def unavailable(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 503 X\r\nContent-Length: %d\r\n\r\n%s" % (size, body)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        pytest.param(unavailable(b""), "", id="no-body"),
        pytest.param(unavailable(b"warm-up 40%"), ": warm-up 40%", id="one-line"),
        pytest.param(unavailable(b"warm-up 40%\r\nmore"), ": warm-up 40%", id="first-of-two-lines"),
        pytest.param(unavailable(b"\r\n \t\n  warm-up \nmore"), ": warm-up", id="blank-lines-before"),
        pytest.param(unavailable(b"\n \r\n"), "", id="blank-lines-only"),
        pytest.param(unavailable(b"\x00\x07\x1b[1mhot\xff"), ": hot\ufffd", id="binary"),
        pytest.param(unavailable(b"\x00\x01"), "", id="control-characters-only"),
        pytest.param(unavailable(b"hot\nmore", 9), ": hot", id="line-of-a-short-body"),
        pytest.param(unavailable(b"ho", 9), ": ho", id="short-line"),
        pytest.param(unavailable("ä".encode() * 9000), ": " + "ä" * 492, id="long-line"),
        pytest.param(
            b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhot\n\r\nzz", ": hot", id="broken-chunk"
        ),
    ],
)  # fmt: skip
async def test_a_failing_status_shows_the_first_line_of_the_body(answer: bytes, shown: str) -> None:
    async with serving(answering(answer)) as server:
        assert await probe(server) == failure(f"HTTP probe failed with statuscode: 503{shown}")


@pytest.mark.parametrize(
    ("body", "timeout", "shown"),
    [
        pytest.param(b"warm-up\n", PATIENCE_SECONDS, ": warm-up", id="line-is-enough"),
        pytest.param(b"warm", 1.0, ": warm", id="part-of-a-line"),
        pytest.param(b"", 1.0, "", id="nothing"),
    ],
)
async def test_a_failing_status_does_not_wait_for_the_rest(
    body: bytes, timeout: float, shown: str
) -> None:
    answer = answering(unavailable(body, 100), stays_open=True)
    async with serving(answer) as server, asyncio.timeout(PATIENCE_SECONDS / 2):
        result = await probe(server, timeout=timeout)

    assert result == failure(f"HTTP probe failed with statuscode: 503{shown}")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/next", "next", "http://127.0.0.1:{port}/next"])
async def test_redirect_on_the_pod_is_followed(status: int, location: str) -> None:
    def answer(request: str) -> bytes:
        if request.startswith("GET /next "):
            return OK
        return response(status, f"Location: {location.format(port=server.port)}")

    async with serving(answering(answer)) as server:
        assert await probe(server) == success("ok")
        assert len(server.requests) == 2
        assert f"\r\nReferer: http://127.0.0.1:{server.port}/\r\n" in server.requests[1]


@pytest.mark.parametrize("location", ["http://127.0.0.2:{port}/", "//127.0.0.2:{port}/x"])
async def test_redirect_to_another_host_is_success_without_a_request(location: str) -> None:
    async with serving(answering(OK), host="127.0.0.2") as elsewhere:
        redirect = response(302, f"Location: {location.format(port=elsewhere.port)}")
        async with serving(answering(redirect)) as server:
            result = await probe(server)

    assert result == success("Probe terminated redirects, Response body: body", warning=True)
    assert elsewhere.connections == 0


async def test_redirect_goes_from_http_to_https(tmp_path: Path) -> None:
    async with serving(answering(OK), tls=self_signed(tmp_path)) as secure:
        redirect = response(302, f"Location: https://127.0.0.1:{secure.port}/x")
        async with serving(answering(redirect)) as server:
            assert await probe(server) == success("ok")


@pytest.mark.parametrize(
    ("hops", "result"),
    [
        pytest.param(9, success("ok"), id="nine-are-followed"),
        pytest.param(10, failure('Get "/10": stopped after 10 redirects'), id="ten-are-not"),
        pytest.param(11, failure('Get "/10": stopped after 10 redirects'), id="nor-eleven"),
    ],
)
async def test_redirects_end(hops: int, result: ProbeResult) -> None:
    def answer(request: str) -> bytes:
        hop = int(request.split()[1][1:] or 0)
        return OK if hop == hops else response(302, f"Location: /{hop + 1}")

    async with serving(answering(answer)) as server:
        assert await probe(server) == result
        assert len(server.requests) <= 10


async def test_credentials_of_a_redirect_are_sent_and_not_shown() -> None:
    def answer(request: str) -> bytes:
        if "\r\nAuthorization: Basic dXNlcjpwdw==\r\n" in request and accepts:
            return OK
        return response(302, f"Location: http://user:pw@127.0.0.1:{server.port}/x")

    async with serving(answering(answer)) as server:
        accepts = True
        assert await probe(server) == success("ok")
        accepts = False
        assert await probe(server) == failure(
            f'Get "http://127.0.0.1:{server.port}/x": stopped after 10 redirects'
        )


async def test_redirect_in_a_circle_fails() -> None:
    async with serving(answering(response(302, "Location: /"))) as server:
        result = await probe(server)

    assert result == failure('Get "/": stopped after 10 redirects')


async def test_host_header_is_sent_and_changes_nothing_else() -> None:
    async with (
        serving(answering(OK), host="127.0.0.2") as elsewhere,
        serving(answering(OK)) as server,
    ):
        header = HTTPHeader(name="Host", value=f"127.0.0.2:{elsewhere.port}")
        assert await probe(server, headers=(header,)) == success("ok")

    assert f"\r\nHost: 127.0.0.2:{elsewhere.port}\r\n" in server.requests[0]
    assert elsewhere.connections == 0


async def test_compressed_body_is_not_unpacked() -> None:
    packed = b"\x1f\x8bpacked"
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\n"
    async with serving(answering(head + packed)) as server:
        result = await probe(server)

    assert result.succeeded
    assert "Accept-Encoding" not in server.requests[0]


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", id="until-the-end"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", id="a-gigabyte"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3b9aca00\r\n", id="chunk"
        ),
    ],
)
async def test_endless_body_is_success_at_once(start: bytes) -> None:
    async with serving(flooding(start, b"x" * 65536)) as server:
        async with asyncio.timeout(1):
            assert await probe(server) == success("x" * 1024)


async def test_endless_head_fails_at_once() -> None:
    async with serving(flooding(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 1000)) as server:
        async with asyncio.timeout(1):
            result = await probe(server)

    assert not result.succeeded
    assert result.message.endswith("server response headers exceeded 65536 bytes; aborted")


AWAITING = (
    'Get "http://127.0.0.1:{port}/": '
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
)
READING = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param(silent(), AWAITING, id="no-answer"),
        pytest.param(
            answering(*(bytes([byte]) for byte in OK), pause_seconds=0.05),
            AWAITING,
            id="slow-loris",
        ),
        pytest.param(answering(OK[:-1], stays_open=True), READING, id="body-without-end"),
        pytest.param(
            answering(b"HTTP/1.1 200 OK\r\n\r\n", *([b"x"] * 40), pause_seconds=0.05),
            READING,
            id="slow-body",
        ),
        pytest.param(
            answering(*([b"HTTP/1.1 103 Early\r\n\r\n"] * 40), pause_seconds=0.05),
            AWAITING,
            id="informational-responses-only",
        ),
    ],
)
async def test_too_slow_is_failure_in_time(script: Any, message: str) -> None:
    loop = asyncio.get_running_loop()
    async with serving(script) as server:
        started_at = loop.time()
        result = await probe(server, timeout=0.4)

    assert result == failure(message.format(port=server.port), timed_out=True)
    assert loop.time() - started_at < PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(b"", 'Get "http://127.0.0.1:{port}/": EOF', id="nothing"),
        pytest.param(
            b"SSH-2.0-x\r\n",
            'Get "http://127.0.0.1:{port}/": net/http: HTTP/1.x transport connection broken: '
            'malformed HTTP response "SSH-2.0-x"',
            id="another-protocol",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", "unexpected EOF", id="short-body"
        ),
        pytest.param(
            response(302, "Location: ftp://127.0.0.1/x"),
            'Get "ftp://127.0.0.1/x": unsupported protocol scheme "ftp"',
            id="redirect-to-another-protocol",
        ),
        pytest.param(
            response(302, "Location: http://127.0.0.1:1/x"),
            'Get "http://127.0.0.1:1/x": dial tcp 127.0.0.1:1: connect: connection refused',
            id="redirect-to-a-closed-port",
        ),
        pytest.param(
            response(302, "Location: http://127.0.0.1:65535/x"),
            'Get "http://127.0.0.1:65535/x": dial tcp 127.0.0.1:65535: connect: connection refused',
            id="redirect-to-the-last-port",
        ),
        pytest.param(
            response(302, "Location: http://127.0.0.1:65536/x"),
            'Get "http://127.0.0.1:65536/x": dial tcp: address 65536: invalid port',
            id="redirect-to-no-port",
        ),
    ],
)
async def test_malformed_responses_fail_with_the_text_of_go(answer: bytes, message: str) -> None:
    async with serving(answering(answer)) as server:
        result = await probe(server)

    assert result == failure(message.format(port=server.port))


async def test_header_that_cannot_be_sent_fails_without_a_request() -> None:
    header = HTTPHeader(name="A", value="x\r\nB: y")
    async with serving(answering(OK)) as server:
        result = await probe(server, headers=(header,))

    assert result.message.endswith('net/http: invalid header field value for "A"')
    assert server.connections == 0


async def test_refused_connection() -> None:
    async with serving(answering(OK)) as server:
        pass
    result = await probe(server)

    assert result == failure(
        f'Get "http://127.0.0.1:{server.port}/": '
        f"dial tcp 127.0.0.1:{server.port}: connect: connection refused",
    )


async def test_connection_that_fails_later_has_its_reason() -> None:
    class Unreachable(socket.socket):
        def connect_ex(self, _: object) -> int:
            return errno.EINPROGRESS

        def getsockopt(self, *_: object) -> int:  # type: ignore[override]
            return errno.EHOSTUNREACH

    def open_socket(_: HostPort) -> socket.socket:
        own = Unreachable()
        own.setblocking(False)
        return own

    prober = HttpProber(
        HTTPGetAction(port=80), timeout_seconds=20.0, user_agent="x", open_socket=open_socket
    )
    assert await result_of(prober, Target("127.0.0.1", "")) == failure(
        'Get "http://127.0.0.1:80/": dial tcp 127.0.0.1:80: connect: no route to host'
    )


async def test_ipv6() -> None:
    async with serving(answering(OK), host="::1") as server:
        assert await probe(server) == success("ok")

    assert f"\r\nHost: [::1]:{server.port}\r\n" in server.requests[0]


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"])
async def test_proxies_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with serving(answering(OK), host="127.0.0.2") as proxy:
        monkeypatch.setenv(name, f"http://127.0.0.2:{proxy.port}")
        async with serving(answering(OK)) as server:
            assert await probe(server) == success("ok")

    assert proxy.connections == 0


class TestHttps:
    async def test_any_certificate_is_good_enough(self, tmp_path: Path) -> None:
        names: list[str | None] = []
        context = self_signed(tmp_path)
        context.sni_callback = lambda _socket, name, _context: names.append(name)
        async with serving(answering(OK), tls=context) as server:
            assert await probe(server, scheme="HTTPS") == success("ok")

        assert names == [None], "an IP address is no server name"

    async def test_server_without_tls(self) -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _ = await reader.read(1024)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        async with serving(lambda _: script) as server:
            result = await probe(server, scheme="HTTPS")

        assert result == failure(
            f'Get "https://127.0.0.1:{server.port}/": '
            "http: server gave HTTP response to HTTPS client",
        )

    async def test_server_of_another_protocol(self) -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-server\r\n")
            _ = await reader.read(1024)

        async with serving(lambda _: script) as server:
            result = await probe(server, scheme="HTTPS")

        assert result.message.endswith("tls: first record does not look like a TLS handshake")

    async def test_silent_server(self) -> None:
        async with serving(silent()) as server:
            result = await probe(server, scheme="HTTPS", timeout=0.3)

        assert result.timed_out

    async def test_server_that_closes_the_connection(self) -> None:
        async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await reader.readexactly(1)

        async with serving(lambda _: script) as server:
            result = await probe(server, scheme="HTTPS")

        assert not result.succeeded
        assert not result.timed_out

    def test_defaults_of_openssl_stay_and_renegotiation_is_off(self) -> None:
        options = unverified_tls("of its own").options
        assert options & ssl.OP_NO_RENEGOTIATION
        assert not ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).options & ~options

    async def test_a_failed_handshake_closes_the_socket(self) -> None:
        """At once, not only when the error is dropped, whose traceback refers to the connection."""
        opened: list[socket.socket] = []

        def open_socket(address: HostPort) -> socket.socket:
            opened.append(new_socket(address))
            return opened[-1]

        async def script(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await reader.readexactly(1)

        async with serving(lambda _: script) as server:
            address = HostPort(server.host, server.port)
            with pytest.raises(ProbeDialFailed) as failed:
                await dial_tls(address, ReadBudget(), unverified_tls("http/1.1"), open_socket)

        assert (failed.type, [each.fileno() for each in opened]) == (ProbeDialFailed, [-1])

    async def test_server_that_wants_a_certificate(self, tmp_path: Path) -> None:
        context = self_signed(tmp_path)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(tmp_path / "certificate.pem")

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_side=True)
            while data := await reader.read(65536):
                _ = incoming.write(data)
                with contextlib.suppress(ssl.SSLError):
                    tls.do_handshake()
                writer.write(outgoing.read())

        async with serving(lambda _: script) as server:
            result = await probe(server, scheme="HTTPS")

        assert result == failure(
            f'Get "https://127.0.0.1:{server.port}/": remote error: tls: certificate required',
        )

    async def test_alert_is_read_after_the_server_has_closed(self, tmp_path: Path) -> None:
        context = self_signed(tmp_path)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(tmp_path / "certificate.pem")
        ended = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_side=True)
            refused = False
            while not refused:
                _ = incoming.write(await reader.read(65536))
                try:
                    tls.do_handshake()
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    refused = True
                writer.write(outgoing.read())
            writer.close()
            await writer.wait_closed()
            ended.set()

        async def send_on(connection: Connection) -> None:
            while True:
                await connection.send(b"x")
                await asyncio.sleep(0)

        async with serving(lambda _: script) as server:
            address = HostPort("127.0.0.1", server.port)
            connection = await dial_tls(address, ReadBudget(), unverified_tls("h2"), new_socket)
            await ended.wait()
            with pytest.raises(BrokenConnection, match="remote error: tls: certificate required"):
                await send_on(connection)
            connection.close()

    async def test_server_that_resets_before_the_handshake(self) -> None:
        async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

        async with serving(lambda _: script) as server:
            result = await probe(server, scheme="HTTPS")

        assert result.message.endswith(("connection reset by peer", "broken pipe"))

    @pytest.mark.parametrize("body", [b"", b"HTTP/1.1 200 OK\r\n\r\nhalf of the"])
    async def test_server_that_resets_instead_of_an_end(self, tmp_path: Path, body: bytes) -> None:
        """As kubelet: what a reset cuts off is no complete answer, though only the end of the connection ends it."""

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _ = await reader.readuntil(b"\r\n\r\n")
            writer.write(body)
            await writer.drain()
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

        async with serving(lambda _: script, tls=self_signed(tmp_path)) as server:
            result = await probe(server, scheme="HTTPS")

        words = f"read tcp 127.0.0.1:{server.port}: read: connection reset by peer"
        getting = "" if body else f'Get "https://127.0.0.1:{server.port}/": '
        assert result == failure(getting + words)

    @pytest.mark.parametrize("closes", [True, False])
    async def test_end_without_close_notify_is_an_end(self, tmp_path: Path, closes: bool) -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _ = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
            await writer.drain()
            if not closes:
                writer.transport.abort()

        async with serving(lambda _: script, tls=self_signed(tmp_path)) as server:
            assert await probe(server, scheme="HTTPS") == success("all of it")

    @pytest.mark.parametrize(
        ("alert", "words"),
        [
            (40, "handshake failure"),
            (48, "unknown certificate authority"),
            (45, "expired certificate"),
            (70, "protocol version not supported"),
            (112, "unrecognized name"),
            (120, "no application protocol"),
        ],
    )
    async def test_alerts_have_the_text_of_go(self, alert: int, words: str) -> None:
        """The server is too old, or serves only those who name it: Go's words for that are not OpenSSL's."""

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            _ = await reader.read(4096)
            writer.write(bytes((21, 3, 1, 0, 2, 2, alert)))

        async with serving(lambda _: script) as server:
            result = await probe(server, scheme="HTTPS")

        assert result.message == (
            f'Get "https://127.0.0.1:{server.port}/": remote error: tls: {words}'
        )

    async def test_large_body(self, tmp_path: Path) -> None:
        flood = flooding(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536)
        async with serving(flood, tls=self_signed(tmp_path)) as server:
            assert await probe(server, scheme="HTTPS") == success("x" * 1024)


def left_behind(port: int) -> int:
    """Connections to or from `port` that the kernel still remembers."""
    wanted = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(wanted in (row[1][-5:], row[2][-5:]) and row[3] != "0A" for row in rows)


async def test_no_connection_is_remembered_after_its_probe() -> None:
    async with serving(answering(OK, stays_open=True)) as server:
        for _ in range(300):
            assert (await probe(server)).succeeded
        await asyncio.sleep(0.1)

        assert left_behind(server.port) < 10


async def test_a_server_reads_a_plain_end_whatever_of_its_response_was_not_read() -> None:
    ends: list[bytes | str] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _ = await reader.readuntil(b"\r\n\r\n")
        writer.write(unavailable(b"hot\n" + b"x" * 9996))
        try:
            ends.append(await reader.read(10))
        except OSError as error:
            ends.append(str(error))

    async with serving(lambda _: script) as server:
        for number in range(20):
            result = await probe(server)
            assert result.message == "HTTP probe failed with statuscode: 503: hot"
            await server.until_ended(number + 1)

    assert ends == [b""] * 20


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.binary(max_size=200)
        | st.sampled_from(
            [b"HTTP/1.1 200 OK\r\n", b"\r\n", b"Location: /\r\n", b"HTTP/1.1 302 F\r\n"]
        ),
        max_size=6,
    )
)
def test_any_response_gives_a_result(parts: list[bytes]) -> None:
    async def once() -> ProbeResult:
        async with serving(answering(*parts)) as server:
            return await probe(server)

    result = asyncio.run(once())

    assert not result.timed_out
    assert len(result.message.encode()) <= 1024
