"""Annotations of a new pod, for a provider that runs the probes."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from support.cases import cases
from support.wire import Json

from kruise_probe.api.probe import MAX_COMMAND
from kruise_probe.api.v1alpha1 import PodProbeMarker
from kruise_probe.webhook.admission import ALLOWED, MAX_VALUES, AdmissionRequest, annotate_pod

PROBES = "kruise.io/podprobe"
MARKERS = "kruise.io/podprobemarker-list"
EXEC = {"exec": {"command": ["x"]}}


def probe(name: str = "p", condition: str = "c/p", **more: Any) -> Json:
    wire = {
        "name": name,
        "containerName": "main",
        "probe": EXEC,
        **more,
    }
    if condition:
        wire["podConditionType"] = condition
    return wire


def marker(
    name: str,
    *probes: Json,
    second: int = 0,
    selector: Json | None = None,
    **metadata: Any,
) -> PodProbeMarker:
    """A marker that was created in this second."""
    metadata |= {"name": name, "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}
    spec = {"selector": selector or {"matchLabels": {"app": "a"}}, "probes": probes}
    return msgspec.convert({"metadata": metadata, "spec": spec}, PodProbeMarker)


ONE = marker("m", probe())


def pod(**metadata: Any) -> AdmissionRequest:
    wire = {
        "metadata": {
            "generateName": "web-",
            "labels": {"app": "a"},
            **metadata,
        },
        "spec": {
            "containers": [{"name": "main"}],
            "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "once"}],
        },
    }
    raw = msgspec.Raw(msgspec.json.encode(wire))
    return AdmissionRequest(
        uid="u",
        operation="CREATE",
        namespace="n",
        object=raw,
    )


class AnnotatedPod(NamedTuple):
    """Probes and marker names of a patch, and the other annotations after it."""

    probes: list[Json]
    markers: str = ""
    others: Mapping[str, str] = MappingProxyType({})


def annotated(*markers: PodProbeMarker, **annotations: str) -> AnnotatedPod:
    request = pod(annotations=annotations) if annotations else pod()
    found: Json = dict(annotations)
    for step in annotate_pod(request, markers).patch:
        assert step["op"] == "add"
        assert step["path"] == "/metadata/annotations"
        found = step["value"]
    probes = json.loads(found.pop(PROBES, "[]"))
    return AnnotatedPod(probes, found.pop(MARKERS, ""), found)


def test_a_matching_pod_gets_probes_without_policies_and_marker_names() -> None:
    policy = {"state": "Succeeded", "labels": {"x": "y"}}
    one = probe("one", "c/one")
    two = probe("two", "c/two")
    older = marker("z", {**one, "markerPolicy": [policy]}, second=1)
    younger = marker("b", two, second=2)
    assert annotated(older, younger) == AnnotatedPod([one, two], "b,z")


def with_handler(**handler: Any) -> Json:
    return probe(probe=handler)


def with_headers(*headers: Json) -> Json:
    return with_handler(httpGet={"port": 80, "httpHeaders": headers})


IN_SIDECAR = probe(containerName="side")
LONG = with_handler(exec={"command": ["x"] * (MAX_COMMAND + 1)})
DEFAULTS = with_handler(httpGet={"port": 80, "scheme": "HTTP", "path": "/"})


@cases(
    "given written",
    reserved_condition=(probe(condition="InPlaceUpdateReady"), []),
    no_condition=(probe(condition=""), []),
    no_such_container=(probe(containerName="x"), []),
    init_container=(probe(containerName="once"), []),
    breaks_a_rule=(with_handler(tcpSocket={"port": 1, "host": "x"}), []),
    sidecar=(IN_SIDECAR, [IN_SIDECAR]),
    number_out_of_range=(LONG, [LONG]),
    timeout_is_clamped=(
        with_handler(**EXEC, timeoutSeconds=100_000),
        [with_handler(**EXEC, timeoutSeconds=3600)],
    ),
    http_defaults=(with_handler(httpGet={"port": 80}), [DEFAULTS]),
    no_headers_are_left=(with_headers({"name": "X-Token", "value": "s"}), [DEFAULTS]),
)
def test_a_probe_is_written_as_the_daemon_would_run_it_or_not_at_all(
    given: Json, written: list[Json]
) -> None:
    other = probe("own", "c/own")
    assert annotated(marker("m", given, other)).probes == [*written, other]
    alone = annotated(marker("m", given))
    assert alone.probes == written
    assert alone.markers == ("m" if written else "")


@cases(
    "markers",
    no_marker=[],
    another_selector=[marker("m", probe(), selector={"matchLabels": {"app": "b"}})],
    deleting=[marker("m", probe(), deletionTimestamp="2026-01-01T00:00:00Z")],
)
def test_a_pod_without_probes_is_unchanged(markers: list[PodProbeMarker]) -> None:
    assert annotate_pod(pod(), markers).patch == ()


def test_other_annotations_stay_and_a_forged_one_is_overwritten() -> None:
    found = annotated(ONE, **{"own": "kept", PROBES: "forged"})
    assert found == AnnotatedPod([probe()], "m", {"own": "kept"})


def test_the_oldest_marker_wins_a_condition_type() -> None:
    young = marker("a", probe("young"), second=2)
    old = marker("b", probe("old"), second=1)
    expected = AnnotatedPod([probe("old")], "b")
    assert annotated(young, old) == expected
    assert annotated(old, young) == expected


SECRET = [
    "Authorization",
    "Proxy-Authorization",
    "cookie",
    "Set-Cookie",
    "X-Api-Key",
    "apikey",
    "X-Auth-AdmissionRequest-User",
    "X-Amz-Security-Token",
    "X-CLIENT-SECRET",
    "X-Passwd",
    "X-Session-Id",
]
PUBLIC = ["Accept", "Host", "User-Agent", "X-Probe", "Content-Type"]


@cases("headers is_secret", secret=(SECRET, True), public=(PUBLIC, False))
def test_headers_that_look_secret_are_omitted(headers: list[str], is_secret: bool) -> None:
    other = {"name": "X-Other", "value": "a"}
    for name in headers:
        header = {"name": name, "value": "s"}
        (written,) = annotated(marker("m", with_headers(header, other))).probes
        found = written["probe"]["httpGet"]["httpHeaders"]
        assert found == ([other] if is_secret else [header, other]), name


@cases(
    "name",
    a_blank="X Y",
    empty="",
    another_header="X\r\nEvil: 1",
)
def test_a_provider_gets_no_header_that_http_forbids(name: str) -> None:
    http = with_headers({"name": name, "value": "a"})
    assert annotated(marker("m", http)) == AnnotatedPod([])


TOO_MANY = {f"k{number}": "v" for number in range(MAX_VALUES)}


@cases(
    "change",
    update={"operation": "UPDATE"},
    delete={"operation": "DELETE"},
    subresource={"sub_resource": "ephemeralcontainers"},
    undecodable={"object": msgspec.Raw(b'{"spec": 1}')},
    too_many_values={"object": msgspec.Raw(b"[" + b"1," * 40_000 + b"1]")},
    too_many_values_of_a_pod={"object": pod(annotations=TOO_MANY).object},
)
def test_only_a_new_pod_that_can_be_read_is_changed(change: Json) -> None:
    assert annotate_pod(msgspec.structs.replace(pod(), **change), [ONE]) == ALLOWED


def test_a_marker_with_an_invalid_selector_selects_nothing_and_hides_no_other() -> None:
    near = {
        "key": "app",
        "operator": "Near",
        "values": ["a"],
    }
    bad = marker(
        "bad",
        probe("x", "c/x"),
        selector={"matchExpressions": [near]},
    )
    assert annotated(bad, ONE) == AnnotatedPod([probe()], "m")


def test_markers_are_added_while_the_annotations_stay_below_the_limit() -> None:
    """The oldest first; one that does not fit is left out as a whole."""
    long = {"exec": {"command": ["é" * 4096]}}
    markers = []
    for second in range(4):
        probes = []
        for number in range(12):
            name = f"{second}.{number}"
            probes.append(probe(name, f"c/{name}", probe=long))
        large = marker(f"m{second}", *probes, second=second)
        markers.append(large)
    small = marker("small", probe(), second=5)
    found = annotated(*markers, small, own="x" * 1000)
    assert len(found.probes) == 25
    assert found.markers == "m0,m1,small"
    written = json.dumps(found.probes, ensure_ascii=False)
    assert len(written.encode()) + 1000 < 262_144
    full = pod(annotations={"own": "x" * 262_000})
    assert annotate_pod(full, [small]).patch == ()


def test_only_the_64_oldest_markers_are_considered() -> None:
    probes = [probe(f"p{number}", f"c/{number}") for number in range(70)]
    markers = []
    for number, only in enumerate(probes):
        young = marker(f"m{number}", only, second=number)
        markers.append(young)
    found = annotated(*reversed(markers))
    assert found.probes == probes[:64]
