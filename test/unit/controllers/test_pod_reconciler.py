"""Results are written to pods once, and removed when they no longer apply. The whole product over a fake API server."""

import asyncio

import pytest
from support.builders import (
    condition_wire,
    container_wire,
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
from unit.controllers.common import (
    FALSE,
    HASH,
    TERMINATING,
    VIRTUAL,
    Action,
    assert_marker_is_gone,
    assert_pod_writes,
    change_pod,
    delete_marker,
    labels_patch,
    no_writes,
    put_pod,
    stamp,
    writes_since_now,
)

from kruise_probe.api.errors import ServerError
from kruise_probe.api.probe import ExecAction, GRPCAction, Probe, TCPSocketAction
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS
from kruise_probe.controllers.pod_reconciler import CONTESTED_SECONDS

FAILED = state_wire(state="Failed")
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
RECONCILES = "controller_runtime_reconcile_total"
LATENCY = "kruise_probe_result_to_condition_seconds"
HEALTHY = {"healthy": "true"}
SICK = {"sick": "true"}
MIRROR = {"kubernetes.io/config.mirror": "x"}
"""Annotations of a static pod."""


def assert_marked_and_counted(api: Scene) -> None:
    assert api.marks() == MARKED
    assert api.counts() == (1, 1, 0, 0, 0)


def probed(second: int, **more: str) -> Json:
    """A result of this second."""
    return state_wire(probed=stamp(second), **more)


async def test_result_of_another_handler_is_neither_written_nor_counted(api: Scene) -> None:
    async with api.running(state_wire(probe_hash="of another command")):
        assert api.marks() == BARE
        assert api.counts() == (1, 0, 0, 1, 0)
        await api.report(state_wire(probe_hash=HASH))
        assert_marked_and_counted(api)


async def test_result_counts_where_the_api_server_alters_the_probe(api: Scene) -> None:
    """The daemon reports the hash of the stored probe. The second result arrives while no manager runs."""

    def prune_mode(wire: Json) -> None:
        for entry in wire["spec"].get("podProbes", ()):
            entry["probes"][0]["probe"]["grpc"].pop("mode", None)

    api.prune = prune_mode
    api.put_marker(probe_wire(handler={"grpc": {"port": 80, "mode": "TLS"}}, policies=POLICIES))
    stored = entry_of(Probe(grpc=GRPCAction(port=80, service=""))).hash
    async with api.running(state_wire(probe_hash=stored)):
        assert_marked_and_counted(api)
    await api.report(state_wire(state="Failed", probe_hash=stored))
    async with api.running():
        assert api.labels() == SICK
        assert api.counts() == (1, 0, 1, 0, 0)


async def test_the_hash_of_a_named_port_is_that_of_its_number(api: Scene) -> None:
    put_pod(
        api,
        containers=[container_wire(ports={"web": 80})],
    )
    api.put_marker(probe_wire(handler={"tcpSocket": {"port": "web"}}, policies=POLICIES))
    numbered = entry_of(Probe(tcp_socket=TCPSocketAction(port=80))).hash
    async with api.running(state_wire(probe_hash=numbered)):
        assert_marked_and_counted(api)


async def test_the_opposite_state_removes_the_other_keys(api: Scene) -> None:
    async with api.running(state_wire()):
        await api.report(
            state_wire(
                state="Failed",
                moved=stamp(120),
            )
        )
        assert api.marks() == (SICK, {}, {C})
        assert api.condition() == FALSE
        assert api.conditions()[C]["lastTransitionTime"] == stamp(120)
        await api.report(state_wire(moved=stamp(180)))
        assert api.marks() == MARKED
        assert_pod_writes(api, 3)


async def test_a_new_state_is_written_once_while_the_informer_lags(api: Scene) -> None:
    async with api.running():
        async with api.lagging(PODS):
            await api.report(state_wire(), seconds=0.5)
            for second in (120, 180):
                await api.report(
                    probed(second, message="again"),
                    seconds=0.2,
                )
            for patch in (labels_patch(**VIRTUAL), labels_patch(type=None)):
                await api.change(
                    NODES,
                    "node-1",
                    patch,
                    seconds=0,
                )
            await settle(0.5)
        assert_pod_writes(api, 2)


def succeeded(labels: Json) -> Json:
    return probe_wire(policies=[policy_wire("Succeeded", labels)])


@cases(
    "edit marks",
    probe_removed=({"probes": []}, BARE),
    selector_edited=({"selector": {"matchLabels": {"app": "other"}}}, BARE),
    annotation_removed_from_the_policy=(
        {"probes": [succeeded(HEALTHY)]},
        (HEALTHY, {}, {C}),
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
    api: Scene,
    edit: Json,
    marks: object,
    running: bool,
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
        measured = counted(f"{LATENCY}_count")
        seconds = counted(f"{LATENCY}_sum")
        await api.report(state_wire())
        await api.report(probed(540))
        assert measured() == 1
        assert seconds() == pytest.approx(LATENCY_SECONDS, abs=1e-6)


async def test_the_delay_of_messages_is_no_time_from_result_to_condition(api: Scene) -> None:
    async with api.running(state_wire()):
        measured = counted(f"{LATENCY}_count")
        seconds = counted(f"{LATENCY}_sum")
        for number in range(5):
            await api.report(
                state_wire(message=f"m{number}"),
                seconds=1,
            )
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
        assert api.labels() == SICK


FIRST = probed(1, probe_hash=HASH)
EDITED = probe_wire(handler={"exec": {"command": ["true", "again"]}}, policies=POLICIES)
EDITED_HASH = entry_of(Probe(exec=ExecAction(("true", "again")))).hash


@cases("follows writes second", leader=(0, {"Pod/status": 1}, 9), standby=(11, {}, 1))
async def test_the_first_result_of_an_edited_probe_writes_the_condition_once(
    api: Scene,
    follows: int,
    writes: Json,
    second: int,
) -> None:
    await api.run(FIRST)
    pod_writes = writes_since_now(api, "Pod")
    async with api.running(follows_seconds=follows):
        api.put_marker(EDITED)
        await settle()
        for later in (9, 10, 11):
            await api.report(probed(later, probe_hash=EDITED_HASH))
    assert pod_writes() == writes
    assert api.conditions()[C]["lastProbeTime"] == stamp(second)


async def test_an_edited_probe_is_written_after_a_failure_and_a_result_of_another(
    api: Scene,
) -> None:
    other = probe_wire("other", condition="c/other")
    api.put_marker(probe_wire(policies=POLICIES), other)
    edited = probed(9, probe_hash=EDITED_HASH)
    async with api.running(FIRST):
        api.put_marker(EDITED, other)
        await settle()
        api.before = refusing(ServerError("no"))
        await api.report(edited, seconds=1)
        await api.report(
            edited,
            state_wire("web#other", "Failed"),
            seconds=1,
        )
        await api.recover()
    assert api.conditions()[C]["lastProbeTime"] == stamp(9)
    assert api.condition("c/other") == FALSE


@cases(
    "edit",
    label_removed={"labels": {"healthy": None}},
    label_edited={"labels": {"healthy": "no"}},
    annotation_edited={"annotations": {"cost": "99"}},
)
async def test_marks_that_others_change_are_written_again(api: Scene, edit: Json) -> None:
    async with api.running(state_wire()):
        await api.relabel(mine="1")
        await change_pod(api, metadata=edit)
        assert api.marks() == (HEALTHY | {"mine": "1"}, {"cost": "10"}, {C})


@pytest.mark.parametrize("message", ["idle\n", "\n idle \r\n", "\x1b[32midle\x1b[0m\n"])
async def test_a_message_of_another_daemon_is_normalised_before_matching(
    api: Scene,
    message: str,
) -> None:
    """Kruise's daemon publishes the output as it is."""
    values = [{"label": "role", "regex": "^[a-z]+$"}, {"annotation": "line"}]
    api.put_marker(probe_wire(policies=[policy_wire("Succeeded", from_message=values)]))
    await api.run(state_wire(message=message))
    assert api.marks() == ({"role": "idle"}, {"line": "idle"}, {C})


@cases(
    "deletes part field",
    label=(False, "metadata", "labels"),
    deleted_condition=(True, "status", "conditions"),
)
async def test_a_mark_that_the_response_lacks_is_written_again_after_a_second(
    api: Scene,
    deletes: bool,
    part: str,
    field: str,
) -> None:
    """An admission webhook removes a field from our patch, so no event shows a change by others."""
    written: list[float] = []

    def lose(write: Write) -> None:
        if write.kind == "Pod":
            written.append(asyncio.get_running_loop().time())
            if len(written) == 1:
                del write.body[part][field]

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
    api: Scene,
    policy: Json,
) -> None:
    """A policy may not write this annotation, but an older marker may have it, and an older manager may have written it."""
    api.put_marker(probe_wire(policies=[policy]))
    put_pod(
        api,
        annotations={APPLIED: "x"},
        owned=owned_fields(annotations=[APPLIED]),
    )
    async with api.running():
        await api.report(state_wire(), seconds=30)
        assert_pod_writes(api, 1)
        await delete_marker(api, seconds=30)
        assert_marker_is_gone(api)
        assert api.labels() == {}


async def test_a_pod_replaced_under_its_name_never_gets_the_old_marks(api: Scene) -> None:
    async with api.running():
        async with api.lagging(PODS):
            await api.report(state_wire(), seconds=0)
            api.remove(PODS, "web-0")
            put_pod(api, uid="another")
            await settle(0.5)
        assert api.marks() == BARE
        assert_pod_writes(api, 1)


async def test_results_of_another_pod_are_ignored(api: Scene) -> None:
    """With the uid of one pod and the name of another; beside the pod's own, and alone."""
    own = pod_status_wire(pod_wire(), state_wire())
    strange = pod_status_wire(pod_wire(), FAILED) | {"name": "web-1"}
    for statuses, labels in (([strange], {}), ([own, strange], HEALTHY)):
        async with api.running():
            api.publish(*statuses)
            await settle()
            assert api.labels() == labels
        with no_writes(api):
            await api.run(seconds=700)
        assert api.status()["succeeded"] == len(labels)


@pytest.mark.parametrize("whole_pod", [False, True])
async def test_a_removed_state_is_no_longer_counted(api: Scene, whole_pod: bool) -> None:
    api.put_marker(
        probe_wire(condition="x.com/b"),
        name="other",
    )
    async with api.running(state_wire(), state_wire("other#healthy", "Failed")):
        assert api.status("other")["failed"] == 1
        if whole_pod:
            api.publish()
            await settle()
        else:
            await api.report(state_wire())
        assert api.status("other")["failed"] == 0


NOT_INITIALIZED = {"status": {"conditions": [condition_wire("Initialized", "False")]}}


@cases(
    "change",
    not_initialised=lambda api: api.edit(PODS, "web-0", NOT_INITIALIZED),
    moved=lambda api: api.edit(PODS, "web-0", {"spec": {"nodeName": "node-2"}}),
    node_deleted=lambda api: api.remove(NODES, "node-1"),
)
async def test_marks_stay_while_the_pod_is_not_probed_for_a_while(
    api: Scene,
    change: Action,
) -> None:
    api.put_node("node-2")
    async with api.running(state_wire()):
        with no_writes(api, "Pod"):
            change(api)
            await settle()
        assert api.marks() == MARKED
        npp = api.find(NODE_POD_PROBES, "node-1")
        assert npp is None or npp["spec"] == {}


@cases(
    "change",
    finished={"status": {"phase": "Succeeded"}},
    terminating={"metadata": TERMINATING},
)
async def test_pods_that_have_ended_are_not_written(api: Scene, change: Json) -> None:
    api.edit(PODS, "web-0", change)
    await api.run(state_wire())
    assert api.marks() == BARE


async def test_a_static_pod_is_never_written(api: Scene) -> None:
    """Its kubelet owns its status; a result of it can only come from a NodePodProbe that was edited."""
    static = pod_wire(
        annotations=MIRROR,
        labels={"app": "web", "healthy": "old"},
        owned=owned_fields(labels=["healthy"]),
    )
    api.put(PODS, static)
    async with api.running(state_wire()):
        await delete_marker(api)
    assert api.count("Pod") == {}


async def test_a_value_in_the_manifest_of_a_static_pod_keeps_no_marker(api: Scene) -> None:
    put_pod(api, annotations=MIRROR, labels={"app": "web", **HEALTHY})
    async with api.running():
        await delete_marker(api, seconds=15)
    assert_marker_is_gone(api)
    assert api.labels() == HEALTHY
