"""With --own-node-reads each node has a role and a binding, which are written once."""

import pytest
from support.cases import cases
from support.fake_api import RIGHTS, refusing
from support.metrics import counted
from support.running_manager import settle
from support.scene import Scene
from support.wire import Json, typed
from unit.controllers.common import VIRTUAL, labels_patch

from kruise_probe.api.errors import Forbidden
from kruise_probe.api.meta import ApiObject, Resource
from kruise_probe.api.resources import NODE_POD_PROBES
from kruise_probe.controllers.own_reads import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES

NAME = "kruise-probe-node:node-1"
RULE = {
    "apiGroups": ["apps.kruise.io"],
    "resources": ["nodepodprobes"],
    "resourceNames": ["node-1"],
    "verbs": ["get", "list", "watch"],
}
GROUP = "rbac.authorization.k8s.io"
ROLE = {"apiGroup": GROUP, "kind": "ClusterRole", "name": NAME}
USER = {"apiGroup": GROUP, "kind": "User", "name": "system:node:node-1"}
ONCE = {"ClusterRole": 1, "ClusterRoleBinding": 1, "NodePodProbe": 1}


async def test_a_role_and_its_binding_are_created_once_and_owned_by_the_node() -> None:
    api = Scene()
    async with api.running(own_node_reads=True, resync_seconds=60):
        role = api.read(CLUSTER_ROLES, NAME)
        binding = api.read(CLUSTER_ROLE_BINDINGS, NAME)
        assert role["rules"] == [RULE]
        assert binding["roleRef"] == ROLE
        assert binding["subjects"] == [USER]
        for wire in (role, binding):
            (owner,) = wire["metadata"]["ownerReferences"]
            assert owner["kind"] == "Node"
            assert owner["uid"] == "uid-node-1"
        await api.change(
            CLUSTER_ROLES,
            NAME,
            labels_patch(a="b"),
            seconds=300,
        )
        assert api.count() == ONCE


async def test_what_an_earlier_manager_created_is_not_written() -> None:
    api = Scene()
    for kind in RIGHTS:
        api.put(
            kind,
            typed(kind.kind, metadata={"name": NAME}),
        )
    await api.run(own_node_reads=True)
    assert api.count() == {"NodePodProbe": 1}


@cases("kind", role=CLUSTER_ROLES, binding=CLUSTER_ROLE_BINDINGS)
async def test_what_others_delete_is_created_again(kind: Resource[ApiObject]) -> None:
    """The garbage collector does if a Node is replaced under its name."""
    api = Scene()
    async with api.running(own_node_reads=True):
        await api.drop(kind, NAME)
        assert api.count() == ONCE | {kind.kind: 2}


async def test_what_the_cache_does_not_show_yet_is_no_error() -> None:
    """Neither what another manager created, nor what this one did, which it does not repeat."""
    api = Scene()
    errors = counted("controller_runtime_reconcile_errors_total", controller="nodepodprobe")
    async with (
        api.running(own_node_reads=True),
        api.lagging(CLUSTER_ROLES),
        api.lagging(CLUSTER_ROLE_BINDINGS),
    ):
        api.put(
            CLUSTER_ROLES,
            typed("ClusterRole", metadata={"name": "kruise-probe-node:node-2"}),
        )
        api.put_node("node-2")
        await settle()
        await api.drop(NODE_POD_PROBES, "node-2")
        created = [write.kind for write in api.writes if write.key.name.endswith(":node-2")]
        assert created == ["ClusterRole", "ClusterRoleBinding", "ClusterRole"]
    assert errors() == 0


@cases(
    "labels own_node_reads",
    virtual_node=(VIRTUAL, True),
    without_the_flag=({}, False),
)
async def test_nothing_is_created_without_need(labels: Json, own_node_reads: bool) -> None:
    api = Scene()
    api.put_node("node-1", labels=labels)
    await api.run(own_node_reads=own_node_reads)
    assert not set(api.count()) & {kind.kind for kind in RIGHTS}
    assert own_node_reads == ("clusterroles" in api.watched)


@pytest.mark.parametrize("kind", ["ClusterRole", "ClusterRoleBinding"])
async def test_a_refused_role_delays_no_probes_and_is_tried_again(kind: str) -> None:
    api = Scene()
    api.before = refusing(
        Forbidden("no"),
        kind=kind,
    )
    async with api.running(own_node_reads=True):
        assert api.count("NodePodProbe") == {"NodePodProbe": 1}
        await api.recover()
        assert api.read(CLUSTER_ROLE_BINDINGS, NAME)
