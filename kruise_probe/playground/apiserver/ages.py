"""How long ago something was, as tables show it.

Source: apimachinery pkg/util/duration/duration.go (HumanDuration).
Differs: nothing.
"""

from datetime import datetime

from kruise_probe.api.times import parse_time

_DAY, _YEAR = 24, 24 * 365


def age(stamp: str | None, now: datetime) -> str:
    """The time since an RFC 3339 stamp; `<unknown>` without one."""
    at = parse_time(stamp)
    return "<unknown>" if at is None else human_duration((now - at).total_seconds())


def human_duration(seconds: float) -> str:
    """`5s`, `2m30s`, `3h`, `4d2h`: two units at most, the smaller one only where it matters."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(whole, 0)}s"
    minutes, hours = whole // 60, whole // 3600
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 2 * _DAY:
        return f"{hours}h"
    return _long(hours)


def _long(hours: int) -> str:
    if hours < 8 * _DAY:
        return _two(hours // _DAY, "d", hours % _DAY, "h")
    if hours < 2 * _YEAR:
        return f"{hours // _DAY}d"
    if hours < 8 * _YEAR:
        return _two(hours // _YEAR, "y", hours // _DAY % 365, "d")
    return f"{hours // _YEAR}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
