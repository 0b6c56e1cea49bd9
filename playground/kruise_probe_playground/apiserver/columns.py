"""Columns of tables: their declaration, ages as kubectl prints them, and the JSONPaths of printer columns.

Source: metav1.TableColumnDefinition; apimachinery pkg/util/duration/duration.go (HumanDuration);
client-go util/jsonpath; apiextensions-apiserver pkg/registry/customresource/tableconvertor.
Differs: JSONPath has only fields and `[?(@.type=="Ready")]`, which yields the first match.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from kruise_probe.api.times import parse_time
from kruise_probe_playground.apiserver.schema import Json

_SECOND, _MINUTE, _HOUR = (1, "s"), (60, "m"), (3600, "h")
_DAY, _YEAR = (24 * 3600, "d"), (365 * 24 * 3600, "y")
_NOTHING = (100 * 365 * 24 * 3600, "")
_UNITS: Final = (
    (2 * 60, _SECOND, _NOTHING),
    (10 * 60, _MINUTE, _SECOND),
    (3 * 3600, _MINUTE, _NOTHING),
    (8 * 3600, _HOUR, _MINUTE),
    (48 * 3600, _HOUR, _NOTHING),
    (8 * 24 * 3600, _DAY, _HOUR),
    (2 * 365 * 24 * 3600, _DAY, _NOTHING),
    (8 * 365 * 24 * 3600, _YEAR, _DAY),
    (float("inf"), _YEAR, _NOTHING),
)
"""Upper limits in seconds, and the units of shorter durations. The smaller unit is shown only if it is not zero."""

_STEP: Final = re.compile(
    r"""\.(?P<field>[^.\[\]]+) | \[\?\(@\.(?P<key>\w+)\s*==\s*['"](?P<value>[^'"]*)['"]\)\]""",
    re.VERBOSE,
)


Cell = Callable[[Json, datetime], Any]
"""Returns the value of a column for an object at a time."""


class Column(NamedTuple):
    """`wide` columns need `-o wide`."""

    name: str
    cell: Cell
    type: str = "string"
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


def value_at(of: Any, path: Iterable[str]) -> Any:
    """The value at a path of keys, or None."""
    for key in path:
        of = (of or {}).get(key)
    return of


def text_at(path: str, absent: str = "") -> Cell:
    """The text at a dotted path, or `absent`."""
    parts = path.split(".")
    return lambda of, _: value_at(of, parts) or absent


def age(stamp: str | None, now: datetime) -> str:
    """The time since an RFC 3339 stamp; `<unknown>` without one."""
    at = parse_time(stamp)
    return "<unknown>" if at is None else human_duration((now - at).total_seconds())


def human_duration(seconds: float) -> str:
    """Format a duration as kubectl does: `5s`, `2m30s`, `3h`, `4d2h`."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    (size, name), (small, small_name) = next(units for limit, *units in _UNITS if whole < limit)
    shown = max(whole, 0)
    rest = shown % size // small
    return f"{shown // size}{name}" + (f"{rest}{small_name}" if rest else "")


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
