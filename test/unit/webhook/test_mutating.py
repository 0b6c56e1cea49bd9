"""Annotations of a new pod, for a provider that runs the probes."""

import json
from typing import Any

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
    named = {"name": name, "containerName": "main", "probe": EXEC}
    return {**named, **({"podConditionType": condition} if condition else {}), **more}


def marker(name: str, *probes: Json, born: int = 0, **more: Any) -> PodProbeMarker:
    selector = more.pop("selector", {"matchLabels": {"app": "a"}})
    created = f"2026-01-01T00:00:{born:02}Z"
    document = {
        "metadata": {"name": name, "creationTimestamp": created, **more},
        "spec": {"selector": selector, "probes": list(probes)},
    }
    return msgspec.convert(document, PodProbeMarker)


ONE = marker("m", probe())


def pod(**metadata: Any) -> AdmissionRequest:
    sidecar = {"name": "side", "restartPolicy": "Always"}
    containers = {"containers": [{"name": "main"}], "initContainers": [sidecar, {"name": "once"}]}
    metadata = {"generateName": "web-", "labels": {"app": "a"}, **metadata}
    raw = msgspec.Raw(json.dumps({"metadata": metadata, "spec": containers}).encode())
    return AdmissionRequest(uid="u", operation="CREATE", namespace="n", object=raw)


def annotated(*markers: PodProbeMarker, **annotations: str) -> tuple[list[Json], str, Json]:
    """Probes and markers that the patch adds, and the other annotations after it."""
    request = pod(annotations=annotations) if annotations else pod()
    found: Json = dict(annotations)
    for step in annotate_pod(request, markers).patch:
        assert (step["op"], step["path"]) == ("add", "/metadata/annotations")
        found = step["value"]
    return json.loads(found.pop(PROBES, "[]")), found.pop(MARKERS, ""), found


def test_a_matching_pod_gets_probes_without_policies_and_marker_names() -> None:
    policy = [{"state": "Succeeded", "labels": {"x": "y"}}]
    one = probe("one", "c/one")
    two = probe("two", "c/two")
    found = annotated(
        marker("z", {**one, "markerPolicy": policy}, born=1), marker("b", two, born=2)
    )
    assert found == ([one, two], "b,z", {})


def with_handler(**handler: Any) -> Json:
    return probe(probe=handler)


LONG = {"exec": {"command": ["x"] * (MAX_COMMAND + 1)}}
DEFAULTS = {"port": 80, "scheme": "HTTP", "path": "/"}


@cases(
    "given written",
    reserved_condition=(probe(condition="InPlaceUpdateReady"), []),
    no_condition=(probe(condition=""), []),
    no_such_container=(probe(containerName="x"), []),
    init_container=(probe(containerName="once"), []),
    breaks_a_rule=(with_handler(tcpSocket={"port": 1, "host": "x"}), []),
    sidecar=(probe(containerName="side"), [probe(containerName="side")]),
    number_out_of_range=(probe(probe=LONG), [probe(probe=LONG)]),
    timeout_is_clamped=(
        probe(probe={**EXEC, "timeoutSeconds": 100_000}),
        [probe(probe={**EXEC, "timeoutSeconds": 3600})],
    ),
    http_defaults=(with_handler(httpGet={"port": 80}), [with_handler(httpGet=DEFAULTS)]),
    no_headers_are_left=(
        with_handler(httpGet={"port": 80, "httpHeaders": [{"name": "X-Token", "value": "s"}]}),
        [with_handler(httpGet=DEFAULTS)],
    ),
)
def test_a_probe_is_written_as_the_daemon_would_run_it_or_not_at_all(
    given: Json, written: list[Json]
) -> None:
    other = probe("own", "c/own")
    assert annotated(marker("m", given, other))[0] == [*written, other]
    assert annotated(marker("m", given))[:2] == (written, "m" if written else "")


