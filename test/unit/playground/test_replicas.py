"""The controller of ReplicaSets: which pods it counts, and which a scale-in deletes first."""

from typing import Any

import pytest
from support.node_records import node_pod

from kruise_probe.api.names import DELETION_COST_ANNOTATION
from kruise_probe_playground.node.pods import NodePod
from kruise_probe_playground.replicas import deletion_order


def pod(
    name: str,
    *,
    node: str = "node-0",
    phase: str = "Running",
    ready: bool = True,
    cost: str = "",
    created: int = 0,
) -> NodePod:
    annotations = {DELETION_COST_ANNOTATION: cost} if cost else {}
    metadata = {
        "name": name,
        "annotations": annotations,
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
    }
    status: Any = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    return node_pod("main", metadata=metadata, status=status, nodeName=node or None)


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([pod("a", node=""), pod("b", phase="Pending", ready=False, cost="-10")], id="no-node"),
        pytest.param([pod("a", phase="Pending"), pod("b", ready=False)], id="pending"),
        pytest.param([pod("a", ready=False, cost="10"), pod("b", cost="-10")], id="not-ready"),
        pytest.param([pod("a", cost="-10"), pod("b"), pod("c", cost="10")], id="cost"),
        pytest.param([pod("a", cost="-2"), pod("b", cost="x"), pod("c", cost="1")], id="invalid-cost-is-zero"),
        pytest.param([pod("a", created=9), pod("b", created=1)], id="newer"),
    ],
)  # fmt: skip
def test_deletion_order_is_that_of_kubernetes(pods: list[NodePod]) -> None:
    assert deletion_order(pods[::-1]) == pods
