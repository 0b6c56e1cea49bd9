"""Whether a refused request is sent again, and when: pure rules.

Source: client-go rest/with_retry.go.
Differs: waits are jittered upwards, so that refused clients do not come back together; a server that says "at once"
every time is asked less and less often; an answer 5xx other than 503 is the caller's to retry, as it may have taken effect.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from kruise_probe.api.errors import WISH_JITTER

MAX_REFUSALS = 10
"""How often one request is sent again after 429 or 503; client-go's number."""

SHORTEST_SECONDS = 0.05
"""Wait before the first repetition where the server asked for less than a second; it doubles with each."""

MAX_RESETS = 2
"""How often a repeatable request is sent again at once after its connection broke: a pool may hold more than
one connection that the server has closed. One that was made for this request is no such; the next break is the answer."""


def retry_after_seconds(header: str | None, at: datetime) -> float | None:
    """Reads `Retry-After`: seconds, or an HTTP date as load balancers send it; None when absent or unreadable."""
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
    """Seconds to wait before the request is sent again, or None when the refusal is the answer.

    Args:
        status: HTTP status of the answer.
        wish_seconds: what `Retry-After` asked for; None without the header.
        refusals: how often this request was refused before.
        left_seconds: what is left of the request's deadline; a wait that exceeds it is not begun.
        chance: a random number of [0, 1).
    """
    if status not in (429, 503) or wish_seconds is None or refusals >= MAX_REFUSALS:
        return None
    shortest = SHORTEST_SECONDS * 2**refusals if wish_seconds < 1 else 0.0
    wait = max(wish_seconds, shortest) * (1 + WISH_JITTER * chance)
    return wait if wait < left_seconds else None
