"""NodePodProbes exist with their Nodes, and hold the probes of their pods. The whole product over a fake API server."""

from typing import Any, TypeVar

import pytest
from support.builders import (
    CREATED,
    container_wire,
    marker_wire,
    node_wire,
    npp_wire,
    pod_status_wire,
    pod_wire,
    probe_wire,
    state_wire,
)
from support.fake_api import FakeApi, Write, cluster_with, refusing
from support.running_manager import metric, running_manager, settle, settled_manager

from kruise_probe.api.errors import ServerError
from kruise_probe.api.kinds import KubeObject, Resource
from kruise_probe.api.resources import MARKERS, NODE_POD_PROBES, NODES, PODS

Json = dict[str, Any]
T = TypeVar("T", bound=KubeObject)


@pytest.fixture
def api() -> FakeApi:
    """One node, one pod, one marker."""
    return cluster_with()


def planned(api: FakeApi, node: str = "node-1") -> dict[str, list[str]]:
    """Probe names by pod."""
    wire = api.read(NODE_POD_PROBES, node)
    return {
        each["name"]: [probe["name"] for probe in each["probes"]]
        for each in wire["spec"].get("podProbes", ())
    }


async def test_a_nodepodprobe_is_created_with_its_entries_and_its_node_as_owner(
    api: FakeApi,
) -> None:
    async with settled_manager(api):
        pass
    wire = api.read(NODE_POD_PROBES, "node-1")
    assert wire["spec"]["podProbes"] == [
        {
            "name": "web-0",
            "namespace": "default",
            "uid": "uid-default-web-0",
            "IP": "127.1.0.1",
            "probes": [
                {
                    "name": "web#healthy",
                    "containerName": "main",
                    "probe": {"exec": {"command": ["true"]}},
                }
            ],
        }
    ]
    assert wire["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-node-1"}
    ]
    assert api.count("NodePodProbe") == {"NodePodProbe": 1}


def _requirement(operator: str, *values: str) -> dict[str, Any]:
    return {"key": "tier", "operator": operator, **({"values": values} if values else {})}


@pytest.mark.parametrize(
    ("selector", "tiers"),
    [
        pytest.param(
            {"matchLabels": {"app": "web"}, "matchExpressions": [_requirement("In", "a", "b")]},
            "ab",
            id="in",
        ),
        pytest.param(
            {"matchLabels": {"app": "web"}, "matchExpressions": [_requirement("NotIn", "a")]},
            "bc-",
            id="not-in",
        ),
        pytest.param(
            {"matchLabels": {"app": "web"}, "matchExpressions": [_requirement("Exists")]},
            "abc",
            id="exists",
        ),
        pytest.param({"matchExpressions": [_requirement("Exists")]}, "abc", id="no-values"),
        pytest.param(
            {"matchExpressions": [_requirement("In", "a", "b"), _requirement("NotIn", "b")]},
            "a",
            id="two-on-one-key",
        ),
        pytest.param(
            {"matchLabels": {"app": "db"}, "matchExpressions": [_requirement("Exists")]},
            "",
            id="other-value",
        ),
    ],
)
async def test_pods_are_probed_that_match_every_requirement(
    selector: dict[str, Any], tiers: str
) -> None:
    """A pod starts to match, or no longer does, when its label changes; so does a pod that is created later."""
    api = FakeApi()
    api.put(NODES, node_wire())
    api.put(MARKERS, marker_wire(selector=selector))
    api.put(MARKERS, marker_wire("of-another-namespace", namespace="other", selector=selector))
    labels = {"a": {"tier": "a"}, "b": {"tier": "b"}, "c": {"tier": "c"}, "-": {}}
    for name in "abc":
        api.put(PODS, pod_wire(f"web-{name}", labels={"app": "web"} | labels[name]))
    async with settled_manager(api):
        api.put(PODS, pod_wire("web--", labels={"app": "web"}))
        await settle()
        assert planned(api) == {f"web-{name}": ["web#healthy"] for name in sorted(tiers)}
        for old, new in zip("abc", "bca", strict=True):
            api.edit(PODS, f"web-{old}", {"metadata": {"labels": labels[new]}})
        await settle()
        moved = {"a": "c", "b": "a", "c": "b", "-": "-"}
        assert planned(api) == {f"web-{moved[name]}": ["web#healthy"] for name in tiers}


