"""When an error response is retried, and otherwise its exception.

Source: client-go rest/with_retry.go.
Differs: waits have positive jitter, so that clients do not retry at the same time. If Retry-After is always 0, the wait
still doubles. A 5xx response other than 503 is returned to the caller, because the request may have taken effect; but an
idempotent request is first sent on another connection, which may lead to another server.
"""

import asyncio
import random
from typing import Final

import msgspec

from kruise_probe.api.errors import RETRY_AFTER_JITTER, ApiError, Status, error_of
from kruise_probe.api.meta import DECODE_ERRORS
from kruise_probe.client.request import Request
from kruise_probe.client.transport import Response

MAX_RETRIES: Final = 10
"""Maximum retries of a request after 429 or 503, as in client-go."""

MIN_RETRY_SECONDS: Final = 0.05
"""Minimum wait before the first retry if Retry-After is less than 1 s. It doubles with each retry."""

_status_decoder: Final = msgspec.json.Decoder(Status)


async def wait_or_raise(
    response: Response, request: Request, *, retries: int, left_seconds: float
) -> None:
    """Wait until an error response may be retried. Raises ApiError if it may not."""
    header = response.headers.get("retry-after")
    if response.elsewhere and request.repeatable and header is None:
        return
    retry_after = parse_retry_after(header)
    wait = wait_before_retry(
        response.status,
        retry_after,
        retries=retries,
        left_seconds=left_seconds,
        chance=random.random(),
    )
    if wait is None:
        raise _api_error(response, request, retry_after)
    await asyncio.sleep(wait)


def _api_error(response: Response, request: Request, retry_after: float | None) -> ApiError:
    """Convert an error response to ApiError. Without a Status, such as a proxy's page, quote its start."""
    try:
        status = _status_decoder.decode(response.body)
    except DECODE_ERRORS:
        start = response.body[:400].decode(errors="replace")
        words = start.split()
        one_line = " ".join(words)
        message = one_line[:200] or None
        status = Status(message=message)
    return error_of(response.status, status, request=str(request), retry_after_seconds=retry_after)


def parse_retry_after(header: str | None) -> float | None:
    """Parse the seconds of `Retry-After`; None if absent, or something else, as in client-go."""
    if not header or not header.isdecimal():
        return None
    digits = header[:9]
    return float(digits)


def wait_before_retry(
    status: int,
    retry_after: float | None,
    *,
    retries: int,
    left_seconds: float,
    chance: float,
) -> float | None:
    """Return the seconds to wait before a retry, or None for no retry.

    Args:
        status: HTTP status of the response.
        retry_after: value of `Retry-After`; None without the header.
        retries: earlier retries of this request after 429 or 503.
        left_seconds: time left until the request's deadline; a longer wait is not started.
        chance: a random number in [0, 1), for jitter.
    """
    if status not in (429, 503) or retry_after is None:
        return None
    if retries >= MAX_RETRIES:
        return None
    wait = retry_after
    if retry_after < 1:
        least = MIN_RETRY_SECONDS * 2**retries
        wait = max(retry_after, least)
    wait *= 1 + RETRY_AFTER_JITTER * chance
    if wait >= left_seconds:
        return None
    return wait
