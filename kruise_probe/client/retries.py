"""Retry rules for requests: pure functions.

Source: client-go rest/with_retry.go.
Differs: waits have positive jitter, so that clients do not retry at the same time. If Retry-After is always 0, the wait
still doubles. A 5xx response other than 503 is returned to the caller, because the request may have taken effect.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from kruise_probe.api.errors import WISH_JITTER

MAX_REFUSALS = 10
"""Maximum retries of a request after 429 or 503, as in client-go."""

SHORTEST_SECONDS = 0.05
"""Minimum wait before the first retry if Retry-After is less than 1 s. It doubles with each retry."""

MAX_RESETS = 2
"""Maximum immediate retries of a repeatable request after its connection broke. The pool may have several
connections that the server has closed. After a new connection broke, the request is retried once more only."""


def retry_after_seconds(header: str | None, at: datetime) -> float | None:
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
    status: int, wish_seconds: float | None, *, refusals: int, left_seconds: float, chance: float
) -> float | None:
    """Return the seconds to wait before a retry, or None for no retry.

    Args:
        status: HTTP status of the response.
        wish_seconds: value of `Retry-After`; None without the header.
        refusals: earlier 429 and 503 responses to this request.
        left_seconds: time left until the request's deadline; a longer wait is not started.
        chance: a random number in [0, 1), for jitter.
    """
    if status not in (429, 503) or wish_seconds is None or refusals >= MAX_REFUSALS:
        return None
    shortest = SHORTEST_SECONDS * 2**refusals if wish_seconds < 1 else 0.0
    wait = max(wish_seconds, shortest) * (1 + WISH_JITTER * chance)
    return wait if wait < left_seconds else None