async def test_an_edit_of_a_marker_is_one_patch_per_node_without_version(
    api: FakeApi,
) -> None:
    for number in range(2, 6):
        api.put(NODES, node_wire(f"node-{number}"))
        for pod in range(3):
            api.put(PODS, pod_wire(f"web-{number}-{pod}", node=f"node-{number}"))
    async with settled_manager(api):
        before = len(api.writes)
        api.edit(MARKERS, "web", {"spec": {"probes": [probe_wire(periodSeconds=7)]}})
        await settle()
    written = [each for each in api.writes[before:] if each.kind == "NodePodProbe"]
    assert len(written) == 5
    assert all(set(each.body) == {"spec"} for each in written)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"status": {"podIP": "127.9.9.9"}}, "127.9.9.9", id="changed"),
        pytest.param({"status": {"podIP": ""}}, "", id="lost"),
    ],
)
async def test_the_entry_has_the_current_pod_ip(api: FakeApi, change: Json, expected: str) -> None:
    async with settled_manager(api):
        api.edit(PODS, "web-0", change)
        await settle()
    wire = api.read(NODE_POD_PROBES, "node-1")
    assert [each["IP"] for each in wire["spec"]["podProbes"]] == [expected]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"metadata": {"labels": {"app": "other"}}}, id="labels-stop-matching"),
        pytest.param({"status": {"phase": "Failed"}}, id="failed"),
        pytest.param(
            {"metadata": {"deletionTimestamp": CREATED, "finalizers": ["a/b"]}}, id="terminating"
        ),
    ],
)
async def test_pods_that_are_no_longer_probed_are_removed_from_the_spec(
    api: FakeApi, change: Json
) -> None:
    async with settled_manager(api):
        assert planned(api) == {"web-0": ["web#healthy"]}
        api.edit(PODS, "web-0", change)
        await settle()
        assert planned(api) == {}


async def test_a_deleted_pod_is_removed_from_the_spec_while_the_informer_lags(api: FakeApi) -> None:
    async with settled_manager(api):
        npps = api.sources["nodepodprobes"]
        npps.hold()
        api.put(PODS, pod_wire("web-1"))
        await settle(0.5)
        assert set(planned(api)) == {"web-0", "web-1"}
        api.remove(PODS, "web-1")
        await settle(0.5)
        npps.release()
        await settle()
        assert set(planned(api)) == {"web-0"}


async def test_a_plan_is_written_once_while_the_informer_lags(api: FakeApi) -> None:
    async with settled_manager(api):
        npps = api.sources["nodepodprobes"]
        npps.hold()
        api.put(PODS, pod_wire("web-1"))
        await settle(0.5)
        before = len(api.writes)
        for started in (True, False):
            statuses = [{"name": "main", "started": started}]
            api.edit(PODS, "web-1", {"status": {"containerStatuses": statuses}})
            await settle(0.5)
        npps.release()
        await settle()
        assert api.count("NodePodProbe", since=before) == {}


async def test_a_container_with_a_startup_probe_is_planned_once_it_has_started(
    api: FakeApi,
) -> None:
    api.put(PODS, pod_wire(containers=[container_wire(startup_probe=True)]))
    async with settled_manager(api):
        assert planned(api) == {}
        started = {"status": {"containerStatuses": [{"name": "main", "started": True}]}}
        api.edit(PODS, "web-0", started)
        await settle()
        assert planned(api) == {"web-0": ["web#healthy"]}


PROBE = {"name": "web#healthy", "containerName": "main", "probe": {"exec": {"command": ["true"]}}}
TWICE = {
    "name": "web-0",
    "namespace": "default",
    "uid": "uid-default-web-0",
    "IP": "127.1.0.1",
    "probes": [PROBE | {"probe": {"exec": {"command": ["false"]}}}, PROBE],
}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({"spec": {"podProbes": None}}, id="emptied"),
        pytest.param(
            {"spec": {"podProbes": [{"name": "x", "namespace": "y", "uid": "z", "IP": ""}]}},
            id="replaced",
        ),
        pytest.param({"spec": {"podProbes": [TWICE]}}, id="duplicated"),
        pytest.param({"metadata": {"ownerReferences": None}}, id="disowned"),
    ],
)
async def test_a_nodepodprobe_edited_by_hand_is_reverted(api: FakeApi, damage: Json) -> None:
    async with settled_manager(api):
        good = api.read(NODE_POD_PROBES, "node-1")
        api.edit(NODE_POD_PROBES, "node-1", damage)
        await settle()
        repaired = api.read(NODE_POD_PROBES, "node-1")
        assert repaired["spec"] == good["spec"]
        assert repaired["metadata"]["ownerReferences"] == good["metadata"]["ownerReferences"]


