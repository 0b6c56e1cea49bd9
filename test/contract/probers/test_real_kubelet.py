"""Our probers beside kubelet's own, built from its source: the same verdict and the same requests.

Messages are compared if users match them: a failing status, a refused connection, a timeout. After a failing status, ours
also has the first line of the body.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio
import msgspec
import pytest
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from support.builders import entry_of
from support.fake_runtime import ScriptedRuntime
from support.patience import PATIENCE_SECONDS
from support.scripted_server import Script, ScriptedServer, answering, serving, silent

from kruise_probe.api.core import GRPCAction, Probe
from kruise_probe.daemon.probers.grpc import GrpcProber
from kruise_probe.daemon.probers.prober import ProbeResult, Target
from kruise_probe.daemon.probers.selection import prober_for

HERE = Path(__file__).parent
CLUSTER = HERE.parents[2] / "hack" / "cluster"
BUILD_SECONDS = 600
pytestmark = pytest.mark.timeout(BUILD_SECONDS)
"""The first test here waits for the build."""

LATE_SECONDS = 4.0
"""Timeout of a probe that must connect and then wait in vain, also on a slow machine."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Peer = Callable[[ScriptedServer], Script]


class Kubelet:
    """A process with kubelet's probers in it."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def probe(self, ip: str, probe: dict[str, Any], timeout: float) -> dict[str, str]:
        assert self._process.stdin
        assert self._process.stdout
        asked = {"ip": ip, "probe": probe, "timeout": timeout}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer: dict[str, str] = json.loads(self._process.stdout.readline())
        return answer

    def end(self) -> None:
        _ = self._process.communicate(timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="session")
def kubelet(real_kubeconfig: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelet]:
    """Built in the lane with the real cluster only, because that has what the build needs."""
    if not shutil.which("go"):
        pytest.skip("kubelet's prober is built by Go")
    folder = tmp_path_factory.mktemp("kubelet")
    built = subprocess.run([CLUSTER, "bin"], check=True, capture_output=True, text=True).stdout
    module = Path(built.strip()) / "module"
    for file in (HERE / "kubelet" / "main.go", module / "go.mod", module / "go.sum"):
        _ = shutil.copy(file, folder)
    # As hack/cluster builds the kubelet, so that nearly all of it is in Go's cache.
    static = os.environ | {"CGO_ENABLED": "0"}
    for command in (
        # The prober does not need it, and the proxy does not serve it in all versions.
        ["go", "mod", "edit", "-droprequire=k8s.io/sample-apiserver"],
        ["go", "build", "-mod=mod", "-trimpath", "-tags=providerless", "-o", "prober", "."],
    ):
        _ = subprocess.run(command, cwd=folder, check=True, timeout=BUILD_SECONDS, env=static)
    started = Kubelet(folder / "prober")
    yield started
    started.end()


class Row(NamedTuple):
    """`ours` is our verdict where it differs from kubelet's."""

    peer: Peer
    action: dict[str, Any] = {}  # noqa: RUF012 - never written
    kind: str = "httpGet"
    ours: str = ""
    first_line: str = ""
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


def redirected_to_itself(location: str, authorization: str | None = None) -> Row:
    """Redirects to `location`, with the server's address in place of `{}`, and from there to `b`."""

    def of(request: str) -> bytes:
        if request.startswith("GET / "):
            address = request.partition("Host: ")[2].partition("\r\n")[0]
            return answer(302, f"Location: {location.format(address)}")
        return answer(302, "Location: b") if request.startswith("GET /x ") else OK

    headers = [] if authorization is None else [{"name": "authorization", "value": authorization}]
    return Row(answering(of), {"httpHeaders": headers})


def header(name: str, value: str) -> Row:
    return Row(answering(OK), {"httpHeaders": [{"name": name, "value": value}]})


def path(text: str) -> Row:
    return Row(answering(OK), {"path": text})


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

