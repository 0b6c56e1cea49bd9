"""httpGet: succeeds when the pod responds with a status from 200 to 399.

Follows redirects to the pod's own IP. A redirect to another host is a success with a warning; nothing is sent there.

Source: kubelet pkg/probe/http/http.go; Go net/http (Client.do, CheckRedirect).
Differs: HTTP/1.1 only, also over TLS. A body that is truncated or does not end in time is a failure, where kubelet
drops the result and keeps the old state. The message of a failing status also has the first line of the body; nothing
after this line is read.
"""

import asyncio
from typing import Final

from kruise_probe.api.core import MAX_PORT, HTTPGetAction
from kruise_probe.api.messages import normalise_message
from kruise_probe.daemon.probers.dialing import (
    Connection,
    Intake,
    OpenSocket,
    ProbeConnectionFailed,
    new_socket,
)
from kruise_probe.daemon.probers.http_requests import Headers
from kruise_probe.daemon.probers.http_responses import ResponseReader
from kruise_probe.daemon.probers.prober import (
    UNLIMITED,
    Prober,
    ProbeResult,
    Resources,
    Target,
    address_of,
    failure,
    success,
)
from kruise_probe.daemon.probers.tls import new_connection
from kruise_probe.daemon.probers.urls import Url, url_of_action, url_of_redirect
from kruise_probe.wire.responses import InvalidResponse

MAX_REQUESTS: Final = 10
"""Limit of one attempt: the first request and nine redirects."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class _RedirectFailed(Exception):
    """The redirect cannot be followed; the text has the reason."""


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
        self._headers = Headers(action.http_headers, user_agent=user_agent)
        self._prepared: tuple[str, Url, bytes] | None = None

    async def run(self, target: Target, resources: Resources = UNLIMITED) -> ProbeResult:
        url, request = self._prepare(target)
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        attempt = _Attempt(url, self._headers, self._open_socket, deadline, resources)
        if self._headers.problem:
            return attempt.failed(self._headers.problem)
        try:
            return await attempt.run(request)
        except TimeoutError:
            return attempt.timed_out()
        except (ProbeConnectionFailed, InvalidResponse, _RedirectFailed) as problem:
            return attempt.failed(str(problem))

    def _prepare(self, target: Target) -> tuple[Url, bytes]:
        """Return URL and request; rebuild them only when the pod's IP has changed."""
        if self._prepared is None or self._prepared[0] != target.pod_ip or target.refusal:
            address = address_of(target, self._action.port)
            url = url_of_action(self._action.scheme, address, self._action.path)
            self._prepared = (target.pod_ip, url, self._headers.request(url))
        return self._prepared[1:]


class _Attempt:
    """The requests of one attempt. `url` and `response` are those of the newest request."""

    def __init__(
        self,
        url: Url,
        headers: Headers,
        open_socket: OpenSocket,
        deadline: float,
        resources: Resources,
    ) -> None:
        self._url = url
        self._headers = headers
        self._open_socket = open_socket
        self._deadline = deadline
        self._intake = Intake(resources)
        self._response = ResponseReader()

    async def run(self, request: bytes) -> ProbeResult:
        """Raises: ProbeConnectionFailed, InvalidResponse, _RedirectFailed, CouldNotProbe, TimeoutError."""
        for _ in range(MAX_REQUESTS):
            await self._exchange(request)
            destination = self._redirect()
            if destination is None:
                return self._result()
            request = self._headers.redirected(destination, self._url, self._response.location)
            self._url = destination
            self._response = ResponseReader()
        raise _RedirectFailed(f"stopped after {MAX_REQUESTS} redirects")

    async def _exchange(self, request: bytes) -> None:
        """Send the request and read the response, as far as it decides."""
        connection = self._connection()
        try:
            await connection.connect()
            await connection.send(request)
            while not self._is_decided():
                self._response.feed(await connection.receive())
        except InvalidResponse:
            if (
                self._redirect() is None
            ):  # The body of a redirect that is followed is of no interest.
                raise
        finally:
            connection.close()

    def _connection(self) -> Connection:
        scheme, address = self._url.scheme, self._url.address
        if scheme not in ("http", "https"):
            raise _RedirectFailed(f'unsupported protocol scheme "{scheme}"')
        if address.port > MAX_PORT:
            raise _RedirectFailed(f"address {address.port}: invalid port")
        alpn = "http/1.1" if scheme == "https" else None
        tcp = self._open_socket(address)
        return new_connection(tcp, address, self._deadline, self._intake, alpn=alpn)

    def _is_decided(self) -> bool:
        response = self._response
        if response.status is None or response.complete:
            return response.complete
        if _is_failure(response.status):
            return response.first_line()[1]
        return self._redirect() is not None

    def _redirect(self) -> Url | None:
        """The redirect to follow, or None if the body decides. Raises: _RedirectFailed, if the Location is no URL."""
        location = self._response.location
        if self._response.status not in _REDIRECTS or not location:
            return None
        try:
            destination = url_of_redirect(self._url, location)
        except ValueError as error:
            raise _RedirectFailed(f"failed to parse Location header: {error}") from error
        return destination if destination.address.host == self._url.address.host else None

    def _result(self) -> ProbeResult:
        status, body = self._response.status or 0, self._response.body
        if _is_failure(status):
            return self.failed("")
        if status < 300:
            return success(normalise_message(body))
        text = normalise_message(b"Probe terminated redirects, Response body: " + body)
        return success(text)

    def timed_out(self) -> ProbeResult:
        phase = "exceeded while awaiting headers"
        if self._response.status is not None:
            phase = "or context cancellation while reading body"
        return self.failed(f"context deadline exceeded (Client.Timeout {phase})", timed_out=True)

    def failed(self, problem: str, *, timed_out: bool = False) -> ProbeResult:
        """The failure, with kubelet's text and the first line of the body if the status has failed already."""
        status = self._response.status
        if status is not None and _is_failure(status):
            text = f"HTTP probe failed with statuscode: {status}"
            line = normalise_message(self._response.first_line()[0])
            return failure(normalise_message(f"{text}: {line}") if line else text)
        if status is None:
            problem = f'Get "{self._url}": {problem}'
        return failure(normalise_message(problem), timed_out=timed_out)


def _is_failure(status: int) -> bool:
    return not 200 <= status < 400
