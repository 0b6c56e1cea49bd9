"""Results are written to pods once, and removed when they no longer apply. The whole product over a fake API server."""

import asyncio

import pytest
from support.builders import (
    condition_wire,
    entry_of,
    owned_fields,
    pod_status_wire,
    pod_wire,
    policy_wire,
    probe_wire,
    state_wire,
)
from support.cases import cases
from support.fake_api import LATENCY_SECONDS, Write, refusing
from support.metrics import counted
from support.running_manager import settle
from support.scene import BARE, MARKED, POLICIES, C, Scene
from support.wire import Json

from kruise_probe.api.errors import ServerError
from kruise_probe.api.probe import ExecAction, GRPCAction, Probe, TCPSocketAction
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.controllers.pod_reconciler import CONTESTED_SECONDS

FAILED = state_wire(state="Failed")
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
RECONCILES = "controller_runtime_reconcile_total"
LATENCY = "kruise_probe_result_to_condition_seconds"
HASH = entry_of(Probe(exec=ExecAction(("true",)))).hash


async def test_result_of_another_handler_is_neither_written_nor_counted(api: Scene) -> None:
    async with api.running(state_wire(probe_hash="of another command")):
        assert (api.marks(), api.counts()) == (BARE, (1, 0, 0, 1, 0))
        await api.report(state_wire(probe_hash=HASH))
        assert (api.marks(), api.counts()) == (MARKED, (1, 1, 0, 0, 0))


async def test_result_counts_where_the_api_server_alters_the_probe(api: Scene) -> None:
    """The daemon reports the hash of the stored probe. The second result arrives while no manager runs."""

    def prune_mode(wire: Json) -> None:
        for entry in (wire.get("spec") or {}).get("podProbes", ()):
            entry["probes"][0]["probe"]["grpc"].pop("mode", None)

    api.prune = prune_mode
    api.put_marker(probe_wire(handler={"grpc": {"port": 80, "mode": "TLS"}}, policies=POLICIES))
    stored = entry_of(Probe(grpc=GRPCAction(port=80, service=""))).hash
    async with api.running(state_wire(probe_hash=stored)):
        assert (api.marks(), api.counts()) == (MARKED, (1, 1, 0, 0, 0))
    await api.report(state_wire(state="Failed", probe_hash=stored))
    async with api.running():
        assert (api.labels(), api.counts()) == ({"sick": "true"}, (1, 0, 1, 0, 0))


async def test_the_hash_of_a_named_port_is_that_of_its_number(api: Scene) -> None:
    container = {"name": "main", "ports": [{"name": "web", "containerPort": 80}]}
    api.put(PODS, pod_wire(containers=[container]))
    api.put_marker(probe_wire(handler={"tcpSocket": {"port": "web"}}, policies=POLICIES))
    numbered = entry_of(Probe(tcp_socket=TCPSocketAction(port=80))).hash
    async with api.running(state_wire(probe_hash=numbered)):
        assert (api.marks(), api.counts()) == (MARKED, (1, 1, 0, 0, 0))


async def test_the_opposite_state_removes_the_other_keys(api: Scene) -> None:
    async with api.running(state_wire()):
        await api.report(state_wire(state="Failed", moved="2026-01-01T00:02:00Z"))
        assert api.marks() == ({"sick": "true"}, {}, {C})
        assert api.condition() == ("False", "")
        assert api.conditions()[C]["lastTransitionTime"] == "2026-01-01T00:02:00Z"
        await api.report(state_wire(moved="2026-01-01T00:03:00Z"))
        assert api.marks() == MARKED
        assert api.count("Pod") == {"Pod/status": 3}


async def test_a_new_state_is_written_once_while_the_informer_lags(api: Scene) -> None:
    async with api.running():
        async with api.lagging(PODS):
            await api.report(state_wire(), seconds=0.5)
            for minute in (2, 3):
                again = state_wire(probed=f"2026-01-01T00:0{minute}:00Z", message="again")
                await api.report(again, seconds=0.2)
            for type in ("virtual-kubelet", None):
                await api.change(
                    NODES, "node-1", {"metadata": {"labels": {"type": type}}}, seconds=0
                )
            await settle(0.5)
        assert api.count("Pod") == {"Pod/status": 2}


