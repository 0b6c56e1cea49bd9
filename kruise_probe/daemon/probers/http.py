"""httpGet: succeeds when the pod responds with a status from 200 to 399.

Follows redirects to the pod's own IP. A redirect to another host is a success with a warning; nothing is sent there.

Source: kubelet pkg/probe/http/http.go; Go net/http (Client.do, CheckRedirect).
Differs: HTTP/1.1 only, also over TLS. A body that is truncated or does not end in time is a failure, where kubelet
drops the result and keeps the old state. The message of a failing status also has the first line of the body; nothing
after this line is read.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from kruise_probe.api.core import HTTPGetAction
from kruise_probe.api.messages import normalise_message, quote
from kruise_probe.api.probe_validation import MAX_PORT
from kruise_probe.daemon.probers.dialing import (
    BrokenConnection,
    Connection,
    OpenSocket,
    ProbeDialFailed,
    dial,
    new_socket,
    prepare,
)
from kruise_probe.daemon.probers.http_request import Headers
from kruise_probe.daemon.probers.http_response import Head, MalformedResponse, ResponseReader
from kruise_probe.daemon.probers.prober import (
    PendingResponse,
    Prober,
    ProbeResult,
    Started,
    Target,
    address_of,
    failure,
    success,
)
from kruise_probe.daemon.probers.read_budget import ReadBudget
from kruise_probe.daemon.probers.tls_dialing import dial_tls, unverified_tls
from kruise_probe.daemon.probers.urls import InvalidRequest, Url, has_scheme, without_credentials

MAX_REQUESTS: Final = 10
"""Limit of one attempt: the first request and nine redirects."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class _Failed(Exception):
    """The attempt failed; the text has the reason."""


_FAILURES: Final = (ProbeDialFailed, BrokenConnection, MalformedResponse, InvalidRequest, _Failed)


class HttpProber(Prober):
    """Sends GET to the pod and follows redirects to the same host."""

    def __init__(
        self,
        action: HTTPGetAction,
        *,
        timeout_seconds: float,
        user_agent: str,
        open_socket: OpenSocket = new_socket,
    ) -> None:
        self._action = action
        self._open_socket = open_socket
        self._timeout_seconds = timeout_seconds
        self._headers = Headers(action.http_headers or (), user_agent=user_agent)
        self._prepared: tuple[Target, Url, bytes] | None = None

    def probe(self, target: Target) -> Started:
        try:
            url, request = self._prepare(target)
        except InvalidRequest as problem:
            return failure(normalise_message(str(problem)))
        return _Attempt(
            url, request, self._headers, self._timeout_seconds, self._open_socket
        ).start()

    def _prepare(self, target: Target) -> tuple[Url, bytes]:
        """Return URL and request; rebuild them only when the pod's IP has changed."""
        if self._prepared is None or self._prepared[0].pod_ip != target.pod_ip:
            address = address_of(target, self._action.port)
            url = Url.of_action(self._action.scheme, address, self._action.path)
            self._prepared = (target, url, self._headers.request(url))
        return self._prepared[1:]


class _Redirect(NamedTuple):
    url: Url
    relative: bool


def _next_step(head: Head, url: Url, *, followed: int) -> _Redirect | None:
    """The redirect to follow, or None if the body decides.

    Raises:
        _Failed: too many redirects, or a redirect to an invalid port.
        InvalidRequest: the Location is not a URL.
    """
    if head.status not in _REDIRECTS or not head.location:
        return None
    destination = url.join(head.location)
    if destination.host != url.host:
        return None
    if followed >= MAX_REQUESTS:
        shown = quote(without_credentials(head.location))
        raise _Failed(f"Get {shown}: stopped after {MAX_REQUESTS} redirects")
    if destination.port > MAX_PORT:
        port = destination.authority.rpartition(":")[2]
        raise _Failed(f"Get {quote(destination.text)}: dial tcp: address {port}: invalid port")
    return _Redirect(destination, relative=not has_scheme(head.location))


def _is_failure(status: int) -> bool:
    return not 200 <= status < 400


def _failure_of_status(status: int, line: bytes) -> ProbeResult:
    """Kubelet's text, and the first line of the body if it has a visible character."""
    text = f"HTTP probe failed with statuscode: {status}"
    shown = normalise_message(line)
    return failure(normalise_message(f"{text}: {shown}") if shown else text)


def _success(status: int, body: bytes) -> ProbeResult:
    if status < 300:
        return success(normalise_message(body))
    text = normalise_message(b"Probe terminated redirects, Response body: " + body)
    return success(text, warning=True)


