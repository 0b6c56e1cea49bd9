"""What a snapshot reads from objects, also from incomplete ones and without permissions."""

from datetime import timedelta

from support.builders import container_wire, pod_wire
from support.cases import cases
from support.snapshots import NOW, healthy_pod, seen_pod, snapshot, table
from support.wire import Json

from kruise_probe.api.times import format_micro_time

TABLE = table("links")


def test_init_and_ephemeral_containers_are_not_probed_and_sidecars_are() -> None:
    containers = [container_wire("init"), container_wire("side", sidecar=True)]
    wire = pod_wire(init_containers=containers)
    wire["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    wire["spec"]["hostNetwork"] = True

    found = seen_pod(wire)

    assert found.not_probed == {"init", "debug"}
    assert found.host_network


@cases("state last text", **TABLE["stopped"])
def test_a_container_that_does_not_run_has_the_reason_of_the_kubelet(
    state: Json, last: Json, text: str
) -> None:
    found = seen_pod(healthy_pod(), containers={"main": state}, last={"main": last})
    assert found.stopped == {"main": text}
    assert found.running_since == {}


# Daemons and managers.


@cases("there stale", **TABLE["stale"])
def test_manager_that_leads_knows_better_than_a_stamp_whether_a_daemon_is_stale(
    there: Json, stale: bool
) -> None:
    assert bool(snapshot(**there).stale_reason("node-1")) == stale


@cases("age_seconds problem", renewed=(14.9, False), expired=(15.0, True))
def test_an_expired_lease_of_the_manager_is_a_problem(age_seconds: float, problem: bool) -> None:
    renewed = format_micro_time(NOW - timedelta(seconds=age_seconds))
    built = snapshot(led=renewed)
    assert built.leader == "manager-1"
    text = f"no manager has renewed its Lease since {renewed} (last leader: manager-1)"
    assert built.manager_problem == (text if problem else "")