async def test_a_nodepodprobe_deleted_by_hand_is_recreated(api: FakeApi) -> None:
    async with settled_manager(api):
        api.remove(NODE_POD_PROBES, "node-1")
        await settle()
        assert planned(api) == {"web-0": ["web#healthy"]}


async def test_a_new_nodepodprobe_deleted_by_hand_is_recreated_while_the_informer_lags(
    api: FakeApi,
) -> None:
    async with settled_manager(api):
        npps = api.sources["nodepodprobes"]
        npps.hold()
        api.put(NODES, node_wire("node-2"))
        api.put(PODS, pod_wire("web-1", node="node-2"))
        await settle(0.5)
        api.remove(NODE_POD_PROBES, "node-2")
        api.put(PODS, pod_wire("web-2", node="node-2"))
        await settle(1)
        assert set(planned(api, "node-2")) == {"web-1", "web-2"}
        npps.release()
        await settle()
        assert set(planned(api, "node-2")) == {"web-1", "web-2"}


async def test_a_nodepodprobe_deleted_during_a_patch_is_recreated() -> None:
    class SlowAnswers(FakeApi):
        async def patch(self, resource: Resource[T], *args: Any, **more: Any) -> T:
            response = await super().patch(resource, *args, **more)
            if resource.kind == "NodePodProbe":
                self.remove(NODE_POD_PROBES, "node-1")
                await settle(0.5)
            return response

    api = SlowAnswers()
    api.put(NODES, node_wire())
    api.put(PODS, pod_wire())
    api.put(MARKERS, marker_wire())
    async with settled_manager(api):
        api.put(PODS, pod_wire("web-1"))
        await settle()
        assert set(planned(api)) == {"web-0", "web-1"}
        assert api.count("NodePodProbe") == {"NodePodProbe": 3}


async def test_an_entry_without_ip_is_replaced(api: FakeApi) -> None:
    api.put(NODE_POD_PROBES, npp_wire(entries=[{"name": "x", "namespace": "y", "uid": "z"}]))
    async with settled_manager(api):
        assert planned(api) == {"web-0": ["web#healthy"]}


async def test_a_nodepodprobe_that_the_cache_never_shows_is_reported(
    api: FakeApi,
) -> None:
    async with settled_manager(api):
        npps = api.sources["nodepodprobes"]
        npps.hold()
        api.put(NODE_POD_PROBES, npp_wire("node-2"))
        api.put(NODES, node_wire("node-2"))
        api.put(PODS, pod_wire("web-2", node="node-2"))
        before = len(api.writes)
        await settle(600)
        assert api.count("NodePodProbe", since=before)["NodePodProbe"] < 60
        marker = api.read(MARKERS, "web")
        synced = next(each for each in marker["status"]["conditions"] if each["type"] == "Synced")
        assert "node-2: 409" in synced["message"]

        npps.release()
        await settle()
        assert planned(api, "node-2") == {"web-2": ["web#healthy"]}
        assert api.read(MARKERS, "web")["status"]["nodesBehind"] == 0


