"""Annotations of a new pod, for a provider that runs the probes."""

import json
from typing import Any

import msgspec
import pytest

from kruise_probe.api.core import MAX_COMMAND
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.webhook.admission import ALLOWED, MAX_VALUES, AdmissionRequest
from kruise_probe.webhook.mutating import annotate_pod

Json = dict[str, Any]
PROBES = "kruise.io/podprobe"
MARKERS = "kruise.io/podprobemarker-list"


def probe(name: str, condition: str = "", **more: Any) -> Json:
    found = {"name": name, "containerName": "main", "probe": {"exec": {"command": ["x"]}}, **more}
    return {**found, **({"podConditionType": condition} if condition else {})}


def marker(
    name: str, *probes: Json, born: int = 0, app: str = "a", **metadata: Any
) -> PodProbeMarker:
    document = {
        "metadata": {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{born}Z", **metadata},
        "spec": {"selector": {"matchLabels": {"app": app}}, "probes": list(probes)},
    }
    return msgspec.convert(document, PodProbeMarker)


def pod(**metadata: Any) -> AdmissionRequest:
    sidecar = {"name": "side", "restartPolicy": "Always"}
    document = {
        "metadata": {"generateName": "web-", "labels": {"app": "a"}, **metadata},
        "spec": {
            "containers": [{"name": "main"}],
            "initContainers": [sidecar, {"name": "once"}],
        },
    }
    raw = msgspec.Raw(json.dumps(document).encode())
    return AdmissionRequest(uid="u", operation="CREATE", namespace="n", object=raw)


def annotations_of(request: AdmissionRequest, *markers: PodProbeMarker) -> Json:
    """The annotations after the patch."""
    found: Json | None = json.loads(bytes(request.object))["metadata"].get("annotations")
    for step in annotate_pod(request, markers).patch:
        assert step["op"] == "add"
        if found is None:
            assert step["path"] == "/metadata/annotations", "there is no map yet to add to"
            found = step["value"]
        else:
            key = step["path"].removeprefix("/metadata/annotations/").replace("~1", "/")
            found[key] = step["value"]
    return found or {}


def test_a_matching_pod_gets_probes_without_policies_and_marker_names() -> None:
    policy = [{"state": "Succeeded", "labels": {"x": "y"}}]
    found = annotations_of(
        pod(),
        marker("z", probe("one", "a.example/one", markerPolicy=policy), born=1),
        marker("b", probe("two", "a.example/two"), born=2),
    )

    assert json.loads(found[PROBES]) == [
        probe("one", "a.example/one"),
        probe("two", "a.example/two"),
    ]
    assert found[MARKERS] == "b,z"


def test_a_probe_with_a_reserved_condition_is_omitted() -> None:
    found = annotations_of(
        pod(), marker("m", probe("gate", "InPlaceUpdateReady"), probe("own", "a.example/own"))
    )

    assert json.loads(found[PROBES]) == [probe("own", "a.example/own")]


def test_a_timeout_is_clamped() -> None:
    endless = probe("p", "a.example/p")
    endless["probe"] = {**endless["probe"], "timeoutSeconds": 100_000}

    (found,) = json.loads(annotations_of(pod(), marker("m", endless))[PROBES])

    assert found["probe"]["timeoutSeconds"] == 3600


def test_other_annotations_stay_and_a_forged_one_is_overwritten() -> None:
    found = annotations_of(
        pod(annotations={"own": "kept", PROBES: "forged"}), marker("m", probe("p", "a.example/p"))
    )

    assert found["own"] == "kept"
    assert "forged" not in found[PROBES]


@pytest.mark.parametrize(
    "markers",
    [
        pytest.param([], id="no-marker"),
        pytest.param([marker("m", probe("p", "c"), app="b")], id="another-selector"),
        pytest.param([marker("m", probe("p"))], id="no-condition"),
        pytest.param([marker("m", probe("p", "c", containerName="x"))], id="no-such-container"),
        pytest.param([marker("m", probe("p", "c", containerName="once"))], id="init-container"),
        pytest.param(
            [marker("m", probe("p", "c"), deletionTimestamp="2026-01-01T00:00:00Z")], id="deleting"
        ),
        pytest.param(
            [marker("m", probe("p", "c", probe={"tcpSocket": {"port": 1, "host": "x"}}))],
            id="a-probe-that-breaks-a-rule",
        ),
    ],
)
def test_a_pod_without_probes_is_unchanged(markers: list[PodProbeMarker]) -> None:
    assert annotate_pod(pod(), markers).patch == ()


def test_a_probe_with_a_number_out_of_range_is_included() -> None:
    long = {"exec": {"command": ["x"] * (MAX_COMMAND + 1)}}
    found = annotations_of(pod(), marker("m", probe("p", "c", probe=long)))

    assert json.loads(found[PROBES])[0]["probe"] == long


def test_a_sidecar_can_be_probed() -> None:
    found = annotations_of(pod(), marker("m", probe("p", "c", containerName="side")))

    assert json.loads(found[PROBES])[0]["containerName"] == "side"


def test_the_oldest_marker_wins_a_condition_type() -> None:
    young = marker("a", probe("young", "c"), born=2)
    old = marker("b", probe("old", "c"), born=1)

    for markers in ([young, old], [old, young]):
        found = annotations_of(pod(), *markers)
        assert [each["name"] for each in json.loads(found[PROBES])] == ["old"]
        assert found[MARKERS] == "b"


def test_http_get_gets_its_defaults() -> None:
    found = annotations_of(pod(), marker("m", probe("p", "c", probe={"httpGet": {"port": 80}})))

    action = json.loads(found[PROBES])[0]["probe"]["httpGet"]
    assert action == {"port": 80, "scheme": "HTTP", "path": "/"}


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        ("Authorization", True),
        ("Proxy-Authorization", True),
        ("cookie", True),
        ("Set-Cookie", True),
        ("X-Api-Key", True),
        ("apikey", True),
        ("X-Auth-AdmissionRequest-User", True),
        ("X-Amz-Security-Token", True),
        ("X-CLIENT-SECRET", True),
        ("X-Passwd", True),
        ("X-Session-Id", True),
        ("Accept", False),
        ("Host", False),
        ("User-Agent", False),
        ("X-Probe", False),
        ("Content-Type", False),
    ],
)
def test_headers_that_look_secret_are_omitted(header: str, secret: bool) -> None:
    headers = [{"name": header, "value": "s"}, {"name": "X-Other", "value": "a"}]
    http = {"httpGet": {"port": 80, "httpHeaders": headers}}
    found = annotations_of(pod(), marker("m", probe("p", "a.example/p", probe=http)))

    (written,) = json.loads(found[PROBES])
    assert written["probe"]["httpGet"]["httpHeaders"] == headers[secret:]


