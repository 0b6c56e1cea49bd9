"""ValidatingAdmissionPolicy that restricts a daemon's token to its own node, which RBAC cannot.

It uses the token's node claim and fails closed: a token that is not bound to a node may not write. Two kinds of token
have the claim: a pod's own (Kubernetes 1.30 or newer), and `kubectl create token --bound-object-kind Node`.

Source: kubernetes test/e2e/testing-manifests/auth per_node_validatingadmissionpolicy; admissionregistration/v1.
Differs: also restricts the daemon's heartbeat Lease, and the source host of its events.
"""

from typing import Any, Final

from kruise_probe.api.names import (
    DAEMON_LEASE_PREFIX,
    GROUP,
    LEADER_LEASE_NODE,
    VERSION,
    daemon_lease_name,
)
from kruise_probe.manifests.rbac import DAEMON, PART_OF

POLICY: Final = "kruise-probe-daemon-own-node"
_CLAIM: Final = "authentication.kubernetes.io/node-name"
_API: Final = "admissionregistration.k8s.io/v1"


def own_node_policy(namespace: str) -> list[dict[str, Any]]:
    """Build the policy and its binding for the daemons in the system namespace."""
    policy = {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY, "labels": PART_OF},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    _resources(GROUP, VERSION, "nodepodprobes", "nodepodprobes/status"),
                    _resources("coordination.k8s.io", "v1", "leases"),
                    _resources("", "v1", "events"),
                ]
            },
            "matchConditions": [
                {
                    "name": "is-a-daemon",
                    "expression": "request.userInfo.username == "
                    f"'system:serviceaccount:{namespace}:{DAEMON}'",
                }
            ],
            "variables": [{"name": "node", "expression": _node()}],
            "validations": _validations(),
        },
    }
    binding = {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY, "labels": PART_OF},
        "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _resources(group: str, version: str, *resources: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": list(resources),
    }


def _node() -> str:
    """CEL: the node that the token is bound to, or an empty string."""
    return (
        f"has(request.userInfo.extra) && '{_CLAIM}' in request.userInfo.extra && "
        f"request.userInfo.extra['{_CLAIM}'].size() == 1 ? request.userInfo.extra['{_CLAIM}'][0] : ''"
    )


def _lease() -> str:
    """CEL: `daemon_lease_name` of the node."""
    leader_lease = f"'{daemon_lease_name(LEADER_LEASE_NODE)}'"
    return f"variables.node == '{LEADER_LEASE_NODE}' ? {leader_lease} : '{DAEMON_LEASE_PREFIX}' + variables.node"


def _validations() -> list[dict[str, str]]:
    on_node = "' of node ' + variables.node"
    return [
        {
            "expression": "variables.node != ''",
            "message": "the token of the kruise-probe daemon is not bound to a node; use the projected token of a "
            "daemon's pod, or kubectl create token --bound-object-kind=Node (Kubernetes 1.31 or newer)",
            "reason": "Forbidden",
        },
        {
            "expression": "request.resource.resource != 'nodepodprobes' || request.name == variables.node",
            "messageExpression": f"'NodePodProbe ' + request.name + ' is not that' + {on_node} + '; a daemon may write its own only'",
            "reason": "Forbidden",
        },
        {
            "expression": f"request.resource.resource != 'leases' || request.name == ({_lease()})",
            "messageExpression": f"'Lease ' + request.name + ' is not that of the daemon' + {on_node} + '; a daemon may write its own only'",
            "reason": "Forbidden",
        },
        {
            "expression": "request.resource.resource != 'events' || request.operation == 'DELETE' || "
            f"{_from_node('object')}",
            "messageExpression": f"'source.host of the event must be the name' + {on_node}",
            "reason": "Forbidden",
        },
        {
            "expression": "request.resource.resource != 'events' || request.operation == 'CREATE' || "
            f"{_from_node('oldObject')}",
            "messageExpression": f"'event ' + request.name + ' was not written by the daemon' + {on_node} + '; a daemon may change its own only'",
            "reason": "Forbidden",
        },
    ]


def _from_node(event: str) -> str:
    """CEL: whether the event's source is on the node. An event always has a source, which may be empty."""
    return f"(has({event}.source.host) && {event}.source.host == variables.node)"
