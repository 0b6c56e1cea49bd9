"""The options of the command line reach the controllers."""

from support.builders import policy_wire, state_wire
from support.scene import Scene, scene


async def test_leases_are_read_in_the_system_namespace_and_the_rest_in_ours() -> None:
    api = Scene()
    await api.run(namespace="team", system_namespace="the-system")
    ours = {"podprobemarkers": "team", "pods": "team", "nodes": "", "nodepodprobes": ""}
    assert api.watched == ours | {"leases": "the-system"}


async def test_a_reserved_label_is_written_if_it_is_allowed() -> None:
    labels = {"pod-template-hash": "x"}
    api = scene(policy_wire(labels=labels))
    await api.run(state_wire())
    assert api.labels() == {}
    await api.run(allowed_labels=frozenset(labels))
    assert api.labels() == labels
