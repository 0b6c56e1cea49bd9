"""What a snapshot reads from objects, also from incomplete ones and without permissions."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.builders import (
    condition_wire,
    container_wire,
    lease_wire,
    node_wire,
    pod,
    pod_wire,
    state_wire,
)
from support.snapshots import FRESH, NOW, healthy_pod, marker, seen_pod, snapshot

from kruise_probe.api.names import LEADER_ELECTION_ID, SHARED_PORTS_ANNOTATION
from kruise_probe.api.resources import LEASES, NODES
from kruise_probe.api.times import format_micro_time, format_time
from kruise_probe.inspection.seen_pods import MAX_MESSAGE, SEEN_PODS, SeenPod
from kruise_probe.inspection.snapshot import Snapshot

Json = dict[str, Any]


def decoded(wire: Json) -> SeenPod:
    return SEEN_PODS.decode(msgspec.json.encode(wire))


def test_lists_are_read_by_name_and_a_kind_without_permission_is_none() -> None:
    there = snapshot(markers=[marker()], pods=[healthy_pod()])
    node = NODES.decode(msgspec.json.encode(node_wire()))
    found = Snapshot.of_lists(
        [there.markers, there.pods, [node], [], None], allowed_labels=frozenset(), now=NOW
    )
    assert (found.nodes, found.node_pod_probes, found.leases) == ({"node-1": node}, {}, None)
    assert (found.markers, found.pods) == (there.markers, there.pods)


# A pod.


def test_a_pod_without_a_status_is_read() -> None:
    wire = pod_wire()
    wire["status"] = {}
    found = decoded(wire)
    assert (found.stopped, found.running_since, found.unscheduled) == ({}, {}, "")
    assert (found.not_probed, found.host_network) == (frozenset(), False)
    assert (found.key, found.uid) == (found.pod.key, found.pod.uid)
    assert found.resource_version == found.pod.resource_version


def test_init_and_ephemeral_containers_are_not_probed_and_sidecars_are() -> None:
    wire = pod_wire(init_containers=[container_wire("init"), container_wire("side", sidecar=True)])
    wire["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    wire["spec"]["hostNetwork"] = True
    assert decoded(wire).not_probed == {"init", "debug"}
    assert decoded(wire).host_network


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        pytest.param({"type": "PodScheduled", "status": "False", "message": "no node"}, "no node", id="waits"),
        pytest.param({"type": "PodScheduled", "status": "False"}, "", id="without-a-message"),
        pytest.param({"type": "PodScheduled", "status": "True", "message": "x"}, "", id="scheduled"),
        pytest.param({"type": "Ready", "status": "False", "message": "x"}, "", id="another-condition"),
    ],
)  # fmt: skip
def test_the_schedulers_message_is_that_of_a_pod_without_a_node(
    condition: Json, message: str
) -> None:
    assert decoded(pod_wire(conditions=[condition])).unscheduled == message


WAITING: Json = {"waiting": {"reason": "CrashLoopBackOff"}}
EXITED: Json = {"terminated": {"reason": "Error", "exitCode": 3, "message": "one\ntwo \n"}}


@pytest.mark.parametrize(
    ("state", "last", "text"),
    [
        pytest.param({}, {}, "not started yet", id="nothing"),
        pytest.param({"waiting": {}}, {}, "not started yet", id="without-a-reason"),
        pytest.param(WAITING, {}, "CrashLoopBackOff", id="reason"),
        pytest.param({"waiting": {"reason": "R", "message": "m"}}, {}, "R: m", id="reason-and-message"),
        pytest.param(WAITING, EXITED, "CrashLoopBackOff; last attempt: Error, exit code 3: two", id="last-attempt"),
        pytest.param(EXITED, {}, "Error, exit code 3: two", id="ended"),
        pytest.param({"terminated": {"exitCode": 0}}, {}, "Terminated, exit code 0", id="ended-without-a-reason"),
        pytest.param(
            {"terminated": {"exitCode": 1, "message": "x" * 3000}}, {}, f"Terminated, exit code 1: {'x' * MAX_MESSAGE}", id="long",
        ),
    ],
)  # fmt: skip
def test_a_container_that_does_not_run_has_the_reason_of_the_kubelet(
    state: Json, last: Json, text: str
) -> None:
    found = seen_pod(healthy_pod(), containers={"main": state}, last={"main": last})
    assert found.stopped == {"main": text}
    assert found.running_since == {}
    assert MAX_MESSAGE == 200


def test_a_running_container_without_a_start_is_not_stopped() -> None:
    found = seen_pod(healthy_pod(), containers={"main": {"running": {}}})
    assert (found.stopped, found.running_since) == ({}, {})


# Order and namespaces.


def test_pods_of_a_marker_and_of_a_namespace_are_in_natural_order() -> None:
    names = ["game-10", "game-2", "game-1", "a"]
    built = snapshot(
        markers=[marker()],
        pods=[
            *(healthy_pod(each) for each in names),
            healthy_pod("elsewhere", namespace="other"),
            healthy_pod("db-0", labels={"app": "db"}),
        ],
    )
    (compiled,) = built.compiled.values()
    assert [each.pod.name for each in built.pods_of(compiled)] == [
        "a",
        "game-1",
        "game-2",
        "game-10",
    ]
    assert [each.name for each in built.pods_in("default")] == ["a", "db-0", "game-1", "game-2", "game-10"]  # fmt: skip
    assert [each.name for each in built.pods_in("other")] == ["elsewhere"]
    assert built.pods_by_key.keys() == {each.key for each in built.pods}


def test_markers_of_a_pod_are_those_of_its_namespace_the_oldest_first() -> None:
    built = snapshot(
        markers=[
            marker(name="young"),
            marker(name="old", created="2020-01-01T00:00:00Z"),
            marker(name="elsewhere", namespace="other"),
            marker(name="others", selector={"matchLabels": {"app": "db"}}),
        ],
        pods=[healthy_pod()],
    )
    assert [each.key.name for each in built.markers_of(built.pods[0].pod)] == ["old", "young"]


def test_results_and_entries_are_those_of_this_very_pod() -> None:
    built = snapshot(markers=[marker()], pods=[healthy_pod()])
    mine = built.pods[0].pod
    assert built.states_of(mine).keys() == {"web#healthy"}
    assert built.entry_of(mine) is not None
    for other in (pod(uid="recreated"), pod(node="node-2")):
        assert built.states_of(other) == {}
        assert built.entry_of(other) is None


# Without permissions.


def test_without_permissions_nothing_is_known_and_nothing_breaks() -> None:
    built = snapshot(
        markers=[marker()], pods=[healthy_pod()], forbidden=["nodes", "nodepodprobes", "leases"]
    )
    mine = built.pods[0].pod
    assert (built.states_of(mine), built.entry_of(mine)) == ({}, None)
    assert (built.stale_reason("node-1"), built.has_no_daemon("node-1")) == ("", False)
    assert (built.leader, built.manager_problem) == ("", "")
    assert built.shared_port_owner(mine, 80) == ""


# Daemons and managers.


@pytest.mark.parametrize(
    ("there", "absent"),
    [
        pytest.param({"renewed": None, "states": []}, True, id="neither"),
        pytest.param({"states": []}, False, id="lease-only"),
        pytest.param({"renewed": None, "states": [state_wire()]}, False, id="results-only"),
        pytest.param({"renewed": None, "states": [], "forbidden": ["leases"]}, False, id="no-leases"),
        pytest.param({"renewed": None, "states": [], "forbidden": ["nodepodprobes"]}, False, id="no-results"),
    ],
)  # fmt: skip
def test_a_node_has_no_daemon_if_it_has_neither_a_lease_nor_results(
    there: Json, absent: bool
) -> None:
    built = snapshot(markers=[marker()], pods=[healthy_pod()], **there)
    assert built.has_no_daemon("node-1") is absent


def test_a_node_without_a_node_pod_probe_and_a_lease_has_no_daemon() -> None:
    built = snapshot(markers=[marker()], pods=[healthy_pod()])
    assert built.has_no_daemon("node-2")
    assert not built.has_no_daemon("node-1")


SKEWED = "2026-01-01T00:00:20.000000Z"
STALE = condition_wire("example.com/healthy", "Unknown", reason="ProbeDaemonStale")
STALE_MARKER = {
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Degraded",
            "status": "True",
            "reason": "ProbeDaemonStale",
            "message": "on: node-1 (1 pods).",
        }
    ],
}


@pytest.mark.parametrize(
    ("there", "stale"),
    [
        pytest.param({"renewed": SKEWED}, True, id="no-leader-only-the-stamp"),
        pytest.param({"renewed": SKEWED, "led": FRESH}, False, id="leader-has-seen-renewals"),
        pytest.param(
            {"led": FRESH, "pods": [healthy_pod(conditions=[STALE])]}, True, id="condition-of-a-pod"
        ),
        pytest.param(
            {"led": FRESH, "markers": [marker(status=STALE_MARKER)]},
            True,
            id="condition-of-a-marker",
        ),
        pytest.param({"pods": [healthy_pod(conditions=[STALE])]}, False, id="old-condition"),
    ],
)
def test_manager_that_leads_knows_better_than_a_stamp_whether_a_daemon_is_stale(
    there: Json, stale: bool
) -> None:
    built = snapshot(**{"markers": [marker()], "pods": [healthy_pod()], **there})
    assert bool(built.stale_reason("node-1")) == stale


@pytest.mark.parametrize(
    ("age_seconds", "problem"),
    [pytest.param(14.9, False, id="renewed"), pytest.param(15.0, True, id="expired")],
)
def test_an_expired_lease_of_the_manager_is_a_problem(age_seconds: float, problem: bool) -> None:
    renewed = format_micro_time(NOW - timedelta(seconds=age_seconds))
    built = snapshot(led=renewed)
    assert built.leader == "manager-1"
    assert bool(built.manager_problem) is problem
    assert not problem or built.manager_problem == (
        f"no manager has renewed its Lease since {renewed} (last leader: manager-1)"
    )


def test_a_lease_of_the_manager_without_a_holder_has_no_leader() -> None:
    wire = lease_wire(renewed="2026-01-01T00:00:00.000000Z", name=LEADER_ELECTION_ID)
    del wire["spec"]["holderIdentity"]
    lease = LEASES.decode(msgspec.json.encode(wire))
    built = replace(snapshot(), leases={LEADER_ELECTION_ID: lease})
    assert built.leader == ""
    assert built.manager_problem.endswith("(last leader: none)")


@pytest.mark.parametrize(
    ("ages", "recent"),
    [
        pytest.param([], False, id="no-stamp"),
        pytest.param([None], False, id="absent"),
        pytest.param([4], True, id="recent"),
        pytest.param([5], False, id="old"),
        pytest.param([60, 4], True, id="the-newest"),
        pytest.param([None, 4], True, id="one-absent"),
    ],
)
def test_what_happened_within_five_seconds_is_recent(ages: list[int | None], recent: bool) -> None:
    stamps = [None if age is None else format_time(NOW - timedelta(seconds=age)) for age in ages]
    assert snapshot().is_recent(*stamps) is recent


@pytest.mark.parametrize(
    ("annotation", "port", "owner"),
    [
        pytest.param('{"80": "default/web-1"}', 80, "default/web-1", id="another-pod"),
        pytest.param('{"80": "default/web-0"}', 80, "", id="itself"),
        pytest.param('{"80": "default/web-1"}', 81, "", id="another-port"),
        pytest.param("nonsense", 80, "", id="malformed"),
        pytest.param(None, 80, "", id="none"),
    ],
)  # fmt: skip
def test_a_shared_port_has_the_owner_that_the_playground_reports(
    annotation: str | None, port: int, owner: str
) -> None:
    node = node_wire()
    if annotation is not None:
        node["metadata"]["annotations"] = {SHARED_PORTS_ANNOTATION: annotation}
    assert snapshot(node=node).shared_port_owner(pod(), port) == owner
