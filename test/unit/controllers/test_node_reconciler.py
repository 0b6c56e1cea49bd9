"""NodePodProbes exist with their Nodes, and hold the probes of their pods. The whole product over a fake API server."""

from copy import deepcopy

import pytest
from support.builders import npp_wire, pod_status_wire, pod_wire, probe_wire, state_wire
from support.cases import cases
from support.fake_api import Write, refusing
from support.metrics import counted
from support.running_manager import running_manager, settle
from support.scene import Scene, scene
from support.wire import Json, typed
from unit.controllers.common import (
    Action,
    change_pod,
    delete_marker,
    make_node_virtual,
    marker_message,
    numbered_probes,
    put_pod,
    writes_since_now,
)

from kruise_probe.api.errors import Expired, ServerError
from kruise_probe.api.resources import NODE_POD_PROBES, NODES, PODS

PROBE = {"name": "web#healthy", "containerName": "main", "probe": {"exec": {"command": ["true"]}}}
ENTRY = {
    "name": "web-0",
    "namespace": "default",
    "uid": "uid-default-web-0",
    "IP": "127.1.0.1",
    "probes": [PROBE],
}
OWNER = typed("Node", name="node-1", uid="uid-node-1")
THEIRS = ENTRY | {"name": "db-0", "namespace": "other", "uid": "uid-other-db-0"}
WITH_MODE = probe_wire(handler={"grpc": {"port": 80, "mode": "TLS"}})
EMPTIED = {"spec": {"podProbes": None}}
"""A patch of a NodePodProbe."""
PROBED = {"web-0": ["web#healthy"]}


@pytest.fixture
def api() -> Scene:
    """One node, one pod, one marker."""
    return scene()


def entries(api: Scene, node: str = "node-1") -> list[Json]:
    found: list[Json] = api.read(NODE_POD_PROBES, node)["spec"]["podProbes"]
    return found


def owners(api: Scene) -> list[Json]:
    found: list[Json] = api.read(NODE_POD_PROBES, "node-1")["metadata"]["ownerReferences"]
    return found


def assert_written_once(api: Scene) -> None:
    assert api.count("NodePodProbe") == {"NodePodProbe": 1}


async def test_a_nodepodprobe_is_created_with_its_entries_and_its_node_as_owner(api: Scene) -> None:
    await api.run()
    assert entries(api) == [ENTRY]
    assert owners(api) == [OWNER]
    assert_written_once(api)


async def test_pods_are_probed_that_match_every_requirement() -> None:
    """A pod starts to match, or no longer does, when its label changes; so does a pod that is created later."""
    api = Scene()
    requirements = [
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
        {"key": "tier", "operator": "NotIn", "values": ["b"]},
    ]
    selector = {"matchExpressions": requirements, "matchLabels": {"app": "web"}}
    api.put_marker(probe_wire(), selector=selector)
    api.put_marker(
        probe_wire(),
        name="strange",
        namespace="other",
        selector=selector,
    )

    def put(name: str, tier: str) -> None:
        put_pod(api, name, labels={"app": "web", "tier": tier})

    for tier in ("a", "b", "c"):
        put(f"web-{tier}", tier)
    async with api.running():
        put("later", "a")
        await settle()
        assert api.probes() == {"web-a": ["web#healthy"], "later": ["web#healthy"]}
        await api.relabel("web-a", tier="b")
        await api.relabel("web-c", tier="a")
        assert api.probes() == {"web-c": ["web#healthy"], "later": ["web#healthy"]}


@cases("ip", changed="127.9.9.9", lost="")
async def test_the_entry_has_the_current_pod_ip(api: Scene, ip: str) -> None:
    async with api.running():
        await change_pod(api, status={"podIP": ip})
    assert entries(api) == [ENTRY | {"IP": ip}]