@cases(
    "markers",
    no_marker=[],
    another_selector=[marker("m", probe(), selector={"matchLabels": {"app": "b"}})],
    deleting=[marker("m", probe(), deletionTimestamp="2026-01-01T00:00:00Z")],
)
def test_a_pod_without_probes_is_unchanged(markers: list[PodProbeMarker]) -> None:
    assert annotate_pod(pod(), markers).patch == ()


def test_other_annotations_stay_and_a_forged_one_is_overwritten() -> None:
    found = annotated(ONE, own="kept", **{PROBES: "forged"})
    assert found == ([probe()], "m", {"own": "kept"})


def test_the_oldest_marker_wins_a_condition_type() -> None:
    young = marker("a", probe("young"), born=2)
    old = marker("b", probe("old"), born=1)
    for markers in ([young, old], [old, young]):
        assert annotated(*markers) == ([probe("old")], "b", {})


@cases(
    "headers secret",
    secret=(["Authorization", "Proxy-Authorization", "cookie", "Set-Cookie", "X-Api-Key", "apikey",
             "X-Auth-AdmissionRequest-User", "X-Amz-Security-Token", "X-CLIENT-SECRET", "X-Passwd", "X-Session-Id"], True),
    public=(["Accept", "Host", "User-Agent", "X-Probe", "Content-Type"], False),
)  # fmt: skip
def test_headers_that_look_secret_are_omitted(headers: list[str], secret: bool) -> None:
    for header in headers:
        given = [{"name": header, "value": "s"}, {"name": "X-Other", "value": "a"}]
        http = with_handler(httpGet={"port": 80, "httpHeaders": given})
        ((written,), _, _) = annotated(marker("m", http))
        assert written["probe"]["httpGet"]["httpHeaders"] == given[secret:], header


@cases("name", a_blank="X Y", empty="", another_header="X\r\nEvil: 1")
def test_a_provider_gets_no_header_that_http_forbids(name: str) -> None:
    http = with_handler(httpGet={"port": 80, "httpHeaders": [{"name": name, "value": "a"}]})
    assert annotated(marker("m", http)) == ([], "", {})


@cases(
    "change",
    update={"operation": "UPDATE"},
    delete={"operation": "DELETE"},
    subresource={"sub_resource": "ephemeralcontainers"},
    undecodable={"object": msgspec.Raw(b'{"spec": 1}')},
    too_many_values={"object": msgspec.Raw(b"[" + b"1," * 40_000 + b"1]")},
    too_many_values_of_a_pod={
        "object": pod(annotations={f"k{n}": "v" for n in range(MAX_VALUES)}).object
    },
)
def test_only_a_new_pod_that_can_be_read_is_changed(change: Json) -> None:
    assert annotate_pod(msgspec.structs.replace(pod(), **change), [ONE]) == ALLOWED


def test_a_marker_with_an_invalid_selector_selects_nothing_and_hides_no_other() -> None:
    near = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["a"]}]}
    bad = marker("bad", probe("x", "c/x"), selector=near)
    assert annotated(bad, ONE) == ([probe()], "m", {})


def test_markers_are_added_while_the_annotations_stay_below_the_limit() -> None:
    """The oldest first; one that does not fit is left out as a whole."""
    long = {"exec": {"command": ["é" * 4096]}}
    markers = [
        marker(f"m{age}", *(probe(f"{age}.{n}", f"c/{age}.{n}", probe=long) for n in range(12)), born=age)
        for age in range(4)
    ]  # fmt: skip
    small = marker("small", probe(), born=5)
    probes, names, _ = annotated(*markers, small, own="x" * 1000)
    assert (len(probes), names) == (25, "m0,m1,small")
    assert len(json.dumps(probes, ensure_ascii=False).encode()) + 1000 < 262_144
    assert annotate_pod(pod(annotations={"own": "x" * 262_000}), [small]).patch == ()


def test_only_the_64_oldest_markers_are_considered() -> None:
    markers = [marker(f"m{age}", probe(f"p{age}", f"c/{age}"), born=age) for age in range(70)]
    probes, _, _ = annotated(*reversed(markers))
    assert [each["name"] for each in probes] == [f"p{age}" for age in range(64)]
