"""Servers, probes of them, and the verdicts of the kubelet's own prober.

`test/contract/probers` compares the verdicts in test/data/kubelet-verdicts.jsonl with those of the real kubelet, and the unit
tests of our probers with ours. Messages are compared if users match them: a failing status, a refused connection, a timeout.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from support.scripted_server import Script, ScriptedServer, answering, silent
from support.wire import Json

VERDICTS_FILE = Path(__file__).parents[1] / "data" / "kubelet-verdicts.jsonl"
LATE_SECONDS = 4.0
"""Timeout of a probe that must connect and then wait in vain, also on a slow machine."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Peer = Callable[[ScriptedServer], Script]


class Row(NamedTuple):
    """A server and a probe of it. `ours` is our verdict where it differs from the kubelet's, `said` what ours has more."""

    peer: Peer
    action: Mapping[str, Any] = MappingProxyType({})
    kind: str = "httpGet"
    ours: str = ""
    said: str = ""
    timeout: float = 30.0
    host: str = "127.0.0.1"


def answer(status: int | str, *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status} X", "Content-Length: 4", *headers, "", "body")
    return "\r\n".join(lines).encode()


def redirect(location: str, status: int = 302) -> Peer:
    return answering(
        lambda request: (
            answer(status, f"Location: {location}") if request.startswith("GET / ") else OK
        )
    )


def hops(count: int) -> Peer:
    def of(request: str) -> bytes:
        hop = int(request.split()[1][1:] or 0)
        return OK if hop == count else answer(302, f"Location: /{hop + 1}")

    return answering(of)


def raw(text: bytes) -> Row:
    return Row(answering(text))


def header(name: str, value: str) -> Row:
    return Row(answering(OK), {"httpHeaders": [{"name": name, "value": value}]})


def path(text: str) -> Row:
    return Row(answering(OK), {"path": text})


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

