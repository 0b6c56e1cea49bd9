"""What a snapshot reads from objects, also from incomplete ones and without permissions."""

from datetime import timedelta

import msgspec
from support.builders import (
    condition_wire,
    container_wire,
    pod_wire,
    state_wire,
)
from support.cases import cases
from support.snapshots import FRESH, NOW, healthy_pod, seen_pod, snapshot
from support.wire import Json

from kruise_probe.api.times import format_micro_time
from kruise_probe.inspection.seen_pods import MAX_MESSAGE, SEEN_PODS, SeenPod


def decoded(wire: Json) -> SeenPod:
    return SEEN_PODS.decode(msgspec.json.encode(wire))


def test_init_and_ephemeral_containers_are_not_probed_and_sidecars_are() -> None:
    wire = pod_wire(init_containers=[container_wire("init"), container_wire("side", sidecar=True)])
    wire["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    wire["spec"]["hostNetwork"] = True
    assert decoded(wire).not_probed == {"init", "debug"}
    assert decoded(wire).host_network


UID = "00000000-0000-4000-8000-000000000001"
WAITING: Json = {"waiting": {"reason": "CrashLoopBackOff"}}
EXITED: Json = {"terminated": {"reason": "Error", "exitCode": 3, "message": "one\ntwo \n"}}


REASONS = {
    "nothing": ({}, {}, "not started yet"),
    "without-a-reason": ({"waiting": {}}, {}, "not started yet"),
    "reason": (WAITING, {}, "CrashLoopBackOff"),
    "reason-and-message": ({"waiting": {"reason": "R", "message": "m"}}, {}, "R: m"),
    "without-the-uid": (
        {"waiting": {"reason": "R", "message": f"failed container=main pod=web-0_default({UID})"}},
        {}, "R: failed container=main",
    ),
    "last-attempt": (WAITING, EXITED, "CrashLoopBackOff; last attempt: Error, exit code 3: two"),
    "ended": (EXITED, {}, "Error, exit code 3: two"),
    "ended-without-a-reason": ({"terminated": {"exitCode": 0}}, {}, "Terminated, exit code 0"),
    "long": ({"terminated": {"exitCode": 1, "message": "x" * 3000}}, {}, f"Terminated, exit code 1: {'x' * MAX_MESSAGE}"),
}  # fmt: skip


@cases("state last text", **REASONS)
def test_a_container_that_does_not_run_has_the_reason_of_the_kubelet(
    state: Json, last: Json, text: str
) -> None:
    found = seen_pod(healthy_pod(), containers={"main": state}, last={"main": last})
    assert found.stopped == {"main": text}
    assert found.running_since == {}
    assert MAX_MESSAGE == 200


# Daemons and managers.


SKEWED = "2026-01-01T00:00:20.000000Z"
STALE = condition_wire("example.com/healthy", "Unknown", reason="ProbeDaemonStale")


STALENESS = {
    "no-leader-only-the-stamp": ({"renewed": SKEWED}, True),
    "result-of-kruises-daemon": ({"renewed": SKEWED, "states": [state_wire(probed="2026-01-01T00:01:25Z")]}, False),
    "leader-has-seen-renewals": ({"renewed": SKEWED, "led": FRESH}, False),
    "condition-of-a-pod": ({"renewed": SKEWED, "led": FRESH, "pods": [healthy_pod(conditions=[STALE])]}, True),
    "condition-that-a-pod-kept": ({"led": FRESH, "pods": [healthy_pod(conditions=[STALE])]}, False),
    "leader-and-no-condition-but-too-old": ({"states": [], "renewed": "2025-12-31T23:59:00.000000Z", "led": FRESH}, True),
    "old-condition": ({"pods": [healthy_pod(conditions=[STALE])]}, False),
}  # fmt: skip


@cases("there stale", **STALENESS)
def test_manager_that_leads_knows_better_than_a_stamp_whether_a_daemon_is_stale(
    there: Json, stale: bool
) -> None:
    built = snapshot(**there)
    assert bool(built.stale_reasons.get("node-1", "")) == stale


@cases("age_seconds problem", renewed=(14.9, False), expired=(15.0, True))
def test_an_expired_lease_of_the_manager_is_a_problem(age_seconds: float, problem: bool) -> None:
    renewed = format_micro_time(NOW - timedelta(seconds=age_seconds))
    built = snapshot(led=renewed)
    assert built.leader == "manager-1"
    assert bool(built.manager_problem) is problem
    assert not problem or built.manager_problem == (
        f"no manager has renewed its Lease since {renewed} (last leader: manager-1)"
    )
