"""The main job on a real node: from a PodProbeMarker to marked pods, both ways, for every kind of probe."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.kubectl import Kubectl, KubectlWatch, annotations, condition, labels, status_of
from support.patience import PATIENCE_SECONDS

COST = "controller.kubernetes.io/pod-deletion-cost"
PERIOD_SECONDS = 1
GATE = "e2e.example.com/door"

# exec looks at a file, httpGet at a page, tcpSocket at a listener: each can be flipped from outside by `kubectl exec`
SERVER = """
mkdir -p /tmp/www
echo idle > /tmp/idle
echo role=backup > /tmp/role
echo fine > /tmp/www/healthz
httpd -p 8080 -h /tmp/www
httpd -p 9090 -h /tmp
exec sleep 100000
"""
OPEN_DOOR = "httpd -p 9090 -h /tmp"
CLOSE_DOOR = "kill $(ps | grep 'httpd -p 9090' | grep -v grep | awk '{print $1}')"

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "game"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "game"}},
        "template": {
            "metadata": {"labels": {"app": "game"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "readinessGates": [{"conditionType": GATE}],
                "containers": [
                    {
                        "name": "server",
                        "image": "kruise-probe-test:busybox",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["sh", "-c", SERVER],
                        "ports": [
                            {"name": "http", "containerPort": 8080},
                            {"name": "door", "containerPort": 9090},
                        ],
                    }
                ],
            },
        },
    },
}


def probe(name: str, action: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "containerName": "server",
        "probe": {"periodSeconds": PERIOD_SECONDS, "timeoutSeconds": 20, **action},
        **more,
    }


def both(key: str) -> list[dict[str, Any]]:
    return [
        {"state": "Succeeded", "labels": {key: "yes"}, "annotations": {COST: "-10"}},
        {"state": "Failed", "labels": {key: "no"}, "annotations": {COST: "10"}},
    ]


MARKER: dict[str, Any] = {
    "apiVersion": "apps.kruise.io/v1alpha1",
    "kind": "PodProbeMarker",
    "metadata": {"name": "game"},
    "spec": {
        "selector": {"matchLabels": {"app": "game"}},
        "probes": [
            probe(
                "idle",
                {
                    "exec": {
                        "command": [
                            "sh",
                            "-c",
                            "cat /tmp/idle 2>/dev/null || { echo busy >&2; exit 1; }",
                        ]
                    }
                },
                podConditionType="e2e.example.com/idle",
                markerPolicy=both("idle"),
            ),
            probe(
                "web-by-number",
                {"httpGet": {"path": "/healthz", "port": 8080}},
                podConditionType="e2e.example.com/web-by-number",
                markerPolicy=[{"state": "Succeeded", "labels": {"web": "up"}}],
            ),
            probe(
                "web-by-name",
                {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}},
                podConditionType="e2e.example.com/web-by-name",
                markerPolicy=[{"state": "Failed", "annotations": {"example.com/web": "down"}}],
            ),
            probe("door-by-name", {"tcpSocket": {"port": "door"}}, podConditionType=GATE),
            probe(
                "door-by-number",
                {"tcpSocket": {"port": 9090}},
                markerPolicy=[{"state": "Succeeded", "labels": {"door": "open"}}],
            ),
            probe(
                "role",
                {"exec": {"command": ["cat", "/tmp/role"]}},
                markerPolicy=[
                    {
                        "state": "Succeeded",
                        "labels": {"role": "none"},
                        "fromMessage": [
                            {"label": "role", "regex": r"role=(\w+)"},
                            {"annotation": "example.com/role"},
                        ],
                    },
                    {"state": "Failed", "labels": {"role": "failed"}},
                ],
            ),
        ],
    },
}
CONDITION_TYPES = [
    each["podConditionType"] for each in MARKER["spec"]["probes"] if "podConditionType" in each
]


@pytest.fixture(scope="module")
def pods(namespace: Kubectl) -> Iterator[KubectlWatch]:
    """Three pods that all probes find in order, watched."""
    namespace.apply(MARKER, DEPLOYMENT)
    with namespace.watch("pods") as watched:
        watched.until(
            "three pods with every condition True",
            lambda newest: (
                len(newest) == 3
                and all(
                    status_of(pod, each) == "True"
                    for pod in newest.values()
                    for each in CONDITION_TYPES
                )
            ),
            timeout=3 * PATIENCE_SECONDS,
        )
        yield watched


@pytest.fixture
def pod(pods: KubectlWatch) -> str:
    return min(pods.newest)


def test_first_results_stand_on_every_pod_as_conditions_labels_and_annotations(
    pods: KubectlWatch,
) -> None:
    def marked(newest: dict[str, Any]) -> bool:
        wanted = {"idle": "yes", "web": "up", "door": "open", "role": "backup"}
        return all(
            wanted.items() <= labels(each).items() and annotations(each).get(COST) == "-10"
            for each in newest.values()
        )

    pods.until("labels and annotations of Succeeded", marked)
    for each in pods.newest.values():
        idle = condition(each, "e2e.example.com/idle")
        assert idle["message"].strip() == "idle"
        assert idle["lastProbeTime"]
        assert idle["lastTransitionTime"]
        assert "reason" not in idle
        assert "example.com/web" not in annotations(each)


def test_an_exec_probe_flips_both_ways(namespace: Kubectl, pods: KubectlWatch, pod: str) -> None:
    others = set(pods.newest) - {pod}
    namespace.exec(pod, "rm /tmp/idle")
    pods.until("label idle=no", lambda newest: labels(newest[pod]).get("idle") == "no")
    failed = condition(pods.newest[pod], "e2e.example.com/idle")
    assert (failed["status"], failed["message"].strip()) == ("False", "busy")
    assert annotations(pods.newest[pod])[COST] == "10"
    assert all(labels(pods.newest[each])["idle"] == "yes" for each in others)

    namespace.exec(pod, "echo idle > /tmp/idle")
    pods.until("label idle=yes", lambda newest: labels(newest[pod]).get("idle") == "yes")
    assert annotations(pods.newest[pod])[COST] == "-10"
    assert condition(pods.newest[pod], "e2e.example.com/idle")["status"] == "True"


def test_a_message_that_changes_while_the_state_stays_reaches_the_condition(
    namespace: Kubectl, pods: KubectlWatch, pod: str
) -> None:
    before = condition(pods.newest[pod], "e2e.example.com/idle")
    namespace.exec(pod, "echo 'idle, 3 players waiting' > /tmp/idle")
    pods.until(
        "the new message",
        lambda newest: (
            "3 players" in condition(newest[pod], "e2e.example.com/idle").get("message", "")
        ),
    )
    after = condition(pods.newest[pod], "e2e.example.com/idle")
    assert after["status"] == "True"
    assert after["lastTransitionTime"] == before["lastTransitionTime"]
    namespace.exec(pod, "echo idle > /tmp/idle")


def test_values_from_a_message_follow_it(namespace: Kubectl, pods: KubectlWatch, pod: str) -> None:
    def shows(role: str, text: str | None) -> None:
        pods.until(
            f"label role={role}",
            lambda newest: (
                labels(newest[pod]).get("role") == role
                and annotations(newest[pod]).get("example.com/role") == text
            ),
        )

    def reports(reason: str) -> None:
        with namespace.watch("podprobemarkers") as markers:
            markers.until(
                f"Degraded is {reason}",
                lambda newest: (
                    condition(newest.get("game", {}), "Degraded").get("reason") == reason
                ),
            )

    shows("backup", "role=backup")
    namespace.exec(pod, "echo role=primary > /tmp/role")
    shows("primary", "role=primary")
    namespace.exec(pod, "echo starting > /tmp/role")
    shows("none", "starting")
    reports("ValueInvalid")
    namespace.exec(pod, "rm /tmp/role")
    shows("failed", None)
    namespace.exec(pod, "echo role=backup > /tmp/role")
    shows("backup", "role=backup")
    reports("AsExpected")


def test_new_policy_is_not_applied_to_the_result_of_an_old_command(
    namespace: Kubectl, pods: KubectlWatch
) -> None:
    def apply(script: str, succeeded: str) -> None:
        policies = [
            {"state": "Succeeded", "labels": {"edited": succeeded}},
            {"state": "Failed", "labels": {"edited": "failed"}},
        ]
        how = {"exec": {"command": ["sh", "-c", script]}}
        spec = {**MARKER["spec"], "probes": [probe("edited", how, markerPolicy=policies)]}
        namespace.apply({**MARKER, "metadata": {"name": "edited"}, "spec": spec})

    def show(value: str) -> None:
        pods.until(
            f"label edited={value} on every pod",
            lambda newest: all(labels(each).get("edited") == value for each in newest.values()),
        )

    apply("true", succeeded="old")
    show("old")
    apply("sleep 2; false", succeeded="new")
    show("failed")
    assert "new" not in [labels(each).get("edited") for _, each in pods.versions]
    namespace.run("delete", "podprobemarker", "edited", "--timeout=60s")


def test_a_policy_for_unknown_is_applied_to_a_probe_that_cannot_run(
    namespace: Kubectl, pods: KubectlWatch
) -> None:
    absent = probe(
        "absent",
        {"exec": {"command": ["/no/such/program"]}},
        markerPolicy=[{"state": "Unknown", "labels": {"absent": "unknown"}}],
    )
    spec = {**MARKER["spec"], "probes": [absent]}
    namespace.apply({**MARKER, "metadata": {"name": "absent"}, "spec": spec})
    pods.until(
        "label absent=unknown on every pod",
        lambda newest: all(labels(each).get("absent") == "unknown" for each in newest.values()),
        timeout=2 * PATIENCE_SECONDS,
    )
    namespace.run("delete", "podprobemarker", "absent", "--timeout=60s")
    pods.until(
        "label absent is gone",
        lambda newest: not any("absent" in labels(each) for each in newest.values()),
    )


def test_http_probes_by_number_and_by_name_flip_and_a_single_policy_removes_its_keys(
    namespace: Kubectl, pods: KubectlWatch, pod: str
) -> None:
    namespace.exec(pod, "mv /tmp/www/healthz /tmp/www/hidden")
    pods.until(
        "web probes False, label web gone, annotation of Failed there",
        lambda newest: (
            status_of(newest[pod], "e2e.example.com/web-by-number") == "False"
            and status_of(newest[pod], "e2e.example.com/web-by-name") == "False"
            and "web" not in labels(newest[pod])
            and annotations(newest[pod]).get("example.com/web") == "down"
        ),
    )
    message = condition(pods.newest[pod], "e2e.example.com/web-by-name")["message"]
    assert "statuscode: 404: " in message
    assert "Not Found" in message, "the first line of busybox's page"

    namespace.exec(pod, "mv /tmp/www/hidden /tmp/www/healthz")
    pods.until(
        "web probes True, label web back, annotation gone",
        lambda newest: (
            status_of(newest[pod], "e2e.example.com/web-by-number") == "True"
            and status_of(newest[pod], "e2e.example.com/web-by-name") == "True"
            and labels(newest[pod]).get("web") == "up"
            and "example.com/web" not in annotations(newest[pod])
        ),
    )


def test_a_readiness_gate_follows_a_tcp_probe(
    namespace: Kubectl, pods: KubectlWatch, pod: str
) -> None:
    pods.until("the pod is Ready", lambda newest: status_of(newest[pod], "Ready") == "True")
    namespace.exec(pod, CLOSE_DOOR)
    pods.until(
        "door closed: gate False, pod not Ready, label gone",
        lambda newest: (
            status_of(newest[pod], GATE) == "False"
            and status_of(newest[pod], "Ready") == "False"
            and "door" not in labels(newest[pod])
        ),
    )
    namespace.exec(pod, OPEN_DOOR)
    pods.until(
        "door open: gate True, pod Ready, label back",
        lambda newest: (
            status_of(newest[pod], GATE) == "True"
            and status_of(newest[pod], "Ready") == "True"
            and labels(newest[pod]).get("door") == "open"
        ),
    )


def test_transitions_are_events_of_the_pod(
    namespace: Kubectl, pods: KubectlWatch, pod: str
) -> None:
    namespace.exec(pod, "rm /tmp/idle")
    pods.until("idle=no", lambda newest: labels(newest[pod]).get("idle") == "no")
    namespace.exec(pod, "echo idle > /tmp/idle")
    pods.until("idle=yes", lambda newest: labels(newest[pod]).get("idle") == "yes")
    with namespace.watch("events") as events:
        for reason in ("KruiseProbeFailed", "KruiseProbeSucceeded"):
            events.until(
                reason,
                lambda newest, reason=reason: any(
                    each["reason"] == reason
                    and each["message"].startswith("game#")
                    and each["type"] == "Normal"
                    and each["involvedObject"]["name"] == pod
                    and each["source"]["component"] == "kruise-daemon-podprobe"
                    for each in newest.values()
                ),
            )


@pytest.mark.parametrize("kind", ["pod", "podprobemarker"])
def test_a_paused_probe_keeps_its_marks_until_the_next_result(
    namespace: Kubectl, pods: KubectlWatch, pod: str, kind: str
) -> None:
    name = pod if kind == "pod" else "game"
    idle = "e2e.example.com/idle"
    namespace.run("annotate", kind, name, "kruise-probe.io/paused=true")
    pods.until("paused", lambda newest: condition(newest[pod], idle).get("reason") == "ProbePaused")
    with namespace.watch("nodepodprobes") as reports:
        uid = pods.newest[pod]["metadata"]["uid"]
        reports.until(
            "no entry of the pod",
            lambda newest: (
                newest
                and uid
                not in {
                    entry["uid"]
                    for each in newest.values()
                    for entry in each["spec"].get("podProbes") or []
                }
            ),
        )
    namespace.exec(pod, "rm /tmp/idle")
    paused = pods.newest[pod]
    assert status_of(paused, idle) == status_of(paused, "Ready") == "True"
    assert labels(paused)["idle"] == "yes"

    namespace.run("annotate", kind, name, "kruise-probe.io/paused-")
    pods.until("idle=no", lambda newest: labels(newest[pod]).get("idle") == "no")
    assert "reason" not in condition(pods.newest[pod], idle)
    namespace.exec(pod, "echo idle > /tmp/idle")
    pods.until("idle=yes", lambda newest: labels(newest[pod]).get("idle") == "yes")


def test_the_marker_says_what_it_sees(namespace: Kubectl, pods: KubectlWatch) -> None:
    with namespace.watch("podprobemarkers") as markers:
        markers.until(
            "observedGeneration and matchedPods",
            lambda newest: (
                "game" in newest
                and newest["game"].get("status", {}).get("matchedPods") == 3
                and newest["game"]["status"]["observedGeneration"]
                == newest["game"]["metadata"]["generation"]
            ),
        )


def test_deleting_the_marker_takes_its_marks_away_and_leaves_the_gate_standing(
    namespace: Kubectl, pods: KubectlWatch
) -> None:
    pods.until(
        "all Ready",
        lambda newest: all(status_of(each, "Ready") == "True" for each in newest.values()),
    )
    namespace.run("delete", "podprobemarker", "game", "--timeout=60s")
    pods.until(
        "no mark left",
        lambda newest: all(
            not {"idle", "web", "door", "role"} & labels(each).keys()
            and not {COST, "example.com/role"} & annotations(each).keys()
            and all(status_of(each, kind) is None for kind in CONDITION_TYPES if kind != GATE)
            for each in newest.values()
        ),
    )
    for each in pods.newest.values():
        gate = condition(each, GATE)
        assert (gate["status"], gate["reason"]) == ("True", "ProbeRemoved")
        assert status_of(each, "Ready") == "True"
    for each in namespace.items("nodepodprobes"):
        assert not [
            entry
            for entry in each["spec"].get("podProbes") or []
            if entry["namespace"] == namespace.namespace
        ]
