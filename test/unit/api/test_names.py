"""Names of Leases."""

import pytest

from kruise_probe.api.names import LEADER_ELECTION_ID, daemon_lease_name, node_of_daemon_lease


@pytest.mark.parametrize("node", ["node-1", "manager", "manager-1", "a.b", "probe", "manager.x"])
def test_daemon_lease_name_round_trips(node: str) -> None:
    assert node_of_daemon_lease(daemon_lease_name(node)) == node
    assert daemon_lease_name(node) != LEADER_ELECTION_ID


@pytest.mark.parametrize(
    "name", [LEADER_ELECTION_ID, "kruise-probe--node-1", "kruise-probe-", "kruise-manager", ""]
)
def test_other_leases_have_no_node(name: str) -> None:
    assert node_of_daemon_lease(name) == ""
