"""What `migrate --check` reports, from objects of Kruise."""

import re
from typing import Any

import msgspec
import pytest
from support.builders import (
    marker_wire,
    npp_wire,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.kruise_crds import kruise_crds
from support.pages import ROOT

from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES
from kruise_probe.cli.migrate import migration_text
from kruise_probe.inspection import kruise_objects, migration
from kruise_probe.inspection.kruise_objects import (
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    WEBHOOK_CONFIGURATIONS,
    KruiseCluster,
)
from kruise_probe.inspection.migration import EVERY_MARKER, MigrationView, migration_view
from kruise_probe.manifests.crds import marker_crd

Json = dict[str, Any]

CONCERN_NO_MARKER = {
    "Annotation kruise-probe.io/paused",
    "Values in policies",
    "Policy for Unknown",
    "IP of a NodePodProbe",
    "Validation",
    "Writes",
    "Rights of the daemon",
}
"""Rows about fields that Kruise does not have, and about processes."""


def workload(name: str, *arguments: str) -> Json:
    containers = [{"name": "manager", "args": list(arguments)}]
    return {
        "metadata": {"name": name, "namespace": "kruise-system"},
        "spec": {"template": {"spec": {"containers": containers}}},
    }


WEBHOOK = {
    "metadata": {"name": kruise_objects.WEBHOOK_CONFIGURATION, "annotations": {"template": "[]"}},
    "webhooks": [{"name": "vpod.kb.io"}, {"name": kruise_objects.WEBHOOK}],
}


def view(
    *markers: Json,
    crd: Json | None = None,
    manager: Json | None = None,
    daemon: Json | None = None,
    webhook: Json | None = None,
    node: Json | None = None,
    ours_leads: bool = False,
) -> MigrationView:
    def decoded(resource: Any, wire: Json | None) -> list[Any]:
        return [] if wire is None else [resource.decode(msgspec.json.encode(wire))]

    cluster = KruiseCluster(
        markers=[each for wire in markers for each in decoded(MARKERS, wire)],
        node_pod_probes=decoded(NODE_POD_PROBES, node),
        definitions=decoded(DEFINITIONS, crd or kruise_crds()[0]),
        managers=decoded(DEPLOYMENTS, manager),
        daemons=decoded(DAEMON_SETS, daemon),
        webhooks=decoded(WEBHOOK_CONFIGURATIONS, webhook),
        kruise_probe_leads=ours_leads,
    )
    return migration_view(cluster, allowed_labels=(), notes=[])


def marker(name: str = "marker", **probe: Any) -> Json:
    return marker_wire(name, probes=[probe_wire("idle", **probe)])


def differences(found: MigrationView, name: str = "marker") -> dict[str, str]:
    (one,) = (each for each in found.markers if each.name == name)
    return {each.subject: each.message for each in one.differences}


@pytest.mark.parametrize(
    ("probe", "subject", "part"),
    [
        pytest.param(
            {}, "Message of a failing command that printed to standard output only", "standard output", id="exec"
        ),
        pytest.param({}, "initialDelaySeconds 0", "one second earlier", id="no-initial-delay"),
        pytest.param(
            {"timeoutSeconds": 4000}, "timeoutSeconds above 3,600", "3600 s", id="timeout"
        ),
        pytest.param(
            {"handler": {"exec": {"command": ["x" * 8192, "y"]}}}, "A command above 8 KiB (all words, UTF-8)",
            "does not run", id="command",
        ),
        pytest.param(
            {"handler": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}},
            "host, in a NodePodProbe as well", "10.0.0.1", id="host",
        ),
        pytest.param(
            {"handler": {"grpc": {"port": 80}}}, "httpGet without scheme; grpc", "go back", id="grpc"
        ),
        pytest.param({"condition": "Ready"}, "podConditionType: Ready", "not written", id="ready"),
        pytest.param(
            {"policies": [{"state": "Succeeded", "labels": {"pod-template-hash": "x"}}]},
            "Labels and annotations of controllers", "pod-template-hash", id="reserved-label",
        ),
        pytest.param(
            {"policies": [{"state": "Failed", "annotations": {"kruise.io/podprobe": "x"}}]},
            "Labels and annotations of controllers", "Failed does not write kruise.io/podprobe", id="reserved-annotation",
        ),
        pytest.param(
            {"condition": "InPlaceUpdateReady"}, "Labels and annotations of controllers",
            "InPlaceUpdateReady", id="reserved-condition",
        ),
    ],
)  # fmt: skip
def test_a_difference_is_reported_for_the_marker_that_it_concerns(
    probe: Json, subject: str, part: str
) -> None:
    found = differences(view(marker(**probe)))
    (message,) = (text for key, text in found.items() if key.startswith(subject))
    assert message.startswith("probe idle: ")
    assert part in message