def succeeded(labels: dict[str, str]) -> Json:
    return probe_wire(policies=[policy_wire("Succeeded", labels)])


@cases(
    "edit marks",
    probe_removed=({"probes": []}, BARE),
    selector_edited=({"selector": {"matchLabels": {"app": "other"}}}, BARE),
    annotation_removed_from_the_policy=(
        {"probes": [succeeded({"healthy": "true"})]},
        ({"healthy": "true"}, {}, {C}),
    ),
    policy_edited=(
        {"probes": [succeeded({"healthy": "yes", "new": "1"})]},
        ({"healthy": "yes", "new": "1"}, {}, {C}),
    ),
    condition_type_renamed=(
        {"probes": [probe_wire(condition="c/other", policies=POLICIES)]},
        (*MARKED[:2], {"c/other"}),
    ),
    probe_renamed_keeps_marks_until_its_first_result=(
        {"probes": [probe_wire("renamed", policies=POLICIES)]},
        MARKED,
    ),
)
@cases("running", running=True, manager_was_down=False)
async def test_marks_follow_edits_of_the_marker(
    api: Scene, edit: Json, marks: object, running: bool
) -> None:
    async with api.running(state_wire()):
        if running:
            await api.change(MARKERS, "web", {"spec": edit})
    if not running:
        api.edit(MARKERS, "web", {"spec": edit})
        await api.run()
    assert api.marks() == marks


async def test_the_time_from_result_to_condition_is_observed_once_per_change(api: Scene) -> None:
    async with api.running():
        measured, seconds = counted(f"{LATENCY}_count"), counted(f"{LATENCY}_sum")
        await api.report(state_wire())
        await api.report(state_wire(probed="2026-01-01T00:09:00Z"))
        assert measured() == 1
        assert seconds() == pytest.approx(LATENCY_SECONDS, abs=1e-6)


async def test_the_delay_of_messages_is_no_time_from_result_to_condition(api: Scene) -> None:
    async with api.running(state_wire()):
        measured, seconds = counted(f"{LATENCY}_count"), counted(f"{LATENCY}_sum")
        for number in range(5):
            await api.report(state_wire(message=f"m{number}"), seconds=1)
        assert measured() == 0
        await api.report(FAILED)
        assert measured() == 1
        assert seconds() == pytest.approx(LATENCY_SECONDS, abs=1e-6)


async def test_a_retry_of_a_new_state_has_no_limit_of_writes(api: Scene) -> None:
    """A write that times out is retried with the same cause."""

    def hang(write: Write) -> None:
        if write.kind == "Pod":
            api.before = lambda write: None
            raise TimeoutError

    async with api.running(state_wire()):
        for _ in range(12):  # the bucket of other writes is empty
            await api.relabel(healthy=None, seconds=0.1)
        api.before = hang
        await api.report(FAILED, seconds=1)
        assert api.labels() == {"sick": "true"}


def edit_command(api: Scene, *others: Json) -> str:
    """Edit the command of the probe; returns the hash of its results."""
    command = ["true", "again"]
    api.put_marker(probe_wire(handler={"exec": {"command": command}}, policies=POLICIES), *others)
    return entry_of(Probe(exec=ExecAction(tuple(command)))).hash


FIRST = state_wire(probed="2026-01-01T00:00:01Z", probe_hash=HASH)


@cases("follows writes second", leader=(0, {"Pod/status": 1}, 9), standby=(11, {}, 1))
async def test_the_first_result_of_an_edited_probe_writes_the_condition_once(
    api: Scene, follows: int, writes: Json, second: int
) -> None:
    await api.run(FIRST)
    before = len(api.writes)
    async with api.running(follows_seconds=follows):
        edited = edit_command(api)
        await settle()
        for each in (9, 10, 11):
            await api.report(state_wire(probed=f"2026-01-01T00:00:{each:02}Z", probe_hash=edited))
    assert api.count("Pod", since=before) == writes
    assert api.conditions()[C]["lastProbeTime"] == f"2026-01-01T00:00:0{second}Z"


