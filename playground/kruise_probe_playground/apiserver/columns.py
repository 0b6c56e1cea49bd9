"""Columns of tables: their declaration, ages as kubectl prints them, and the JSONPaths of printer columns.

Source: metav1.TableColumnDefinition; apimachinery pkg/util/duration/duration.go (HumanDuration);
client-go util/jsonpath; apiextensions-apiserver pkg/registry/customresource/tableconvertor.
Differs: JSONPath has only fields and `[?(@.type=="Ready")]`, which yields the first match.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.times import parse_time
from kruise_probe_playground.apiserver.schema import Json

_DAY, _YEAR = 24, 24 * 365

_STEP: Final = re.compile(
    r"""\.(?P<field>[^.\[\]]+) | \[\?\(@\.(?P<key>\w+)\s*==\s*['"](?P<value>[^'"]*)['"]\)\]""",
    re.VERBOSE,
)


class Column(NamedTuple):
    """`cell` returns the value for an object at a time; `wide` columns need `-o wide`."""

    name: str
    type: str
    cell: Callable[[Json, datetime], Any]
    wide: bool = False
    format: str = ""
    description: str = ""

    @property
    def definition(self) -> Json:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": int(self.wide),
        }


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


def cell_of(path: str, column_type: str) -> Callable[[Any, datetime], Any]:
    """Return the function that computes a table's cell for an object.

    Raises:
        ValueError: the path uses more of JSONPath than this module supports.
    """
    steps = list(_STEP.finditer(path))
    if "".join(each[0] for each in steps) != path:
        raise ValueError(f'JSONPath {path!r} is not supported; use fields and [?(@.key=="value")]')

    def cell(of: Any, now: datetime) -> Any:
        for step in steps:
            of = _next(of, step)
        return None if of is None else _as(of, column_type, now)

    return cell


def _next(value: Any, step: re.Match[str]) -> Any:
    if step["field"]:
        return value.get(step["field"]) if isinstance(value, dict) else None
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict) and each.get(step["key"]) == step["value"]:
            return each
    return None


def _as(value: Any, column_type: str, now: datetime) -> Any:
    match column_type:
        case "integer":
            return int(value) if isinstance(value, (int, float)) else None
        case "date":
            return age(value, now) if isinstance(value, str) else None
        case _:
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