async def test_a_change_before_an_own_write_is_planned_when_the_response_shows_it(
    api: Scene,
) -> None:
    """No event of it ever comes."""
    async with api.running(state_wire()):
        source = api.sources["pods"]
        source.black_hole()
        api.edit(PODS, "web-0", {"status": {"podIP": "127.9.9.9"}})
        await api.report(state_wire(state="Failed"))
    assert entries(api)[0]["IP"] == "127.9.9.9"


async def test_a_plan_is_written_once_while_the_informer_lags(api: Scene) -> None:
    async with api.running():
        async with api.lagging(NODE_POD_PROBES):
            put_pod(api, "web-1")
            await settle(0.5)
            assert set(api.probes()) == {"web-0", "web-1"}
            node_writes = writes_since_now(api, "NodePodProbe")
            for started in (True, False):
                status = {"containerStatuses": [{"name": "main", "started": started}]}
                await change_pod(api, "web-1", status=status, seconds=0.5)
            assert node_writes() == {}
            await api.drop(PODS, "web-1", seconds=0.5)
            assert set(api.probes()) == {"web-0"}
        assert node_writes() == {"NodePodProbe": 1}


OTHER_PROBE = PROBE | {"probe": {"exec": {"command": ["false"]}}}
TWICE = ENTRY | {"probes": [OTHER_PROBE, PROBE]}


@cases(
    "damage",
    emptied=EMPTIED,
    replaced={"spec": {"podProbes": [{"name": "x", "namespace": "y", "uid": "z"}]}},
    duplicated={"spec": {"podProbes": [TWICE]}},
    disowned={"metadata": {"ownerReferences": None}},
    deleted=None,
)
async def test_a_nodepodprobe_edited_by_hand_is_reverted(api: Scene, damage: Json | None) -> None:
    async with api.running():
        if damage is None:
            await api.drop(NODE_POD_PROBES, "node-1")
        else:
            await api.change(NODE_POD_PROBES, "node-1", damage)
        assert entries(api) == [ENTRY]
        assert owners(api) == [OWNER]


async def test_a_nodepodprobe_that_the_cache_never_shows_is_reported(api: Scene) -> None:
    async with api.running():
        async with api.lagging(NODE_POD_PROBES):
            api.put(NODE_POD_PROBES, npp_wire("node-2"))
            api.put_node("node-2", "web-2")
            node_writes = writes_since_now(api, "NodePodProbe")
            await settle(600)
            assert node_writes()["NodePodProbe"] < 60
            assert "node-2: 409" in marker_message(api, "Synced")
        assert api.probes("node-2") == {"web-2": ["web#healthy"]}
        assert api.status()["nodesBehind"] == 0


def prune_mode(wire: Json) -> None:
    """As a CRD without the field `mode` of gRPC probes."""
    if wire["kind"] == "NodePodProbe":
        for entry in wire["spec"].get("podProbes") or ():
            for probe in entry["probes"]:
                probe["probe"].get("grpc", {}).pop("mode", None)


@pytest.mark.parametrize("pruned_before", [False, True])
async def test_entries_that_cannot_be_restored_are_reported(
    api: Scene,
    pruned_before: bool,
) -> None:
    """Also if an earlier CRD pruned them: that ends when another client writes what this manager wants."""
    api.put_marker(WITH_MODE)
    if pruned_before:
        api.prune = prune_mode
    async with api.running():
        api.prune = lambda wire: None
        wanted = deepcopy(entries(api))
        wanted[0]["probes"][0]["probe"]["grpc"]["mode"] = "TLS"
        await api.change(NODE_POD_PROBES, "node-1", {"spec": {"podProbes": wanted}})
        api.before = refusing(
            ServerError("no"),
            kind="NodePodProbe",
        )
        await api.change(NODE_POD_PROBES, "node-1", EMPTIED)
        assert api.status()["nodesBehind"] == 1


async def test_entries_that_the_crd_prunes_or_defaults_are_written_once(api: Scene) -> None:
    api.prune = prune_mode
    api.put_marker(WITH_MODE)
    async with api.running(resync_seconds=100):
        await settle(700)
        assert_written_once(api)
        assert api.status()["nodesBehind"] == 0
        await api.change(NODE_POD_PROBES, "node-1", EMPTIED)
        assert api.probes() == PROBED


