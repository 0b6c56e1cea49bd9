"""httpGet against real sockets. The verdicts are those of kubelet 1.36's own prober."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.builders import entry_of
from support.cases import cases
from support.fake_runtime import ScriptedRuntime
from support.patience import PATIENCE_SECONDS
from support.probe_rows import LATE_SECONDS, ROWS, probe_of, server_of, verdict, verdicts
from support.scripted_node import loop_time
from support.scripted_server import (
    Script,
    ScriptedServer,
    answering,
    flooding,
    reset,
    self_signed,
    serving,
    silent,
)
from support.sockets import time_waits

from kruise_probe.api.meta import HostPort
from kruise_probe.api.probe import HTTPGetAction, HTTPHeader, Probe
from kruise_probe.daemon.probers import prober_for
from kruise_probe.daemon.probers.http import HttpProber
from kruise_probe.daemon.probers.prober import (
    CouldNotProbe,
    ProbeResult,
    Reason,
    Target,
    failure,
    success,
)
from kruise_probe.daemon.probers.tls import unverified_tls
from kruise_probe.daemon.probers.urls import url_of_action, url_of_redirect

pytestmark = pytest.mark.sockets

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def response(status: int, *headers: str, body: str = "body") -> bytes:
    start = f"HTTP/1.1 {status} Whatever"
    lines = (
        start,
        f"Content-Length: {len(body)}",
        *headers,
        "",
        body,
    )
    return "\r\n".join(lines).encode()


async def probe(
    server: ScriptedServer,
    path: str = "/",
    *,
    timeout: float = 20.0,
    scheme: str | None = None,
    headers: tuple[HTTPHeader, ...] = (),
) -> ProbeResult:
    action = HTTPGetAction(
        port=server.port,
        path=path,
        scheme=scheme,
        http_headers=headers,
    )
    prober = HttpProber(action, timeout_seconds=timeout, user_agent="kruise-probe/1")
    return await prober.run(Target(server.host, ""))


VERDICTS = verdicts()


@pytest.mark.parametrize("name", ROWS)
async def test_verdicts_and_requests_are_those_of_the_kubelet(name: str) -> None:
    row = ROWS[name]
    expected = VERDICTS[name]
    host = row.get("host", "127.0.0.1")
    async with serving(server_of(row), host=host) as server:
        probe = msgspec.convert(probe_of(row, server), Probe)
        prober = prober_for(
            entry_of(probe),
            commands=ScriptedRuntime(),
            user_agent="kube-probe/.",
        )
        timeout = row.get("timeout", 30.0)
        if timeout == LATE_SECONDS:
            timeout = 0.5
        prober._timeout_seconds = timeout  # type: ignore[attr-defined]
        ours = await prober.run(Target(host, ""))
        result = "success" if ours.succeeded else "failure"
        found = verdict(result, ours.message, server)

    assert found["result"] == row.get("ours", expected["result"])
    assert found["requests"] == expected["requests"]
    if expected["message"]:
        assert found["message"] == expected["message"] + row.get("said", "")


def unavailable(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return b"HTTP/1.1 503 X\r\nContent-Length: %d\r\n\r\n%s" % (size, body)


LONG_TITLES = ("<title>" * 37)[:256]
SAID = {
    "blank-lines-before": (
        unavailable(b"\r\n \t\n  warm-up \nmore"),
        ": warm-up more",
    ),
    "json": (
        unavailable(b'{\n  "status": "DOWN",\n  "db": "x"\n}'),
        ': { "status": "DOWN", "db": "x" }',
    ),
    "xml": (
        unavailable(b'<?xml version="1.0"?>\n<error>hot</error>'),
        ': <?xml version="1.0"?> <error>hot</error>',
    ),
    "title": (
        unavailable(b"<html>\n<head><title lang=en>503\nService &amp; co</TITLE></head>"),
        ": 503 Service & co",
    ),
    "title-without-end": (
        unavailable(b"<title>hot"),
        ": <title>hot",
    ),
    "titles-without-end": (
        unavailable(b"<title>" * 9000),
        f": {LONG_TITLES}",
    ),
    "blank-lines-only": (
        unavailable(b"\n \r\n"),
        "",
    ),
    "binary": (
        unavailable(b"\x00\x07\x1b[1mhot\xff"),
        ": hot\ufffd",
    ),
    "control-characters-only": (
        unavailable(b"\x00\x01"),
        "",
    ),
    "line-of-a-short-body": (
        unavailable(b"hot\nmore", 9),
        ": hot more",
    ),
    "short-line": (
        unavailable(b"ho", 9),
        ": ho",
    ),
    "long-line": (
        unavailable("ä".encode() * 9000),
        ": " + "ä" * 128,
    ),
    "broken-chunk": (
        b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhot\n\r\nzz",
        ": hot",
    ),
}


@cases("answer shown", **SAID)
async def test_a_failing_status_shows_what_the_body_says(answer: bytes, shown: str) -> None:
    async with serving(answering(answer)) as server:
        assert await probe(server) == failure(f"HTTP probe failed with statuscode: 503{shown}")


@cases(
    "body timeout shown",
    enough=(b"warm-up\n" * 128, PATIENCE_SECONDS, ": " + ("warm-up " * 32).strip()),
    title_is_enough=(b"<title>hot</title>", PATIENCE_SECONDS, ": hot"),
    part_of_a_line=(b"warm", 1.0, ": warm"),
    nothing=(b"", 1.0, ""),
)
async def test_a_failing_status_does_not_wait_for_the_rest(
    body: bytes, timeout: float, shown: str
) -> None:
    answer = answering(unavailable(body, 10_000), stays_open=True)
    async with serving(answer) as server, asyncio.timeout(PATIENCE_SECONDS / 2):
        result = await probe(server, timeout=timeout)

    assert result == failure(f"HTTP probe failed with statuscode: 503{shown}")


async def test_credentials_of_a_redirect_are_not_shown() -> None:
    def answer(_: str) -> bytes:
        return response(302, f"Location: http://user:pw@127.0.0.1:{server.port}/x")

    async with serving(answering(answer)) as server:
        result = await probe(server)
    assert not result.succeeded
    assert "pw" not in result.message


async def test_compressed_body_is_not_unpacked() -> None:
    packed = b"\x1f\x8bpacked"
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\n"
    async with serving(answering(head + packed)) as server:
        result = await probe(server)

    assert result.succeeded
    assert "Accept-Encoding" not in server.requests[0]


@cases(
    "start",
    until_the_end=b"HTTP/1.1 200 OK\r\n\r\n",
    a_gigabyte=b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n",
    chunk=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3b9aca00\r\n",
)
async def test_endless_body_is_success_at_once(start: bytes) -> None:
    async with serving(flooding(start, b"x" * 65536)) as server:
        async with asyncio.timeout(1):
            assert await probe(server) == success("x" * 1024)


AWAITING = (
    'Get "http://127.0.0.1:{port}/": '
    "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
)
READING = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"


def slowly(*parts: bytes) -> Any:
    return answering(*parts, pause_seconds=0.05)


SLOW = {
    "no-answer": (silent(), AWAITING),
    "slow-loris": (slowly(*(bytes([byte]) for byte in OK)), AWAITING),
    "body-without-end": (answering(OK[:-1], stays_open=True), READING),
    "slow-body": (slowly(b"HTTP/1.1 200 OK\r\n\r\n", *[b"x"] * 40), READING),
    "informational-responses-only": (slowly(*[b"HTTP/1.1 103 Early\r\n\r\n"] * 40), AWAITING),
}


@cases("script message", **SLOW)
async def test_too_slow_is_failure_in_time(script: Any, message: str) -> None:
    async with serving(script) as server:
        started_at = loop_time()
        result = await probe(server, timeout=0.4)

    assert result == failure(message.format(port=server.port), timed_out=True)
    assert loop_time() - started_at < PATIENCE_SECONDS


async def test_a_redirect_keeps_the_given_host_only_while_it_is_relative() -> None:
    def answer(request: str) -> bytes:
        if len(server.requests) == 1:
            return response(302, "Location: /x")
        if len(server.requests) == 2:
            return response(302, f"Location: http://127.0.0.1:{server.port}/y")
        return OK

    host = HTTPHeader(name="Host", value="a")
    async with serving(answering(answer)) as server:
        result = await probe(server, headers=(host,))
        assert result.succeeded
        hosts = [request.split("\r\n")[1] for request in server.requests]

    assert hosts == ["Host: a", "Host: a", f"Host: 127.0.0.1:{server.port}"]


async def test_a_prepared_request_does_not_outlive_the_ip_of_its_pod() -> None:
    prober = HttpProber(HTTPGetAction(port=1), timeout_seconds=20.0, user_agent="x")
    for ip in ("127.0.0.1", "127.0.0.2"):
        result = await prober.run(Target(ip, ""))
        assert f"dial tcp {ip}:1: connect: connection refused" in result.message
    with pytest.raises(CouldNotProbe) as refused:
        await prober.run(Target("", "", refusal="not this pod's"))
    assert refused.value.reason == Reason.ADDRESS_NOT_ALLOWED


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"])
async def test_proxies_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with serving(answering(OK), host="127.0.0.2") as proxy:
        monkeypatch.setenv(name, f"http://127.0.0.2:{proxy.port}")
        async with serving(answering(OK)) as server:
            assert await probe(server) == success("ok")

    assert proxy.connections == 0


async def test_any_certificate_is_good_enough(tmp_path: Path) -> None:
    names: list[str | None] = []
    context = self_signed(tmp_path)
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    async with serving(answering(OK), tls=context) as server:
        assert await probe(server, scheme="HTTPS") == success("ok")

    assert names == [None], "an IP address is no server name"


@cases(
    "answer",
    http=b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ssh=b"SSH-2.0-server\r\n",
    alert=bytes((21, 3, 1, 0, 2, 2, 40)),
    end_of_the_connection=b"",
)
async def test_server_without_tls(answer: bytes) -> None:
    async def script(reader: StreamReader, writer: StreamWriter) -> None:
        await reader.read(1024)
        writer.write(answer)

    async with serving(lambda _: script) as server:
        result = await probe(server, scheme="HTTPS")

    assert not result.succeeded
    assert not result.timed_out
    assert ": tls: " in result.message


def test_defaults_of_openssl_stay_and_renegotiation_is_off() -> None:
    options = unverified_tls("of its own").options
    assert options & ssl.OP_NO_RENEGOTIATION
    assert not ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).options & ~options


async def test_server_that_resets_before_the_handshake() -> None:
    async def script(_: StreamReader, writer: StreamWriter) -> None:
        reset(writer)

    async with serving(lambda _: script) as server:
        result = await probe(server, scheme="HTTPS")

    assert result.message.endswith(("connection reset by peer", "broken pipe"))


def ending(body: bytes, end: Callable[[StreamWriter], None]) -> Script:
    """Reads one request, sends `body`, and calls `end`."""

    async def script(reader: StreamReader, writer: StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(body)
        await writer.drain()
        end(writer)

    return script


@pytest.mark.parametrize("body", [b"", b"HTTP/1.1 200 OK\r\n\r\nhalf of the"])
async def test_server_that_resets_instead_of_an_end(tmp_path: Path, body: bytes) -> None:
    """As kubelet: what a reset cuts off is no complete answer, though only the end of the connection ends it."""

    script = ending(body, reset)
    async with serving(lambda _: script, tls=self_signed(tmp_path)) as server:
        result = await probe(server, scheme="HTTPS")

    assert not result.succeeded
    assert result.message.endswith("read: connection reset by peer")


@pytest.mark.parametrize("closes", [True, False])
async def test_end_without_close_notify_is_an_end(tmp_path: Path, closes: bool) -> None:
    def end(writer: StreamWriter) -> None:
        if not closes:
            writer.transport.abort()

    script = ending(b"HTTP/1.1 200 OK\r\n\r\nall of it", end)
    async with serving(lambda _: script, tls=self_signed(tmp_path)) as server:
        assert await probe(server, scheme="HTTPS") == success("all of it")


async def test_no_connection_is_remembered_after_its_probe() -> None:
    async with serving(answering(OK, stays_open=True)) as server:
        for _ in range(300):
            assert (await probe(server)).succeeded
        await server.until_ended(300)

        assert time_waits(server.port) < 10


async def test_a_server_reads_a_plain_end_whatever_of_its_response_was_not_read() -> None:
    ends: list[bytes | str] = []

    async def script(reader: StreamReader, writer: StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(unavailable(b"hot\n" + b"x" * 9996))
        try:
            ends.append(await reader.read(10))
        except OSError as error:
            ends.append(str(error))

    async with serving(lambda _: script) as server:
        message = "HTTP probe failed with statuscode: 503: hot " + "x" * 252
        for ended in range(1, 21):
            result = await probe(server)
            assert result.message == message
            await server.until_ended(ended)

    assert ends == [b""] * 20


def test_a_long_location_is_refused() -> None:
    """Pieces of the body may be small, a Location as long as all headers, and urllib remembers some."""
    url = url_of_action("HTTP", HostPort("127.0.0.1", 80), "/")
    location = "/" + "x" * 8000
    assert url_of_redirect(url, location) is url_of_redirect(url, location)
    with pytest.raises(ValueError, match="more than 8192 characters"):
        url_of_redirect(url, location * 2)
