"""What the manager and the daemon may do: service accounts, RBAC rules, and the policy for the daemon's own node.

A ValidatingAdmissionPolicy restricts a daemon's token to its own node, which RBAC cannot. It uses the token's node claim
and fails closed: a token that is not bound to a node may not write. Two kinds of token have the claim: a pod's own
(Kubernetes 1.30 or newer), and `kubectl create token --bound-object-kind Node`.

Source: Kruise config/rbac; kubernetes test/e2e/testing-manifests/auth per_node_validatingadmissionpolicy;
admissionregistration/v1.
Differs: the daemon has four rules, none on pods or secrets; the manager has none on secrets. `metrics_rbac` adds two
rules to both. The policy also restricts the daemon's heartbeat Lease, and the source host of its events.
"""

from collections.abc import Sequence
from typing import Any, Final

from kruise_probe.api.names import (
    DAEMON_LEASE_PREFIX,
    GROUP,
    LEADER_LEASE_NODE,
    VERSION,
    daemon_lease_name,
)

MANAGER: Final = "kruise-probe-manager"
DAEMON: Final = "kruise-probe-daemon"
METRICS_AUTH: Final = "kruise-probe-metrics-auth"
METRICS_READER: Final = "kruise-probe-metrics-reader"
"""ClusterRole for scraping metrics; bind it to Prometheus' service account."""
PRODUCT: Final = "kruise-probe"
NAME_LABEL: Final = "app.kubernetes.io/name"
PART_OF: Final = {NAME_LABEL: PRODUCT, "app.kubernetes.io/part-of": PRODUCT}
"""Labels of every object that an uninstall deletes: all but the namespace and the CRDs."""

POLICY: Final = "kruise-probe-daemon-own-node"
_NODE_CLAIM: Final = "authentication.kubernetes.io/node-name"
_ADMISSION_API: Final = "admissionregistration.k8s.io/v1"

_READ: Final = ["get", "list", "watch"]
_RBAC: Final = "rbac.authorization.k8s.io"


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


MANAGER_CLUSTER_RULES: Final = [
    _rule("", ["pods", "nodes"], _READ),
    _rule("", ["pods/status"], ["patch"]),
    _rule("", ["events"], ["create", "patch"]),
    _rule(GROUP, ["podprobemarkers"], [*_READ, "patch"]),
    _rule(GROUP, ["podprobemarkers/status"], ["patch"]),
    _rule(GROUP, ["nodepodprobes"], [*_READ, "create", "patch", "delete"]),
]
"""`podprobemarkers` patch is for the finalizer. Only daemons write `nodepodprobes/status`."""

MANAGER_SYSTEM_RULES: Final = [
    _rule("coordination.k8s.io", ["leases"], [*_READ, "create", "patch"]),
]
"""Rules in the system namespace, for leader election and the daemons' Leases."""

DAEMON_CLUSTER_RULES: Final = [
    _rule(GROUP, ["nodepodprobes"], _READ),
    _rule(GROUP, ["nodepodprobes/status"], ["patch", "update"]),
    _rule("", ["events"], ["create", "patch"]),
]
DAEMON_SYSTEM_RULES: Final = [
    _rule("coordination.k8s.io", ["leases"], ["create", "patch"]),
]


def manager_rbac(namespace: str) -> list[dict[str, Any]]:
    """Service account, roles and bindings of the manager in the system namespace."""
    return _identity(MANAGER, namespace, MANAGER_CLUSTER_RULES, MANAGER_SYSTEM_RULES)


def daemon_rbac(namespace: str) -> list[dict[str, Any]]:
    """Service account, roles and bindings of the daemon in the system namespace."""
    return _identity(DAEMON, namespace, DAEMON_CLUSTER_RULES, DAEMON_SYSTEM_RULES)


def metrics_rbac(namespace: str) -> list[dict[str, Any]]:
    """RBAC for `--metrics-secure`: token and access reviews for manager and daemon, and a role for readers.

    The bindings are separate, so an install without the flag has none of these rights.
    """
    auth = {"name": METRICS_AUTH}
    reviews = [
        _rule("authentication.k8s.io", ["tokenreviews"], ["create"]),
        _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    ]
    reading = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    return [
        role("ClusterRole", auth, reviews),
        binding("ClusterRole", auth, namespace, MANAGER, DAEMON),
        role("ClusterRole", {"name": METRICS_READER}, [reading]),
    ]


def _identity(
    name: str,
    namespace: str,
    cluster_rules: list[dict[str, Any]],
    system_rules: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    cluster_wide, namespaced = {"name": name}, {"name": name, "namespace": namespace}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {**namespaced, "labels": PART_OF},
        },
        role("ClusterRole", cluster_wide, cluster_rules),
        binding("ClusterRole", cluster_wide, namespace, name),
        role("Role", namespaced, system_rules),
        binding("Role", namespaced, namespace, name),
    ]


def role(kind: str, metadata: dict[str, str], rules: list[dict[str, Any]]) -> dict[str, Any]:
    """Build a Role or a ClusterRole."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": {**metadata, "labels": PART_OF},
        "rules": rules,
    }


def binding(
    role_kind: str, metadata: dict[str, str], namespace: str, *accounts: str
) -> dict[str, Any]:
    """Bind a role to service accounts of `namespace`. `metadata` is also that of the role."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role_kind}Binding",
        "metadata": {**metadata, "labels": PART_OF},
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": metadata["name"]},
        "subjects": [
            {"kind": "ServiceAccount", "name": name, "namespace": namespace} for name in accounts
        ],
    }


def own_node_policy(namespace: str) -> list[dict[str, Any]]:
    """Build the policy and its binding for the daemons in the system namespace."""
    policy = {
        "apiVersion": _ADMISSION_API,
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
            "variables": [{"name": "node", "expression": _node_of_token()}],
            "validations": _validations(),
        },
    }
    policy_binding = {
        "apiVersion": _ADMISSION_API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY, "labels": PART_OF},
        "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    }
    return [policy, policy_binding]


def _resources(group: str, version: str, *resources: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": list(resources),
    }


def _node_of_token() -> str:
    """CEL: the node that the token is bound to, or an empty string."""
    return (
        f"has(request.userInfo.extra) && '{_NODE_CLAIM}' in request.userInfo.extra && "
        f"request.userInfo.extra['{_NODE_CLAIM}'].size() == 1 ? request.userInfo.extra['{_NODE_CLAIM}'][0] : ''"
    )


def _lease_of_node() -> str:
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
            "expression": f"request.resource.resource != 'leases' || request.name == ({_lease_of_node()})",
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
