"""httpGet: success when the pod answers with a status from 200 to 399.

A redirect is followed while it stays on the pod's address; one that leads elsewhere ends the probe as a
success with a note, and nothing is sent there.

Source: kubelet pkg/probe/http/http.go; Go net/http (Client.do, CheckRedirect).
Differs: HTTP/1.1 only, also over TLS; a body that breaks off or does not end in time is a failure (kubelet
throws the result away and keeps the old state); of a failing status the body is not read.
"""

import asyncio
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kruise_probe.api.core import HTTPGetAction
from kruise_probe.daemon.probers.dialing import (
    BrokenConnection,
    Connection,
    DialFailed,
    dial,
    dial_tls,
    unverified_tls,
)
from kruise_probe.daemon.probers.http_request import Headers, InvalidRequest, Url
from kruise_probe.daemon.probers.http_response import AnswerReader, BadAnswer, Head
from kruise_probe.daemon.probers.messages import clean_message, quote
from kruise_probe.daemon.probers.prober import Outcome, Prober, Target, Verdict
from kruise_probe.daemon.probers.targets import address_of

MAX_REQUESTS: Final = 10
"""Of one probe: the first, and nine redirects."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class _Failed(Exception):
    """The probe failed; the text is the message."""


class HttpProber(Prober):
    """Sends GET to the pod and follows redirects that stay there."""

    def __init__(self, action: HTTPGetAction, *, timeout_seconds: float, user_agent: str) -> None:
        self._action = action
        self._timeout_seconds = timeout_seconds
        self._headers = Headers(action.http_headers or (), user_agent=user_agent)
        self._prepared: tuple[Target, Url, bytes] | None = None

    async def run(self, target: Target) -> Outcome:
        url, request = self._prepare(target)
        attempt = _Attempt(url)
        try:
            if self._headers.problem:
                raise _Failed(f"Get {quote(url.text)}: {self._headers.problem}")
            async with asyncio.timeout(self._timeout_seconds):
                return await self._exchange(attempt, request)
        except TimeoutError:
            return Outcome(Verdict.FAILURE, clean_message(attempt.timed_out()), timed_out=True)
        except (_Failed, InvalidRequest) as failure:
            return Outcome(Verdict.FAILURE, clean_message(str(failure)))

    def _prepare(self, target: Target) -> tuple[Url, bytes]:
        """URL and request are the same each time, until the pod gets another address."""
        if self._prepared is None or self._prepared[0].pod_ip != target.pod_ip:
            address = address_of(target, self._action.port)
            url = Url.of_action(self._action.scheme, address, self._action.path)
            self._prepared = (target, url, self._headers.request(url))
        return self._prepared[1:]

    async def _exchange(self, attempt: "_Attempt", request: bytes) -> Outcome:
        for number in range(1, MAX_REQUESTS + 1):
            connection = await attempt.connect()
            try:
                head = await attempt.ask(connection, request)
                step = _next_step(head, attempt.url, followed=number)
                if isinstance(step, Outcome):
                    return step
                if step is None:
                    return _judge(head.status, await attempt.body(connection))
            finally:
                connection.close()
            request = self._headers.redirected(
                step.url, previous=attempt.url, relative=step.relative
            )
            attempt.follow(step.url)
        raise AssertionError("the last request is never followed by another")


class _Redirect(NamedTuple):
    url: Url
    relative: bool


def _next_step(head: Head, url: Url, *, followed: int) -> _Redirect | Outcome | None:
    """Where to go on, or the outcome, or None when the body is to be read first.

    Raises:
        _Failed: too many redirects, or one to where no probe goes.
        InvalidRequest: a Location that is no URL.
    """
    if not 200 <= head.status < 400:
        return Outcome(Verdict.FAILURE, f"HTTP probe failed with statuscode: {head.status}")
    if head.status not in _REDIRECTS or not head.location:
        return None
    destination = url.join(head.location)
    if destination.host != url.host:
        return None
    if followed >= MAX_REQUESTS:
        raise _Failed(f"Get {quote(head.location)}: stopped after {MAX_REQUESTS} redirects")
    return _Redirect(destination, relative=not urlsplit(head.location).scheme)


def _judge(status: int, body: bytes) -> Outcome:
    if status < 300:
        return Outcome(Verdict.SUCCESS, clean_message(body) if body else "")
    text = clean_message(b"Probe terminated redirects, Response body: " + body)
    return Outcome(Verdict.SUCCESS, text, warning=True)


class _Attempt:
    """One probe under way: which URL it is at, and how far, for the words of a failure."""

    def __init__(self, url: Url) -> None:
        self.url = url
        self._reader = AnswerReader()

    def follow(self, url: Url) -> None:
        self.url = url
        self._reader = AnswerReader()

    def timed_out(self) -> str:
        if self._reader.head is not None:
            return (
                "context deadline exceeded "
                "(Client.Timeout or context cancellation while reading body)"
            )
        return self._failed(
            "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        )

    async def connect(self) -> Connection:
        try:
            if self.url.scheme == "https":
                return await dial_tls(self.url.address, unverified_tls("http/1.1"))
            if self.url.scheme == "http":
                return await dial(self.url.address)
        except DialFailed as failure:
            raise _Failed(self._failed(str(failure))) from failure
        raise _Failed(self._failed(f"unsupported protocol scheme {quote(self.url.scheme)}"))

    async def ask(self, connection: Connection, request: bytes) -> Head:
        reader = self._reader
        try:
            await connection.send(request)
            while reader.head is None:
                reader.feed(await connection.receive())
        except (BrokenConnection, BadAnswer) as failure:
            raise _Failed(self._failed(str(failure))) from failure
        return reader.head

    async def body(self, connection: Connection) -> bytes:
        reader = self._reader
        try:
            reader.read_body()
            while not reader.complete:
                reader.feed(await connection.receive())
        except (BrokenConnection, BadAnswer) as failure:
            raise _Failed(str(failure)) from failure
        return reader.body

    def _failed(self, problem: str) -> str:
        return f"Get {quote(self.url.text)}: {problem}"
