"""httpGet: succeeds when the pod responds with a status from 200 to 399, or as `successWhen` says.

Follows redirects to the pod's own IP. A redirect to another host is a success with a warning; nothing is sent there.

Source: kubelet pkg/probe/http/http.go; Go net/http (Client.do, CheckRedirect).
Differs: HTTP/1.1 only, also over TLS. A body that is truncated or does not end in time is a failure, where kubelet
drops the result and keeps the old state. The message of a failing status also has what the body says; not more than this
is read.
"""

from typing import Final

from kruise_probe.api.messages import body_text, normalise_message, says_enough
from kruise_probe.api.probe import HTTPGetAction
from kruise_probe.api.times import loop_time
from kruise_probe.daemon.probers.dialing import (
    LONG_READ_BYTES,
    Connection,
    Intake,
    OpenSocket,
    ProbeConnectionFailed,
    new_socket,
)
from kruise_probe.daemon.probers.http_requests import Headers
from kruise_probe.daemon.probers.http_responses import ResponseReader
from kruise_probe.daemon.probers.prober import (
    MAX_TEXT_BYTES,
    MAX_VALUE_ATTEMPT_BYTES,
    UNLIMITED,
    CouldNotProbe,
    Criteria,
    Output,
    Prober,
    ProbeResult,
    Reason,
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
        criteria: Criteria | None = None,
    ) -> None:
        self._action = action
        self._criteria = criteria
        self._open_socket = open_socket
        self._timeout_seconds = timeout_seconds
        self._headers = Headers(action.http_headers, user_agent=user_agent)
        self._prepared: tuple[Url, bytes] | None = None
        self._prepared_for = ""

    async def run(self, target: Target, resources: Resources = UNLIMITED) -> ProbeResult:
        url, request = self._prepare(target)
        deadline = loop_time() + self._timeout_seconds
        attempt = _Attempt(
            url,
            self._headers,
            self._open_socket,
            deadline,
            resources,
            self._criteria,
        )
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
        if self._prepared is None or self._prepared_for != target.pod_ip or target.refusal:
            action = self._action
            address = address_of(target, action.port)
            url = url_of_action(action.scheme, address, action.path)
            request = self._headers.request(url)
            self._prepared = (url, request)
            self._prepared_for = target.pod_ip
        return self._prepared


class _Attempt:
    """The requests of one attempt. `url` and `response` are those of the newest request."""

    def __init__(
        self,
        url: Url,
        headers: Headers,
        open_socket: OpenSocket,
        deadline: float,
        resources: Resources,
        criteria: Criteria | None,
    ) -> None:
        self._url = url
        self._headers = headers
        self._open_socket = open_socket
        self._deadline = deadline
        self._resources = resources
        self._criteria = criteria
        if criteria is not None and criteria.reads_text:
            self._intake = Intake(resources, MAX_VALUE_ATTEMPT_BYTES, LONG_READ_BYTES)
        else:
            self._intake = Intake(resources)
        self._response = self._new_response()

    def _new_response(self) -> ResponseReader:
        if self._criteria is not None and self._criteria.reads_text:
            return ResponseReader(MAX_TEXT_BYTES)
        return ResponseReader()

    async def run(self, request: bytes) -> ProbeResult:
        """Raises: ProbeConnectionFailed, InvalidResponse, _RedirectFailed, CouldNotProbe, TimeoutError."""
        for _ in range(MAX_REQUESTS):
            await self._exchange(request)
            destination = self._redirect()
            if destination is None:
                return await self._result()
            request = self._headers.redirected(destination, self._url, self._response.location)
            self._url = destination
            self._response = self._new_response()
        raise _RedirectFailed(f"stopped after {MAX_REQUESTS} redirects")

    async def _exchange(self, request: bytes) -> None:
        """Send the request and read the response, as far as it decides."""
        connection = self._connection()
        try:
            await connection.connect()
            await connection.send(request)
            while not self._is_decided():
                self._response.read(await connection.receive())
        except InvalidResponse:
            # The body of a redirect that is followed is of no interest.
            if self._redirect() is None:
                raise
        finally:
            connection.close()
            self._response.close()

    def _connection(self) -> Connection:
        scheme = self._url.scheme
        if scheme not in ("http", "https"):
            raise _RedirectFailed(f'unsupported protocol scheme "{scheme}"')
        alpn = None
        if scheme == "https":
            alpn = "http/1.1"
        address = self._url.address
        tcp = self._open_socket(address)
        return new_connection(tcp, address, self._deadline, self._intake, alpn=alpn)

    def _is_decided(self) -> bool:
        response = self._response
        if not response.status or response.ended:
            return response.ended
        if self._redirect() is not None:
            return True
        return self._is_failure(response.status) and says_enough(response.text)

    def _redirect(self) -> Url | None:
        """The redirect to follow, or None if the body decides. Raises: _RedirectFailed, if the Location is no URL."""
        location = self._response.location
        if self._response.status not in _REDIRECTS or not location:
            return None
        try:
            destination = url_of_redirect(self._url, location)
        except ValueError as error:
            raise _RedirectFailed(f"failed to parse Location header: {error}") from error
        if destination.address.host != self._url.address.host:
            return None
        return destination

    async def _result(self) -> ProbeResult:
        response = self._response
        status = response.status
        if self._is_failure(status):
            return self.failed("")
        introduction = b""
        if 300 <= status < 400:
            introduction = b"Probe terminated redirects, Response body: "
        criteria = self._criteria
        if criteria is None:
            return success(normalise_message(introduction + response.text))
        encoding = response.headers.get("content-encoding", "").lower()
        if criteria.reads_text and encoding not in ("", "identity"):
            problem = f"the body has Content-Encoding {encoding}, which was not requested"
            raise CouldNotProbe(Reason.NO_VALUE, normalise_message(problem))
        output = Output(response.text, response.is_cut, introduction)
        return await criteria.judge(output, self._resources, self._deadline)

    def timed_out(self) -> ProbeResult:
        phase = "exceeded while awaiting headers"
        if self._response.status:
            phase = "or context cancellation while reading body"
        return self.failed(f"context deadline exceeded (Client.Timeout {phase})", timed_out=True)

    def failed(self, problem: str, *, timed_out: bool = False) -> ProbeResult:
        """The failure, with kubelet's text and what the body says if the status has failed already."""
        status = self._response.status
        if status and self._is_failure(status):
            text = f"HTTP probe failed with statuscode: {status}"
            if self._criteria is not None and self._criteria.codes:
                text += f", not in {self._criteria.codes}"
            said = body_text(self._response.text)
            if said:
                text += f": {said}"
            return failure(normalise_message(text))
        if not status:
            problem = f'Get "{self._url}": {problem}'
        return failure(normalise_message(problem), timed_out=timed_out)

    def _is_failure(self, status: int) -> bool:
        is_success = 200 <= status < 400
        if self._criteria is None:
            return not is_success
        return not self._criteria.allows(status, is_success=is_success)
