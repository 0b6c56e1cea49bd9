"""The table of test/data/fields.yaml: two valid values of every field of a marker's probe, and an invalid one."""

from copy import deepcopy
from pathlib import Path

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
        if parent.endswith("[]"):
            target = target.setdefault(parent.removesuffix("[]"), [{}])[0]
        else:
            target = target.setdefault(parent, {})
    target[last] = deepcopy(value)
