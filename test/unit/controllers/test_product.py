"""The options of the command line reach the controllers."""

from typing import Any

from support.builders import policy_wire, state_wire
from support.running_manager import loop_clock, manager_over, running, settle
from support.scene import Scene, scene

from kruise_probe.api.names import MANAGER_FIELD_MANAGER
from kruise_probe.client.config import ClusterConfig
from kruise_probe.controllers.product import build
from kruise_probe.controllers.state import ManagerOptions
from kruise_probe.manager.manager import Manager
from kruise_probe.serving.endpoints import Checks


async def test_leases_are_read_in_the_system_namespace_and_the_rest_in_ours() -> None:
    api = Scene()
    client: Any = api
    read: dict[str, str] = {}

    def source(resource: Any, namespace: str) -> Any:
        read[resource.plural] = namespace
        return api.sources[resource.plural]

    manager = Manager(
        ClusterConfig(server="http://127.0.0.1:1"),
        name=MANAGER_FIELD_MANAGER,
        ready=Checks(),
        namespace="team",
        source=source,
        new_client=lambda **_: client,
        now=loop_clock,
    )
    options = ManagerOptions("the-system")
    informers = build(manager, options)
    assert set(informers) == set(manager.informers)
    async with running(manager):
        await settle()
    ours = {"podprobemarkers": "team", "pods": "team", "nodes": "", "nodepodprobes": ""}
    assert read == ours | {"leases": "the-system"}


async def test_a_reserved_label_is_written_if_it_is_allowed() -> None:
    key = "pod-template-hash"
    for allowed, labels in ((frozenset({key}), {key: "x"}), (frozenset[str](), {})):
        api = scene(policy_wire(labels={key: "x"}))
        manager = manager_over(api)
        options = ManagerOptions("kruise-system", allowed_labels=allowed)
        build(manager, options)
        async with running(manager):
            await settle()
            await api.report(state_wire())
        assert api.labels() == labels