async def test_1000_pods_on_250_nodes_cause_no_conflict() -> None:
    api = Scene()
    api.put_marker(probe_wire())
    for place in range(250):
        pods = [f"web-{place}-{number}" for number in range(4)]
        api.put_node(f"node-{place}", *pods)
    async with api.running():
        before = len(api.writes)
        for number in range(4):
            result = state_wire(message=f"now {number}")
            for place in range(250):
                await api.report(result, pod=f"web-{place}-{number}", seconds=0)
            if number == 1:
                await api.change_probes(
                    probe_wire(periodSeconds=3),
                    seconds=0,
                )
            await settle(0.5)
        await settle()
    writes = [write for write in api.writes[before:] if write.kind == "NodePodProbe"]
    assert len(writes) == 250, "one patch for each node"
    for write in writes:
        assert set(write.body) == {"spec"}, "without a version"
    assert api.count("Pod", since=before) == {"Pod/status": 1000}
    for place in range(250):
        for entry in entries(api, f"node-{place}"):
            (probe,) = entry["probes"]
            assert probe["probe"]["periodSeconds"] == 3


async def test_a_nodepodprobe_is_left_alone_for_as_long_as_its_write_took(api: Scene) -> None:
    """A busy API server has time for others, and the newest spec is written in the end."""
    async with api.running():
        api.latency_seconds["NodePodProbe"] = 0.9
        node_writes = writes_since_now(api, "NodePodProbe")
        for number in range(90):
            status = {"podIP": f"127.9.9.{number}"}
            await change_pod(api, status=status, seconds=0.2)
        assert 9 <= node_writes().total() <= 11, "18 s, 1.8 s for each"
        await settle()
        assert entries(api)[0]["IP"] == "127.9.9.89"


async def test_two_large_specs_are_written_at_a_time_and_delay_no_small_one(api: Scene) -> None:
    """Twelve at once would exceed their deadline on a busy API server."""
    for number in range(4):
        api.put_marker(
            *numbered_probes(32, f"c/{number}-"),
            name=f"many-{number}",
        )
    for number in range(5):
        pods = [f"pod-{number}-{place}" for place in range(8)]
        api.put_node(f"large-{number}", *pods)
    api.latency_seconds["NodePodProbe"] = 4.0
    async with running_manager(api):
        for seconds, large in ((3, 2), (4.5, 4), (4.5, 5)):
            await settle(seconds)
            created = {write.key.name for write in api.writes if write.verb == "create"}
            assert "node-1" in created
            assert len(created) == 1 + large


@cases(
    "end",
    deleted=lambda api: api.remove(NODES, "node-1"),
    becomes_virtual=make_node_virtual,
)
async def test_the_nodepodprobe_is_deleted_with_its_node(api: Scene, end: Action) -> None:
    async with api.running():
        end(api)
        await settle()
        assert api.find(NODE_POD_PROBES, "node-1") is None
        await change_pod(api, status={"podIP": "127.9.9.9"})
        assert api.find(NODE_POD_PROBES, "node-1") is None


async def test_a_nodepodprobe_without_a_node_is_deleted(api: Scene) -> None:
    api.put(NODE_POD_PROBES, npp_wire("long-gone"))
    await api.run()
    assert api.find(NODE_POD_PROBES, "long-gone") is None


@pytest.mark.parametrize("former", [["former"], ["former", "uid-node-1"]])
async def test_a_recreated_node_becomes_the_only_owner(api: Scene, former: list[str]) -> None:
    wire = npp_wire()
    wire["metadata"]["ownerReferences"] = [OWNER | {"uid": uid} for uid in former]
    api.put(NODE_POD_PROBES, wire)
    await api.run()
    assert owners(api) == [OWNER]
    assert_written_once(api)


