"""The table of test/data/fields.yaml: two valid values of every field of a marker's probe, and an invalid one."""

from pathlib import Path

import msgspec
from support.tables import load_table
from support.wire import Json

_TABLE = load_table(Path(__file__).parents[1] / "data" / "fields.yaml", {})
ROWS: dict[str, Json] = _TABLE["fields"]
"""By the path of the field in a probe."""
MARKS: str = _TABLE["reasons"][0]
"""Why a field of a policy is not written to nodes."""


def put(target: Json, path: str, value: object) -> None:
    """Set a field; `[]` in a path is the first item of a list."""
    *parents, last = path.split(".")
    for parent in parents:
        name = parent.removesuffix("[]")
        found = target.setdefault(name, {} if name == parent else [{}])
        target = found[0] if isinstance(found, list) else found
    target[last] = msgspec.json.decode(msgspec.json.encode(value))