async def test_an_edited_probe_is_written_after_a_failure_and_a_result_of_another(
    api: Scene,
) -> None:
    other = probe_wire("other", condition="c/other")
    api.put_marker(probe_wire(policies=POLICIES), other)
    async with api.running(FIRST):
        edited = state_wire(probed="2026-01-01T00:00:09Z", probe_hash=edit_command(api, other))
        await settle()
        api.before = refusing(ServerError("no"))
        await api.report(edited, seconds=1)
        await api.report(edited, state_wire("web#other", "Failed"), seconds=1)
        await api.recover()
    assert api.conditions()[C]["lastProbeTime"] == "2026-01-01T00:00:09Z"
    assert api.condition("c/other") == ("False", "")


@cases(
    "edit",
    label_removed={"labels": {"healthy": None}},
    label_edited={"labels": {"healthy": "no"}},
    annotation_edited={"annotations": {"cost": "99"}},
)
async def test_marks_that_others_change_are_written_again(api: Scene, edit: Json) -> None:
    async with api.running(state_wire()):
        await api.relabel(mine="1")
        await api.change(PODS, "web-0", {"metadata": edit})
        assert api.marks() == ({"healthy": "true", "mine": "1"}, {"cost": "10"}, {C})


@pytest.mark.parametrize("message", ["idle\n", "\n idle \r\n", "\x1b[32midle\x1b[0m\n"])
async def test_a_message_of_another_daemon_is_normalised_before_matching(
    api: Scene, message: str
) -> None:
    """Kruise's daemon publishes the output as it is."""
    values = [{"label": "role", "regex": "^[a-z]+$"}, {"annotation": "line"}]
    api.put_marker(probe_wire(policies=[policy_wire("Succeeded", from_message=values)]))
    await api.run(state_wire(message=message))
    assert api.marks() == ({"role": "idle"}, {"line": "idle"}, {C})


@cases(
    "deletes lost",
    label=(False, ("metadata", "labels")),
    deleted_condition=(True, ("status", "conditions")),
)
async def test_a_mark_that_the_response_lacks_is_written_again_after_a_second(
    api: Scene, deletes: bool, lost: tuple[str, str]
) -> None:
    """An admission webhook removes a field from our patch, so no event shows a change by others."""
    written: list[float] = []

    def lose(write: Write) -> None:
        if write.kind == "Pod":
            written.append(asyncio.get_running_loop().time())
            if len(written) == 1:
                del write.body[lost[0]][lost[1]]

    async with api.running(*[state_wire()] * deletes):
        requeued = counted(RECONCILES, controller="podmarks", result="requeue_after")
        api.before = lose
        if deletes:
            await api.change_probes(seconds=10)
        else:
            await api.report(state_wire(), seconds=10)
        assert api.marks() == (BARE if deletes else MARKED)
        assert requeued() == 1
    first, second = written
    assert second - first == pytest.approx(CONTESTED_SECONDS + LATENCY_SECONDS, abs=0.001)


@cases(
    "policy",
    labels=policy_wire(labels={APPLIED: "x"}),
    annotations=policy_wire(annotations={APPLIED: "x"}),
)
async def test_a_key_that_kubectl_owns_causes_no_endless_writes_or_waits(
    api: Scene, policy: Json
) -> None:
    """A policy may not write this annotation, but an older marker may have it, and an older manager may have written it."""
    api.put_marker(probe_wire(policies=[policy]))
    api.put(PODS, pod_wire(annotations={APPLIED: "x"}, owned=owned_fields(annotations=[APPLIED])))
    async with api.running():
        await api.report(state_wire(), seconds=30)
        assert api.count("Pod") == {"Pod/status": 1}
        await api.drop(MARKERS, "web", seconds=30)
        assert api.find(MARKERS, "web") is None
        assert api.labels() == {}