async def test_a_nodepodprobe_that_others_delete_with_its_node_is_no_error(api: Scene) -> None:
    """The garbage collector deletes it as well, as the Node owns it."""

    def collect(write: Write) -> None:
        if write.verb == "delete":
            api.remove(NODE_POD_PROBES, "node-1")

    async with api.running():
        errors = counted("controller_runtime_reconcile_errors_total", controller="nodepodprobe")
        api.before = collect
        await api.drop(NODES, "node-1", seconds=60)
        assert errors() == 0
    assert api.count("NodePodProbe") == {"NodePodProbe": 2}


async def test_a_recreated_nodepodprobe_is_not_deleted(api: Scene) -> None:
    def another_comes_first(write: Write) -> None:
        if write.verb == "delete":
            api.remove(NODE_POD_PROBES, "node-2")
            api.put_node("node-2")
            anew = npp_wire("node-2")
            anew["metadata"]["uid"] = "anew"
            api.put(NODE_POD_PROBES, anew)

    api.put(NODE_POD_PROBES, npp_wire("node-2"))
    api.before = another_comes_first
    await api.run(seconds=60)
    assert api.read(NODE_POD_PROBES, "node-2")["metadata"]["uid"] == "anew"
    assert [write.verb for write in api.writes].count("delete") == 1


async def test_a_failing_node_delays_no_other_and_its_marker_reports_the_error(api: Scene) -> None:
    api.put_node("node-2", "web-2")
    api.before = refusing(
        ServerError("etcd is on holiday"),
        kind="NodePodProbe",
        name="node-1",
    )
    async with api.running():
        assert api.probes("node-2") == {"web-2": ["web#healthy"]}
        status, _, message = api.says("Synced")
        assert status == "False"
        assert api.status()["nodesBehind"] == 1
        assert "node-1: " in message
        assert "etcd is on holiday" in message
        await api.change_probes(probe_wire(periodSeconds=9))
        assert api.status()["observedGeneration"] == 2
        await api.recover()
        assert api.probes() == PROBED
        assert api.status()["nodesBehind"] == 0


async def test_entries_of_other_namespaces_are_not_changed(api: Scene) -> None:
    api.put(
        NODE_POD_PROBES,
        npp_wire(entries=[THEIRS]),
    )
    async with api.running(namespace="default"):
        assert api.probes().keys() == {"web-0", "db-0"}
        await delete_marker(api)
        assert entries(api) == [THEIRS]


async def test_entries_that_others_just_wrote_are_kept(api: Scene) -> None:
    async with api.running(namespace="default"):
        async with api.lagging(NODE_POD_PROBES):
            both = [*entries(api), THEIRS]
            api.edit(NODE_POD_PROBES, "node-1", {"spec": {"podProbes": both}})
            node_writes = writes_since_now(api, "NodePodProbe")
            put_pod(api, "web-1")
            await settle(1)
            assert api.probes().keys() == {"web-0", "db-0"}
            assert node_writes()["NodePodProbe"] <= 10
        assert api.probes().keys() == {"web-0", "web-1", "db-0"}


async def test_an_owner_that_was_removed_just_before_our_write_is_repaired(api: Scene) -> None:
    """The response shows both changes, and a list the rest: no event tells that somebody else wrote."""
    async with api.running():
        source = api.sources["nodepodprobes"]
        source.hold()
        api.edit(NODE_POD_PROBES, "node-1", {"metadata": {"ownerReferences": None}})
        put_pod(api, "web-1")
        await settle(2)
        source.compact()
        source.drop_watches(Expired("too old"))
        source.release()
        await settle(10)
        assert owners(api) == [OWNER]


async def test_results_of_other_namespaces_are_ignored(api: Scene) -> None:
    async with api.running(namespace="default"):
        api.publish(
            pod_status_wire(
                pod_wire("db-0", namespace="other"),
                state_wire("db#up"),
            )
        )
        await settle()
    assert api.count("Pod") == {}
