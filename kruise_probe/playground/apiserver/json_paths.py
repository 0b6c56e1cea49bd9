"""The part of JSONPath that printer columns use: fields, indexes, `[?(@.type=="Ready")]`.

Source: client-go util/jsonpath; apiextensions-apiserver pkg/registry/customresource/tableconvertor.
Differs: the first result only, and no more syntax than that.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from kruise_probe.playground.apiserver.ages import age

_STEP = re.compile(
    r"""\.?(?P<field>(?:\\.|[^.\[\]\\])+)
      | \[(?P<index>\d+)\]
      | \[(?P<every>\*)\]
      | \[['"](?P<quoted>[^'"]+)['"]\]
      | \[\?\(\s*@\.(?P<key>[^=\s]+)\s*==\s*['"](?P<value>[^'"]*)['"]\s*\)\]
    """,
    re.VERBOSE,
)

Step = Callable[[Any], Iterator[Any]]


def cell_of(path: str, column_type: str) -> Callable[[Any, datetime], Any]:
    """A function that gives a table's cell for an object.

    Raises:
        ValueError: the path uses more than this module knows.
    """
    steps = list(_steps(path))

    def cell(of: Any, now: datetime) -> Any:
        found = _first(of, steps)
        return None if found is None else _as(found, column_type, now)

    return cell


def _steps(path: str) -> Iterator[Step]:
    place = 0
    while place < len(path):
        match = _STEP.match(path, place)
        if match is None or match.end() == place:
            raise ValueError(f"JSONPath {path!r} cannot be read from {path[place:]!r} on")
        yield _step(match)
        place = match.end()


def _step(match: re.Match[str]) -> Step:
    if match["index"]:
        index = int(match["index"])
        return lambda value: iter(value[index : index + 1] if isinstance(value, list) else ())
    if match["every"]:
        return lambda value: iter(value if isinstance(value, list) else ())
    if match["key"]:
        key, wanted = match["key"], match["value"]
        return lambda value: (
            each
            for each in (value if isinstance(value, list) else ())
            if isinstance(each, dict) and each.get(key) == wanted
        )
    name = match["quoted"] or match["field"].replace("\\", "")
    return lambda value: iter([value[name]] if isinstance(value, dict) and name in value else ())


def _first(value: Any, steps: list[Step]) -> Any:
    if not steps:
        return value
    for each in steps[0](value):
        found = _first(each, steps[1:])
        if found is not None:
            return found
    return None


def _as(value: Any, column_type: str, now: datetime) -> Any:
    match column_type:
        case "integer":
            return int(value) if isinstance(value, (int, float)) else None
        case "number":
            return float(value) if isinstance(value, (int, float)) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return age(value, now) if isinstance(value, str) else None
        case _:
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
