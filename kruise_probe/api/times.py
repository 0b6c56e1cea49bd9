"""Times in RFC 3339, durations in Go's notation, and the wall clock.

Wire structs keep times as strings, and callers parse them here. So a malformed time does not make the whole object
undecodable.

Source: apimachinery pkg/apis/meta/v1/time.go (seconds) and micro_time.go (microseconds); Go time.ParseDuration.
Differs: a malformed time parses as None instead of failing the object. Negative durations are invalid.
"""

import asyncio
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

CLOCK_SLACK_SECONDS: Final = 0.001
"""A timer of the event loop may fire early by the clock's resolution, so a deadline counts as reached this much early."""

SHARED_TIMES: Final = 64
"""Times that are kept, parsed or formatted: results that are reported together have few different ones."""

LONGEST_SHARED: Final = 64
"""A longer text, which only a hostile client sends, is not kept."""

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_TERM = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


def utc_now() -> datetime:
    """Current wall clock time, aware and in UTC. All other code gets it as an injected `now`."""
    return datetime.now(UTC)  # noqa: TID251 - the one place that may read the wall clock


def loop_time() -> float:
    """Current time of the running event loop: monotonic seconds."""
    return asyncio.get_running_loop().time()


def format_time(at: datetime) -> str:
    """`2022-09-09T07:13:04Z`: seconds resolution, as metav1.Time."""
    return _format_seconds(at.replace(microsecond=0))


@lru_cache(maxsize=SHARED_TIMES)
def _format_seconds(at: datetime) -> str:
    """Probes that are due together have the same time."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def format_micro_time(at: datetime) -> str:
    """`2022-09-09T07:13:04.000000Z`: microseconds resolution, as metav1.MicroTime (Leases)."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_time(text: str | None) -> datetime | None:
    """Parse an RFC 3339 time; None if it is absent or malformed."""
    if not text:
        return None
    if len(text) > LONGEST_SHARED:
        return _parse(text)
    return _parse_shared(text)


def _parse(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


_parse_shared = lru_cache(maxsize=SHARED_TIMES)(_parse)


def age(stamp: str | None, now: datetime) -> str:
    """An age such as `7s`, `3m`, `2h`, `4d`; empty without a valid stamp."""
    at = parse_time(stamp)
    if at is None:
        return ""
    seconds = max(int((now - at).total_seconds()), 0)
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * unit:
            return f"{seconds // unit}{name}"
    return f"{seconds}s"


def parse_duration(text: str) -> float | None:
    """Parse a Go duration into seconds; None if it is invalid."""
    text = text.removeprefix("+")
    if text == "0":
        return 0.0
    seconds = 0.0
    position = 0
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None:
            return None
        seconds += float(term[1]) * _UNITS[term[2]]
        position = term.end()
    return seconds if text else None