class TestNodes:
    async def test_the_nodepodprobe_is_deleted_with_its_node(self, api: FakeApi) -> None:
        async with settled_manager(api):
            api.remove(NODES, "node-1")
            await settle()
            assert api.get(NODE_POD_PROBES, "node-1") is None
            api.edit(PODS, "web-0", {"status": {"podIP": "127.9.9.9"}})
            await settle()
            assert api.get(NODE_POD_PROBES, "node-1") is None

    async def test_a_nodepodprobe_without_a_node_is_deleted(self, api: FakeApi) -> None:
        api.put(NODE_POD_PROBES, npp_wire("long-gone"))
        async with settled_manager(api):
            pass
        assert api.get(NODE_POD_PROBES, "long-gone") is None

    @pytest.mark.parametrize("owners", [["former"], ["former", "uid-node-1"]])
    async def test_a_recreated_node_becomes_the_only_owner(
        self, api: FakeApi, owners: list[str]
    ) -> None:
        wire = npp_wire()
        (owner,) = wire["metadata"]["ownerReferences"]
        wire["metadata"]["ownerReferences"] = [{**owner, "uid": uid} for uid in owners]
        api.put(NODE_POD_PROBES, wire)
        async with settled_manager(api):
            pass
        wire = api.read(NODE_POD_PROBES, "node-1")
        assert [each["uid"] for each in wire["metadata"]["ownerReferences"]] == ["uid-node-1"]
        assert api.count("NodePodProbe") == {"NodePodProbe": 1}

    async def test_a_nodepodprobe_that_others_delete_with_its_node_is_no_error(
        self, api: FakeApi
    ) -> None:
        """The garbage collector deletes it as well, as the Node owns it."""

        def collect(write: Write) -> None:
            if write.verb == "delete":
                api.remove(NODE_POD_PROBES, "node-1")

        errors = "controller_runtime_reconcile_errors_total"
        async with settled_manager(api):
            before = metric(errors, controller="nodepodprobe")
            api.before = collect
            api.remove(NODES, "node-1")
            await settle(60)
            assert metric(errors, controller="nodepodprobe") == before
        assert api.count("NodePodProbe") == {"NodePodProbe": 2}

    async def test_a_node_that_comes_back_while_the_informer_lags_has_a_nodepodprobe(
        self, api: FakeApi
    ) -> None:
        async with settled_manager(api):
            npps = api.sources["nodepodprobes"]
            npps.hold()
            api.put(NODES, node_wire("node-2"))
            api.put(PODS, pod_wire("web-2", node="node-2"))
            await settle(0.5)
            api.remove(NODES, "node-2")
            await settle(0.5)
            assert api.get(NODE_POD_PROBES, "node-2") is None
            api.put(NODES, node_wire("node-2", uid="another"))
            await settle(1)
            for _ in range(2):
                assert planned(api, "node-2") == {"web-2": ["web#healthy"]}
                wire = api.get(NODE_POD_PROBES, "node-2") or {}
                assert [each["uid"] for each in wire["metadata"]["ownerReferences"]] == ["another"]
                npps.release()
                await settle()

    async def test_a_recreated_nodepodprobe_is_not_deleted(self, api: FakeApi) -> None:
        deletions = 0

        def another_comes_first(write: Write) -> None:
            nonlocal deletions
            if write.verb == "delete":
                deletions += 1
                api.remove(NODE_POD_PROBES, "node-2")
                api.put(NODES, node_wire("node-2"))
                anew = npp_wire("node-2", owner_uid="uid-node-2")
                anew["metadata"]["uid"] = "anew"
                api.put(NODE_POD_PROBES, anew)

        api.put(NODE_POD_PROBES, npp_wire("node-2"))
        api.before = another_comes_first
        async with running_manager(api):
            await settle(60)
        wire = api.get(NODE_POD_PROBES, "node-2") or {}
        assert wire["metadata"]["uid"] == "anew"
        assert deletions == 1

    async def test_the_nodepodprobe_of_a_node_that_becomes_virtual_is_deleted(
        self, api: FakeApi
    ) -> None:
        async with settled_manager(api):
            api.edit(NODES, "node-1", {"metadata": {"labels": {"type": "virtual-kubelet"}}})
            await settle()
        assert api.get(NODE_POD_PROBES, "node-1") is None

    async def test_a_failing_node_delays_no_other_and_its_marker_reports_the_error(
        self, api: FakeApi
    ) -> None:
        api.put(NODES, node_wire("node-2"))
        api.put(PODS, pod_wire("web-2", node="node-2"))
        api.before = refusing(ServerError("etcd is on holiday"), kind="NodePodProbe", name="node-1")
        async with settled_manager(api):
            assert planned(api, "node-2") == {"web-2": ["web#healthy"]}
            status = api.read(MARKERS, "web")["status"]
            assert status["observedGeneration"] == 1
            assert status["nodesBehind"] == 1
            synced = next(each for each in status["conditions"] if each["type"] == "Synced")
            assert synced["status"] == "False"
            assert "node-1" in synced["message"]
            assert "etcd is on holiday" in synced["message"]

            api.before = lambda write: None
            await settle(60)
            assert planned(api, "node-1") == {"web-0": ["web#healthy"]}
            assert api.read(MARKERS, "web")["status"]["nodesBehind"] == 0


def prune_mode(wire: Json) -> None:
    """As a CRD without the field `mode` of gRPC probes."""
    if wire["kind"] == "NodePodProbe":
        for entry in wire["spec"].get("podProbes", ()):
            for probe in entry["probes"]:
                probe["probe"].get("grpc", {}).pop("mode", None)