def test_without_other_headers_the_probe_has_none() -> None:
    http = {"httpGet": {"port": 80, "httpHeaders": [{"name": "X-Token", "value": "s"}]}}
    found = annotations_of(pod(), marker("m", probe("p", "a.example/p", probe=http)))

    assert "httpHeaders" not in found[PROBES]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"operation": "UPDATE"}, id="update"),
        pytest.param({"operation": "DELETE"}, id="delete"),
        pytest.param({"sub_resource": "ephemeralcontainers"}, id="subresource"),
        pytest.param({"object": msgspec.Raw(b'{"spec": 1}')}, id="undecodable"),
        pytest.param({"object": msgspec.Raw(b"[" + b"1," * 40_000 + b"1]")}, id="too-many-values"),
    ],
)
def test_only_a_new_pod_that_can_be_read_is_changed(change: Json) -> None:
    request = msgspec.structs.replace(pod(), **change)

    assert annotate_pod(request, [marker("m", probe("p", "a.example/p"))]) == ALLOWED


def test_a_pod_of_too_many_values_is_not_decoded() -> None:
    """It would be annotated otherwise: the limit decides, not whether it can be decoded."""
    many = {f"k{number}": "v" for number in range(MAX_VALUES)}

    assert annotate_pod(pod(annotations=many), [marker("m", probe("p", "a.example/p"))]) == ALLOWED


def test_a_marker_with_an_invalid_selector_selects_nothing_and_hides_no_other() -> None:
    bad = msgspec.convert(
        {
            "metadata": {"name": "bad"},
            "spec": {
                "selector": {
                    "matchExpressions": [{"key": "app", "operator": "Near", "values": ["a"]}]
                },
                "probes": [probe("x", "a.example/x")],
            },
        },
        PodProbeMarker,
    )

    assert annotations_of(pod(), bad, marker("good", probe("p", "a.example/p")))[MARKERS] == "good"


def test_markers_are_added_while_the_annotations_stay_below_the_limit() -> None:
    """The oldest first; one that does not fit is left out as a whole."""
    long = {"exec": {"command": ["é" * 4096]}}
    markers = [
        marker(
            f"m{age}",
            *(probe(f"p{age}.{n}", f"c{age}.{n}", probe=long) for n in range(12)),
            born=age,
        )
        for age in range(4)
    ]
    small = marker("small", probe("p", "c"), born=5)
    found = annotations_of(pod(annotations={"own": "x" * 1000}), *markers, small)
    assert found[MARKERS] == "m0,m1,small"
    assert len(json.loads(found[PROBES])) == 25
    assert sum(len(key) + len(value.encode()) for key, value in found.items()) < 262_144
    full = pod(annotations={"own": "x" * 262_000})
    assert annotate_pod(full, [small]).patch == ()
