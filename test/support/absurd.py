"""Objects that fit an OpenAPI schema and nothing else: every type is right, and no value is one that anybody expects."""

import copy
from random import Random
from typing import Any

from kruise_probe.manifests.crds import marker_crd, node_pod_probe_crd

Json = dict[str, Any]

BOUNDS = frozenset(
    {
        "x-kubernetes-validations",
        *("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "pattern"),
        *("minimum", "maximum", "enum"),
    }
)
TEXTS = (
    *(
        "",
        " ",
        "#",
        "a#b",
        "way#",
        "#p",
        "Ready",
        "/",
        "//",
        "a/b/c",
        "..",
        "%00",
        "\n",
        "\x00",
        "\x7f",
    ),
    *("main", "healthy", "web", "Succeeded", "Failed", "In", "HTTP", "https", "http", "80", "-1"),
    *(
        "x" * 300,
        "é" * 200,
        "\ud7ff",
        "\U0001f600" * 80,
        "ключ",
        "null",
        "{{",
        "$(HOME)",
        "a b",
        "A=B",
    ),
    *("127.0.0.1", "localhost", "::1", "[::1]:80", "Host", "Content-Length", "Transfer-Encoding"),
)
INTEGERS = (0, 1, 2, -1, 3, 80, 65_535, 65_536, 2**31 - 1, -(2**31))
LONG_INTEGERS = (*INTEGERS, 2**31, 2**63 - 1, -(2**63))
TIMES = (
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "2026-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
)
LOOPBACK = ("", "127.99.0.1", "127.0.0.1", "::1", "no address", "127.99.0.1:80")
"""Where an absurd probe may go: nowhere but here."""


def without_rules(crd: Json) -> Json:
    """The CRD with its types only, as Kruise's has them."""

    def strip(schema: Any) -> Any:
        if isinstance(schema, list):
            return [strip(each) for each in schema]
        if isinstance(schema, dict):
            return {key: strip(value) for key, value in schema.items() if key not in BOUNDS}
        return schema

    bare = copy.deepcopy(crd)
    for version in bare["spec"]["versions"]:
        version["schema"] = strip(version["schema"])
    return bare


def absurd(schema: Json, random: Random) -> Any:
    """A value of the schema's type."""
    if schema.get("x-kubernetes-int-or-string"):
        return random.choice([random.choice(INTEGERS), random.choice(TEXTS)])
    match schema.get("type"):
        case "object" if "properties" in schema:
            return _record(schema, random)
        case "object":
            values = schema.get("additionalProperties") or {"type": "string"}
            keys = random.sample(TEXTS, random.randrange(4))
            return {key: absurd(values, random) for key in keys}
        case "array":
            return [absurd(schema["items"], random) for _ in range(random.randrange(4))]
        case "integer":
            wide = schema.get("format") == "int64"
            return random.choice(LONG_INTEGERS if wide else INTEGERS)
        case "boolean":
            return random.choice([True, False])
        case "string" if schema.get("format") == "date-time":
            return random.choice(TIMES)
        case _:
            return random.choice(TEXTS)


def _record(schema: Json, random: Random) -> Json:
    required = set(schema.get("required", ()))
    made = {}
    for name, each in schema["properties"].items():
        if name in required or random.random() < 0.5:
            made[name] = random.choice(LOOPBACK) if name == "IP" else absurd(each, random)
    return made


def _spec_of(crd: Json, *path: str) -> Json:
    found = without_rules(crd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path:
        found = found["properties"][name]
    return dict(found)


MARKER_SPEC = _spec_of(marker_crd(), "spec")
ENTRY = _spec_of(node_pod_probe_crd(), "spec", "podProbes")["items"]
POD_STATUS = _spec_of(node_pod_probe_crd(), "status", "podProbeStatuses")["items"]


def absurd_marker(name: str, random: Random, *, app: str) -> Json:
    """A marker that, every other time, means the pods `app`."""
    spec = absurd(MARKER_SPEC, random)
    if random.random() < 0.7:
        spec["selector"] = {"matchLabels": {"app": app}}
    spec["probes"] = [
        absurd(MARKER_SPEC["properties"]["probes"]["items"], random) for _ in range(3)
    ]
    return {
        "apiVersion": "apps.kruise.io/v1alpha1",
        "kind": "PodProbeMarker",
        "metadata": {"name": name},
        "spec": spec,
    }


def absurd_entry(random: Random, *, uid: str) -> Json:
    """A pod to probe; every other time it is the one with that uid, and its container `main`."""
    entry: Json = absurd(ENTRY, random)
    entry["IP"] = random.choice(LOOPBACK)
    if random.random() < 0.7:
        entry["uid"] = uid
    for each in entry.get("probes") or ():
        if random.random() < 0.7:
            each["containerName"] = "main"
    return entry


def absurd_results(random: Random, *, uid: str, marker: str) -> Json:
    """Results of a pod."""
    found: Json = absurd(POD_STATUS, random)
    if random.random() < 0.7:
        found["uid"] = uid
    for each in found.get("probeStates") or ():
        if random.random() < 0.5:
            each["name"] = f"{marker}#{random.choice(TEXTS)}"
    return found