async def test_a_pod_replaced_under_its_name_never_gets_the_old_marks(api: Scene) -> None:
    async with api.running():
        async with api.lagging(PODS):
            await api.report(state_wire(), seconds=0)
            api.remove(PODS, "web-0")
            api.put(PODS, pod_wire(uid="another"))
            await settle(0.5)
        assert api.marks() == BARE
        assert api.count("Pod") == {"Pod/status": 1}


async def test_results_of_another_pod_are_ignored(api: Scene) -> None:
    """With the uid of one pod and the name of another; beside the pod's own, and alone."""
    own = pod_status_wire(pod_wire(), state_wire())
    strange = {**pod_status_wire(pod_wire(), FAILED), "name": "web-1"}
    for statuses, labels in (([strange], {}), ([own, strange], {"healthy": "true"})):
        async with api.running():
            api.publish(*statuses)
            await settle()
            assert api.labels() == labels
        before = len(api.writes)
        await api.run(seconds=700)
        assert api.count(since=before) == {}
        assert api.status()["succeeded"] == len(labels)


@pytest.mark.parametrize("whole_pod", [False, True])
async def test_a_removed_state_is_no_longer_counted(api: Scene, whole_pod: bool) -> None:
    api.put_marker(probe_wire(condition="x.com/b"), name="other")
    async with api.running(state_wire(), state_wire("other#healthy", "Failed")):
        assert api.status("other")["failed"] == 1
        if whole_pod:
            api.publish()
            await settle()
        else:
            await api.report(state_wire())
        assert api.status("other")["failed"] == 0


@cases(
    "change",
    not_initialised={"status": {"conditions": [condition_wire("Initialized", "False")]}},
    moved={"spec": {"nodeName": "node-2"}},
    node_deleted=None,
)
async def test_marks_stay_while_the_pod_is_not_probed_for_a_while(
    api: Scene, change: Json | None
) -> None:
    api.put_node("node-2")
    async with api.running(state_wire()):
        before = len(api.writes)
        if change is None:
            api.remove(NODES, "node-1")
        elif "spec" in change:
            wire = api.read(PODS, "web-0")
            api.put(PODS, wire | {"spec": wire["spec"] | change["spec"]})
        else:
            api.edit(PODS, "web-0", change)
        await settle()
        assert api.marks() == MARKED
        assert api.count("Pod", since=before) == {}
        npp = api.find(NODE_POD_PROBES, "node-1")
        assert npp is None or npp["spec"] == {}


@cases(
    "change",
    finished={"status": {"phase": "Succeeded"}},
    terminating={"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}},
)
async def test_pods_that_have_ended_are_not_written(api: Scene, change: Json) -> None:
    api.edit(PODS, "web-0", change)
    await api.run(state_wire())
    assert api.marks() == BARE


async def test_a_static_pod_is_never_written(api: Scene) -> None:
    """Its kubelet owns its status; a result of it can only come from a NodePodProbe that was edited."""
    mirror = {"kubernetes.io/config.mirror": "x"}
    labels = {"app": "web", "healthy": "old"}
    api.put(
        PODS, pod_wire(annotations=mirror, labels=labels, owned=owned_fields(labels=["healthy"]))
    )
    async with api.running(state_wire()):
        await api.drop(MARKERS, "web")
    assert api.count("Pod") == {}


async def test_a_value_in_the_manifest_of_a_static_pod_keeps_no_marker(api: Scene) -> None:
    mirror = {"kubernetes.io/config.mirror": "x"}
    api.put(PODS, pod_wire(annotations=mirror, labels={"app": "web", "healthy": "true"}))
    async with api.running():
        await api.drop(MARKERS, "web", seconds=15)
    assert api.find(MARKERS, "web") is None
    assert api.labels() == {"healthy": "true"}
