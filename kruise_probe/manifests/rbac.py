"""Identities and their rights: what the manager and the daemon may do, verb by verb.

Source: Kruise config/rbac for what its halves need.
Differs: the daemon has four rules, none on pods, none on secrets; the manager no secrets either.
"""

from collections.abc import Sequence
from typing import Any, Final

from kruise_probe.api.names import GROUP

MANAGER: Final = "kruise-probe-manager"
DAEMON: Final = "kruise-probe-daemon"

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
"""`podprobemarkers` patch is for the finalizer; `nodepodprobes/status` is not here, as it is the daemon's."""

MANAGER_SYSTEM_RULES: Final = [
    _rule("coordination.k8s.io", ["leases"], [*_READ, "create", "patch"]),
]
"""In the system namespace: leader election, and the daemons' Leases."""

DAEMON_CLUSTER_RULES: Final = [
    _rule(GROUP, ["nodepodprobes"], _READ),
    _rule(GROUP, ["nodepodprobes/status"], ["patch"]),
    _rule("", ["events"], ["create", "patch"]),
]
DAEMON_SYSTEM_RULES: Final = [
    _rule("coordination.k8s.io", ["leases"], ["get", "create", "patch"]),
]


def manager_rbac(namespace: str) -> list[dict[str, Any]]:
    """Service account, roles and bindings of the manager in the system namespace."""
    return _identity(MANAGER, namespace, MANAGER_CLUSTER_RULES, MANAGER_SYSTEM_RULES)


def daemon_rbac(namespace: str) -> list[dict[str, Any]]:
    """Service account, roles and bindings of the daemon in the system namespace."""
    return _identity(DAEMON, namespace, DAEMON_CLUSTER_RULES, DAEMON_SYSTEM_RULES)


def _identity(
    name: str,
    namespace: str,
    cluster_rules: list[dict[str, Any]],
    system_rules: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    there = {"name": name, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": there},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": cluster_rules,
        },
        _binding("ClusterRole", name, {"name": name}, namespace),
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": there,
            "rules": system_rules,
        },
        _binding("Role", name, there, namespace),
    ]


def _binding(role_kind: str, name: str, metadata: dict[str, str], namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{role_kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
