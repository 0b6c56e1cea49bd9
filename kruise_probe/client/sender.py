"""Sender: applies the deadline, the concurrency limit and the retries of a request.

A request is retried after 429 or 503 with Retry-After, after 401 if the credentials could be renewed, and after a
broken connection if it is repeatable. All retries happen within the request's deadline.

Source: client-go rest/request.go and with_retry.go, util/flowcontrol/throttle.go.
Differs: every request except a watch ends within 30 s. The concurrency is limited. The rate limit is off by default,
because the server has its own flow control. Waits have positive jitter, so that clients do not retry at the same time.
If Retry-After is always 0, the wait still doubles. A 5xx response other than 503 is returned to the caller, because
the request may have taken effect.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import msgspec

from kruise_probe.api.errors import (
    RETRY_AFTER_JITTER,
    ApiError,
    NoResponse,
    Status,
    error_of,
)
from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.api.times import utc_now
from kruise_probe.api.token_bucket import TokenBucket
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.metrics import RequestMetrics
from kruise_probe.client.request import Request
from kruise_probe.client.transport import ConnectionBroken, Response, Transport

Send = Callable[[Request, str | None], Awaitable[Response]]

REQUEST_SECONDS = 30.0
"""Deadline of every request except a watch, and of opening a watch."""

MAX_RETRIES = 10
"""Maximum retries of a request after 429 or 503, as in client-go."""

MIN_RETRY_SECONDS = 0.05
"""Minimum wait before the first retry if Retry-After is less than 1 s. It doubles with each retry."""

MAX_RECONNECTS = 2
"""Maximum immediate retries of a repeatable request after its connection broke. The pool may have several
connections that the server has closed. If a new connection breaks, there is only one more retry."""

_status_decoder = msgspec.json.Decoder(Status)


class Sender:
    """Sends requests through one transport; at most `max_in_flight` at once, without watches.

    With `qps`, `burst` requests are sent at once, then `qps` per second. 0 means no limit.
    """

    def __init__(
        self,
        transport: Transport,
        config: ClusterConfig,
        *,
        max_in_flight: int,
        qps: float,
        burst: int,
    ) -> None:
        self._transport = transport
        self._server = config.server
        self._credentials = config.credentials
        self._in_flight = asyncio.Semaphore(max_in_flight)
        self._tokens = (
            TokenBucket(burst=max(burst, 1), interval_seconds=1.0 / qps) if qps > 0 else None
        )
        self._metrics = RequestMetrics(urlsplit(config.server).netloc)

    async def send(self, request: Request) -> Response:
        """Send `request`, with retries, and return the successful response.

        Raises:
            ApiError: the server returned an error.
            ConnectionFailed: no usable response within `REQUEST_SECONDS`.
        """
        return await self._within_deadline(request, self._round_trip)

    async def open_stream(self, request: Request) -> Response:
        """Open a stream, with the retries of `send`. It is not limited by `max_in_flight`, nor in time once it is open."""
        return await self._within_deadline(request, self._open_stream)

    async def _round_trip(self, request: Request, authorization: str | None) -> Response:
        async with self._in_flight:
            return await self._measured(self._transport.round_trip, request, authorization)

    async def _open_stream(self, request: Request, authorization: str | None) -> Response:
        return await self._measured(self._transport.open_stream, request, authorization)

    async def _within_deadline(self, request: Request, send: Send) -> Response:
        deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
        try:
            async with asyncio.timeout_at(deadline):
                return await self._send_with_retries(request, send, deadline)
        except TimeoutError as error:
            raise NoResponse(
                f"{request}: {self._server} did not respond within {REQUEST_SECONDS:g} s"
            ) from error

    async def _send_with_retries(
        self,
        request: Request,
        send: Send,
        deadline: float,
    ) -> Response:
        time = asyncio.get_running_loop().time
        retries = reconnects = 0
        renewed = False
        while True:
            if self._tokens is not None:
                await asyncio.sleep(self._tokens.take(time()))
            version, authorization = self._credentials.version, self._credentials.authorization()
            try:
                response = await send(request, authorization)
            except ConnectionBroken as broken:
                if not request.repeatable or reconnects >= MAX_RECONNECTS:
                    raise
                reconnects = MAX_RECONNECTS if broken.was_new else reconnects + 1
                self._metrics.retried(request.method, "<error>")
                continue
            if 200 <= response.status < 300 or response.stream is not None:
                return response
            if (
                response.status == 401
                and not renewed
                and await self._credentials.renew(authorization, version)
            ):
                renewed = True
                self._metrics.retried(request.method, "401")
                continue
            retry_after = parse_retry_after(response.retry_after, utc_now())
            wait = wait_before_retry(
                response.status,
                retry_after,
                retries=retries,
                left_seconds=deadline - time(),
                chance=random.random(),
            )
            if wait is None:
                raise _api_error(response, request, retry_after)
            retries += 1
            self._metrics.retried(request.method, str(response.status))
            await asyncio.sleep(wait)

    async def _measured(self, send: Send, request: Request, authorization: str | None) -> Response:
        time = asyncio.get_running_loop().time
        sent_at = time()
        code = "<error>"
        try:
            response = await send(request, authorization)
            code = str(response.status)
        finally:
            self._metrics.completed(request.method, code, time() - sent_at)
        return response


def _api_error(response: Response, request: Request, retry_after: float | None) -> ApiError:
    """Convert an error response to ApiError. Without a Status, such as a proxy's page, quote its start."""
    try:
        status = _status_decoder.decode(response.body)
    except DECODE_ERRORS:
        text = " ".join(response.body[:400].decode(errors="replace").split())
        status = Status(message=text[:200] or None)
    return error_of(response.status, status, request=str(request), retry_after_seconds=retry_after)


def parse_retry_after(header: str | None, at: datetime) -> float | None:
    """Parse `Retry-After`: seconds, or an HTTP date as load balancers send it. None if absent or malformed."""
    if not header:
        return None
    try:
        return max(float(int(header)), 0.0)
    except OverflowError:
        return None
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(header).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return max((until - at).total_seconds(), 0.0)


def wait_before_retry(
    status: int, retry_after: float | None, *, retries: int, left_seconds: float, chance: float
) -> float | None:
    """Return the seconds to wait before a retry, or None for no retry.

    Args:
        status: HTTP status of the response.
        retry_after: value of `Retry-After`; None without the header.
        retries: earlier retries of this request after 429 or 503.
        left_seconds: time left until the request's deadline; a longer wait is not started.
        chance: a random number in [0, 1), for jitter.
    """
    if status not in (429, 503) or retry_after is None or retries >= MAX_RETRIES:
        return None
    shortest = MIN_RETRY_SECONDS * 2**retries if retry_after < 1 else 0.0
    wait = max(retry_after, shortest) * (1 + RETRY_AFTER_JITTER * chance)
    return wait if wait < left_seconds else None
