"""RFC 3339 parsing and formatting, and the wall clock.

Wire structs keep times as strings, and callers parse them here. So a malformed time does not make the whole object
undecodable.

Source: apimachinery pkg/apis/meta/v1/time.go (seconds) and micro_time.go (microseconds).
Differs: a malformed time parses as None instead of failing the object.
"""

from datetime import UTC, datetime
from typing import Final

_SECONDS: Final = len("2022-09-09T07:13:04")
_MICROSECONDS: Final = len("2022-09-09T07:13:04.000000")
"""Offsets of the time zone. strftime is not used, as it writes early years with fewer than four digits."""


def utc_now() -> datetime:
    """Current wall clock time, aware and in UTC. All other code gets it as an injected `now`."""
    return datetime.now(UTC)  # noqa: TID251 - the one place that may read the wall clock


def format_time(at: datetime) -> str:
    """`2022-09-09T07:13:04Z`: seconds resolution, as metav1.Time."""
    return at.astimezone(UTC).isoformat(timespec="seconds")[:_SECONDS] + "Z"


def format_micro_time(at: datetime) -> str:
    """`2022-09-09T07:13:04.000000Z`: microseconds resolution, as metav1.MicroTime (Leases)."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")[:_MICROSECONDS] + "Z"


def parse_time(text: str | None) -> datetime | None:
    """Parse an RFC 3339 time; None if it is absent or malformed."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
