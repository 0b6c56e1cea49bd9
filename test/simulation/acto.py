"""Acto's oracles on one long-lived world: recovery, differential, and each property of the CRD's schema changed once.

A property is changed by an edit of one path of a fixed marker. The API server refuses the new value, or the state becomes
that of a new cluster with the edited marker. Afterwards the edit is reverted, and the state is the one before.

Source: Gu et al., Acto: Automatic End-to-End Testing for Operation Correctness of Cloud System Management, SOSP 2023.
Differs: values are written by hand, one valid and one invalid for each property (test/data/fields.yaml).
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from support.fields import ROWS, put
from support.wire import Json

from kruise_probe.manifests.crds import marker_crd

BASE: Json = {
    "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
    "probes": [
        {
            "name": "p",
            "containerName": "main",
            "probe": {"exec": {"command": ["base-p"]}, "periodSeconds": 3},
            "podConditionType": "c/one",
            "markerPolicy": [
                {"state": "Succeeded", "labels": {"l1": "x"}, "annotations": {"a1": "x"}},
                {"state": "Failed", "labels": {"l1": "y"}},
                {"state": "Unknown", "labels": {"l1": "z"}},  # without it, earlier marks stay
            ],
        }
    ],
}

NOTHING: Json = {}
OTHER_HANDLERS = tuple(f"probes[].probe.{name}" for name in ("httpGet", "tcpSocket", "grpc"))


class Property(NamedTuple):
    """`path` as in the schema; an edit sets what it `needs`, then `valid`, and in another edit `invalid`.

    `invalid` is absent (None) where every value of the type is valid.
    """

    path: str
    valid: Any
    invalid: Any = None
    needs: Json = NOTHING


def _property_of_probe(path: str, row: Json) -> Property:
    name = f"probes[].{path}"
    if "no-entry" in row and row["before"] is None:  # a host, which must be absent or empty
        return Property(
            name,
            "",
            row["after"],
            row["needs"],
        )
    return Property(
        name,
        row["after"],
        row.get("invalid"),
        row.get("needs", NOTHING),
    )


PROPERTIES = (
    Property("selector.matchLabels", {"app": "web"}, {"a b": "c"}),
    Property("selector.matchExpressions[].key", "tier", "a b"),
    Property("selector.matchExpressions[].operator", "NotIn", "Like"),
    Property("selector.matchExpressions[].values", ["db"], ["a b"]),
    *(_property_of_probe(path, row) for path, row in ROWS.items()),
)


def schema_paths() -> Iterator[str]:
    """Every leaf of a marker's spec."""
    version = marker_crd()["spec"]["versions"][0]
    yield from _leaves(version["schema"]["openAPIV3Schema"]["properties"]["spec"], "")


def _leaves(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if "properties" in schema:
        for name, field in schema["properties"].items():
            yield from _leaves(field, f"{path}.{name}".lstrip("."))
    elif "properties" in schema.get("items", {}):
        yield from _leaves(schema["items"], f"{path}[]")
    else:
        yield path


def edited(change: Property, value: Any) -> Json:
    """The base spec with `value` at the path of the property, in the first element of each list."""
    spec = deepcopy(BASE)
    if change.path == "selector.matchLabels":
        del spec["selector"]["matchExpressions"]
    needs = {f"probes[].{path}": needed for path, needed in change.needs.items()}
    (probe,) = spec["probes"]
    if any(path.startswith(OTHER_HANDLERS) for path in (change.path, *needs)):
        probe["probe"] = {"periodSeconds": 3}
    for path, needed in needs.items():
        if path == "probes[].markerPolicy":
            (policy,) = needed
            probe["markerPolicy"][0] |= deepcopy(policy) | {"state": "Succeeded"}
        elif not path.startswith("probes[].probe.exec"):
            put(spec, path, needed)
    put(spec, change.path, value)
    return spec