@pytest.mark.parametrize("pruned_before", [False, True])
async def test_entries_that_cannot_be_restored_are_reported(
    api: FakeApi, pruned_before: bool
) -> None:
    """Also if an earlier CRD pruned them: that ends when another client writes what this manager wants."""

    grpc = {"grpc": {"port": 80, "mode": "TLS"}}
    api.put(MARKERS, marker_wire(probes=[probe_wire(handler=grpc)]))
    if pruned_before:
        api.prune = prune_mode
    async with settled_manager(api):
        api.prune = lambda wire: None
        (entry,) = api.read(NODE_POD_PROBES, "node-1")["spec"]["podProbes"]
        full = {**entry["probes"][0]["probe"]["grpc"], "mode": "TLS"}
        probes = [{**entry["probes"][0], "probe": {"grpc": full}}]
        api.edit(NODE_POD_PROBES, "node-1", {"spec": {"podProbes": [{**entry, "probes": probes}]}})
        await settle()
        api.before = refusing(ServerError("no"), kind="NodePodProbe")
        api.edit(NODE_POD_PROBES, "node-1", {"spec": {"podProbes": None}})
        await settle()
        assert api.read(MARKERS, "web")["status"]["nodesBehind"] == 1


async def test_entries_that_the_crd_prunes_or_defaults_are_written_once(api: FakeApi) -> None:
    api.prune = prune_mode
    grpc = {"grpc": {"port": 80, "mode": "TLS"}}
    api.put(MARKERS, marker_wire(probes=[probe_wire(handler=grpc)]))
    async with running_manager(api):
        await settle(700)
        assert api.count("NodePodProbe") == {"NodePodProbe": 1}
        assert api.read(MARKERS, "web")["status"]["nodesBehind"] == 0
        api.edit(NODE_POD_PROBES, "node-1", {"spec": {"podProbes": None}})
        await settle()
        assert planned(api) == {"web-0": ["web#healthy"]}


class TestOneNamespaceOnly:
    async def test_entries_of_other_namespaces_are_not_changed(self, api: FakeApi) -> None:
        foreign = {
            "name": "db-0",
            "namespace": "other",
            "uid": "u",
            "IP": "127.2.0.1",
            "probes": [
                {"name": "db#up", "containerName": "c", "probe": {"tcpSocket": {"port": 1}}}
            ],
        }
        api.put(NODE_POD_PROBES, npp_wire(entries=[foreign]))
        async with settled_manager(api, namespace="default"):
            assert planned(api) == {"web-0": ["web#healthy"], "db-0": ["db#up"]}
            api.remove(MARKERS, "web")
            await settle()
            assert planned(api) == {"db-0": ["db#up"]}

    async def test_entries_that_others_just_wrote_are_kept(self, api: FakeApi) -> None:
        theirs = {"name": "db-0", "namespace": "other", "uid": "u", "IP": "127.2.0.1"}
        async with settled_manager(api, namespace="default"):
            npps = api.sources["nodepodprobes"]
            npps.hold()
            wire = api.read(NODE_POD_PROBES, "node-1")
            both = [*wire["spec"]["podProbes"], theirs | {"probes": [PROBE]}]
            api.edit(NODE_POD_PROBES, "node-1", {"spec": {"podProbes": both}})
            before = len(api.writes)
            api.put(PODS, pod_wire("web-1"))
            await settle(1)
            assert planned(api).keys() == {"web-0", "db-0"}
            assert api.count("NodePodProbe", since=before)["NodePodProbe"] <= 10
            npps.release()
            await settle()
            assert planned(api).keys() == {"web-0", "web-1", "db-0"}

    async def test_results_of_other_namespaces_are_ignored(self, api: FakeApi) -> None:
        stranger = pod_wire("db-0", namespace="other")
        async with settled_manager(api, namespace="default"):
            api.publish(pod_status_wire(stranger, state_wire("db#up")))
            await settle()
        assert api.count("Pod") == {}


async def test_1000_pods_on_250_nodes_cause_no_conflict() -> None:
    api = FakeApi()
    api.put(MARKERS, marker_wire())
    for node in range(250):
        api.put(NODES, node_wire(f"node-{node}"))
        for number in range(4):
            api.put(PODS, pod_wire(f"web-{node}-{number}", node=f"node-{node}"))
    async with settled_manager(api):
        before = len(api.writes)
        for number in range(4):
            for node in range(250):
                wire = api.read(PODS, f"web-{node}-{number}")
                status = pod_status_wire(wire, state_wire(message=f"now {number}"))
                api.publish(status, node=f"node-{node}")
            if number == 1:
                api.edit(MARKERS, "web", {"spec": {"probes": [probe_wire(periodSeconds=3)]}})
            await settle(0.5)
        await settle()
        assert api.count("NodePodProbe", since=before) == {"NodePodProbe": 250}
        assert api.count("Pod", since=before) == {"Pod/status": 1000}
        for node in range(250):
            wire = api.read(NODE_POD_PROBES, f"node-{node}")
            periods = {
                probe["probe"]["periodSeconds"]
                for each in wire["spec"]["podProbes"]
                for probe in each["probes"]
            }
            assert periods == {3}
