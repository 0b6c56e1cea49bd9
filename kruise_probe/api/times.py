"""RFC 3339 in and out, and the one wall clock.

Wire structs keep times as the strings that they are on the wire; whoever compares them parses them
here, so that one unreadable stamp never makes a whole object unreadable.

Source: apimachinery pkg/apis/meta/v1/time.go (seconds) and micro_time.go (microseconds).
Differs: an unreadable stamp reads as None instead of failing the object.
"""

from datetime import UTC, datetime
from typing import Final

_SECONDS: Final = len("2022-09-09T07:13:04")
_MICROSECONDS: Final = len("2022-09-09T07:13:04.000000")
"""Where the zone begins. Not strftime, as that writes early years with fewer than four digits."""


def utc_now() -> datetime:
    """The wall clock, aware and in UTC. Everything else receives it as an injected `now`."""
    return datetime.now(UTC)  # noqa: TID251 - the one place that may read the wall clock


def format_time(at: datetime) -> str:
    """`2022-09-09T07:13:04Z`: seconds resolution, as metav1.Time."""
    return at.astimezone(UTC).isoformat(timespec="seconds")[:_SECONDS] + "Z"


def format_micro_time(at: datetime) -> str:
    """`2022-09-09T07:13:04.000000Z`: microseconds resolution, as metav1.MicroTime (Leases)."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")[:_MICROSECONDS] + "Z"


def parse_time(text: str | None) -> datetime | None:
    """Reads any RFC 3339 stamp; None for an absent or unreadable one."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