ROWS: dict[str, Row] = {
    **{
        f"status-{status}": Row(answering(answer(status)))
        for status in (101, 200, 204, 206, 299, 300, 301, 305, 306, 307, 308, 399)
    },
    **{
        f"status-{status}": Row(answering(answer(status)), first_line="body")
        for status in ("000", "099", 400, 404, 500, 999)
    },
    "failing-without-body": raw(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"),
    "failing-in-lines": Row(
        answering(b"HTTP/1.1 503 X\r\n\r\n\n warm-up 40%\r\nmore\n"), first_line="warm-up 40%"
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
                *("http://127.0.0.1:99999/", "http://127.0.0.1:abc/"),
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
                *(" /a", "/a?", "?", "%"),
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
                ("Host", "x\r\ny: z"),
            )
        )
    },
    "garbage": raw(b"hello\r\n\r\n"),
    "nothing": raw(b""),
    "half-a-line": raw(b"HTTP/1.1 200"),
    "another-version": raw(b"HTTX/1.1 200 OK\r\n\r\n"),
    "status-of-letters": raw(b"HTTP/1.1 abc OK\r\n\r\n"),
    "no-reason": raw(b"HTTP/1.1 200\r\n\r\nbody"),
    "line-feeds-only": raw(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
    "no-colon": raw(b"HTTP/1.1 200 OK\r\nfoo\r\n\r\n"),
    "folded": raw(b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\nhi"),
    "folded-length": Row(
        answering(b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n \r\n\r\nok"), ours="failure"
    ),
    "two-equal-lengths": Row(
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok"), ours="failure"
    ),
    "blank-before-a-colon": Row(
        answering(b"HTTP/1.1 200 OK\r\nX : y\r\n\r\nok"), ours="failure"
    ),
    "length-beside-chunks": raw(CHUNKED[:-2] + b"Content-Length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    "another-minor-version": raw(b"HTTP/1.7 200 OK\r\n\r\nok"),
    "folded-encoding": raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    ),
    "folded-location": Row(redirect("\r\n /x")),
    **{
        f"credentials-{number}": redirected_to_itself(location)
        for number, location in enumerate(
            (
                *("http://user:pw@{}/x", "//user@{}/x", "http://@{}/x", "http://a%3a:b%40:c@d@{}/x"),
            )
        )
    },
    "credentials-beside-a-header": redirected_to_itself("http://user:pw@{}/x", "Bearer x"),
    "redirect-with-headers": Row(
        redirect("/x"),
        {"httpHeaders": [{"name": "X-A", "value": "1"}] },
    ),
    "bad-length": raw(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhi"),
    "two-lengths": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi"),
    "another-encoding": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhi"),
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
    "grpc-silent": Row(silent(), kind="grpc", timeout=1.0),
}  # fmt: skip


def name_of(result: ProbeResult) -> str:
    if result.message.startswith("Probe terminated redirects"):
        return "warning"
    return "success" if result.succeeded else "failure"


MATCHED = ("HTTP probe failed with statuscode", "connection refused", "Client.Timeout", "timeout: ")


def matched(message: str) -> str:
    """The message if users match it, without the port that a connection comes from."""
    text = re.sub(r"127\.0\.0\.1:\d+->", "", message).strip()
    return text if any(words in text for words in MATCHED) else ""


def sent(requests: list[str]) -> list[tuple[str, list[str]]]:
    """Request line and headers of each request; names of headers have no case, and no order."""
    parts = [request.strip().split("\r\n") for request in requests]
    return [
        (
            line,
            sorted(
                name.lower() + value for name, _, value in (each.partition(":") for each in rest)
            ),
        )
        for line, *rest in parts
    ]


@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in ROWS.items()])
async def test_verdicts_and_requests_equal_the_kubelets(kubelet: Kubelet, row: Row) -> None:
    async with serving(row.peer, host=row.host) as server:
        # The path is what the API server fills in.
        raw_probe = {row.kind: {"port": server.port, "path": "/", **row.action}}
        theirs = await asyncio.to_thread(kubelet.probe, row.host, raw_probe, row.timeout)
        their_requests, server.requests = server.requests, []
        prober = prober_for(
            entry_of(msgspec.convert(raw_probe, Probe)),
            commands=ScriptedRuntime(),
            user_agent="kube-probe/.",
        )
        prober._timeout_seconds = row.timeout  # type: ignore[attr-defined]
        ours = await prober.run(Target(row.host, ""))

    assert name_of(ours) == (row.ours or theirs["result"])
    expected = matched(theirs["message"])
    if expected:
        assert ours.message == expected + (f": {row.first_line}" if row.first_line else "")
    assert sent(server.requests) == sent(their_requests)


async def test_refused_connection_equals_the_kubelets(kubelet: Kubelet) -> None:
    for probe in ({"tcpSocket": {"port": 1}}, {"httpGet": {"port": 1, "path": "/"}}):
        theirs = await asyncio.to_thread(kubelet.probe, "127.0.0.1", probe, 30.0)
        prober = prober_for(
            entry_of(msgspec.convert(probe, Probe)),
            commands=ScriptedRuntime(),
            user_agent="x",
        )
        ours = await prober.run(Target("127.0.0.1", ""))

        assert (name_of(ours), ours.message) == (theirs["result"], theirs["message"])


class Health(HealthServicer):  # type: ignore[misc]  # no stubs
    """Answers from its table; `act` comes first."""

    def __init__(self, act: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self._act = act

    async def Check(self, request: Any, context: Any) -> Any:
        if self._act:
            await self._act(context)
        return await super().Check(request, context)


async def refuse(context: Any) -> None:
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "größer als 100%")


async def dawdle(_: Any) -> None:
    await asyncio.sleep(30)


SLOW = partial(Health, dawdle)


@pytest.mark.parametrize(
    ("servicer", "service"),
    [
        pytest.param(Health, None, id="no-service"),
        pytest.param(Health, "", id="empty-service"),
        pytest.param(Health, "up", id="serving"),
        pytest.param(Health, "down", id="not-serving"),
        pytest.param(Health, "unclear", id="unknown"),
        pytest.param(Health, "nobody/knows", id="no-such-service"),
        pytest.param(None, None, id="unimplemented"),
        pytest.param(partial(Health, refuse), None, id="refused"),
        pytest.param(SLOW, None, id="slow"),
    ],
)
async def test_a15_grpc_verdicts_equal_the_kubelets(
    kubelet: Kubelet, servicer: Callable[[], Health] | None, service: str | None
) -> None:
    server = grpc.aio.server()
    slow = servicer is SLOW
    if servicer:
        table = servicer()
        add_HealthServicer_to_server(table, server)
        for name, status in (("", 1), ("up", 1), ("down", 2), ("unclear", 0)):
            await table.set(name, status)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        raw_probe = {"grpc": {"port": port, **({} if service is None else {"service": service})}}
        timeout = LATE_SECONDS if slow else 30.0
        theirs = await asyncio.to_thread(kubelet.probe, "127.0.0.1", raw_probe, timeout)
        action = GRPCAction(port=port, service=service)
        prober = GrpcProber(action, timeout_seconds=timeout, user_agent="kube-probe/.")
        ours = await prober.run(Target("127.0.0.1", ""))
    finally:
        await server.stop(grace=None)

    assert name_of(ours) == theirs["result"]
    assert ours.message == (matched(theirs["message"]) or ours.message)