ROWS: dict[str, Row] = {
    **{
        f"status-{status}": Row(answering(answer(status)))
        for status in (101, 200, 204, 206, 299, 300, 301, 305, 306, 307, 308, 399)
    },
    **{
        f"status-{status}": Row(answering(answer(status)), said=": body")
        for status in (400, 404, 500, 999)
    },
    "failing-without-body": raw(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"),
    "failing-in-lines": Row(
        answering(b"HTTP/1.1 503 X\r\n\r\n\n warm-up 40%\r\nmore\n"), said=": warm-up 40% more"
    ),
    "failing-short-body": raw(b"HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\nhi"),
    **{f"followed-{status}": Row(redirect("/next", status)) for status in (301, 302, 303, 307, 308)},
    **{
        f"location-{number}": Row(redirect(location))
        for number, location in enumerate(
            (
                *("http://127.0.0.2:1/x", "//127.0.0.2/x", "ftp://127.0.0.1/x", "", "next", "?q=1"),
                *("http://127.0.0.1:1/x", "http://localhost:1/", "javascript:alert(1)"),
                *("HTTP://127.0.0.1:1/x", "/%zz", "/a b", "../../x", "http://127.0.0.1:0/x"),
                *("http://127.0.0.1:99999/", "http://127.0.0.1:abc/", "http://127.0.0.1:65536/", "http://[::1/"),
                *("http://127.0.0.1:" + "9" * 5000, "//[::1]:80/", "http://127.0.0.1.example/", "mailto:a@b"),
                *("/x", "/\xe4"),
            )
        )
    },
    "redirects-in-a-circle": Row(redirect("/")),
    **{f"{count}-hops": Row(hops(count)) for count in (9, 10, 11)},
    **{
        f"path-{number}": path(text)
        for number, text in enumerate(
            (
                *("", "foo", "//evil/x", "http://evil/x", "/%zz", "/a?b=c d", "?x=1", "/ä", "/a%2fb"),
                *("/a\\b", '/{}|^`"<>', "*", "/a;b&c", "/?a=%zz|{}\"<>'", "/a\r\nb", "/a#b"),
                *(" /a", "/a?", "?", "%", "/50%", "/a%2fb;c"),
            )
        )
    },
    **{
        f"header-{number}": header(name, value)
        for number, (name, value) in enumerate(
            (
                *(("x-foo", " 1 "), ("user-agent", ""), ("accept", ""), ("Accept", "x"), ("a b", "x")),
                *(("", "x"), ("a", "x\r\ny: z"), ("a", "x\x7f"), ("a", "xü"), ("content-length", "7")),
                *(("Connection", "keep-alive"), ("Host", ""), ("Host", "example.com"), ("User-Agent", " ")),
                *(("Host", "x\r\ny: z"), ("Transfer-Encoding", "x")),
            )
        )
    },
    "headers-twice": Row(
        answering(OK), {"httpHeaders": [{"name": "x", "value": each} for each in (" 1 ", "2")]}
    ),
    "headers-of-the-kubelet-left-out": Row(
        answering(OK), {"httpHeaders": [{"name": each, "value": ""} for each in ("accept", "user-agent")]}
    ),
    "another-host-in-the-request": Row(
        redirect("/x"), {"httpHeaders": [{"name": "Host", "value": "example.com"}]}
    ),
    "garbage": raw(b"hello\r\n\r\n"),
    "nothing": raw(b""),
    "half-a-head": raw(HEAD + b"a: b\r\n"),
    "informational-only": raw(b"HTTP/1.1 103 X\r\n\r\n"),
    "another-protocol": raw(b"SSH-2.0-x\r\n"),
    "http-2": raw(b"\0\0\x12\4\0\0\0\0\0"),
    "another-major-version": raw(b"HTTP/3.0 200 OK\r\n\r\nok"),
    "status-of-four-digits": raw(b"HTTP/1.1 2000 OK\r\n\r\n"),
    "not-ascii": raw(HEAD + b"a: \xff\r\n\r\nok"),
    "body-until-the-end": raw(HEAD + b"\r\nall of it"),
    "more-than-the-length": raw(OK + OK),
    "huge-length": raw(HEAD + b"Content-Length: %d\r\n\r\nok" % 10**40),
    "two-encodings": raw(CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")._replace(ours="success"),
    "blank-after-a-chunk-length": raw(CHUNKED + b"2 \r\nok\r\n0\r\n\r\n"),
    "short-chunk": raw(CHUNKED + b"9\r\nok"),
    "trailer": raw(CHUNKED + b"2\r\nok\r\n0\r\nA: b\r\n\r\n"),
    "head-above-64-kib": Row(answering(HEAD + b"a: " + b"x" * (70 << 10) + b"\r\n\r\nok"), ours="failure"),
    "half-a-line": raw(b"HTTP/1.1 200"),
    "another-version": raw(b"HTTX/1.1 200 OK\r\n\r\n"),
    "status-of-letters": raw(b"HTTP/1.1 abc OK\r\n\r\n"),
    "no-reason": raw(b"HTTP/1.1 200\r\n\r\nbody"),
    "line-feeds-only": raw(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
    "no-colon": raw(b"HTTP/1.1 200 OK\r\nfoo\r\n\r\n"),
    "folded": raw(b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\nhi"),
    "two-equal-lengths": raw(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok"
    )._replace(ours="failure"),
    "blank-before-a-colon": raw(b"HTTP/1.1 200 OK\r\nX : y\r\n\r\nok")._replace(ours="failure"),
    "length-beside-chunks": raw(CHUNKED[:-2] + b"Content-Length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    "another-minor-version": raw(b"HTTP/1.7 200 OK\r\n\r\nok"),
    "folded-encoding": raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    ),
    "folded-location": Row(redirect("\r\n /x")),
    "redirect-with-headers": Row(
        redirect("/x"),
        {"httpHeaders": [{"name": "X-A", "value": "1"}] },
    ),
    "bad-length": raw(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhi"),
    "two-lengths": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi"),
    "another-encoding": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhi")._replace(ours="success"),
    **{
        f"length-{length}": raw(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + b"x" * 10240
        )
        for length in (10**18, 2**63 - 1)
    },
    "length-above-63-bits": raw(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2**63)),
    "length-with-zeros": raw(b"HTTP/1.1 200 OK\r\nContent-Length: %025d\r\n\r\nok" % 2),
    "bad-length-beside-chunks": raw(
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "bad-length-of-204": raw(b"HTTP/1.1 204 X\r\nContent-Length: x\r\n\r\n"),
    "bad-chunk-after-10-kib": raw(CHUNKED + b"2801\r\n" + b"x" * 10241 + b"\r\nzz\r\n"),
    "chunks": raw(CHUNKED + b"2;a=b\r\nhi\r\n0\r\n\r\n"),
    "informational": raw(b"HTTP/1.1 103 X\r\n\r\n" * 5 + OK),
    "short-body": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"),
    "bad-chunk": raw(CHUNKED + b"zz\r\n"),
    "slow-body": Row(answering(OK[:-1], stays_open=True), timeout=LATE_SECONDS),
    "slow-head": Row(answering(b"HTTP/1.1 200 OK\r\n", stays_open=True), timeout=LATE_SECONDS),
    "ipv6": Row(answering(OK), host="::1"),
    "tcp": Row(silent(), kind="tcpSocket"),
    "tcp-ipv6": Row(silent(), kind="tcpSocket", host="::1"),
    "refused": Row(silent(), {"port": 1}),
    "tcp-refused": Row(silent(), {"port": 1}, kind="tcpSocket"),
    "tcp-refused-ipv6": Row(silent(), {"port": 1}, kind="tcpSocket", host="::1"),
    "grpc-silent": Row(silent(), kind="grpc", timeout=1.0),
}  # fmt: skip


MATCHED = ("HTTP probe failed with statuscode", "connection refused", "Client.Timeout", "timeout: ")


def probe_of(row: Row, server: ScriptedServer) -> Json:
    """The probe of a row. The path is what the API server fills in."""
    return {row.kind: {"port": server.port, "path": "/", **row.action}}


def verdict(result: str, message: str, server: ScriptedServer) -> Json:
    """A verdict as the file has it: without the server's port, and with the message only if users match it."""
    requests = [request.strip().split("\r\n") for request in server.requests]
    server.requests = []
    text = re.sub(r"127\.0\.0\.1:\d+->", "", message).strip()
    found = {
        "result": "warning" if message.startswith("Probe terminated redirects") else result,
        "message": text if any(words in text for words in MATCHED) else "",
        # Names of headers have no case, and no order.
        "requests": [
            [line, *sorted(f"{n.lower()}{v}" for n, _, v in (each.partition(":") for each in rest))]
            for line, *rest in requests
        ],
    }
    encoded = json.dumps(found, ensure_ascii=False)
    return dict(json.loads(re.sub(rf"\b{server.port}\b", "PORT", encoded)))


def verdicts() -> dict[str, Json]:
    """The verdicts of the kubelet by the names of the rows."""
    lines = VERDICTS_FILE.read_text().splitlines()
    return {found.pop("row"): found for found in map(json.loads, lines)}
