"""Acto's oracles on one long-lived world: recovery, differential, and each property of the CRD's schema changed once.

A property is changed by an edit of one path of a fixed marker. The API server refuses the new value, or the state becomes
that of a new cluster with the edited marker. Afterwards the edit is reverted, and the state is the one before.

Source: Gu et al., Acto: Automatic End-to-End Testing for Operation Correctness of Cloud System Management, SOSP 2023.
Differs: values are written by hand, one valid and one invalid for each property.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from support.wire import Json

from kruise_probe.manifests.crds import all_crds

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
            ],
        }
    ],
}

_HTTP: Json = {"port": 80}
_HEADERS: Json = {"port": 80, "httpHeaders": [{"name": "X-A", "value": "b"}]}


class Property(NamedTuple):
    """`path` as in the schema; `parts` are what the edit sets first; then `valid`, and in another edit `invalid`.

    `invalid` is absent (None) where every value of the type is valid.
    """

    path: str
    valid: Any
    invalid: Any = None
    handler: tuple[str, Json] | None = None


PROPERTIES = (
    Property("selector.matchLabels", {"app": "web"}, {"a b": "c"}),
    Property("selector.matchExpressions[].key", "tier", "a b"),
    Property("selector.matchExpressions[].operator", "NotIn", "Like"),
    Property("selector.matchExpressions[].values[]", "db", "a b"),
    Property("probes[].name", "q", "a#b"),
    Property("probes[].containerName", "absent", ""),
    Property("probes[].probe.exec.command[]", "base-q", "x" * 9000),
    Property("probes[].probe.httpGet.host", "", "example.com", ("httpGet", _HTTP)),
    Property("probes[].probe.httpGet.httpHeaders[].name", "X-B", "a b", ("httpGet", _HEADERS)),
    Property("probes[].probe.httpGet.httpHeaders[].value", "c", None, ("httpGet", _HEADERS)),
    Property("probes[].probe.httpGet.path", "/ready", None, ("httpGet", _HTTP)),
    Property("probes[].probe.httpGet.port", 8080, 70000, ("httpGet", _HTTP)),
    Property("probes[].probe.httpGet.protocol", "HTTP1", "HTTP2", ("httpGet", _HTTP)),
    Property("probes[].probe.httpGet.scheme", "HTTPS", "ftp", ("httpGet", _HTTP)),
    Property("probes[].probe.tcpSocket.host", "", "example.com", ("tcpSocket", _HTTP)),
    Property("probes[].probe.tcpSocket.port", 8080, "UPPER CASE", ("tcpSocket", _HTTP)),
    Property("probes[].probe.grpc.port", 9000, 0, ("grpc", _HTTP)),
    Property("probes[].probe.grpc.service", "other", None, ("grpc", _HTTP)),
    Property("probes[].probe.grpc.mode", "TLS", "SSL", ("grpc", _HTTP)),
    Property("probes[].probe.initialDelaySeconds", 2, -1),
    Property("probes[].probe.timeoutSeconds", 2, 4000),
    Property("probes[].probe.periodSeconds", 2, -1),
    Property("probes[].probe.successThreshold", 2, -1),
    Property("probes[].probe.failureThreshold", 3, -1),
    Property("probes[].probe.terminationGracePeriodSeconds", 5, None),
    Property("probes[].markerPolicy[].state", "Unknown", "Good"),
    Property("probes[].markerPolicy[].labels", {"l2": "z"}, {"a b": "c"}),
    Property("probes[].markerPolicy[].annotations", {"a2": "z"}, {"a b": "c"}),
    Property("probes[].markerPolicy[].fromMessage[].label", "l3", "a b"),
    Property("probes[].markerPolicy[].fromMessage[].annotation", "a3", "a b"),
    Property("probes[].markerPolicy[].fromMessage[].regex", "f(.*)", "("),
    Property("probes[].podConditionType", "c/two", "Ready"),
    Property("probes[].whenStale", "Keep", "Never"),
    Property("probes[].whenTerminating", "Probe", "Never"),
)


def schema_paths() -> Iterator[str]:
    """Every leaf of a marker's spec."""
    (crd,) = (each for each in all_crds() if each["spec"]["names"]["kind"] == "PodProbeMarker")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    yield from _leaves(schema, "")


def _leaves(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if "properties" in schema:
        for name, each in schema["properties"].items():
            yield from _leaves(each, f"{path}.{name}".lstrip("."))
    elif schema.get("type") == "array":
        yield from _leaves(schema["items"], f"{path}[]")
    else:
        yield path


def edited(change: Property, value: Any) -> Json:
    """The base spec with `value` at the path of the property, in the first element of each list."""
    spec = deepcopy(BASE)
    if change.handler is not None:
        name, handler = change.handler
        spec["probes"][0]["probe"] = {name: deepcopy(handler), "periodSeconds": 3}
    if "fromMessage" in change.path:
        kind = "annotation" if change.path.endswith("annotation") else "label"
        spec["probes"][0]["markerPolicy"][0]["fromMessage"] = [{kind: "l4"}]
    at: Any = spec
    *parents, last = [
        0 if part == "0" else part for part in change.path.replace("[]", ".0").split(".")
    ]
    for part in parents:
        at = at[part]
    at[last] = value
    if change.path == "selector.matchLabels":
        del spec["selector"]["matchExpressions"]
    return spec
