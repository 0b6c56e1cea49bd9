"""Sender: applies the deadline, the concurrency limit and the retries of a request.

A request is retried after 429 or 503 with Retry-After, after 401 if the credentials could be renewed, and after a
broken connection if it is repeatable. All retries happen within the request's deadline.

Source: client-go rest/request.go and with_retry.go.
Differs: every request except a watch ends within 30 s. The concurrency is limited; a rate limit is optional.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import msgspec

from kruise_probe.api.errors import ApiError, ConnectionFailed, Status, error_of
from kruise_probe.api.resources import DECODE_ERRORS
from kruise_probe.api.times import utc_now
from kruise_probe.client.config import ClusterConfig
from kruise_probe.client.metrics import RequestMetrics
from kruise_probe.client.request import Request
from kruise_probe.client.retries import MAX_RESETS, retry_after_seconds, wait_before_retry
from kruise_probe.client.throttle import Throttle
from kruise_probe.client.transport import Answer, ConnectionBroken, Transport

Send = Callable[[Request, str | None], Awaitable[Answer]]

REQUEST_SECONDS = 30.0
"""Deadline of every request except a watch, and of opening a watch."""

_status_decoder = msgspec.json.Decoder(Status)


class Sender:
    """Sends requests through one transport; at most `max_in_flight` at once, without watches."""

    def __init__(
        self,
        transport: Transport,
        config: ClusterConfig,
        *,
        max_in_flight: int,
        throttle: Throttle | None,
    ) -> None:
        self._transport = transport
        self._server = config.server
        self._credentials = config.credentials
        self._slots = asyncio.Semaphore(max_in_flight)
        self._throttle = throttle
        self._metrics = RequestMetrics(urlsplit(config.server).netloc)

    async def perform(self, request: Request) -> Answer:
        """Send `request`, with retries, and return the successful response.

        Raises:
            ApiError: the server returned an error.
            ConnectionFailed: no usable response within `REQUEST_SECONDS`.
        """
        return await self._within_deadline(request, self._exchange)

    async def open(self, request: Request) -> Answer:
        """Do the same as `perform` for a stream: outside `max_in_flight`, and without a deadline once opened."""
        return await self._within_deadline(request, self._open)

    async def _exchange(self, request: Request, authorization: str | None) -> Answer:
        async with self._slots:
            return await self._measured(self._transport.exchange, request, authorization)

    async def _open(self, request: Request, authorization: str | None) -> Answer:
        return await self._measured(self._transport.open, request, authorization)

    async def _within_deadline(self, request: Request, send: Send) -> Answer:
        deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
        try:
            async with asyncio.timeout_at(deadline):
                return await self._send_with_retries(request, send, deadline)
        except TimeoutError as error:
            raise ConnectionFailed(
                f"{request}: no answer of {self._server} within {REQUEST_SECONDS:g} s"
            ) from error

    async def _send_with_retries(
        self,
        request: Request,
        send: Send,
        deadline: float,
    ) -> Answer:
        time = asyncio.get_running_loop().time
        refusals = resets = 0
        renewed = False
        while True:
            if self._throttle is not None:
                await self._throttle.take()
            version, authorization = self._credentials.version, self._credentials.authorization()
            try:
                answer = await send(request, authorization)
            except ConnectionBroken as broken:
                if not request.repeatable or resets >= MAX_RESETS:
                    raise
                resets = MAX_RESETS if broken.was_new else resets + 1
                self._metrics.retried(request.method, "<error>")
                continue
            if 200 <= answer.status < 300:
                return answer
            if (
                answer.status == 401
                and not renewed
                and await self._credentials.renew(authorization, version)
            ):
                renewed = True
                self._metrics.retried(request.method, "401")
                continue
            wish = retry_after_seconds(answer.retry_after, utc_now())
            wait = wait_before_retry(
                answer.status,
                wish,
                refusals=refusals,
                left_seconds=deadline - time(),
                chance=random.random(),
            )
            if wait is None:
                raise _refusal(answer, request, wish)
            refusals += 1
            self._metrics.retried(request.method, str(answer.status))
            await asyncio.sleep(wait)

    async def _measured(self, send: Send, request: Request, authorization: str | None) -> Answer:
        time = asyncio.get_running_loop().time
        sent_at = time()
        code = "<error>"
        try:
            answer = await send(request, authorization)
            code = str(answer.status)
        finally:
            self._metrics.answered(request.method, code, time() - sent_at)
        return answer


def _refusal(answer: Answer, request: Request, wish_seconds: float | None) -> ApiError:
    """Convert an error response to ApiError. Without a Status, such as a proxy's page, quote its start."""
    try:
        status = _status_decoder.decode(answer.body)
    except DECODE_ERRORS:
        text = " ".join(answer.body[:400].decode(errors="replace").split())
        status = Status(message=text[:200] or None)
    return error_of(answer.status, status, request=str(request), retry_after_seconds=wish_seconds)