def test_a_plain_http_marker_has_no_differences_and_is_not_refused() -> None:
    http = {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}}
    policies = [policy_wire("Succeeded", {"idle": "true"}, {"cost": "1"})]
    probe: Json = {"initialDelaySeconds": 1, "timeoutSeconds": 3600, "policies": policies}
    (found,) = view(marker(handler=http, **probe)).markers
    assert (found.refused, found.differences) == ([], [])


def test_a_command_of_8_kib_runs() -> None:
    found = differences(view(marker(handler={"exec": {"command": ["x" * 8192]}})))
    assert not any(each.startswith("A command above") for each in found)


def test_a_refused_marker_names_the_field_and_is_the_first_step() -> None:
    found = view(marker(handler={"tcpSocket": {"port": 80, "host": "10.0.0.1"}}))
    (error,) = found.markers[0].refused
    assert error.startswith("spec.probes[0].probe.tcpSocket.host: ")
    assert found.steps[0].startswith("Correct the refused marker")


def test_pods_whose_result_is_unknown_now_are_named() -> None:
    states = [
        pod_status_wire(pod_wire(f"web-{number}"), state_wire("marker#idle", "Unknown"))
        for number in range(5)
    ]
    found = differences(view(marker(), node=npp_wire(statuses=states)))
    assert "web-0, web-1, web-2 and 2 more" in found["Result Unknown"]


def test_only_pods_whose_result_is_unknown_are_named() -> None:
    results = ["Unknown", "Unknown", "Unknown", "Failed"]
    states = [
        pod_status_wire(pod_wire(f"web-{number}"), state_wire("marker#idle", state))
        for number, state in enumerate(results)
    ]
    found = differences(view(marker(), node=npp_wire(statuses=states)))
    assert "is Unknown now on web-0, web-1, web-2: the condition" in found["Result Unknown"]


def test_a_key_that_two_markers_write_is_reported_for_both() -> None:
    found = view(marker("old"), marker("new"))
    assert "new#idle" in differences(found, "old")["Two probes name one key"]
    assert "old#idle" in differences(found, "new")["Two probes name one key"]


def test_probes_without_a_condition_share_none() -> None:
    policies = {name: [policy_wire(labels={name: "1"})] for name in ("old", "new")}
    found = view(*(marker(name, condition=None, policies=policies[name]) for name in policies))
    for name in policies:
        assert "Two probes name one key" not in differences(found, name)


def test_markers_of_two_namespaces_share_no_key() -> None:
    other = marker_wire("marker", namespace="other", probes=[probe_wire("idle")])
    found = view(marker(), other)
    assert all(
        each.subject != "Two probes name one key"
        for one in found.markers
        for each in one.differences
    )


def test_markers_that_select_by_each_others_labels_are_reported() -> None:
    def writes(name: str, key: str, read: str) -> Json:
        policies = [{"state": "Succeeded", "labels": {key: "yes"}}]
        probes = [probe_wire("idle", policies=policies, condition=None)]
        return marker_wire(name, probes=probes, selector={"matchLabels": {read: "yes"}})

    found = differences(view(writes("one", "a", "b"), writes("two", "b", "a")), "one")
    assert "two selects pods" in found["Markers that select pods by each other's labels"]


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        pytest.param((), "on", id="default"),
        pytest.param(("--feature-gates=PodProbeMarkerGate=false",), "off", id="off"),
        pytest.param(("--feature-gates=Other=false,PodProbeMarkerGate=true",), "on", id="on"),
        pytest.param(
            ("--feature-gates=PodProbeMarkerGate=true", "--feature-gates=PodProbeMarkerGate=false"),
            "off", id="the-last-value-counts",
        ),
    ],
)  # fmt: skip
def test_the_gate_is_read_from_the_arguments(arguments: tuple[str, ...], state: str) -> None:
    found = view(manager=workload(kruise_objects.MANAGER, *arguments)).found
    assert f"kruise-controller-manager in kruise-system: PodProbeMarkerGate is {state}" in found


def test_the_steps_follow_what_is_installed() -> None:
    everything = view(
        manager=workload(kruise_objects.MANAGER),
        daemon=workload(kruise_objects.DAEMON),
        webhook=WEBHOOK,
    ).steps
    orders = [
        next(index for index, step in enumerate(everything) if part in step)
        for part in (
            "gate off in", "vpodprobemarker", "10221", "Install kruise-probe", "status -A", "keep the CRDs"
        )
    ]  # fmt: skip
    assert orders == sorted(orders)
    nothing = view(crd=marker_crd()).steps
    assert [each.partition(":")[0] for each in nothing] == [
        "Install kruise-probe",
        "Check the results",
    ]
    ours = view(ours_leads=True).steps
    assert ours[0].startswith("Replace the CRDs")
    (last,) = view(ours_leads=True, crd=marker_crd()).steps
    assert last.startswith("Check the results")
    daemon_only = view(daemon=workload(kruise_objects.DAEMON)).steps
    assert daemon_only[0].startswith("Switch Kruise's gate off")
    assert "keep the CRDs" in daemon_only[-1]


