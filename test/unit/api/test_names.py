"""A Lease belongs to one thing: a node's daemon, or the managers."""

import pytest

from kruise_probe.api.names import LEADER_ELECTION_ID, agent_lease_name, node_of_agent_lease


@pytest.mark.parametrize("node", ["node-1", "manager", "manager-1", "a.b", "probe", "manager.x"])
def test_the_lease_of_a_node_names_the_node(node: str) -> None:
    assert node_of_agent_lease(agent_lease_name(node)) == node
    assert agent_lease_name(node) != LEADER_ELECTION_ID


@pytest.mark.parametrize(
    "name", [LEADER_ELECTION_ID, "kruise-probe--node-1", "kruise-probe-", "kruise-manager", ""]
)
def test_leases_of_other_things_are_nobodys_heartbeat(name: str) -> None:
    assert node_of_agent_lease(name) == ""
