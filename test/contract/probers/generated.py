"""Servers with generated responses, and the verdicts of our probers on them."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from support.connections import listening
from support.response_grammar import (
    PORT,
    Generated,
    grpc_response,
    http_response,
    is_well_formed,
)
from support.wire import Json

from kruise_probe.api.probe import GRPCAction, HTTPGetAction
from kruise_probe.daemon.probers.grpc import GrpcProber
from kruise_probe.daemon.probers.http import HttpProber
from kruise_probe.daemon.probers.prober import ProbeResult, Target

HOST = "127.0.0.1"
PATH = "/a/b?c"
POOL = 100
HTTP_TIMEOUT_SECONDS = 30.0
GRPC_TIMEOUT_SECONDS = 5.0
"""The kubelet waits for it if the server does not speak HTTP/2."""
LINGER_SECONDS = 8.0
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"
_COMPARED = ("host:", "referer:", "authorization:")


class Verdict(NamedTuple):
    """`result` is success, warning, failure or none; `requests` are lines of HTTP requests."""

    result: str
    message: str
    requests: tuple[str, ...]


class Server:
    """A server of one generated response at a time."""

    def __init__(self, answer: "Answer") -> None:
        self.port = 0
        self.response = Generated(b"")
        self.requests: list[str] = []
        self._answer = answer

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(LINGER_SECONDS):
                await self._answer(self, reader, writer)
                writer.write_eof()
                while await reader.read(65536):
                    pass
        writer.close()

    def with_port(self, text: bytes) -> bytes:
        return text.replace(PORT.encode(), b"%d" % self.port)

    def verdict(self, result: str, message: str) -> Verdict:
        requests = tuple(text.replace(f"{self.port}", "PORT") for text in self.requests)
        self.requests = []
        return Verdict(
            result,
            message.replace(f"{self.port}", "PORT"),
            requests,
        )


Answer = Callable[[Server, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def answer_http(
    server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    if await reader.readexactly(1) != b"G":
        return
    request = (b"G" + await reader.readuntil(b"\r\n\r\n")).decode(errors="surrogateescape")
    line, *headers = request.strip().split("\r\n")
    compared = [header for header in headers if header.lower().startswith(_COMPARED)]
    answer = _OK if server.requests else server.with_port(server.response.answer)
    server.requests.append(" | ".join([line, *sorted(compared)]))
    writer.write(answer)


async def answer_grpc(
    server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    writer.write(server.response.greeting)
    _ = await reader.readexactly(24)
    kind = 0
    while kind != 1:
        head = await reader.readexactly(9)
        kind = head[3]
        _ = await reader.readexactly(int.from_bytes(head[:3]))
    writer.write(server.response.answer)


class Kind(NamedTuple):
    """A kind of probes.

    Attributes:
        is_documented: whether docs/differences.md has the difference between the kubelet's verdict and ours.
    """

    generate: Callable[[str], Generated]
    answer: Answer
    timeout_seconds: float
    probe: Callable[[int], Json]
    prober: Callable[[int], HttpProber | GrpcProber]
    is_documented: Callable[[Generated, Verdict, Verdict], bool]

    async def verdicts(self, pool: Sequence[Server]) -> list[Verdict]:
        """Those of our prober; the message is only that of a success."""
        target = Target(HOST, "")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.prober(server.port).run(target)) for server in pool]
        results = [_compared(task.result()) for task in tasks]
        return [server.verdict(*result) for server, result in zip(pool, results, strict=True)]


def _compared(result: ProbeResult) -> tuple[str, str]:
    if not result.succeeded:
        return "failure", ""
    warns = result.message.startswith("Probe terminated redirects")
    return "warning" if warns else "success", result.message


def http_prober(port: int) -> HttpProber:
    action = HTTPGetAction(port=port, path=PATH)
    return HttpProber(action, timeout_seconds=HTTP_TIMEOUT_SECONDS, user_agent="x")


def grpc_prober(port: int) -> GrpcProber:
    return GrpcProber(GRPCAction(port=port), timeout_seconds=GRPC_TIMEOUT_SECONDS, user_agent="x")


def is_malformed(response: Generated, theirs: Verdict, ours: Verdict) -> bool:
    """What is no valid response is accepted or refused by llhttp, not by Go's parser."""
    return not is_well_formed(response.answer)


_PROTOCOL_ERRORS = re.compile(
    "PROTOCOL_ERROR|FRAME_SIZE_ERROR|FLOW_CONTROL_ERROR|invalid header field|invalid pseudo-header|pseudo header"
    "|malformed|cardinality violation|received invalid frame|failed to connect service|set by server|health rpc did not complete|the middle of a stream"
)
"""In the kubelet's message about a server that breaks HTTP/2 or gRPC."""


def breaks_protocol(response: Generated, theirs: Verdict, ours: Verdict) -> bool:
    """The server breaks HTTP/2 or gRPC and responds SERVING, or sends the content type twice."""
    if ours.result == "success":
        return _PROTOCOL_ERRORS.search(theirs.message) is not None
    return response.answer.count(b"content-type") > 1


KINDS = {
    "http": Kind(
        http_response,
        answer_http,
        HTTP_TIMEOUT_SECONDS,
        lambda port: {"httpGet": {"port": port, "path": PATH}},
        http_prober,
        is_malformed,
    ),
    "grpc": Kind(
        grpc_response,
        answer_grpc,
        GRPC_TIMEOUT_SECONDS,
        lambda port: {"grpc": {"port": port}},
        grpc_prober,
        breaks_protocol,
    ),
}


@asynccontextmanager
async def servers(kind: Kind) -> AsyncIterator[list[Server]]:
    async with AsyncExitStack() as stack:
        pool = [Server(kind.answer) for _ in range(POOL)]
        for server in pool:
            listener = listening(server.connected, host=HOST, tls=None)
            server.port = await stack.enter_async_context(listener)
        yield pool