class _Attempt(PendingResponse):
    """One attempt: `start` and `poll` do not wait, `_finish` waits for the response."""

    def __init__(
        self,
        url: Url,
        request: bytes,
        headers: Headers,
        timeout_seconds: float,
        open_socket: OpenSocket,
    ) -> None:
        self._open_socket = open_socket
        self._deadline = asyncio.get_running_loop().time() + timeout_seconds
        self._headers = headers
        self._url = url
        self._unsent = request
        self._requests = 1
        self._reader = ResponseReader()
        self._budget = ReadBudget()
        self._connection: Connection | None = None

    def start(self) -> Started:
        if self._url.scheme != "http" or self._headers.problem:
            return self._finish()
        try:
            self._connection = prepare(self._url.address, self._budget, self._open_socket)
            if self._connection.connect_nowait():
                self._unsent = self._connection.send_nowait(self._unsent)
        except _FAILURES as problem:
            self._close()
            return self._failure_of(problem)
        return self._finish() if self._unsent else self

    def poll(self) -> ProbeResult | Coroutine[Any, Any, ProbeResult]:
        try:
            while (result := self._progress()) is None:
                if self._connection is None or self._budget.needs_turn:
                    return self._finish()
                arrived = self._connection.receive_nowait()
                if arrived is None:
                    return self._finish()
                self._reader.feed(arrived)
        except _FAILURES as problem:
            result = self._failure_of(problem)
        self._close()
        return result

    async def _finish(self) -> ProbeResult:
        try:
            async with asyncio.timeout_at(self._deadline):
                while (result := self._progress()) is None:
                    connection = await self._ensure_sent()
                    self._reader.feed(await connection.receive())
        except TimeoutError:
            result = self._failure_within_body() or failure(
                normalise_message(self._timeout_text()), timed_out=True
            )
        except _FAILURES as problem:
            result = self._failure_of(problem)
        finally:
            self._close()
        return result

    def _progress(self) -> ProbeResult | None:
        """Process the received data: return the result if it decides it, or prepare the request of a redirect.

        Raises:
            MalformedResponse: the body does not match its head.
            _Failed, InvalidRequest: the redirect cannot be followed.
        """
        head = self._reader.head
        if head is None:
            return None
        if not self._reader.reads_body:
            step = _next_step(head, self._url, followed=self._requests)
            if step is not None:
                self._follow(step)
                return None
            self._reader.read_body()
        if _is_failure(head.status):
            line, ended = self._reader.first_line()
            return _failure_of_status(head.status, line) if ended else None
        return _success(head.status, self._reader.body) if self._reader.complete else None

    def _follow(self, step: _Redirect) -> None:
        self._unsent = self._headers.redirected(
            step.url, previous=self._url, relative=step.relative
        )
        self._close()
        self._url = step.url
        self._requests += 1
        self._reader = ResponseReader(max_head_bytes=self._reader.head_bytes_left)

    async def _ensure_sent(self) -> Connection:
        """Connect and send the request if that is not done yet. Return the connection."""
        if self._connection is None:
            self._connection = await self._connect()
        elif self._unsent:
            await self._connection.connect()
        if self._unsent:
            unsent, self._unsent = self._unsent, b""
            await self._connection.send(unsent)
        return self._connection

    async def _connect(self) -> Connection:
        if self._headers.problem:
            raise _Failed(self._headers.problem)
        if self._url.scheme == "https":
            return await dial_tls(
                self._url.address, self._budget, unverified_tls("http/1.1"), self._open_socket
            )
        if self._url.scheme == "http":
            return await dial(self._url.address, self._budget, self._open_socket)
        raise _Failed(f"unsupported protocol scheme {quote(self._url.scheme)}")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _timeout_text(self) -> str:
        if self._reader.head is not None:
            phase = "or context cancellation while reading body"
        else:
            phase = "exceeded while awaiting headers"
        return self._with_url(f"context deadline exceeded (Client.Timeout {phase})")

    def _failure_within_body(self) -> ProbeResult | None:
        """The result if the attempt ends within the body of a failing status; else None."""
        head = self._reader.head
        if head is None or not _is_failure(head.status):
            return None
        return _failure_of_status(head.status, self._reader.first_line()[0])

    def _failure_of(self, problem: Exception) -> ProbeResult:
        return self._failure_within_body() or failure(
            normalise_message(self._with_url(str(problem)))
        )

    def _with_url(self, problem: str) -> str:
        """As Go: a problem with the body has no URL."""
        if self._reader.head is not None:
            return problem
        return f"Get {quote(self._url.text)}: {problem}"
