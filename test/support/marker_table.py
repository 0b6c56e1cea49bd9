"""The table of test/data/markers.yaml, on which the decoder, the API server's CEL rules and the webhook must agree."""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from support.tables import load_table
from support.wire import Json

from kruise_probe.api import reserved
from kruise_probe.api.names import DELETION_COST_ANNOTATION

RESERVED = {
    "labels": reserved.LABELS,
    "annotations": reserved.ANNOTATIONS,
    "conditions": reserved.CONDITIONS,
}
ITEM = "@"


class Row(NamedTuple):
    """A marker's spec; `field` is the invalid field, empty for a valid marker.

    `server_field` is where the API server says so, when a rule in CEL can name the list only, not the item.
    """

    id: str
    spec: Json
    field: str = ""
    server_field: str = ""

    @property
    def expected_of_server(self) -> str:
        return self.server_field or self.field


def edited(path: str, value: Any) -> Json:
    """GOOD with the value at a dotted path replaced; None removes it."""
    document = copy.deepcopy(GOOD)
    _put(document, path, value)
    return document


def policy(state: str = "Failed", **more: Any) -> Json:
    return {"state": state, **(more or {"labels": {"a": "b"}})}


def _put(document: Any, path: str, value: Any) -> None:
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    for part in parents:
        document = document[part]
    if value is None:
        del document[last]
    else:
        document[last] = value


def _numbered(of: Any) -> Json:
    """`[count, key, value]`: a mapping of numbered keys."""
    count, key, value = of
    return {f"{key}{number}": value for number in range(count)}


def _items(of: Any) -> list[str]:
    """`[count, text]`: a list of numbered texts."""
    count, text = of
    return [f"{text}{number}" for number in range(count)]


def _keys_of_probes(of: Any) -> list[Json]:
    """`[count, keys]`: probes with so many labels each."""
    count, keys = of
    policies = [policy(labels=_numbered([keys, "k", "v"]))]
    return [{**probe, "markerPolicy": policies} for probe in _probes(count)]


def _covered(table: str) -> list[str]:
    """A key for each part of a table of reserved keys, two for a domain."""
    found: list[str] = []
    for row in RESERVED[table]:
        found += row.keys
        found += [f"{prefix}x" for prefix in row.prefixes]
        for domain in row.domains:
            found += [f"{domain}/a", f"sub.app.{domain}/a"]
    return found


def _beside(table: str) -> list[str]:
    """Keys that look like those of a domain of the table, and its exceptions."""
    found: list[str] = []
    for row in RESERVED[table]:
        found += [f"{exempt}/a" for exempt in row.exceptions]
        for domain in row.domains:
            found += [domain, f"not{domain}/a", f"{domain}.example/a", f"example.com/{domain}"]
    return found


def _largest(part: str) -> Any:
    """Every list at its maximum, and 100 keys, which use the most of the API server's CEL budget."""
    return _largest_selector() if part == "selector" else _largest_probes()


def _probes(count: int | str) -> list[Json]:
    probe = {
        "containerName": "main",
        "probe": {"exec": {"command": ["/idle.sh"]}},
        "markerPolicy": [policy("Succeeded", labels={"idle": "true"})],
    }
    numbers = range(int(count))
    return [{**probe, "name": f"n{n}", "podConditionType": f"a.example/{n}"} for n in numbers]


def _largest_probes() -> list[Json]:
    keys = [f"{'p' * 60}.example/{n:060}" for n in range(32)]
    headers = [{"name": f"X-{n:060}", "value": "v" * 20} for n in range(32)]
    probe = {
        "containerName": "c" * 63,
        "probe": {
            "httpGet": {
                "port": "a" * 15,
                "httpHeaders": headers,
                "path": "/%20" * 1024,
            },
        },
        "extract": {
            "jsonPath": ".a" * 128,
            "step": "0." + "1" * 35,
            "default": "d" * 256,
        },
        "successWhen": {
            "statusCodes": ["200-299"] * 16,
            "regex": "x" * 256,
            "min": "-" + "1" * 18,
            "max": "1" * 18,
        },
    }
    probes: list[Json] = []
    for n in range(32):
        condition = f"{'p' * 200}/{n}"
        probes.append({"name": f"{n:0200}", **probe, "podConditionType": condition})
    marks = policy(
        "Succeeded",
        labels=dict.fromkeys(keys, "v" * 63),
        annotations={DELETION_COST_ANNOTATION: "-2147483648"} | dict.fromkeys(keys[:31], "v"),
        fromMessage=[{"label": key, "regex": "players=([0-9]+)"} for key in keys[:8]],
    )
    more_labels = _numbered((28, "k", "v"))
    probes[0]["markerPolicy"] = [marks, policy(labels=more_labels)]
    return probes


def _largest_selector() -> Json:
    numbers = range(32)
    expression = {"operator": "In", "values": [f"{n:063}" for n in numbers]}
    return {
        "matchLabels": {f"{'s' * 60}.example/{n:060}": "v" * 63 for n in numbers},
        "matchExpressions": [{**expression, "key": f"e.example/{n}"} for n in numbers],
    }


def _filled(value: Any, item: Any) -> Any:
    """The value, in which "@" is the item."""
    if isinstance(value, dict):
        return {item if key == ITEM else key: _filled(part, item) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, item) for part in value]
    return item if value == ITEM else value


def _flat(items: list[Any]) -> Iterator[Any]:
    """The tags `!covered` and `!beside` make lists among the items of `and`."""
    for item in items:
        if isinstance(item, list):
            yield from item
        else:
            yield item


def _rows(groups: list[Json], *, valid: bool = False) -> Iterator[Row]:
    for group in groups:
        path = group["at"]
        within = group.get("within", "")
        pattern = group["value"]
        field = ""
        if not valid:
            field = "spec." + re.sub(r"\.(\d+)", r"[\1]", path) + within
        for item in [*group.get("of", [None]), *_flat(group.get("and", []))]:
            spec = edited(path, copy.deepcopy(_filled(pattern, item)))
            for other, value in group.get("as", {}).items():
                _put(spec, other, value)
            shown = repr(pattern).replace(f"'{ITEM}'", repr(item))
            name = f"{path}{within}-{shown}"
            yield Row(
                name,
                spec,
                field,
                group.get("server", ""),
            )


def _named(rows: Iterator[Row]) -> tuple[Row, ...]:
    """The names are short, and unique by a number."""
    return tuple(row._replace(id=f"{row.id[:80]}-{number}") for number, row in enumerate(rows))


_TABLE = load_table(
    Path(__file__).parents[1] / "data" / "markers.yaml",
    {
        "numbered": _numbered,
        "items": _items,
        "probes": _probes,
        "keys-of-probes": _keys_of_probes,
        "covered": _covered,
        "beside": _beside,
        "largest": _largest,
    },
)
GOOD: Json = _TABLE["good"]
VALID = _named(_rows(_TABLE["valid"], valid=True))
INVALID = _named(_rows(_TABLE["invalid"]))
INCOMPLETE = _named(_rows(_TABLE["incomplete"]))