def test_every_installed_part_has_a_line() -> None:
    entry = {"name": "web-0", "namespace": "default", "uid": "u", "IP": "", "probes": []}
    everything = view(
        marker(),
        manager=workload(kruise_objects.MANAGER),
        daemon=workload(kruise_objects.DAEMON, "--feature-gates=PodProbeMarkerGate=false"),
        webhook=WEBHOOK,
        node=npp_wire(entries=[entry]),
        ours_leads=True,
    )
    assert everything.found == [
        "CRDs: Kruise's",
        "kruise-controller-manager in kruise-system: PodProbeMarkerGate is on",
        "kruise-daemon in kruise-system: PodProbeMarkerGate is off",
        "webhook vpodprobemarker.kb.io: installed",
        "nodes with probes: 1",
        "kruise-probe: a manager is installed",
        "markers: 1",
    ]
    assert view(node=npp_wire()).found == [
        "CRDs: Kruise's",
        "kruise-controller-manager: not installed",
        "kruise-daemon: not installed",
        "webhook vpodprobemarker.kb.io: not installed",
        "nodes with probes: 0",
        "markers: 0",
    ]


def test_nothing_is_reported_about_kinds_that_may_not_be_listed() -> None:
    found = migration_view(
        KruiseCluster((), None, None, None, None, None, None), allowed_labels=(), notes=[]
    )
    assert found.found == ["markers: 0"]
    assert [each.partition(":")[0] for each in found.steps] == [
        "Install kruise-probe",
        "Check the results",
    ]


@pytest.mark.parametrize(
    ("crd", "whose"),
    [
        pytest.param(kruise_crds()[0], "Kruise's", id="of-kruise"),
        pytest.param(marker_crd(), "kruise-probe's", id="ours"),
    ],
)
def test_the_definition_shows_whose_it_is(crd: Json, whose: str) -> None:
    assert f"CRDs: {whose}" in view(crd=crd).found


def definition(*schemas: Json) -> Json:
    versions = [{"schema": {"openAPIV3Schema": each}} for each in schemas]
    return {"metadata": {"name": kruise_objects.MARKER_CRD}, "spec": {"versions": versions}}


@pytest.mark.parametrize(
    "crd",
    [
        pytest.param(definition(), id="no-version"),
        pytest.param(definition({"type": "object"}), id="no-properties"),
        pytest.param(definition({"properties": {"spec": {}}}), id="no-status"),
        pytest.param(definition({"properties": {"status": {"type": "object"}}}), id="open-status"),
        pytest.param(definition({"properties": {"status": {"properties": []}}}), id="malformed"),
    ],
)
def test_a_definition_without_conditions_in_its_status_is_kruises(crd: Json) -> None:
    assert "CRDs: Kruise's" in view(crd=crd).found


def test_a_definition_is_ours_if_any_of_its_versions_is() -> None:
    ours: Json = {"properties": {"status": {"properties": {"conditions": {}}}}}
    assert "CRDs: kruise-probe's" in view(crd=definition({"type": "object"}, ours)).found


def test_missing_definitions_are_not_installed_and_need_no_step() -> None:
    nothing = KruiseCluster((), [], [], [], [], [], False)
    found = migration_view(nothing, allowed_labels=(), notes=[])
    assert found.found[0] == "CRDs: not installed"
    assert [each.partition(":")[0] for each in found.steps] == [
        "Install kruise-probe",
        "Check the results",
    ]


def test_every_row_of_the_page_of_differences_is_reported_or_concerns_no_marker() -> None:
    page = (ROOT / "docs/differences.md").read_text().partition("## From kubelet")[0]
    rows = re.findall(r"^\| (.+?) \|", page, re.MULTILINE)[2:]
    subjects = {re.sub(r"`| \(\[.*", "", each).strip() for each in rows}
    source = (ROOT / "kruise_probe/inspection/migration.py").read_text()
    reported = {each.subject for each in EVERY_MARKER} | {
        each for each in subjects if f'"{each}"' in source or each == migration.RESERVED
    }
    assert subjects - reported == CONCERN_NO_MARKER


@pytest.mark.parametrize(
    ("names", "step"),
    [
        pytest.param([], "", id="none"),
        pytest.param(["a"], "Correct the refused marker.", id="one"),
        pytest.param(["a", "b"], "Correct the 2 refused markers.", id="two"),
    ],
)
def test_the_first_step_is_to_correct_refused_markers(names: list[str], step: str) -> None:
    broken = [probe_wire("idle", condition="no type")]
    steps = view(*(marker_wire(each, probes=broken) for each in names)).steps
    assert steps[0].startswith(step)
    assert ("refused marker" in steps[0]) == bool(names)


def test_the_text_has_no_control_characters_of_a_marker() -> None:
    probes = [probe_wire("idle", condition="a\x1b[2J")]
    text = migration_text(view(marker_wire("marker", probes=probes)))
    assert "\x1b" not in text
    assert text.endswith("1 marker, 1 refused.\n")
